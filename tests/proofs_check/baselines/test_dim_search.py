"""Trained heads count only when exact; they reach what is possible and never go below a lower bound."""

import random
from fractions import Fraction

import pytest

from proofs_check.baselines import NOTIONS, Free
from proofs_check.bounds.cases import cases
from proofs_check.bounds.lower import ONE_GATE, PER_SLOT, Head
from proofs_check.certificates import Certificates
from proofs_check.constructions import dim_search, linear_head
from proofs_check.constructions.dim_search import attempt
from tests.proofs_check.baselines import definitions
from tests.proofs_check.baselines.definitions import all_subsets, family, serves
from tests.proofs_check.baselines.test_heads import by_definition
from tests.proofs_check.baselines.test_table import answered

RATIO = Fraction(1, 10)
KINDS = (Head(), Head(biases=False), Head("fox", ONE_GATE), Head("fox", PER_SLOT))


def test_200_random_families_are_never_read_below_the_lower_bound():
    """One dimension below the bound training finds nothing; at the bound, where it is not met, it mostly succeeds."""
    rng = random.Random(201)
    at_bound = []
    for case in range(200):
        spec = definitions.random_family(rng, 5, 8)
        free = Free(spec, Certificates(spec), False)
        head = KINDS[case % 4] if case % 2 else KINDS[0]
        notion = NOTIONS[case // 4 % 3] if case % 2 else "separation"
        entry = free.entry(head, notion)
        if entry["lower"] > 0:
            assert attempt(cases(spec), head, notion, RATIO, entry["lower"] - 1, starts=1, steps=40) is None
        if entry["lower"] < entry["upper"]:
            found = attempt(cases(spec), head, notion, RATIO, entry["lower"], starts=2, steps=120)
            at_bound.append(found is not None)
            if found is not None:
                assert serves(notion, RATIO, *by_definition(spec, found))
                assert found.dimension == entry["lower"]
                assert head.biases or not any(found.biases)
    assert sum(at_bound) > len(at_bound) / 2 > 5


@pytest.mark.parametrize(
    ("head", "notion", "dimension"),
    [
        (Head(), "separation", 3),
        (Head(), "window", 3),
        (Head(), "uniform", 3),
        (Head("fox", ONE_GATE), "separation", 1),
        (Head("fox", PER_SLOT), "separation", 1),
        (Head("fox", PER_SLOT), "uniform", 3),
    ],
)
def test_training_finds_known_dimensions(head, notion, dimension):
    found = attempt(cases(all_subsets(4)), head, notion, RATIO, dimension)
    assert found is not None
    assert found.dimension == dimension
    assert serves(notion, RATIO, *by_definition(all_subsets(4), found))


def test_check_tightens_its_upper_bounds():
    spec = family(5, [(0, 1), (2, 3, 4), (1, 2), (0, 3), (0, 4), (1, 2, 3)])
    plain, searched = answered(spec), answered(spec, dim_search=True)
    gaps = {}
    for name, entries in (("plain", plain), ("searched", searched)):
        gaps[name] = {notion: entry["upper"] - entry["lower"] for notion, entry in entries["softmax"]["free"].items()}
    assert all(gap > 0 for gap in gaps["plain"].values())
    assert set(gaps["searched"].values()) == {0}
    for notion, entry in searched["fox"]["free"].items():
        assert entry["upper"] <= plain["fox"]["free"][notion]["upper"]


def test_a_wrong_hint_is_not_believed(monkeypatch):
    """Were any loss good enough, the exact check would still refuse what the rounded numbers do not do."""
    real = dim_search._Trainer.__init__

    def credulous(self, *arguments):
        real(self, *arguments)
        self.solved = float("inf")

    monkeypatch.setattr(dim_search._Trainer, "__init__", credulous)
    for notion in NOTIONS:
        assert attempt(cases(all_subsets(4)), Head(), notion, RATIO, 1, starts=2, steps=20) is None


def test_the_search_halves_what_lies_between_the_bounds():
    found = cases(all_subsets(3))
    for least, most, dimension in ((0, 3, 2), (2, 3, 2), (0, 9, 2), (3, 4, 3), (0, 2, None), (1, 1, None)):
        head = dim_search.dim_search(found, Head(), "separation", RATIO, least, most, starts=2)
        assert (None if head is None else head.dimension) == dimension


def test_what_is_too_large_to_train_is_not_trained(monkeypatch):
    monkeypatch.setattr(dim_search, "MAX_CELLS", 20)
    assert dim_search.dim_search(cases(all_subsets(3)), Head(), "separation", RATIO, 0, 3) is None


def test_numbers_too_long_for_a_certificate_are_not_kept(monkeypatch):
    assert linear_head.writable([10**300, Fraction(1, 10**300), 0])
    assert not linear_head.writable([Fraction(1, 10**400)])
    assert not linear_head.writable([-(10**400)])
    assert linear_head.writable([])
    monkeypatch.setattr(linear_head, "MAX_DIGITS", 1)
    assert attempt(cases(all_subsets(3)), Head(), "uniform", RATIO, 2) is None
