"""Options that several commands share, and how their text is read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lab.errors import InputError, nearest

DEFAULT_STORE = Path("results/lab.sqlite")
# More than anyone trains, and few enough to be listed.
MOST_SEEDS = 10_000

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="cpu, or cuda where there is one.")]
Profile = Annotated[bool, typer.Option("--profile", help="Say where the time went, phase by phase.")]
StoreFile = Annotated[Path, typer.Option("--store", metavar="FILE", help="The store of results, made when missing.")]


def words(texts: Sequence[str] | None, option: str = "NAME") -> list[str]:
    """The parts of repeated and comma-separated options, in order, each once; none when the option was not given.

    Raises InputError when it was given and names nothing, as with an unset variable of the shell: that asks neither
    for everything nor for nothing.

    >>> words(["fox-gate0,fox-gate4", "fpa-walk-tied"])
    ['fox-gate0', 'fox-gate4', 'fpa-walk-tied']
    """
    parts = (part.strip() for text in texts or () for part in text.split(","))
    found = list(dict.fromkeys(part for part in parts if part))
    if texts and not found:
        raise InputError(f"{option}: {','.join(texts)!r}: expected at least one name or number")
    return found


def numbers(option: str, texts: Sequence[str] | None, *, least: int) -> list[int]:
    """Whole numbers of at least `least`; raises InputError naming the option and the text that is none."""
    for word in words(texts, option):
        if not word.removeprefix("-").isdecimal() or int(word) < least:
            raise InputError(f"{option}: {word}: expected whole numbers of at least {least}, such as 1,2,4")
    return [int(word) for word in words(texts)]


def task_options(texts: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs as a task's options; values are read as YAML scalars.

    >>> task_options(["max_depth=2", "dips=at-end"])
    {'max_depth': 2, 'dips': 'at-end'}
    """
    import yaml

    options = {}
    for pair in texts or ():
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise InputError(f"--option: {pair}: expected NAME=VALUE, such as max_depth=2")
        try:
            options[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(f"--option: {name}: {value}: expected a plain value") from None
    return options


def check_device(device: str) -> str:
    """The device, if there is one; raises InputError otherwise."""
    if device not in ("cpu", "cuda"):
        raise InputError(f"--device: {device}{nearest(device, ('cpu', 'cuda'))}")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("--device: cuda: this machine has no CUDA device that torch can use")
    return device
