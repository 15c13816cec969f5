"""`fpa-lab task`: look at what a generator draws, and at how far readers get that know less than the task asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli.console import print_json, print_table, working
from lab.cli.errors import say
from lab.cli.options import Json, task_options
from lab.errors import InputError

if TYPE_CHECKING:
    from lab.tasks import Batch, Task

CUSTOM, SOURCE_SCOPES = "custom", "source-scopes"
LOOKUPS = ("scoped-lookup", "source-lookup")
FROM_FILES = (SOURCE_SCOPES, "source-lookup")
SEQUENCES = 64
# More tokens at once than this would not fit into the memory of a laptop.
MOST_TOKENS = 100_000_000
# The audit reads dense weights of all sequences and fits a regression over token counts for every type of key.
AUDITED_WEIGHTS = SEQUENCES * 512**2
AUDITED_TOKENS = 32
COMPARED = 512
READERS = """\
They know less than the task asks for. chance: all keys so far; position: the mean target of a row; counts: how many
tokens of each type came since a key; window: the last keys; nearest: the newest key of each type.\
"""

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
    index: Annotated[int, typer.Option(min=0, max=2**62, help="Which sequence of the stream.")] = 0,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    option: Option = None,
    spec: Spec = None,
    path: Root = None,
    show: Annotated[bool, typer.Option("--show", help="Draw one sequence, row by row, with its live keys.")] = False,
    as_json: Json = False,
) -> int:
    """Look at what a task's generator draws.

    Prints vocabulary and sizes over 64 sequences, what shortcut readers reach on them (not on sequences longer than
    512 tokens), and how many sequences occur twice; with --show one sequence, with the live keys marked.

    \b
    Examples:
      fpa-lab task nested-scope --show
      fpa-lab task leveled-dips --length 64 --seed 3
      fpa-lab task custom --spec sets.yaml --show
    """
    made = make(name, option, spec, path)
    length = made.train_length if length is None else length
    # As JSON, a sequence lists the targets of every row: as many numbers as it has tokens, squared.
    at_once = 1 if show else SEQUENCES
    check_tokens("--length", at_once, made.seq_len(length) ** (2 if show and as_json else 1))
    if show:
        one = made.sample(split, [seed], index, 1, length=length)[0, 0]
        print_json(_sequence(made, one)) if as_json else print(made.show(one))
        return 0
    batch = made.sample(split, [seed], 0, SEQUENCES, length=length)[0]
    facts, found = _facts(made, batch, length), audit(made, batch, seed, length)
    if as_json:
        print_json(facts | found)
    else:
        print_table(["fact", "value"], list(facts.items()), title=f"{name}: {SEQUENCES} {split} sequences", left=2)
        _print_audit(found)
    return 0


def check_tokens(option: str, sequences: int, tokens: int) -> None:
    """Raises InputError, naming the option that asks for too much, before memory runs out."""
    if sequences * tokens > MOST_TOKENS:
        raise InputError(f"{option}: asks for {sequences * tokens:,} tokens at once; expected at most {MOST_TOKENS:,}")


def make(name: str, option: list[str] | None, spec: Path | None, path: Path | None) -> "Task":
    """The task of that name; `spec` and `path` belong to the two tasks that read files."""
    from lab.tasks import make_task

    options = task_options(option)
    if spec is not None:
        if name != CUSTOM:
            raise InputError(f"--spec: belongs to the task {CUSTOM}, not to {name}")
        if options:
            raise InputError(f"--option: {next(iter(options))}: not used together with --spec {spec}")
        options = _custom_options(spec)
    elif name == CUSTOM and not options:
        raise InputError("custom: expected --spec FILE, the key sets to draw")
    if path is not None:
        if name not in FROM_FILES:
            raise InputError(f"--path: belongs to the task {SOURCE_SCOPES}, not to {name}")
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


def audit(made: "Task", batch: "Batch", seed: int, length: int) -> dict[str, Any]:
    """What readers reach on the sequences of a batch that know less than the task asks for; see lab.tasks.shortcuts.

    Keys: "optimum loss", the mean entropy of the targets; "shortcuts", loss, tv and exact by reader; "duplicates",
    within splits and between them. Empty where no row is scored, or where all this would take long.
    """
    if batch.tokens.size * batch.seq_len > AUDITED_WEIGHTS or len(made.vocabulary) > AUDITED_TOKENS:
        return {}
    if not batch.queries.any():
        return {}
    if made.name in LOOKUPS:
        return _audit_lookups(made, batch, seed, length)
    with working("shortcuts"):
        from lab.tasks import count_duplicates
        from lab.tasks.shortcuts import SHORTCUTS
        from lab.training.metrics import read_weights

        readings = {reader: read_weights(weights(made, batch), batch) for reader, weights in SHORTCUTS.items()}
        repeated = count_duplicates(made, COMPARED, seed=seed, length=length)
    return {
        "optimum loss": readings["chance"].loss - readings["chance"].excess_loss,
        "shortcuts": {name: {"loss": r.loss, "tv": r.tv, "exact": r.exact} for name, r in readings.items()},
        "duplicates": repeated,
    }


def _audit_lookups(made: "Task", batch: "Batch", seed: int, length: int) -> dict[str, Any]:
    """The same of tasks that ask for values: readers have no weights, only a share of right answers."""
    from lab.tasks import count_duplicates
    from lab.tasks.scoped_lookup import LOOKUP_SHORTCUTS, LookupBatch, shortcut_accuracy

    assert isinstance(batch, LookupBatch)
    readers = {name: {"right": shortcut_accuracy(name, batch)} for name in LOOKUP_SHORTCUTS}
    repeated = count_duplicates(made, COMPARED, seed=seed, length=length)
    return {"optimum loss": 0.0, "shortcuts": readers, "duplicates": repeated}


def _print_audit(found: dict[str, Any]) -> None:
    if not found:
        print("Shortcut readers and duplicates: not looked at; try a shorter --length.")
        return
    readings = [[name, *reading.values()] for name, reading in found["shortcuts"].items()]
    if all(len(reading) == 2 for reading in readings):
        print_table(["reader", "right"], [["optimum", 1.0], *readings], title="Shortcut readers")
        print("Share of uses answered right by readers that know less than the task asks for.")
    else:
        rows = [["optimum", found["optimum loss"], 0.0, 1.0], *readings]
        print_table(["reader", "loss", "TV", "exact"], rows, title="Shortcut readers")
        print(READERS)
    counted = ", ".join(f"{count} {where}" for where, count in found["duplicates"].items())
    print(f"Duplicates among the first {COMPARED} sequences of each split: {counted}.")


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
