"""One file per claim: what to sweep and what counts as success. `published/` holds the committed results."""

from collections.abc import Mapping

# Name of the experiment -> its module, which has `plan(preset, seeds, heads, dims) -> lab.sweeps.plan.Plan`.
EXPERIMENTS: Mapping[str, str] = {
    "target_sets": "experiments.target_sets",
    "length": "experiments.length",
    "ablations": "experiments.ablations",
    "rivals": "experiments.rivals",
    "audit": "experiments.audit",
    "scoped_lookup": "experiments.scoped_lookup",
    "minimum_dimension": "experiments.minimum_dimension",
}
