"""The one error a user can cause: it becomes a single line on stderr and exit status 2."""

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Bad input: the message is one line naming the file or option, the field, and what was expected."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Ends an error message with the nearest valid name, or with all of them when none is near.

    >>> nearest("sofmax", ["softmax", "fox"])
    '; did you mean softmax?'
    >>> nearest("zzz", ["softmax", "fox"])
    '; valid: fox, softmax'
    """
    names = sorted(set(valid))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; valid: {', '.join(names)}"
