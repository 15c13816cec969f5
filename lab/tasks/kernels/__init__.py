"""What draws the sequences of tasks, compiled by numba: loaded when something is drawn, not when it is planned."""
