"""Checkers for softmax and FoX heads with a fixed query: everything but the tokens after a key is frozen.

With one query vector for all queries the logit of a key is, up to what all keys share, a function of its *node*: for a
softmax head of the key alone, for a FoX head, whatever its gates, of the key and the tokens before it. A query forces

    v(low) <= v(high) - gap      if high is alive and low is not
    v(low) <= v(high) + window   if both are alive

and these are all the demands (separation: only the first; window: window <= ratio * gap, gap > 0).
"""

from collections.abc import Hashable
from typing import Any

from proofs_check.exact.certificate import assume, checker
from proofs_check.exact.linear import Number
from proofs_check.exact.queries import Queries, Query
from proofs_check.exact.specification import Specification
from proofs_check.exact.values import entries, fields, need, rational, show

Fields = dict[str, Any]


def fixed_model(head: str, notion: str, ratio: str = "0/1") -> Fields:
    """For which heads and in which sense: no matter which dimension and biases (one per key), a FoX head any gates."""
    model = {"head": head, "query": "fixed", "notion": notion, "content_dimension": "any", "biases": "one per key"}
    return model | ({"gates": "any"} if head == "fox" else {}) | ({"ratio": ratio} if notion == "window" else {})


def _assume(given: Fields) -> tuple[bool, bool, Number]:
    """Whether the head is FoX, whether a window is demanded, and its ratio to the gap."""
    fox, window = given.get("head") == "fox", given.get("notion") == "window"
    ratio = rational(given.get("ratio"), "ratio") if window else 0
    need(0 <= ratio < 1, "ratio: expected from 0 to below 1")
    expected = fixed_model("fox" if fox else "softmax", "window" if window else "separation")
    assume(given, expected | ({"ratio": given["ratio"]} if window else {}))
    return fox, window, ratio


def _said(given: Fields) -> str:
    return f"{given['head']}, fixed query, {given['notion']} {given.get('ratio', '')}".strip()


def _node(query: Query, key: str, fox: bool) -> Hashable:
    return (key, query.before(key)) if fox else key


@checker("frozen-ratio", "frozen-ratio")
def frozen_ratio(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: steps {query, low, high} in a circle of nodes. Their demands add up to 0 <= equal * window - strict *
    gap, the steps whose `low` is alive and those where it is not."""
    fox, window, ratio = _assume(given)
    fields(witness, ("cycle",), "witness")
    queries, nodes, strict = Queries(spec), [], 0
    for step in entries(witness["cycle"], "cycle"):
        fields(step, ("query", "low", "high"), "step")
        query = queries.query(step["query"])
        low, high = query.has([step["low"], step["high"]])
        need(high in query.alive, f"{query.row.name}: key {show(high)} is not read")
        need(window or low not in query.alive, f"{query.row.name}: key {show(low)} is read")
        strict += low not in query.alive
        nodes.append((_node(query, low, fox), _node(query, high, fox)))
    for (_, end), (start, _) in zip(nodes, nodes[1:] + nodes[:1]):
        need(end == start, "cycle: a step starts at another key, or after other tokens, than the last one ends")
    need(strict > ratio * (len(nodes) - strict), "cycle: its demands do not contradict each other")
    return f"{_said(given)}: impossible in any dimension: {len(nodes)} demands lead from a logit to one below itself"


@checker("frozen-logits", "frozen-ratio")
def frozen_logits(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: the logit v of every node, for FoX a list per row over its keys as they are pushed, for softmax one list
    over all keys; the greatest window and the least gap. Gates with these logits exist for FoX: the gate of a token is
    any function of the tokens up to it, and a bias that falls along the keys makes up for its sign."""
    fox, window, ratio = _assume(given)
    fields(witness, ("logits", "window", "gap"), "witness")
    queries, lists = Queries(spec), entries(witness["logits"], "logits")
    need(len(lists) == (len(spec.rows) if fox else 1), "logits: expected a list per row (FoX) or one list (softmax)")
    found = [[rational(value, "logits") for value in entries(part, "logits")] for part in lists]
    row_at = {id(row): at for at, row in enumerate(spec.rows)}
    value_of: dict[Hashable, Number] = {}
    prefixes: dict[Hashable, int] = {}
    measured = Measured()
    for number in range(1, len(queries) + 1):
        query = queries.query(number)
        own = found[row_at[id(query.row)]] if fox else found[0]
        names = [event for event in query.row.events if isinstance(event, str)] if fox else spec.keys
        need(len(own) == len(names), f"logits: expected {len(names)} in {query.row.name}, found {len(own)}")
        logits = {key: value for key, value in zip(names, own) if key in query.present}
        before = query.all_before(prefixes) if fox else {}
        for key, value in logits.items() if fox else ():
            need(value_of.setdefault((key, before[key]), value) == value, f"logits: {show(key)} has two")
        measured.add(query, logits)
    measured.agree(witness, ratio if window else None)
    return f"{_said(given)}: logits that a head can have read all {len(queries)} targets"


class Measured:
    """The greatest window and the least gap over queries; no gap if no query leaves a key out."""

    def __init__(self) -> None:
        self.window: Number = 0
        self.gap: Number | None = None

    def add(self, query: Query, logits: dict[str, Number]) -> None:
        """One query and the logits of its present keys."""
        alive = [logits[key] for key in query.alive]
        dead = [value for key, value in logits.items() if key not in query.alive]
        self.window = max(self.window, max(alive) - min(alive))
        if dead:
            gap = min(alive) - max(dead)
            self.gap = gap if self.gap is None else min(self.gap, gap)

    def agree(self, witness: Fields, ratio: Number | None) -> None:
        """Rejects unless the witness names them and they are those of the notion (no ratio: separation)."""
        gap = None if witness["gap"] is None else rational(witness["gap"], "gap")
        need(self.gap is None or self.gap > 0, f"the targets are not separated: the gap is {self.gap}")
        need(gap == self.gap, f"gap: it is {self.gap}, not {show(witness['gap'])}")
        need(rational(witness["window"], "window") == self.window, f"window: it is {self.window}")
        if ratio is not None:
            need(self.window <= (0 if self.gap is None else ratio * self.gap), f"the window {self.window} is too wide")
