"""`fpa-lab task`: look at what a generator draws."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli.console import print_json, print_table
from lab.cli.errors import say
from lab.cli.options import Json, task_options
from lab.errors import InputError

if TYPE_CHECKING:
    from lab.tasks import Batch, Task

SEQUENCES = 64

Option = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the task, such as max_depth=2; may be repeated."),
]
Spec = Annotated[Path | None, typer.Option(metavar="FILE", help="The key-set specification of the task `custom`.")]
Root = Annotated[Path | None, typer.Option("--path", metavar="PATH", help="The folder of the task `source-scopes`.")]


def task(
    name: Annotated[str, typer.Argument(metavar="NAME", help="nested-scope, leveled-dips, subset-drop, ...")],
    length: Annotated[
        int | None, typer.Option(min=1, help="In the task's own unit.", show_default="train length")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Names the stream of sequences.")] = 0,
    index: Annotated[int, typer.Option(min=0, help="Which sequence of the stream.")] = 0,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    option: Option = None,
    spec: Spec = None,
    path: Root = None,
    show: Annotated[bool, typer.Option("--show", help="Draw one sequence, row by row, with its live keys.")] = False,
    as_json: Json = False,
) -> int:
    """Look at what a task's generator draws.

    Prints vocabulary and sizes over 64 sequences; with --show one sequence, with the live keys marked.

    \b
    Examples:
      fpa-lab task nested-scope --show
      fpa-lab task leveled-dips --length 64 --seed 3
      fpa-lab task custom --spec sets.yaml --show
    """
    made = make(name, option, spec, path)
    length = made.train_length if length is None else length
    if show:
        one = made.sample(split, [seed], index, 1, length=length)[0, 0]
        print_json(_sequence(made, one)) if as_json else print(made.show(one))
        return 0
    facts = _facts(made, made.sample(split, [seed], 0, SEQUENCES, length=length), length)
    if as_json:
        print_json(facts)
    else:
        print_table(["fact", "value"], list(facts.items()), title=f"{name}: {SEQUENCES} {split} sequences", left=2)
    return 0


def make(name: str, option: list[str] | None, spec: Path | None, path: Path | None) -> "Task":
    """The task of that name; `spec` and `path` belong to the two tasks that read files."""
    from lab.tasks import make_task

    options = task_options(option)
    if spec is not None:
        if name != "custom":
            raise InputError(f"--spec: belongs to the task custom, not to {name}")
        options |= _custom_options(spec)
    if path is not None:
        if name != "source-scopes":
            raise InputError(f"--path: belongs to the task source-scopes, not to {name}")
        options["path"] = str(path)
    return make_task(name, **options)


def _custom_options(spec: Path) -> dict[str, Any]:
    from proofs_check.keysets import Histories, load

    key_sets = load(str(spec))
    if isinstance(key_sets, Histories) and key_sets.tokens is not None:
        raise InputError(f"{spec}: token: token types are for check; the task custom has tokens of its own")
    for warning in key_sets.warnings:
        say(f"warning: {spec}: {warning}")
    return key_sets.to_data()


def _facts(made: "Task", batch: "Batch", length: int) -> dict[str, Any]:
    scored = batch.queries > 0
    sizes = batch.target_sizes()[scored]
    born = ((batch.death > 0).cumsum(-1))[scored]
    share = sizes / born
    return {
        "vocabulary": " ".join(made.vocabulary),
        "tokens that can be targets": " ".join(made.vocabulary[token] for token in made.key_tokens),
        "options": ", ".join(f"{key}={value}" for key, value in made.options().items()),
        "training length": made.train_length,
        "length": length,
        "tokens in a sequence": made.seq_len(length),
        "scored queries in a sequence": float(batch.queries.sum() / SEQUENCES),
        "targets of a query, mean": float(sizes.mean()) if sizes.size else None,
        "targets of a query, most": int(sizes.max()) if sizes.size else None,
        "live share of the keys so far, mean": float(share.mean()) if share.size else None,
    }


def _sequence(made: "Task", one: "Batch") -> dict[str, Any]:
    targets = one.targets()
    rows = [row for row in range(one.seq_len) if one.queries[row]]
    return {
        "task": made.name,
        "options": made.options(),
        "tokens": [made.vocabulary[token] for token in one.tokens],
        "death": one.death.tolist(),
        "queries": one.queries.tolist(),
        "targets": {str(row): targets[row].nonzero()[0].tolist() for row in rows},
    }
