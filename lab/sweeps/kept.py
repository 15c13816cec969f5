"""Numbers that take long to sample and follow from source code alone, kept on disk until that code changes."""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import lab

T = TypeVar("T")

ROOT = Path(lab.__file__).parent
# Where Python keeps what it compiles, and numba its kernels: it goes with the code it belongs to.
FOLDER = Path(__file__).parent / "__pycache__"


def kept_on_disk(function: Callable[..., T]) -> Callable[..., T]:
    """Decorator: an answer that was given once is read from FOLDER, also by later processes.

    Arguments and answers are values of JSON; an answer depends on the arguments, on the source of `lab.tasks` and on
    the file of the function, and on nothing else. Where the folder cannot be written, answers are computed every time.
    """
    home = sys.modules[function.__module__].__file__
    assert home is not None
    name = f"{Path(home).stem}.{function.__name__}.json"

    @wraps(function)
    def answer(*arguments: Any) -> T:
        sources, file = _digest(Path(home)), FOLDER / name
        call = hashlib.sha256(json.dumps(arguments).encode()).hexdigest()  # options may be pages
        known = _read(file, sources)
        if call not in known:
            known = {**known, call: function(*arguments)}
            _write(file, {"sources": sources, "answers": known})
        return known[call]

    return answer


@lru_cache
def _digest(home: Path) -> str:
    """sha256 of the files that decide the answers; read once, as the code that runs was."""
    digest = hashlib.sha256()
    for path in [*sorted((ROOT / "tasks").rglob("*.py")), home]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _read(file: Path, sources: str) -> dict[str, Any]:
    """The answers that these sources gave; none where nothing, or nothing of use, was kept."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return dict(kept["answers"]) if kept["sources"] == sources else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _write(file: Path, kept: dict[str, Any]) -> None:
    """In one step, so that no other process reads half a file; of two that write at once, one is forgotten."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            draft = Path(folder) / file.name
            draft.write_text(json.dumps(kept), encoding="utf-8")
            os.replace(draft, file)
