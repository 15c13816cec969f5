"""The certificate file, and the registry that gives each kind of certificate its one checker.

    {"format": "fpa-lab-certificate", "version": 1, "specification": {...} | null,
     "certificates": [{"kind": ..., "claim": ..., "assumptions": {...}, "witness": {...}}, ...]}

The claim is a heading of THEORY.md; the assumptions say for which heads and in which sense it is made. A certificate
about the file's specification names its SHA-256 among its assumptions, so neither can be exchanged alone. Numbers are
whole numbers or fractions "p/q". Rows, keys and events are counted from 1.

To add a kind, write a function (assumptions, witness, specification) -> statement proved, which raises `Rejected` at
the first false statement, and put `@checker(KIND, CLAIM)` over it.
"""

import gc
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proofs_check.exact.specification import Specification, read_specification
from proofs_check.exact.values import Rejected, entries, fields, need, show

FORMAT, VERSION = "fpa-lab-certificate", 1
MAX_BYTES = 2**30

Checker = Callable[[dict[str, Any], dict[str, Any], Specification], str]
CHECKERS: dict[str, tuple[str, Checker]] = {}  # kind: its claim and its checker


@dataclass(frozen=True)
class Verdict:
    """`statement` is what was proved, or the first statement found false. Kind "file": the file itself is at fault."""

    kind: str
    claim: str
    accepted: bool
    statement: str


def checker(kind: str, claim: str) -> Callable[[Checker], Checker]:
    """Registers the checker of a kind."""
    return lambda check: CHECKERS.setdefault(kind, (claim, check))[1]


def verify_file(path: str) -> list[Verdict]:
    """Checks every certificate of a file. Never raises, whatever the file holds."""
    collecting = gc.isenabled()
    gc.disable()  # millions of small lists, none of them garbage: looking for circles takes longer than the checks
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        need(len(data) <= MAX_BYTES, f"expected at most {MAX_BYTES} bytes")
        return verify(_parse(data.decode("utf-8")))
    except OSError as error:
        return [Verdict("file", "", False, f"cannot be read: {error.strerror or error}")]
    except UnicodeDecodeError:
        return [Verdict("file", "", False, "expected text in UTF-8")]
    except Rejected as reason:
        return [Verdict("file", "", False, str(reason))]
    finally:
        if collecting:
            gc.enable()


def verify(document: Any) -> list[Verdict]:
    """Checks every certificate of a parsed file."""
    try:
        fields(document, ("format", "version", "specification", "certificates"), "the file")
        found = {name: document[name] for name in ("format", "version")}
        need(_same(found, {"format": FORMAT, "version": VERSION}), f"expected format {FORMAT}, version {VERSION}")
        specification = read_specification(document["specification"])
        name = document["specification"] and digest(document["specification"])
        need(entries(document["certificates"], "certificates"), "certificates: expected at least one")
    except Rejected as reason:
        return [Verdict("file", "", False, str(reason))]
    return [_verdict(certificate, specification, name) for certificate in document["certificates"]]


def digest(specification: Any) -> str:
    """SHA-256 of a specification in its one canonical spelling."""
    return hashlib.sha256(json.dumps(specification, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def assume(given: dict[str, Any], expected: dict[str, Any]) -> None:
    """Rejects assumptions other than those that a checker rests on."""
    need(_same(given, expected), f"assumptions: expected {json.dumps(expected)}")


def _same(left: Any, right: Any) -> bool:
    """Equality that tells true from 1 and 1.0 from 1."""
    return json.dumps(left, sort_keys=True, default=repr) == json.dumps(right, sort_keys=True)


def _verdict(certificate: Any, specification: Specification, name: str | None) -> Verdict:
    kind = claim = "?"
    try:
        fields(certificate, ("kind", "claim", "assumptions", "witness"), "certificate")
        found = certificate["kind"]
        need(isinstance(found, str) and found in CHECKERS, f"kind: expected one of {', '.join(sorted(CHECKERS))}")
        kind, (claim, check) = found, CHECKERS[found]
        need(certificate["claim"] == claim, f"claim: a {kind} proves {claim}, not {show(certificate['claim'])}")
        for field in ("assumptions", "witness"):
            need(isinstance(certificate[field], dict), f"{field}: expected a mapping")
        given = dict(certificate["assumptions"])
        need(given.pop("specification", None) == name, "assumptions: specification: not the SHA-256 of this file's")
        return Verdict(kind, claim, True, check(given, certificate["witness"], specification))
    except Rejected as reason:
        return Verdict(kind, claim, False, str(reason))


def _parse(text: str) -> Any:
    """JSON without its traps: no decimal numbers, no NaN, no field given twice, no endless digits or depth."""

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            raise Rejected(f"a field is given twice among {show(', '.join(name for name, _ in pairs))}")
        return result

    def refuse(number: str) -> None:
        raise Rejected(f"{number[:20]}: expected whole numbers and fractions 'p/q' only")

    try:
        return json.loads(text, object_pairs_hook=mapping, parse_float=refuse, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise Rejected(f"line {error.lineno}: expected JSON: {error.msg}") from None
    except ValueError:  # int() refuses to read thousands of digits
        raise Rejected("a number of too many digits") from None
    except RecursionError:
        raise Rejected("lists are nested too deeply") from None
