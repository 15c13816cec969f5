"""What the values of a certificate may be, and how the first false statement is reported."""

import json
import re
from collections.abc import Collection
from fractions import Fraction
from typing import Any

MAX_DIGITS = 400
_LIMIT = 10**MAX_DIGITS


class Rejected(Exception):
    """The first false statement of a certificate."""


def need(true: Any, otherwise: str) -> None:
    """Rejects unless the statement is true."""
    if not true:
        raise Rejected(otherwise)


def fields(value: Any, names: Collection[str], where: str) -> None:
    """Rejects unless `value` is a mapping with exactly these fields."""
    need(isinstance(value, dict), f"{where}: expected a mapping, found {show(value)}")
    for name in names:
        if name not in value:
            raise Rejected(f"{where}: the field {show(name)} is missing")
    need(len(value) == len(names), f"{where}: unknown field {show(next((n for n in value if n not in names), ''))}")


def entries(value: Any, where: str) -> list[Any]:
    """The value, if it is a list."""
    if not isinstance(value, list):
        raise Rejected(f"{where}: expected a list, found {show(value)}")
    return value


def whole(value: Any, where: str) -> int:
    """The value, if it is a whole number (true is none) of bounded size."""
    if type(value) is not int or not -_LIMIT < value < _LIMIT:
        raise Rejected(f"{where}: expected a whole number, found {show(value)}")
    return value


def rational(value: Any, where: str) -> int | Fraction:
    """A whole number, or the fraction that a text "p/q" spells."""
    if not isinstance(value, str):
        return whole(value, where)
    match = re.fullmatch(r"-?[0-9]{1,400}/([0-9]{1,400})", value)
    need(match and int(match[1]), f"{where}: expected a whole number or a fraction 'p/q', found {show(value)}")
    return Fraction(value)


def show(value: Any) -> str:
    """A value in a message, short whatever its size."""
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    if type(value) is int and abs(value) >= _LIMIT:
        return "a number of too many digits"
    return json.dumps(value if not isinstance(value, str) else value[:60], default=lambda _: "another type")
