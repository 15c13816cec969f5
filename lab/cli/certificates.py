"""`fpa-lab verify`: the independent check of a certificate. It imports nothing that measures or trains."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.console import print_json
from lab.cli.options import Json
from lab.errors import InputError

if TYPE_CHECKING:
    from proofs_check.exact import Verdict


def verify(
    certificate: Annotated[str, typer.Argument(metavar="CERTIFICATE", help="A file that check --certificate wrote.")],
    as_json: Json = False,
) -> int:
    """Check a certificate independently, in exact arithmetic.

    The checker uses integers and fractions only, and imports nothing of what made the certificate. Exit status 0
    when every claim in the file is proved, 1 when one is not.

    \b
    Examples:
      fpa-lab check --keys 4 --targets "1,3; 2" --certificate answer.json
      fpa-lab verify answer.json
    """
    from proofs_check.exact import verify_file

    verdicts = verify_file(certificate)
    for verdict in verdicts:
        if verdict.kind == "file":  # nothing in it could be judged
            raise InputError(f"{certificate}: {verdict.statement}")
    if as_json:
        print_json({"accepted": all(v.accepted for v in verdicts), "certificates": [vars(v) for v in verdicts]})
    else:
        print_verdicts(verdicts)
    return int(not all(v.accepted for v in verdicts))


def print_verdicts(verdicts: "Sequence[Verdict]", *, short: bool = False) -> None:
    """What was proved, or the first statement found false, for every certificate; `short`: of the rejected ones."""
    for verdict in verdicts:
        if not (short and verdict.accepted):
            print(f"{'accepted' if verdict.accepted else 'REJECTED'}  {verdict.kind} ({verdict.claim})")
            print(f"          {verdict.statement}")
    print(f"{sum(verdict.accepted for verdict in verdicts)} of {len(verdicts)} certificates accepted")
