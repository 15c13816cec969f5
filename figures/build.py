"""From names to files: load once, draw everything, and only then write."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from figures import FIGURES, WITHOUT_RESULTS, Incomplete, style
from figures.drawing import Drawing, csv_bytes, data_hash
from lab.errors import InputError, nearest

if TYPE_CHECKING:
    from figures.inputs import Results


def build(
    names: Sequence[str], source: str | PathLike[str], formats: Sequence[str], out: Path, partial: bool
) -> list[Path]:
    """See `figures.make_figures`."""
    names, formats = check_names(names), style.check_formats(formats)
    results: Results | None = None
    missing: list[str] = []
    if not WITHOUT_RESULTS.issuperset(names):
        from figures.inputs import load

        results, missing = load(source)
        if missing and not partial:
            raise Incomplete(os.fspath(source), missing)
    with style.paper():
        drawings = {name: draw(name, results, len(missing)) for name in names}
    make_folder(out)
    try:
        return [path for name in names for path in write(name, drawings[name], source, formats, out, missing)]
    except OSError as error:
        raise InputError(f"{error.filename or out}: --out: cannot be written: {error.strerror}") from None


def check_names(names: Sequence[str]) -> list[str]:
    """The figures asked for, without duplicates; all of them when none is named."""
    for name in names:
        if name not in FIGURES:
            raise InputError(f"figures: unknown figure {name!r}{nearest(name, FIGURES)}")
    return list(dict.fromkeys(names)) or list(FIGURES)


def draw(name: str, results: Results | None, missing: int) -> Drawing:
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
    if missing and name not in WITHOUT_RESULTS:
        command.append("--partial")
        warning = f"**Partial: {len(missing)} cells are missing.** "
    return (
        f"{warning}{drawing.caption}\n\n"
        f"Data: {name}.csv, {len(drawing.rows)} rows, sha256 {data_hash(drawing.rows)}\n\n"
        f"Command: `{shlex.join(command)}`\n"
    )
