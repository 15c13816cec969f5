"""Results as CSV files with a manifest, to be committed, read by other programs, and believed.

Equal results give equal bytes: rows are sorted, numbers have a fixed format, nothing carries a date. The manifest
has the sha256 of every file, which reading it verifies.
"""

import hashlib
import io
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from lab.errors import InputError, nearest
from lab.sweeps.frames import COLUMNS, Frames, build, load_frames
from lab.sweeps.results import SIGNIFICANT_DIGITS
from lab.sweeps.statistics import chosen_cells
from lab.sweeps.store import Store

MANIFEST = "manifest.json"
FORMAT = 1


class Table(BaseModel):
    """A published CSV: number of rows and sha256 of its bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    sha256: str


class Manifest(BaseModel):
    """Where published numbers come from. `code`: versions of the code of the cells; `environments`: what ran them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    experiment: str
    preset: str
    command: str
    seeds: list[int]
    code: list[str]
    environments: list[dict[str, Any]]
    tables: dict[str, Table]


def export(
    store: Store,
    names: Sequence[str] | None,
    out: str | os.PathLike[str],
    *,
    preset: str | None = None,
    command: str | None = None,
) -> list[Path]:
    """Writes OUT/NAME/{cells,evaluations,curves,parameters,files}.csv and manifest.json for every experiment.

    Cells whose learning rate was not chosen are published with their evaluations up to the training length alone.

    All experiments of the store when `names` is None. `command` is what makes these results, by default the sweep of
    that name and preset. Returns the folders. Raises InputError when an experiment is not in the store.
    """
    everything = load_frames(store, names, preset=preset)
    experiments = sorted(set(everything.cells["experiment"]) | set(names or ()))
    folders = []
    for name in experiments:
        cells = everything.cells[everything.cells["experiment"] == name]
        if cells.empty:
            raise InputError(f"{store.path}: {name}: nothing is computed yet")
        frames = everything.of(list(cells["cell"]))
        ran = cells["preset"].iloc[0]
        folder = Path(out) / name
        folder.mkdir(parents=True, exist_ok=True)
        tables = _write_tables(frames, folder)
        manifest = Manifest(
            format=FORMAT,
            experiment=name,
            preset=ran,
            command=command or f"fpa-lab sweep {name} --preset {ran}",
            seeds=sorted(set(frames.evaluations["seed"].tolist())),
            code=sorted(set(cells["code"])),
            environments=_environments(store, set(cells["cell"])),
            tables=tables,
        )
        (folder / MANIFEST).write_bytes((json.dumps(manifest.model_dump(), indent=2) + "\n").encode())
        folders.append(folder)
    return folders


def _write_tables(frames: Frames, folder: Path) -> dict[str, Table]:
    chosen = set(chosen_cells(frames)["cell"])
    tables = {}
    for name, frame in frames.tables().items():
        kept = frame if name == "cells" else frame[_published(name, frame, chosen)]
        data = csv_bytes(kept[list(COLUMNS[name])], exact=name == "cells")
        (folder / f"{name}.csv").write_bytes(data)
        tables[f"{name}.csv"] = Table(rows=len(kept), sha256=hashlib.sha256(data).hexdigest())
    return tables


def _published(name: str, frame: pd.DataFrame, chosen: set[str]) -> "pd.Series[bool]":
    """Which rows are published: those of the cells with the chosen learning rates, and for the others enough to check.

    That is their validation rows, which made the choice, and their test rows up to the training length, which show
    whether it was fair. Everything else stays in the store.
    """
    of_chosen = frame["cell"].isin(chosen)
    if name != "evaluations":
        return of_chosen
    return of_chosen | (frame["split"] == "validation") | (frame["factor"] <= 1)


def csv_bytes(frame: pd.DataFrame, *, exact: bool = False) -> bytes:
    """A table as CSV; numbers with the published digits, or with all that they need when `exact`."""
    digits = None if exact else f"%.{SIGNIFICANT_DIGITS}g"
    return frame.to_csv(index=False, float_format=digits, lineterminator="\n").encode()


def _environments(store: Store, cells: set[str]) -> list[dict[str, Any]]:
    rows = store.rows("SELECT DISTINCT cell, environment FROM units")
    return [json.loads(text) for text in sorted({text for cell, text in rows if cell in cells})]


def read_published(path: Path, names: Sequence[str] | None, preset: str | None, tables: Collection[str]) -> Frames:
    """Frames from the folder of one published experiment, or from a folder of several. See `load_frames`."""
    own = path / MANIFEST
    manifests = [own] if own.is_file() else sorted(path.glob(f"*/{MANIFEST}"))
    if not manifests:
        raise InputError(f"{path}: holds no published results (no {MANIFEST}); fpa-lab export makes them")
    found = {manifest.experiment: (file.parent, manifest) for file in manifests for manifest in [read_manifest(file)]}
    for name in names or ():
        if name not in found:
            raise InputError(f"{path}: holds no results of {name}{nearest(name, found)}")
    wanted = [found[name] for name in sorted(found) if names is None or name in names]
    for folder, manifest in wanted:
        if preset not in (None, manifest.preset):
            raise InputError(f"{folder}: preset: holds {manifest.preset}, not {preset}")
    parts = [_read_tables(folder, manifest, {"cells", *tables}) for folder, manifest in wanted]
    return build({name: pd.concat([part[name] for part in parts], ignore_index=True) for name in COLUMNS}, str(path))


def read_manifest(path: Path) -> Manifest:
    """The manifest of a published experiment. InputError names the field that is wrong."""
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{path}: {'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}") from None
    if manifest.format != FORMAT:
        raise InputError(f"{path}: format: {manifest.format}, expected {FORMAT}; written by another version of the lab")
    return manifest


def _read_tables(folder: Path, manifest: Manifest, read: Collection[str]) -> dict[str, pd.DataFrame]:
    tables = {name: pd.DataFrame(columns=list(columns)) for name, columns in COLUMNS.items()}
    return tables | {name: _read_table(folder / f"{name}.csv", manifest, COLUMNS[name]) for name in read}


def _read_table(path: Path, manifest: Manifest, columns: dict[str, type]) -> pd.DataFrame:
    if path.name not in manifest.tables:
        raise InputError(f"{path.parent / MANIFEST}: tables: {path.name} is not listed")
    if not path.is_file():
        raise InputError(f"{path}: is missing; {MANIFEST} lists it")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest.tables[path.name].sha256:
        raise InputError(f"{path}: sha256 differs from {MANIFEST}: the file was changed after it was exported")
    # Text first: a token may well be called NA, and a number is to be exactly the one that is written.
    frame = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(f"{path}: column {missing[0]} is missing; expected {', '.join(columns)}")
    return pd.DataFrame({column: _values(path, frame[column], kind) for column, kind in columns.items()})


def _values(path: Path, texts: "pd.Series[str]", kind: type) -> Any:
    """A column of a CSV as the type that it holds; no text is no number."""
    try:
        if kind is float:
            return texts.where(texts != "", "nan").to_numpy(object).astype(np.float64)
        return texts.to_numpy(object).astype(np.int64) if kind is int else texts
    except ValueError:
        expected = "numbers" if kind is float else "whole numbers"
        raise InputError(f"{path}: {texts.name}: expected {expected}") from None
