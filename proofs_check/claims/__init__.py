"""Every claim of THEORY.md, run over instances: what `fpa-lab prove` does.

    from proofs_check.claims import CLAIMS, run
    run("walk-is-a-stack", size=3)

A claim is a function of the size that yields one `Instance` after the other: whether it holds, and what it is. It
compares the code of `bounds` and `constructions` with the definitions, written out once more in `brute_force`, and
gives every certificate to `exact`. `registry` has the table of claims; they stand in `fpa`, `fpa_limits`,
`lower_bounds` and `upper_bounds`, as THEORY.md has them.
"""

from proofs_check.claims import fpa, fpa_limits, lower_bounds, upper_bounds  # noqa: F401  (each registers its claims)
from proofs_check.claims.registry import CLAIMS, SIZES, Claim, Outcome, run

__all__ = ["CLAIMS", "SIZES", "Claim", "Outcome", "run"]
