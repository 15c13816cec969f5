"""Heads given by exact numbers per token, one claim per file, the argument beside the numbers.

`token_head` says what such a head is and computes its penalties in rational arithmetic; `realise` loads it into the
head class that is trained; `run` measures how far its weights are from the target as sequences grow.
"""
