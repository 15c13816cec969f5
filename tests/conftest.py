"""Shared by every test: drawn examples are the same on every run and machine, and compiling is no reason to fail."""

from hypothesis import settings

settings.register_profile("lab", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("lab")
