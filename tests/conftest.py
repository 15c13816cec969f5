"""Shared by every test: drawn examples are the same on every run and machine, and compiling is no reason to fail."""

import signal

from hypothesis import settings

# A shell starts what it runs in the background deaf to Ctrl-C, and so would be the sweeps that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("lab", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("lab")
