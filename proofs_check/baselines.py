"""What softmax and FoX heads can do with a specification: the entries `softmax` and `fox` of the answer of `check`.

"fixed" (one query vector for all queries) is decided by frozen-ratio. "free" (a query vector per query) gives, for the
notions separation, window and uniform, a lower and an upper bound on the least content dimension. Each bound is proved
by a certificate, whose number in the certificate file, from 1, stands beside it. The model and the encoding are those
of `proofs_check.exact.queries`: a content vector and a bias per key, and for FoX a gate per drop.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

from proofs_check.bounds import few_sets, lower
from proofs_check.bounds.cases import MAX_CELLS, cases, cells
from proofs_check.bounds.frozen_ratio import Conflict, Notion, Step, TooLarge, frozen_ratio
from proofs_check.bounds.frozen_ratio import Head as FixedHead
from proofs_check.bounds.lower import ONE_GATE, PER_SLOT, Head, Lower, number
from proofs_check.certificates import Certificates
from proofs_check.constructions.decided import events, queries
from proofs_check.constructions.linear_head import LinearHead
from proofs_check.constructions.upper import Uppers, construction
from proofs_check.exact.fixed import fixed_model
from proofs_check.keysets import Family, Histories, KeySetSpec

RATIO = Fraction(1, 10)
"""Window over gap for which the notion "window" is answered."""

FEW_SETS_RATIOS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 3))
MAX_LOGITS = 2_000_000  # of a certificate
NOTIONS = ("separation", "window", "uniform")
GATES_OF = {"separation": ONE_GATE, "window": PER_SLOT, "uniform": PER_SLOT}

Entry = dict[str, Any]


def baselines(spec: KeySetSpec, certificates: Certificates, dim_search: bool = False) -> dict[str, Entry]:
    """The entries `softmax` and `fox`; what proves them is added to the certificates.

    FoX heads have one gate for all drops where separation is asked for, else one per slot. `dim_search` trains heads
    where the bounds differ.
    """
    fixed = {
        "softmax": Fixed(spec, certificates, "softmax").entry(),
        "fox": Fixed(spec, certificates, "fox").entry(),
    }
    if (size := cells(spec)) > MAX_CELLS:
        return {head: {"fixed": fixed[head], "free": {n: _left_out(size, n) for n in NOTIONS}} for head in fixed}
    free = Free(spec, certificates, dim_search)
    plain = free.entries(Head())
    for notion in ("separation", "uniform"):
        plain[notion]["without_biases"] = free.entry(Head(biases=False), notion)
    plain["window"]["few_sets"] = free.few_sets()
    gated = free.entries(Head("fox"))
    gated["separation"]["gate_per_slot"] = free.entry(Head("fox", PER_SLOT), "separation")
    gated["window"]["one_gate"] = free.entry(Head("fox", ONE_GATE), "window")
    return {"softmax": {"fixed": fixed["softmax"], "free": plain}, "fox": {"fixed": fixed["fox"], "free": gated}}


def _left_out(size: int, notion: str) -> Entry:
    why = f"{size:,} pairs of keys and queries; bounds are looked for up to {MAX_CELLS:,}"
    entry: Entry = {"lower": 0, "upper": None, "query": "free", "notion": notion, "left_out": why}
    text = f"bounds left out: {why}"
    return entry | {"certificates": {"lower": None, "upper": None}, "witness": {"kind": "left-out", "text": text}}


class Free:
    """Bounds for free queries."""

    def __init__(self, spec: KeySetSpec, certificates: Certificates, dim_search: bool):
        self.spec, self.certificates, self.dim_search = spec, certificates, dim_search
        self.cases = cases(spec)
        self.uppers = Uppers(self.cases, RATIO)
        self.shattering = lower.Shattering(self.cases)
        self.separated: dict[Head, tuple[int, list[Lower]]] = {}
        self.windows: dict[str, list[Lower]] = {}

    def names(self, keys: Iterable[int]) -> list[str]:
        """Keys by name."""
        return [self.spec.keys[key] for key in keys]

    def entries(self, head: Head) -> dict[str, Entry]:
        """All notions; FoX with the gates of each. Uniform first: what is found for it serves the others."""
        found = {notion: self.entry(replace(head, gates=GATES_OF[notion]), notion) for notion in reversed(NOTIONS)}
        return {notion: found[notion] for notion in NOTIONS}

    def entry(self, head: Head, notion: str) -> Entry:
        """The best bounds for a kind of heads and a notion, with their certificates."""
        upper = self.uppers.least(head, notion)
        goal = self.cases.keys if upper is None else upper.dimension
        best: Lower | None = None
        exact: bool | None = None
        for bound in self.lowers(head, notion, goal):
            if bound.exact is not None:
                exact = bound.exact and exact is not False
            if best is None or bound.dimension > best.dimension:
                best = bound
            if best.dimension >= goal:
                break
        best = best if best is not None and best.dimension else None
        if self.dim_search and (found := self.search(head, notion, best.dimension if best else 0, upper)):
            upper = found
        entry: Entry = {"lower": best.dimension if best else 0, "upper": upper.dimension if upper else None}
        entry |= {"query": "free", **head.assumed(notion, RATIO)}
        entry["shattering"] = SEARCHES[exact]
        numbers = {"lower": self._lower(best) if best else None, "upper": self._upper(upper) if upper else None}
        return entry | {"certificates": numbers, "witness": _witness(best, upper)}

    def lowers(self, head: Head, notion: str, goal: int) -> Iterator[Lower]:
        """Bounds that hold for the notion, quick ones first."""
        if notion == "uniform":
            yield from lower.uniform(self.cases, self.names, head)
        yield from self.separation(head, goal)
        if notion != "separation":
            yield from self.window(head.name)

    def separation(self, head: Head, goal: int) -> Iterator[Lower]:
        """Bounds for separation, kept until a higher goal asks for more."""
        known, found = self.separated.get(head, (-1, []))
        if goal > known and all(bound.dimension < goal for bound in found):
            found = []
            for bound in lower.separation(self.cases, self.names, head, goal, self.shattering):
                found.append(bound)
                if bound.dimension >= goal:
                    break
            self.separated[head] = goal, found
        yield from found

    def window(self, name: str) -> Iterator[Lower]:
        """Bounds for windows. Those of FoX hold for gates per slot, so its least dimension is their goal."""
        if name not in self.windows:
            upper = self.uppers.least(Head(name), "window")
            goal = self.cases.keys if upper is None else upper.dimension
            self.windows[name] = list(lower.window(self.cases, self.names, Head(name), goal, RATIO))
        yield from self.windows[name]

    def search(self, head: Head, notion: str, least: int, upper: LinearHead | None) -> LinearHead | None:
        """A head of less dimension than `upper` found by training, not less than `least`; None if none was found."""
        from proofs_check.constructions.dim_search import dim_search

        most = self.cases.keys if upper is None else upper.dimension
        found = dim_search(self.cases, head, notion, RATIO, least, most)
        if found is not None:
            self.uppers.found.append((head, notion, found))
        return found

    def few_sets(self) -> Entry | None:
        """Softmax: the bounds of few sets at several windows."""
        found = few_sets.few_sets(self.cases)
        if found is None:
            return None
        bounds = [lower.trace(found, self.names, Head(), ratio) for ratio in FEW_SETS_RATIOS]
        listed = [
            {"ratio": number(ratio), "lower": bound.dimension, "certificate": self._lower(bound)}
            for ratio, bound in zip(FEW_SETS_RATIOS, bounds)
        ]
        return {"keys": self.names(found.keys), "at": listed}

    def _lower(self, bound: Lower) -> int:
        return self._number(self.certificates.add(bound.kind, bound.claim, bound.assumed, bound.witness))

    def _upper(self, head: LinearHead) -> int:
        proof = construction(head, self.uppers.measure(head), RATIO)
        return self._number(self.certificates.add("construction", "construction", *proof))

    def _number(self, record: Entry) -> int:
        return self.certificates.records.index(record) + 1


SEARCHES = {None: "not needed", True: "exact", False: "cut, so a lower bound: larger sets were not ruled out"}


def _witness(best: Lower | None, upper: LinearHead | None) -> Entry:
    """Why the bounds hold, in short; the certificates have it in full."""
    below = "no lower bound above 0" if best is None else f"at least {best.dimension}: {best.text}"
    above = "no construction small enough to be written out"
    if upper is not None:
        above = f"{upper.dimension} suffice{'s' * (upper.dimension == 1)}: {upper.name}"
    parts: Entry = {"kind": "bounds", "lower": None, "upper": None, "text": f"{below}; {above}"}
    if best is not None:
        keys = {name: best.witness[name] for name in ("keys", "pairs") if name in best.witness}
        parts["lower"] = {"kind": best.kind, **keys, "text": best.text}
    if upper is not None:
        parts["upper"] = {"kind": "construction", "text": upper.name}
    return parts


class Fixed:
    """Decisions for a fixed query."""

    def __init__(self, spec: KeySetSpec, certificates: Certificates, head: FixedHead):
        self.spec, self.certificates, self.head = spec, certificates, head

    def entry(self) -> Entry:
        """For windows, and beside it for separation."""
        return {**self.decision("window"), "separation": self.decision("separation")}

    def decision(self, notion: Notion) -> Entry:
        """Whether a fixed query realises the specification, whatever the dimension."""
        found = frozen_ratio(self.spec, self.head, notion, RATIO)
        entry: Entry = {**fixed_model(self.head, notion, str(RATIO)), "realisable": None, "dimension": None}
        entry |= {"certificate": None, "witness": None}
        if isinstance(found, TooLarge):
            return {**entry, "left_out": found.why, "witness": {"kind": "left-out", "text": f"undecided: {found.why}"}}
        if isinstance(found, Conflict):
            witness: Entry = {"cycle": [{"query": s.query + 1, **self.keys(s)} for s in found.cycle]}
            entry |= {"realisable": False, "witness": self.conflict(found)}
            return entry | {"certificate": self._number("frozen-ratio", notion, witness)}
        entry |= {"realisable": True, "dimension": 0}
        if cells(self.spec) > MAX_LOGITS:
            return {**entry, "left_out": f"a certificate: more than {MAX_LOGITS:,} pairs of keys and queries"}
        logits = [list(values) for values in found.values]
        witness = {"logits": logits, "window": found.window, "gap": found.gap}
        return {**entry, "certificate": self._number("frozen-logits", notion, witness)}

    def keys(self, step: Step) -> Entry:
        """The two keys of a step by name."""
        return {"low": self.spec.keys[step.low], "high": self.spec.keys[step.high]}

    def _number(self, kind: str, notion: str, witness: Entry) -> int:
        assumed = fixed_model(self.head, notion, str(RATIO))
        record = self.certificates.add(kind, "frozen-ratio", assumed, witness)
        return self.certificates.records.index(record) + 1

    def conflict(self, found: Conflict) -> Entry:
        """The conflicting queries and keys, and a sentence."""
        asked = list(islice(queries(self.spec), max(step.query for step in found.cycle) + 1))
        steps, said = [], []
        for step in found.cycle:
            row, count = asked[step.query]
            read = events(self.spec, row)[count - 1]
            assert not isinstance(read, int)
            family = isinstance(self.spec, Family)
            at = count if family else self.event(row, count)
            place = {"target": self.names(read)} if family else {"history": row + 1, "event": at}
            steps.append({**place, **self.keys(step)})
            low, high = self.spec.keys[step.low], self.spec.keys[step.high]
            how = "beside" if step.low in read else "and not"
            where = f"{{{', '.join(self.names(read[:8]))}{', ...' * (len(read) > 8)}}}"
            where = where if family else f"history {row + 1}, event {at},"
            said.append(f"{where} reads {high} {how} {low}")
        frozen = "a key's logit" if self.head == "softmax" else "the ratio of their weights"
        demands = "; ".join(said[:4]) + "; ..." * (len(said) > 4)
        text = f"{demands}: with a fixed query {frozen} is the same whichever is asked for"
        return {"kind": "frozen-ratio", "cycle": steps, "text": text}

    def event(self, row: int, count: int) -> int:
        """The number of a push or query in its history; tokens that stand alone are events too."""
        tokens = self.spec.tokens if isinstance(self.spec, Histories) else None
        if tokens is None:
            return count
        return [at for at, (_, what) in enumerate(tokens.rows[row], 1) if what is not None][count - 1]

    def names(self, keys: Iterable[int]) -> list[str]:
        """Keys by name."""
        return [self.spec.keys[key] for key in keys]
