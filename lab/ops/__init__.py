"""The arithmetic: the definition (reference.py), its compiled paths, and the door that chooses (dispatch.py)."""

from pathlib import Path

from lab.kernel_cache import drop_stale

drop_stale(Path(__file__).parents[1])
