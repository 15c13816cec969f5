"""Every claim holds over small instances, and its check fails once what it checks is turned into nonsense."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from lab.errors import InputError
from proofs_check.bounds import (
    bits,
    face_chain,
    few_sets,
    forster,
    fox_pairs,
    frozen_ratio,
    late_dips_limit,
    safe_eviction,
    softmax_shatter,
    tied_tokens,
)
from proofs_check.bounds import family_decision as free
from proofs_check.bounds import walk_is_a_stack as stack
from proofs_check.claims import CLAIMS, SIZES, run
from proofs_check.claims.registry import Claim
from proofs_check.constructions import (
    any_eviction,
    chains,
    constant_dimension,
    fox_table,
    nested_scope,
    rivals,
    simple_upper,
    sparse_sets,
)
from proofs_check.constructions.token_head import TokenHead


@pytest.mark.parametrize("name", CLAIMS)
def test_it_holds(name):
    outcome = run(name, 1)
    assert outcome.holds, outcome.counterexample
    assert outcome.instances > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_it_holds_over_many_instances(name):
    outcome = run(name, SIZES["large"])
    assert outcome.holds, outcome.counterexample


# Mutations: what is replaced, by what becomes of its result.


def after(module, name, change):
    """The function with its result changed."""

    def mutate(monkeypatch):
        honest = getattr(module, name)

        def changed(*args, **kwargs):
            result = honest(*args, **kwargs)
            return result if result is None else change(result)

        monkeypatch.setattr(module, name, changed)

    return mutate


def instead(module, name, other):
    """Something else in its place."""
    return lambda monkeypatch: monkeypatch.setattr(module, name, other)


def increments(**changed):
    return lambda head: replace(head, values={**head.values, **changed})


def only(kind, change):
    return lambda found: change(found) if isinstance(found, kind) else found


def dips_raised(found):
    return replace(found, dips=replace(found.dips, value=found.dips.value + 1))


def swapped(step):
    return replace(step, alive=step.dead, dead=step.alive)


def fewer_coordinates(head):
    return replace(head, keys=[key[:-1] for key in head.keys], queries=[query[:-1] for query in head.queries])


def negated(rows):
    return [[-x for x in row] for row in rows]


EVERYTHING_POSSIBLE = frozen_ratio.Logits(((0, 0, 0),), 0, 1)

MUTATIONS = [
    ("any-eviction", "levels of the wrong sign",
     after(any_eviction, "any_eviction", lambda h: replace(h, levels={t: -v for t, v in h.levels.items()}))),
    ("any-eviction", "keys die one step early",
     after(any_eviction, "any_eviction", lambda h: replace(h, levels={t: v + 1 for t, v in h.levels.items()}))),
    ("any-eviction", "lambda half as large",
     after(TokenHead, "penalty_scale", lambda scale: scale // 2)),
    ("constant-dimension", "drop changes nothing", after(constant_dimension, "constant_dimension", increments(drop=0))),
    ("constant-dimension", "drop goes too deep", after(constant_dimension, "constant_dimension", increments(drop=-2))),
    ("constant-dimension", "keep falls", after(constant_dimension, "constant_dimension", increments(keep=-1))),
    ("constant-dimension", "another encoding", after(constant_dimension, "encode", lambda tokens: tokens[:-1])),
    ("nested-scope", "close changes nothing", after(nested_scope, "nested_scope", increments(close=0))),
    ("nested-scope", "a walk that drifts", after(nested_scope, "nested_scope", increments(open=2))),
    ("nested-scope", "the wrong sign", after(nested_scope, "nested_scope", increments(open=-1, close=1))),
    ("nested-scope", "keys rise", after(nested_scope, "nested_scope", increments(key=1))),
    ("walk-is-a-stack", "dips one too high", after(stack, "walk_decision", only(stack.Heights, dips_raised))),
    ("walk-is-a-stack", "the crossing pair the other way round",
     after(stack, "walk_decision", only(stack.Crossing, lambda f: stack.Crossing(swapped(f.step))))),
    ("walk-is-a-stack", "every slot the first one", after(stack, "next_slots", lambda slots: np.minimum(slots, 1))),
    ("walk-is-a-stack", "everything possible",
     instead(stack, "walk_decision", lambda spec: stack.Heights(stack.Dips.of_entries(len(rows_of(spec)), *EMPTY)))),
    ("family-decision", "dips one too high", after(free, "family_decision", only(free.Levels, dips_raised))),
    ("family-decision", "levels of the wrong sign",
     after(free, "family_decision", only(free.Levels, lambda f: replace(f, levels=-f.levels)))),
    ("family-decision", "survivors one level lower", after(free, "least_levels", lambda f: (f[0], f[1] - 1))),
    ("family-decision", "a cycle the other way round",
     after(free, "family_decision", only(free.Cycle, lambda f: free.Cycle(tuple(map(swapped, f.steps)))))),
    ("walk-drift", "one scope too many", after(nested_scope, "tolerated_pairs", lambda m: m + 1)),
    ("walk-drift", "one scope too few", after(nested_scope, "tolerated_pairs", lambda m: m - 1)),
    ("walk-drift", "an offset of the wrong sign",
     after(nested_scope, "nested_scope", lambda h: replace(h, levels={t: -o for t, o in h.levels.items()}))),
    ("tied-tokens", "increments of the wrong sign",
     after(tied_tokens, "tied_tokens",
           only(tied_tokens.Found, lambda f: replace(f, increments=tuple(-d for d in f.increments))))),
    ("tied-tokens", "nothing possible",
     after(tied_tokens, "tied_tokens",
           only(tied_tokens.Found, lambda f: tied_tokens.Conflict(f.levels, tied_tokens.Farkas(()))))),
    ("tied-tokens", "multipliers one too large",
     after(tied_tokens._Search, "farkas",
           lambda f: replace(f, multipliers=tuple((d, m + (at == 0)) for at, (d, m) in enumerate(f.multipliers))))),
    ("tied-tokens", "cases left out",
     after(tied_tokens._Search, "branch",
           only(tied_tokens.Cases, lambda f: replace(f, cases=f.cases[1:])))),
    ("late-dips-limit", "two dimensions forgotten",
     instead(late_dips_limit, "most_sets", lambda n, d: sum(math.comb(n, i) for i in range(d + 1)))),
    ("late-dips-limit", "one dimension too many",
     instead(late_dips_limit, "most_sets", lambda n, d: (n + 1) * sum(math.comb(n, i) for i in range(d + 4)))),
    ("late-dips-limit", "off by one", after(late_dips_limit, "least_dimension", lambda d: d + 1)),
    ("safe-eviction", "the bound once", instead(safe_eviction, "margin", lambda u, t, e: u + math.log(t / e))),
    ("safe-eviction", "twice too careful", instead(safe_eviction, "margin", lambda u, t, e: 4 * u + math.log(t / e))),
    ("safe-eviction", "the wrong sign", instead(safe_eviction, "margin", lambda u, t, e: 2 * u - math.log(t / e))),
    ("safe-eviction", "one key only", instead(safe_eviction, "margin", lambda u, t, e: 2 * u - math.log(e))),
    ("frozen-ratio", "everything possible", instead(frozen_ratio, "frozen_ratio", lambda *a: EVERYTHING_POSSIBLE)),
    ("frozen-ratio", "steps the other way round",
     after(frozen_ratio, "frozen_ratio", only(frozen_ratio.Conflict, lambda f: frozen_ratio.Conflict(
         tuple(replace(s, low=s.high, high=s.low) for s in f.cycle))))),
    ("frozen-ratio", "logits of the wrong sign",
     after(frozen_ratio, "frozen_ratio", only(frozen_ratio.Logits, lambda f: replace(
         f, values=tuple(tuple(-v for v in row) for row in f.values))))),
    ("softmax-shatter", "off by one",
     instead(softmax_shatter.Shattered, "dimension", lambda self, biases=True: len(self.keys))),
    ("softmax-shatter", "halves as good as all",
     instead(softmax_shatter.Shattered, "dimension", lambda self, biases=True: len(self.keys) - 1)),
    ("softmax-shatter", "a search that stops early", after(softmax_shatter, "shattered", lambda f: replace(
        f, keys=f.keys[:-1]))),
    ("few-sets", "off by one", after(few_sets, "least_dimension", lambda d: d + 1)),
    ("few-sets", "the ratio not squared", instead(
        few_sets, "least_dimension", lambda n, r: math.ceil(n / (1 + (n - 1) * Fraction(r))) - 1)),
    ("few-sets", "the wrong sign", instead(
        few_sets, "least_dimension", lambda n, r: math.ceil(n / (1 - (n - 1) * Fraction(r) ** 2)) - 1
        if (n - 1) * Fraction(r) ** 2 < 1 else n - 1)),
    ("face-chain", "off by one", instead(face_chain.Chain, "dimension", property(lambda self: len(self.keys)))),
    ("face-chain", "a search that stops early", after(face_chain, "face_chain", lambda f: replace(
        f, keys=f.keys[:-1], queries=f.queries[:-1]))),
    ("forster", "half the norm", after(forster, "forster", lambda f: replace(f, norm=f.norm / 2))),
    ("forster", "off by one", instead(
        forster.SmallNorm, "dimension",
        lambda self, biases=True: math.isqrt(math.ceil(len(self.keys) * len(self.queries) / self.norm) - 1))),
    ("fox-pairs", "off by one", instead(fox_pairs.Pairs, "dimension", property(lambda self: len(self.pairs) + 1))),
    ("fox-pairs", "a pair too few", after(fox_pairs, "fox_pairs", lambda f: replace(f, pairs=f.pairs[1:]))),
    ("bits", "off by one", after(bits, "least_bits", lambda b: b + 1)),
    ("bits", "slots do not matter", instead(bits, "alike", lambda family: len(family.targets))),
    ("fox-table", "gates of the wrong sign", after(fox_table, "window_per_slot", lambda h: replace(
        h, gates=[-g for g in h.gates]))),
    ("fox-table", "one coordinate too few", after(fox_table, "window_one_gate", fewer_coordinates)),
    ("fox-table", "gates that do not halve", after(fox_table, "separation_per_slot", lambda h: replace(
        h, gates=[1] * len(h.gates)))),
    ("fox-table", "pairs without biases", after(simple_upper, "groups", lambda h: replace(
        h, biases=[0] * len(h.biases)))),
    ("chains", "one step more", instead(chains, "magnitude", lambda steps, ratio: (1 + 1 / ratio) ** (steps + 1))),
    ("chains", "queries of the wrong sign", after(chains, "chain_windows", lambda h: replace(
        h, queries=negated(h.queries)))),
    ("chains", "a format breaks one step later", after(chains, "breaking_length", lambda n: n + 1)),
    ("chains", "a format breaks one step earlier", after(chains, "breaking_length", lambda n: n - 1)),
    ("sparse-sets", "queries of the wrong sign", after(sparse_sets, "sparse", lambda h: replace(
        h, queries=negated(h.queries)))),
    ("sparse-sets", "one coordinate too few", after(sparse_sets, "sparse", fewer_coordinates)),
    ("sparse-sets", "runs without biases", after(sparse_sets, "runs", lambda h: replace(
        h, biases=[0] * len(h.biases)))),
    ("simple-upper", "one coordinate too few", after(simple_upper, "targets", fewer_coordinates)),
    ("simple-upper", "an upper bound below the lower one", after(simple_upper, "groups", fewer_coordinates)),
    ("simple-upper", "a lower bound above the upper one",
     instead(face_chain.Chain, "dimension", property(lambda self: len(self.keys)))),
    ("rivals", "a selection logit of the wrong sign", after(rivals, "query_vector", lambda q: tuple(-x for x in q))),
    ("rivals", "no squares", after(rivals, "key_vector", lambda k: (0, k[1], k[2]))),
    ("rivals", "two dimensions", after(rivals, "key_vector", lambda k: k[:2])),
]  # fmt: skip

EMPTY = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def rows_of(spec):
    return spec.targets if spec.form == "family" else spec.histories


@pytest.mark.parametrize(("name", "nonsense", "mutate"), MUTATIONS, ids=[f"{m[0]}: {m[1]}" for m in MUTATIONS])
def test_nonsense_fails(monkeypatch, name, nonsense, mutate):
    mutate(monkeypatch)
    outcome = run(name, 1)
    assert not outcome.holds, nonsense
    assert "Error" not in outcome.counterexample  # found false, not broken off


def test_every_claim_has_its_nonsense():
    assert {name for name, _, _ in MUTATIONS} == set(CLAIMS)


# The registry.


def test_a_check_that_breaks_off_or_checks_nothing_fails(monkeypatch):
    def breaks(size):
        yield True, "the first"
        raise ValueError("two\nlines")

    monkeypatch.setitem(CLAIMS, "breaks", Claim("breaks", "", "exact", breaks))
    monkeypatch.setitem(CLAIMS, "nothing", Claim("nothing", "", "exact", lambda size: iter(())))
    assert run("breaks", 1).counterexample == "after 1 instances: ValueError: two lines"
    assert run("nothing", 1).counterexample == "there are no instances"
    with pytest.raises(InputError, match=r"^claim: unknown name breask; did you mean breaks\?$"):
        run("breask", 1)
