"""The answer of `fpa-lab check`: what each head can do with a specification, with numbers, witnesses, certificates.

`HEADS` lists the heads in the order of the answer; a further head is one more function there. Every function gets
the `Question` and returns its entry of the JSON answer, or None where the specification does not ask about the head;
what it proves it adds to `Question.certificates`.

Everything here about First Passage Attention means: content dimension 0 (non-key tokens masked; one dimension if
the head has to mask them itself), a fixed query, and alive = penalty 0, so that the weights are uniform on the target
up to any epsilon.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from proofs_check.baselines import baselines
from proofs_check.bounds.family_decision import Cycle, Levels, family_decision
from proofs_check.bounds.fates import Dips, Impossible, NoSlot, Revived, Step, fates
from proofs_check.bounds.tied_tokens import (
    Cases,
    Conflict,
    Demand,
    Found,
    Reason,
    TokenRow,
    Undecided,
    tied_tokens,
    token_rows,
)
from proofs_check.bounds.walk_is_a_stack import INCREMENT, Crossing, Heights, walk_decision
from proofs_check.certificates import Certificates
from proofs_check.constructions.decided import Case, decided_head, events, queries
from proofs_check.constructions.decided import Sequence as TokenSequence
from proofs_check.constructions.tied_tokens import tied_head, tied_sequences
from proofs_check.constructions.token_head import TokenHead
from proofs_check.keysets import Family, Histories, KeySetSpec

EPSILON = 1e-6  # total variation for which mask and penalty scale of the numeric runs are chosen
SAMPLED_QUERIES = 32
SAMPLED_TOKENS = 100_000
LISTED = 100_000  # levels or dips up to which the answer lists them; the certificate always does

Entry = dict[str, Any]


@dataclass
class Question:
    """A specification under examination, and the certificates found so far."""

    spec: KeySetSpec
    dim_search: bool = False
    certificates: Certificates = field(init=False)

    def __post_init__(self) -> None:
        self.certificates = Certificates(self.spec)

    @cached_property
    def baselines(self) -> dict[str, Entry]:
        """The entries of softmax and FoX, which share their bounds."""
        return baselines(self.spec, self.certificates, self.dim_search)


@dataclass(frozen=True)
class Answer:
    """`heads` maps each head's name to its entry; `certificates` proves them."""

    spec: KeySetSpec
    heads: dict[str, Entry]
    certificates: Certificates

    @property
    def realisable(self) -> bool:
        """Whether First Passage Attention with free levels realises the specification."""
        return self.heads["fpa"]["realisable"]

    def to_json(self, certificate_file: str | None = None) -> dict[str, Any]:
        """The answer as one JSON document; `certificate_file` is where the certificates were written."""
        return {
            "keys": len(self.spec.keys),
            "targets": sum(1 for _ in queries(self.spec)),
            "form": self.spec.form,
            "dips": self.spec.dips,
            "heads": self.heads,
            "certificates": certificate_file,
            "warnings": list(self.spec.warnings),
        }


def check(spec: KeySetSpec, dim_search: bool = False) -> Answer:
    """Decides a specification for every head of HEADS.

    `dim_search` lets heads look for dimensions that no theorem gives. Raises `InputError` for a specification too large
    to decide.
    """
    question = Question(spec, dim_search)
    entries = {name: entry(question) for name, entry in HEADS.items()}
    heads = {name: entry for name, entry in entries.items() if entry is not None}
    return Answer(spec, heads, question.certificates)


def _fpa(question: Question) -> Entry:
    found = family_decision(question.spec)
    question.certificates.add_fpa(found)
    if not isinstance(found, Levels):
        return _impossible(question.spec, found)
    levels = dict(zip(question.spec.keys, found.levels.tolist())) if len(found.levels) <= LISTED else None
    return _possible(question.spec, found, {"levels": levels})


def _fpa_walk(question: Question) -> Entry:
    found = walk_decision(question.spec)
    question.certificates.add_fpa(found)
    if not isinstance(found, Heights):
        return _impossible(question.spec, found)
    return _possible(question.spec, found, {"increment": INCREMENT})


def _fpa_tied_tokens(question: Question) -> Entry | None:
    """One increment per token type in all histories; offsets from the walk only where levels tied to it do not do."""
    spec = question.spec
    if not isinstance(spec, Histories) or spec.tokens is None:
        return None
    entry: Entry = {"query": "fixed", "notion": "uniform", "realisable": None, "dimension": None, "level": "tied"}
    entry |= {"increments": None, "offsets": None, "numeric": None, "undecided": None, "witness": None, "tied": None}
    try:
        fates(spec)
    except Impossible as impossible:
        question.certificates.add_fpa(impossible.witness)
        return {**entry, "realisable": False, "witness": _witness(spec, impossible.witness)}
    found = tied_tokens(spec)
    if not isinstance(found, Found):
        entry |= {"level": "offset", "tied": _tied_failure(question, found)}
        found = tied_tokens(spec, "offset")
    if not isinstance(found, Found):
        return {**entry, **_tied_failure(question, found)}
    question.certificates.add_tied(found)
    types = spec.tokens.types
    cases = _sample(spec)
    return {
        **entry,
        "realisable": True,
        "dimension": 0,
        "increments": dict(zip(types, found.increments)),
        "offsets": {types[number]: offset for number, offset in found.offsets.items()},
        "numeric": _measure(spec, tied_head(spec, found), tied_sequences(spec, cases)),
    }


def _tied_failure(question: Question, found: Conflict | Undecided) -> Entry:
    if isinstance(found, Undecided):
        return {"realisable": None, "undecided": found.why, "witness": None}
    assert isinstance(question.spec, Histories)
    question.certificates.add_tied(found)
    rows = token_rows(question.spec)
    text = _tied_reason(question.spec, rows, found.reason)
    return {"realisable": False, "undecided": None, "witness": {"kind": "tied-conflict", "text": text}}


HEADS: dict[str, Callable[[Question], Entry | None]] = {
    "fpa": _fpa,
    "fpa-walk": _fpa_walk,
    "fpa-tied-tokens": _fpa_tied_tokens,
    "softmax": lambda question: question.baselines["softmax"],
    "fox": lambda question: question.baselines["fox"],
}


def _possible(spec: KeySetSpec, found: Levels | Heights, how: Entry) -> Entry:
    return {
        "query": "fixed",
        "notion": "uniform",
        "realisable": True,
        "dimension": 0,
        **how,
        "dips": _dips(spec, found.dips) if len(found.dips) <= LISTED else None,
        "numeric": numeric(spec, found),
        "witness": None,
    }


def _impossible(spec: KeySetSpec, found: Cycle | Crossing | Revived | NoSlot) -> Entry:
    return {
        "query": "fixed",
        "notion": "uniform",
        "realisable": False,
        "dimension": None,
        "dips": None,
        "numeric": None,
        "witness": _witness(spec, found),
    }


def _dips(spec: KeySetSpec, dips: Dips) -> list[Entry]:
    """Per row its dips: the key after which each stands (in a history, how many events before it) and its value."""
    rows = range(len(spec.targets) if isinstance(spec, Family) else len(spec.histories))
    family = isinstance(spec, Family)

    def listed(row: int) -> Entry:
        names = spec.keys if family else _numbers(spec, row)
        return {
            **_row(spec, row),
            "dips": [{"after": names[count - 1], "value": value} for count, value in dips.of(row)],
        }

    return [listed(row) for row in rows]


def _numbers(spec: KeySetSpec, row: int) -> Sequence[int]:
    """The number of each push and query in its history; tokens that stand alone are events too."""
    if isinstance(spec, Histories) and spec.tokens is not None:
        return [at for at, (_, event) in enumerate(spec.tokens.rows[row], 1) if event is not None]
    return range(1, len(events(spec, row)) + 1)


def _row(spec: KeySetSpec, row: int) -> Entry:
    """How an answer names a row: a family's by its target, a history by its number."""
    if isinstance(spec, Family):
        return {"target": [spec.keys[key] for key in spec.targets[row]]}
    return {"history": row + 1}


# Witnesses: the certificate's facts with the row's name, and a sentence for people.


def _witness(spec: KeySetSpec, found: Cycle | Crossing | Revived | NoSlot) -> Entry:
    keys = spec.keys
    match found:
        case Cycle(steps):
            text = "; ".join(_sentence(spec, step) for step in steps[:4]) + ("; ..." if len(steps) > 4 else "")
            cycle = [_named(spec, step) for step in steps]
            return {"kind": "fpa-cycle", "cycle": cycle, "text": f"{text}: the levels would have to rise in a circle"}
        case Crossing(step):
            first, second = keys[step.dead], keys[step.alive]
            text = f"{_place(spec, step.row)}: {first} lives past the push of {second}, then dies before it: no stack"
            facts = {"pair": [first, second], "intervals": _intervals(spec, step)}
            return {"kind": "crossing-pair", **_row(spec, step.row), **facts, "text": text}
        case NoSlot(row, key):
            text = f"{_place(spec, row)}: {keys[key]} must be dead, and no dip may stand after it"
            return {"kind": "no-slot", **_row(spec, row), "dead": keys[key], "text": text}
    dead_at, alive_at = (_numbers(spec, found.row)[at - 1] for at in (found.dead_at, found.alive_at))
    text = (
        f"{_place(spec, found.row)}: key {keys[found.key]} is dead at the query of event {dead_at} and alive at"
        f" that of event {alive_at}; a dead key never comes back"
    )
    facts = {"key": keys[found.key], "dead_at": dead_at, "alive_at": alive_at}
    return {"kind": "revived-key", **_row(spec, found.row), **facts, "text": text}


def _tied_reason(spec: Histories, rows: list[TokenRow], reason: Reason) -> str:
    """The demands that contradict each other, or the first undecided death."""
    if isinstance(reason, Cases):
        event = [int(rows[reason.row].event[position]) for position, _ in reason.cases]
        key = f"history {reason.row + 1}: {spec.keys[reason.key]}"
        if not event:
            return f"{key} must be read and be dead without a token in between"
        return f"{key} has to die between events {event[0]} and {event[-1]}, and no increments allow it at any of them"
    demands = [_demand(spec, rows, demand) for demand, _ in reason.multipliers]
    more = "; ..." if len(demands) > 4 else ""
    return f"{'; '.join(demands[:4])}{more}: no increments of the token types do all of this"


def _demand(spec: Histories, rows: list[TokenRow], demand: Demand) -> str:
    event = rows[demand.row].event[demand.position]
    what = "dies at" if demand.dies else "lives past"
    return f"history {demand.row + 1}: {spec.keys[demand.key]} {what} event {event}"


def _named(spec: KeySetSpec, step: Step) -> Entry:
    return {**_row(spec, step.row), "alive": spec.keys[step.alive], "dead": spec.keys[step.dead]}


def _intervals(spec: KeySetSpec, step: Step) -> list[list[int]]:
    """[push, dead] of the key that dies and [push, alive] of the other, as events: push < push' < dead = alive."""
    history = events(spec, step.row)
    last = history.index(step.dead)
    first, second = last, history.index(step.alive)
    for at, event in enumerate(history):
        if not isinstance(event, int) and at > first:
            if step.dead in event:
                last = at
            elif at > last and step.alive in event:
                number = _numbers(spec, step.row)
                return [[number[first], number[at]], [number[second], number[at]]]
    raise AssertionError("a crossing pair has a query that tells its keys apart")


def _sentence(spec: KeySetSpec, step: Step) -> str:
    dead, alive = spec.keys[step.dead], spec.keys[step.alive]
    return f"{_place(spec, step.row)} kills {dead} and spares {alive}"


def _place(spec: KeySetSpec, row: int) -> str:
    if not isinstance(spec, Family):
        return f"history {row + 1}"
    names = [spec.keys[key] for key in spec.targets[row][:12]]
    return f"{{{', '.join(names)}{', ...' if len(spec.targets[row]) > 12 else ''}}}"


# Numbers.


def numeric(spec: KeySetSpec, found: Levels | Heights) -> Entry:
    """The decided head run as a real head: per format the greatest total variation from uniform on the target.

    Over all queries, or over a sample spread evenly when they are many or long; "queries" and "of" tell which.
    """
    return _measure(spec, *decided_head(spec, found, _sample(spec)))


def _sample(spec: KeySetSpec) -> list[Case]:
    total = sum(1 for _ in queries(spec))
    count = min(total, SAMPLED_QUERIES)
    sample = list(islice(queries(spec), 0, None, -(-total // count)))
    budget = SAMPLED_TOKENS
    chosen: list[Case] = []
    for row, until in sample:
        budget -= until
        if budget >= 0 or not chosen:
            chosen.append((row, until))
    return chosen


def _measure(spec: KeySetSpec, construction: TokenHead, sequences: list[TokenSequence]) -> Entry:
    from proofs_check.constructions.realise import FORMATS, max_tv, one_query, realise

    cases = [one_query(construction, tokens, target) for tokens, target in sequences]
    length = max(len(tokens) for tokens, _ in sequences)
    result: Entry = {}
    for name, dtype in FORMATS.items():
        head = realise(construction, length, EPSILON, dtype)
        result[name] = {"max_tv": max(max_tv(head, *case) for case in cases)}
    return {**result, "queries": len(cases), "of": sum(1 for _ in queries(spec))}
