"""Claim (fox-table in THEORY.md): the content dimension that reading every subset takes grows with the number of keys
for softmax and FoX heads, and not for FPA. How much of that do trained heads show?

All 2^n - 1 non-empty subsets of n keys, dips after each key (K1 D1 ... Kn Dn Q; only keys are attended to). Softmax
and FoX heads get a learned bias per key, which the theory grants them, and a query vector of their own for every
subset; FPA heads get one query vector for all. Every step sees all subsets. A seed succeeds if in the end, in float64,
all of them are read at once:

    separation   gap above 0 for every subset
    window       least gap at least 4 times the largest window
    uniform      total variation from uniform at most 0.05 for every subset (the optimum is 0)

Each head is trained for each notion by itself, by a loss that fits it (`lab.training.families`).

FoX heads also start near a construction of the least dimension that is known to do, which tells what is not found from
what cannot be represented.

Chance is 0, in every notion: as all subsets have to be read at once, a reader that weights all keys equally, or goes by
positions or by the newest keys, succeeds never: it reads the same of {1}, {2} and {1, 2}.
"""

from collections.abc import Iterator, Sequence

from lab.errors import InputError, nearest
from lab.heads.config import HeadConfig, head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.tasks.subset_free import NOTIONS
from lab.training.recipe import Recipe

NAME = "minimum_dimension"

# Head, and how many drop tokens there are: one gate for all drops, or one per slot.
SOFTMAX, ONE_GATE, PER_SLOT = ("softmax-relative", "shared"), ("fox-relative", "shared"), ("fox-relative", "per-slot")
FPA = ("fpa-walk-offset", "shared")
HEADS = (SOFTMAX, ONE_GATE, PER_SLOT, FPA)

# Windows need far-apart numbers, so large steps; FPA keeps the lab's recipe.
BASELINE = Recipe(steps=1500, learning_rate=0.3)
NEAR = Recipe(steps=1500, learning_rate=0.03, start="construction")
RECIPES = {SOFTMAX: BASELINE, ONE_GATE: BASELINE, PER_SLOT: BASELINE, FPA: Recipe()}

PRESETS = {
    "quick": {"seeds": 8, "keys": (2, 3, 4, 5), "dims": range(5)},
    "paper": {"seeds": 32, "keys": range(2, 11), "dims": range(11)},
}


def known_dimension(head: tuple[str, str], notion: str, keys: int) -> int:
    """The least dimension for which THEORY.md has a construction: all subsets, dips after each key.

    uniform stands for total variation 0.05, for which small windows are enough; exactly uniform takes FoX keys - 1.
    """
    if head == FPA:
        return 0
    if head == SOFTMAX:
        return keys - 1
    if notion == "separation":
        return -(-keys // 2) - 1 if head == ONE_GATE else 0
    return -(-2 * keys // 3) - 1 if head == ONE_GATE else keys // 2


def lower_bound(head: tuple[str, str], notion: str, keys: int) -> int:
    """The dimension below which THEORY.md proves that no head of the kind reads all subsets.

    Total variation 0.05 implies separation for up to 9 keys read at once, and no window in general.
    """
    if head == FPA:
        return 0
    if head == SOFTMAX:
        return keys - 1
    if notion == "window":
        return keys // 2
    return -(-keys // 2) - 1 if head == ONE_GATE else 0


def plan(
    preset: str = "quick",
    seeds: int | None = None,
    heads: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
) -> Plan:
    """The cells of a preset, for seeds 0 .. seeds-1; `heads` and `dims` keep only those.

    Raises InputError for an unknown preset, and for heads and dimensions that the preset lacks.
    """
    if preset not in PRESETS:
        raise InputError(f"--preset: unknown preset {preset!r}{nearest(preset, PRESETS)}")
    count = int(PRESETS[preset]["seeds"]) if seeds is None else seeds  # type: ignore[call-overload]
    return Plan(NAME, preset, tuple(_cells(preset)), range(count), block=32).select(heads or (), dims or ())


def _cells(preset: str) -> Iterator[Cell]:
    chosen: dict = PRESETS[preset]
    for keys in chosen["keys"]:
        for kind in HEADS:
            for notion in NOTIONS:
                for dim in chosen["dims"]:
                    yield _cell(kind, keys, notion, dim, RECIPES[kind])
                if kind in (ONE_GATE, PER_SLOT):
                    yield _cell(kind, keys, notion, known_dimension(kind, notion, keys), NEAR)


def _cell(kind: tuple[str, str], keys: int, notion: str, dim: int, recipe: Recipe) -> Cell:
    task = TaskConfig(name="subset-free", options=_options(kind, keys, notion))
    head: HeadConfig = head_config(kind[0], dim)
    evaluation = Evaluation(task=task, lengths=(keys,), sequences=2**keys - 1)
    return Cell(experiment=NAME, task=task, head=head, recipe=recipe, evaluations=(evaluation,))


def _options(kind: tuple[str, str], keys: int, notion: str) -> dict[str, object]:
    return {"keys": keys, "tokens": kind[1], "notion": notion, "query": "fixed" if kind == FPA else "free"}
