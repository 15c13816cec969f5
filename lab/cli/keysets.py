"""`fpa-lab check`: which of the heads can read the target sets of a specification, at what dimension, and why not."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli.console import print_json, print_table, working
from lab.cli.errors import say
from lab.cli.options import Json
from lab.errors import InputError

if TYPE_CHECKING:
    from proofs_check.keysets import KeySetSpec

NAMES = {
    "fpa": "FPA, free levels",
    "fpa-walk": "FPA, walk, tied levels",
    "fpa-tied-tokens": "FPA, an increment per token",
    "softmax": "softmax",
    "fox": "FoX",
}
LEGEND = """\
separation: every key of the set has a larger logit than every other; window r: their spread is at most r of the gap
to the others; uniform: no spread. Content dimension: the least that suffices, or what it lies between.\
"""
# Longer lists are cut in the printed answer; --json has them whole.
SHOWN = 8


def check(
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="A specification: YAML, JSON or plain text; - is stdin.")
    ] = None,
    keys: Annotated[str | None, typer.Option(metavar="N", help="How many keys, or their names.")] = None,
    targets: Annotated[str | None, typer.Option(metavar='"1,3; 2"', help="The sets, instead of a SPEC.")] = None,
    dips: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="after-each-key, at-end, or keys.", show_default="the specification's"),
    ] = None,
    dim_search: Annotated[
        bool, typer.Option("--dim-search", help="Search where no theorem gives the dimension.")
    ] = False,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what the answer rests on.")] = None,
    as_json: Json = False,
) -> int:
    """Check which heads can read your key sets, and why not.

    Every target set is one sequence of all keys with a query at its end; a key that is not in the set has to be
    forgotten at a dip. Exit status 0 when FPA with free levels realises all of them, 1 when it cannot.

    \b
    Examples:
      fpa-lab check --keys 4 --targets "1,3; 2"
      fpa-lab check family.yaml --certificate answer.json
      printf 'a c\\nb\\na b d\\n' | fpa-lab check - --json
    """
    from proofs_check.keysets import collector_paused

    # Large specifications are millions of small lists: the collector would scan them at every step of the work.
    with collector_paused():
        return _check(_specification(spec, keys, targets, dips), dim_search, certificate, as_json)


def _check(specification: "KeySetSpec", dim_search: bool, certificate: Path | None, as_json: bool) -> int:
    for warning in specification.warnings:
        say(f"warning: {warning}")
    with working("deciding"):
        from proofs_check.answer import check as decide

        answer = decide(specification, dim_search)
    if certificate is not None:
        answer.certificates.write(certificate)
    document = answer.to_json(None if certificate is None else str(certificate))
    if as_json:
        print_json(document)
    else:
        print_answer(document)
        if specification.form == "family" and specification.keys != tuple(str(n + 1) for n in range(document["keys"])):
            print(f"Keys in order: {_cut(list(specification.keys), ', ')}; the order matters.")
    return int(not answer.realisable)


def _specification(spec: str | None, keys: str | None, targets: str | None, dips: str | None) -> "KeySetSpec":
    from proofs_check.keysets import from_options, load

    if spec is not None:
        for option, value in (("--keys", keys), ("--targets", targets)):
            if value is not None:
                raise InputError(f"check: {option}: not used together with the specification {spec}")
        return load(spec, dips=dips)
    if keys is None or targets is None:
        raise InputError("check: expected a specification file (or - for stdin), or both --keys and --targets")
    return from_options(keys, targets, dips)


def print_answer(document: dict[str, Any], *, short: bool = False) -> None:
    """The answer for people; `short` leaves out how FPA does it."""
    dips = document["dips"]
    where = dips.replace("-", " ") if isinstance(dips, str) else f"after {_cut(dips, ', ')}"
    what = "target sets" if document["form"] == "family" else "queries"
    print(f"{_count(document['keys'], 'keys')}, {_count(document['targets'], what)}, dips {where}.")
    rows = []
    reasons: dict[tuple[str, str, str], list[str]] = {}  # which notions share a reason
    for head, entry in document["heads"].items():
        for query, notion, verdict in verdicts(entry):
            rows.append([NAMES.get(head, head), query, notion, *_possible(verdict)])
            if verdict.get("witness"):
                reasons.setdefault((NAMES.get(head, head), query, reason(verdict["witness"])), []).append(notion)
    print_table(["head", "query", "notion", "possible", "content dimension"], rows, left=3)
    print(LEGEND)
    for (head, query, why), notions in reasons.items():
        print(f"- {head}, {query} query, {'; '.join(notions)}: {why}")
    for head, entry in document["heads"].items():
        if entry.get("realisable") and not short:
            print(f"{NAMES.get(head, head)}:")
            for line in _how(entry):
                print(f"    {line}")
    if document["certificates"]:
        print(f"Certificates: {document['certificates']}; check them with: fpa-lab verify {document['certificates']}")


def _count(number: int, things: str) -> str:
    """
    >>> _count(1, "queries"), _count(2, "keys")
    ('1 query', '2 keys')
    """
    one = {"keys": "key", "target sets": "target set", "queries": "query"}
    return f"{number} {one[things] if number == 1 else things}"


def verdicts(entry: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(query, notion, verdict) of every claim in a head's entry.

    FPA's entry is one claim. A baseline's has, for the fixed query, one for windows with one for separation inside
    it, and for free queries one per notion. Variants of those (no biases, other gates) are in the JSON answer alone.
    """
    if "query" in entry:
        yield entry["query"], entry["notion"], entry
        return
    for query, claims in entry.items():
        if "realisable" in claims:
            claims = {claims.get("notion", "window"): claims, **_only(claims, "separation")}
        for notion, claim in claims.items():
            yield query, notion + _assumed(claim), claim


def _only(claims: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: claims[name]} if name in claims else {}


def _assumed(claim: dict[str, Any]) -> str:
    """What a verdict says about window and gates, in a few words."""
    window = f" {claim['ratio']}" if "ratio" in claim else ""
    gates = {"one for all drops": ", one gate", "one per slot": ", gate per slot"}.get(claim.get("gates", ""), "")
    return window + gates


def _possible(verdict: dict[str, Any]) -> tuple[str, str]:
    """Whether it is possible, and with which content dimension."""
    if "left_out" in verdict:
        return "-", "left out"
    if "lower" in verdict:
        low, high = verdict["lower"], verdict["upper"]
        return "yes", f"at least {low}" if high is None else str(low) if low == high else f"{low} to {high}"
    if verdict["realisable"] is None:
        return "undecided", "-"
    return ("yes", str(verdict.get("dimension", "-"))) if verdict["realisable"] else ("no", "none")


def reason(witness: dict[str, Any]) -> str:
    """The witness in words."""
    return witness.get("text") or witness["kind"]


def _how(entry: dict[str, Any]) -> Iterator[str]:
    """Levels, dips and numbers of a construction, cut to what fits a screen."""
    if entry.get("levels"):
        yield f"levels    {_cut([f'{key}: {level}' for key, level in entry['levels'].items()], ', ')}"
    if entry.get("increment") is not None:
        yield f"levels    where the walk stands; every key takes it up by {entry['increment']}"
    if entry.get("increments"):
        yield f"increments {_cut([f'{token}: {value}' for token, value in entry['increments'].items()], ', ')}"
    if entry.get("offsets"):
        yield f"levels    off the walk by {_cut([f'{t}: {value}' for t, value in entry['offsets'].items()], ', ')}"
    if entry.get("dips"):
        yield from _table_of_dips(entry["dips"])
    if entry.get("numeric"):
        numbers = entry["numeric"]
        errors = [f"{name} {value['max_tv']:.1e}" for name, value in numbers.items() if isinstance(value, dict)]
        some = "" if numbers["queries"] == numbers["of"] else f" of {numbers['of']}"
        yield f"run as a real head on {numbers['queries']}{some} queries, largest total variation: {', '.join(errors)}"


def _table_of_dips(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows[:SHOWN]:
        name = f"{{{_cut(row['target'], ', ')}}}" if "target" in row else f"history {row['history']}"
        after = "" if "target" in row else "event "
        dips = [f"{dip['value']} after {after}{dip['after']}" for dip in row["dips"]]
        yield f"field     {name}: {_cut(dips, ', ') if dips else 'no dip'}"
    if len(rows) > SHOWN:
        yield f"          ... ({len(rows)} in all; see --json)"


def _cut(words: list[Any], between: str) -> str:
    return between.join(map(str, words[:SHOWN])) + (f"{between}... ({len(words)} in all)" if len(words) > SHOWN else "")
