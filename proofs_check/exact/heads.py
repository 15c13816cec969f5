"""The checker of constructions: softmax and FoX heads in fractions, and the targets that they read.

Notions: separation, gap > 0; window, gap > 0 and window <= ratio * gap; uniform, gap > 0 and window 0.
"""

from typing import Any

from proofs_check.exact.certificate import assume, checker
from proofs_check.exact.fixed import Fields, Measured
from proofs_check.exact.linear import Number, dot
from proofs_check.exact.queries import Queries
from proofs_check.exact.specification import Specification
from proofs_check.exact.values import entries, fields, need, rational, whole

GATES = ("one for all drops", "one per slot")


def model(head: str, notion: str, *, gates: str = GATES[1], biases: str = "one per key", ratio: Any = "0/1") -> Fields:
    """For which heads and in which sense: a free query, a content vector per key, biases "one per key" or "none";
    gates of FoX, those of the tokens *drop* (the tokens *keep* have none, which biases make up for)."""
    found = {"head": head, "query": "free", "notion": notion, "biases": biases}
    return found | ({"gates": gates} if head == "fox" else {}) | ({"ratio": ratio} if notion == "window" else {})


def assume_model(given: Fields, *notions: str, gates: tuple[str, ...] = GATES, biases: bool = False) -> str:
    """The head of the assumptions, if they are for one of these notions and gates, with biases, or maybe none."""

    def pick(name: str, *options: str) -> str:
        return next((option for option in options if given.get(name) == option), options[0])

    head, notion = pick("head", "softmax", "fox"), pick("notion", *notions)
    bias = pick("biases", "one per key", "none") if biases and head == "softmax" else "one per key"
    assume(given, model(head, notion, gates=pick("gates", *gates), biases=bias, ratio=given.get("ratio")))
    need(notion != "window" or 0 <= rational(given["ratio"], "ratio") < 1, "ratio: expected from 0 to below 1")
    return head


def said(given: Fields) -> str:
    """The assumptions in words."""
    more = [f"{name} {given[name]}" for name in ("biases", "gates") if name in given]
    notion = f"{given['notion']} {given.get('ratio', '')}".strip()
    return f"{given['head']}, {given['query']} query, {notion}, {', '.join(more)}"


def matrix(value: Any, rows: int, columns: int, where: str) -> list[list[Number]]:
    """A matrix of numbers of that shape."""
    found = [[rational(number, where) for number in entries(row, where)] for row in entries(value, where)]
    need(len(found) == rows and all(len(row) == columns for row in found), f"{where}: expected {rows} of {columns}")
    return found


@checker("construction", "construction")
def construction(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: key vectors and biases in the order of the keys, a gate per key (FoX), a query vector per query; their
    dimension, the greatest window and the least gap."""
    head = assume_model(given, "separation", "window", "uniform", biases=True)
    fields(witness, ("dimension", "keys", "biases", "gates", "queries", "window", "gap"), "witness")
    queries, dimension = Queries(spec), whole(witness["dimension"], "dimension")
    need(dimension >= 0, "dimension: expected at least 0")  # without keys and queries no matrix would show it
    (biases,) = matrix([witness["biases"]], 1, len(spec.keys), "biases")
    keys = matrix(witness["keys"], len(spec.keys), dimension, "keys")
    asked = matrix(witness["queries"], len(queries), dimension, "queries")
    (gates,) = matrix([witness["gates"]], 1, len(spec.keys) if head == "fox" else 0, "gates")
    need(given["biases"] != "none" or not any(biases), "biases: expected none")
    need(not gates or queries.family, "gates: in histories no token is a drop")
    need(given.get("gates") != GATES[0] or len(set(gates)) <= 1, "gates: expected one for all drops")
    measured = Measured()
    for number, vector in enumerate(asked, 1):
        query = queries.query(number)
        logits = {
            key: dot(vector, content) + bias
            for key, content, bias in zip(spec.keys, keys, biases)
            if key in query.present
        }
        if gates:
            logits = {key: logits[key] - gate for key, gate in zip(query.present, query.gates(gates))}
        measured.add(query, logits)
    ratio = {"separation": None, "uniform": 0}.get(given["notion"], rational(given.get("ratio", 0), "ratio"))
    measured.agree(witness, ratio)
    return f"{said(given)}: content dimension {dimension} reads all {len(asked)} targets"
