"""Numbers that take long to sample and follow from source code alone, kept on disk until that code changes."""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

import lab
from lab.kernel_cache import source_digest

ROOT = Path(lab.__file__).parent
# Where Python keeps what it compiles: it goes with the code it belongs to.
FOLDER = Path(__file__).parent / "__pycache__"

Levels = dict[str, float]


def kept_on_disk(function: Callable[..., Levels]) -> Callable[..., Levels]:
    """Decorator: an answer that was given once is read from FOLDER, also by later processes.

    Arguments are values of JSON. An answer depends on them, on the source of `lab.tasks` and of the file of the
    function, and on nothing else: what else there is (files that a task reads) must be named by an argument. Where the
    folder cannot be written, answers are computed every time.
    """
    home = Path(str(sys.modules[function.__module__].__file__))
    own = hashlib.sha256(home.read_bytes()).hexdigest()
    name = f"{home.stem}.{function.__name__}.json"

    @wraps(function)
    def answer(*arguments: Any) -> Levels:
        from lab.tasks import SOURCES

        file, code = FOLDER / name, [SOURCES, own, np.__version__]
        call = hashlib.sha256(json.dumps(arguments).encode()).hexdigest()  # options may be pages
        known = _read(file, code).get(call)
        if known is None:
            known = function(*arguments)
            # Kernels are imported when they are first called: if sources changed since then, who knows what ran.
            if source_digest(ROOT) == SOURCES:
                _write(file, {"code": code, "answers": {**_read(file, code), call: known}})
        return known

    return answer


def _read(file: Path, code: list[str]) -> dict[str, Levels]:
    """The answers that this code gave; none where nothing, or nothing of use, was kept."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        answers = kept["answers"] if kept["code"] == code else {}
        return {call: {metric: float(level) for metric, level in levels.items()} for call, levels in answers.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _write(file: Path, kept: dict[str, Any]) -> None:
    """In one step, so that no other process reads half a file. What two write at once may have to be computed again."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            draft = Path(folder) / file.name
            draft.write_text(json.dumps(kept), encoding="utf-8")
            os.replace(draft, file)
