"""Compiled kernels on disk are dropped when any file that may be compiled into them has changed.

numba keeps a kernel until the file that defines it changes. A function of another file that was compiled into it may
change meanwhile, by an edit or a `git pull`, and the old machine code would go on being run, under the new version.
"""

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("ops", "tasks", "tasks/kernels", "training")
STAMP = "kernels.sha256"


def source_digest(root: Path, packages: Sequence[str] = PACKAGES) -> str:
    """sha256 over the sources that kernels are compiled from, below `root`, the folder of the package."""
    sources = sorted(path for name in packages for path in (root / name).glob("*.py"))
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def drop_stale(root: Path, packages: Sequence[str] = PACKAGES) -> str:
    """Removes numba's files below `root` unless they were made from the sources there now; returns `source_digest`.

    Called before any kernel is loaded. Where the folder cannot be written nothing is removed: an installation there is
    replaced as a whole, and numba sees that every file is new.
    """
    digest = source_digest(root, packages)
    stamp = root / packages[0] / "__pycache__" / STAMP
    with contextlib.suppress(OSError):
        if stamp.is_file() and stamp.read_text() == digest:
            return digest
        for name in packages:
            for kernel in (root / name / "__pycache__").glob("*.nb[ic]"):
                kernel.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest)
    return digest
