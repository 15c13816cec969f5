"""The First Passage Attention lab."""
