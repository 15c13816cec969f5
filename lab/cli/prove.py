"""`fpa-lab prove`: every claim of the theory over instances, exactly wherever that is possible."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.console import Tell, print_json, print_table, progress
from lab.cli.options import Json, words
from lab.errors import InputError, nearest

if TYPE_CHECKING:
    from proofs_check.claims import Outcome


def prove(
    claims: Annotated[
        list[str] | None, typer.Argument(metavar="CLAIM", help="Names of claims.", show_default="all of them")
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="small, default, large, or a whole number: more and larger instances.")
    ] = "default",
    as_json: Json = False,
) -> int:
    """Check the claims of proofs_check/THEORY.md over many instances.

    Bounds and constructions are compared with the definitions, exhaustively over small instances and on random larger
    ones with fixed seeds, in exact arithmetic except where the table says float. Exit status 0 when every claim holds,
    1 when one does not; then its first counterexample is printed.

    \b
    Examples:
      fpa-lab prove
      fpa-lab prove walk-is-a-stack few-sets --size large
    """
    names, number = words(claims), _size(size)
    from proofs_check.claims import CLAIMS, run

    for name in names:
        if name not in CLAIMS:
            raise InputError(f"prove: {name}: unknown claim{nearest(name, CLAIMS)}")
    names = names or list(CLAIMS)
    outcomes = []
    with progress("prove") as tell:
        for done, name in enumerate(names):
            outcomes.append(run(name, number, _watch(tell, done / len(names), name)))
    if as_json:
        print_json({"size": number, "holds": all(o.holds for o in outcomes), "claims": [vars(o) for o in outcomes]})
    else:
        _print(outcomes)
        for outcome in outcomes if claims else ():
            print(f"{outcome.claim}: checked are {outcome.checked}")
    return int(not all(outcome.holds for outcome in outcomes))


def _watch(tell: Tell, fraction: float, claim: str) -> Callable[[int], None]:
    """Tells of every fiftieth instance."""
    tell(fraction, claim)
    return lambda instances: None if instances % 50 else tell(fraction, f"{claim}: {instances:,} instances")


def _size(text: str) -> int:
    from proofs_check.claims.registry import MOST, SIZES

    if text in SIZES:
        return SIZES[text]
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise InputError(f"--size: {text}: expected small, default, large or a whole number from 1 to {MOST}")
    return int(text)


def _print(outcomes: "list[Outcome]") -> None:
    rows = [
        [o.claim, o.arithmetic, f"{o.instances:,}", "holds" if o.holds else "FAILS", f"{o.seconds:.1f} s"]
        for o in outcomes
    ]
    print_table(["claim", "arithmetic", "instances", "verdict", "time"], rows, left=2)
    for outcome in outcomes:
        if not outcome.holds:
            print(f"{outcome.claim}: fails for {outcome.counterexample}")
        for note in outcome.notes:
            print(f"{outcome.claim}: {note}")
    print(f"{sum(outcome.holds for outcome in outcomes)} of {len(outcomes)} claims hold")
