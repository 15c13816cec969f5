"""What a user can cause, in one line; everything else is a bug and keeps its traceback."""

import errno
import os
import sqlite3
import sys
from contextlib import suppress
from typing import Any

import typer

from lab.errors import InputError, nearest

# typer and the click inside it keep the common base of their usage errors private; their public member knows it.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
USER_ERRORS = (InputError, UsageError, OSError, sqlite3.Error)

# File-system trouble that the user can mend. Any other OSError is ours.
_FILE_TROUBLE = {
    errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EINVAL, errno.EIO, errno.EISDIR, errno.ENAMETOOLONG,
    errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
_STORE_TROUBLE = (
    "disk is full", "unable to open", "readonly database", "disk I/O error", "is locked", "not a database",
    "malformed",
)  # fmt: skip


def say(message: str) -> None:
    """One line on stderr, whatever the message holds; nothing when stderr itself is gone."""
    with suppress(OSError):
        print(f"fpa-lab: {' '.join(message.split())}", file=sys.stderr, flush=True)


def describe(error: BaseException) -> str | None:
    """The line for an error that the user can mend, or None for a bug."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, UsageError):
        return _usage(error)
    if isinstance(error, OSError) and error.errno in _FILE_TROUBLE:
        return _file_trouble(error)
    if isinstance(error, sqlite3.Error) and any(text in str(error) for text in _STORE_TROUBLE):
        return f"--store: {error}"
    return None


def _usage(error: Any) -> str:
    context = error.ctx
    command = "" if context is None or context.parent is None else f"{context.info_name}: "
    unknown = getattr(error, "option_name", None)
    if unknown is not None and hasattr(error, "possibilities"):
        valid = [name for param in context.command.get_params(context) for name in param.opts if name[:2] == "--"]
        return f"{command}no such option {unknown}{nearest(unknown, valid)}"
    return command + error.format_message()


def _file_trouble(error: OSError) -> str:
    if error.filename is None:  # a write to a stream that is already open
        silence_stdout()
    where = "output" if error.filename is None else os.fsdecode(error.filename)
    return f"{where}: {error.strerror}"


def silence_stdout() -> None:
    """Points stdout at nothing, so that the interpreter's last flush does not fail a second time."""
    with suppress(OSError):  # stdout is not a file, as under a test runner
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
