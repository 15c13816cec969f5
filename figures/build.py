"""From names to files: load once, draw everything, and only then write."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from figures import EXPERIMENT_OF, FIGURES, WITHOUT_RESULTS, Incomplete, style
from figures.drawing import Drawing, csv_bytes, data_hash
from lab.errors import InputError, nearest


def build(
    names: Sequence[str], source: str | PathLike[str], formats: Sequence[str], out: Path, partial: bool
) -> list[Path]:
    """See `figures.make_figures`."""
    names, formats = check_names(names) or drawable(source), style.check_formats(formats)
    loaded = load_all(names, source)
    missing = {name: lacking for name, (_, lacking) in loaded.items()}
    everything = list(dict.fromkeys(line for lines in missing.values() for line in lines))
    if everything and not partial:
        raise Incomplete(os.fspath(source), everything)
    with style.paper():
        drawings = {name: draw(name, loaded[name][0], len(missing[name])) for name in names}
    make_folder(out)
    try:
        return [path for name in names for path in write(name, drawings[name], source, formats, out, missing[name])]
    except OSError as error:
        raise InputError(f"{error.filename or out}: --out: cannot be written: {error.strerror}") from None


def check_names(names: Sequence[str]) -> list[str]:
    """The figures asked for, without duplicates."""
    for name in names:
        if name not in FIGURES:
            raise InputError(f"figures: unknown figure {name!r}{nearest(name, FIGURES)}")
    return list(dict.fromkeys(names))


def drawable(source: str | PathLike[str]) -> list[str]:
    """The figures that a source has results for, in order.

    Those of target_sets are drawn from any experiment that has no figures of its own, a sweep of one's own say.
    """
    from figures.inputs import EXPERIMENT, held

    there = set(held(source))
    general = EXPERIMENT in there or not there & set(EXPERIMENT_OF.values())
    return [name for name in FIGURES if (EXPERIMENT_OF[name] in there if name in EXPERIMENT_OF else general)]


def load_all(names: Sequence[str], source: str | PathLike[str]) -> dict[str, tuple[Any, list[str]]]:
    """By figure, its results and a line for every cell that they lack; every experiment is read once."""
    from figures import cost
    from figures.inputs import BENCH, load

    loaded: dict[str | None, tuple[Any, list[str]]] = {}
    for name in names:
        experiment = EXPERIMENT_OF.get(name)
        if name not in WITHOUT_RESULTS and experiment not in loaded:
            loaded[experiment] = (cost.load(source), []) if experiment == BENCH else load(source, experiment)
    return {name: (None, []) if name in WITHOUT_RESULTS else loaded[EXPERIMENT_OF.get(name)] for name in names}


def draw(name: str, results: Any, missing: int) -> Drawing:
    """One figure in the lab's style, stamped when results are missing."""
    module = importlib.import_module(FIGURES[name])
    if name in WITHOUT_RESULTS:
        return module.draw()
    drawing = module.draw(results)
    if missing:
        style.stamp_partial(drawing.figure, missing)
    return drawing


def make_folder(out: Path) -> None:
    """The output folder; InputError when it cannot be made or written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: --out: cannot be made: {error.strerror}") from None


def write(
    name: str,
    drawing: Drawing,
    source: str | PathLike[str],
    formats: Sequence[str],
    out: Path,
    missing: Sequence[str],
) -> list[Path]:
    """The figure in every format, its rows and its caption."""
    rows, text = out / f"{name}.csv", out / f"{name}.md"
    paths = style.save(drawing.figure, out, name, formats)
    rows.write_bytes(csv_bytes(drawing.rows))
    text.write_text(caption_file(name, drawing, source, formats, missing), encoding="utf-8")
    return [*paths, rows, text]


def caption_file(
    name: str, drawing: Drawing, source: str | PathLike[str], formats: Sequence[str], missing: Sequence[str]
) -> str:
    """The caption, the hash of the rows and the command that draws the figure again."""
    command = ["fpa-lab", "figures", name]
    if name not in WITHOUT_RESULTS:
        command += ["--source", os.fspath(source)]
    command += ["--format", ",".join(formats)]
    warning = ""
    if missing:
        command.append("--partial")
        warning = f"**Partial: {len(missing)} cells are missing.** "
    return (
        f"{warning}{drawing.caption}\n\n"
        f"Data: {name}.csv, {len(drawing.rows)} rows, sha256 {data_hash(drawing.rows)}\n\n"
        f"Command: `{shlex.join(command)}`\n"
    )
