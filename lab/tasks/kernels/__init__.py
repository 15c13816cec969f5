"""What draws the sequences of tasks, compiled by numba: loaded when something is drawn, not when it is planned."""

from lab.tasks.kernels import leveled_dips, nested_scope, random, scoped_lookup, subset_drop

__all__ = ["leveled_dips", "nested_scope", "random", "scoped_lookup", "subset_drop"]
