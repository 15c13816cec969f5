"""Rows out of a damaged SQLite file, page by page, without following its trees: one bad page costs its own rows only.

The format is that of https://www.sqlite.org/fileformat2.html, sections 1.6 (pages), 2.1 (records) and 4 (the log).
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MAGIC = b"SQLite format 3\0"
DEFAULT_PAGE = 4096
ROWS = 0x0D  # a page that holds rows of a table
KEYS, INNER_KEYS = 0x0A, 0x02  # pages of an index: its last level, and those above, which hold entries too
LOG_HEADER, FRAME_HEADER = 32, 24

Value = int | float | str | bytes | None


def carve(path: Path) -> Iterator[tuple[int | None, tuple[Value, ...]]]:
    """Number and values of every row of every table that can still be read, in no particular order.

    So are the entries of indexes, whose number is None: their columns, and the number of the row that they are of.
    Pages on the list of free ones are left out; rows that reach into a lost page are, too. SQLite keeps no checksums: a
    value whose bytes were replaced by others of the same length is taken as it is.
    """
    data = path.read_bytes()
    size = _page_size(data)
    pages = {1 + start // size: data[start : start + size] for start in range(0, len(data) - size + 1, size)}
    pages |= _log(path.with_name(f"{path.name}-wal"), size)
    free = _free(pages)
    for number, page in pages.items():
        if number not in free:
            yield from _records(pages, page, 100 if number == 1 else 0)


def missing_pages(path: Path) -> tuple[int, int]:
    """How many pages of the file are blank or cut off, and how many there should be."""
    data = path.read_bytes()
    size = _page_size(data)
    said = int.from_bytes(data[28:32], "big") if data.startswith(MAGIC) else 0
    blank = sum(not any(data[start : start + size]) for start in range(0, len(data), size))
    total = max(said, -(-len(data) // size))
    return blank + total - len(data) // size, total


def _page_size(data: bytes) -> int:
    size = int.from_bytes(data[16:18], "big") if data.startswith(MAGIC) else DEFAULT_PAGE
    size = 65536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else DEFAULT_PAGE


def _log(path: Path, size: int) -> dict[int, bytes]:
    """Pages as the last whole transaction of the write-ahead log left them."""
    if not path.is_file():
        return {}
    log = path.read_bytes()
    if len(log) < LOG_HEADER or int.from_bytes(log[8:12], "big") != size:
        return {}
    order = ">" if log[3] & 1 else "<"  # of the words that checksums add up
    sums = _checksum(log[:24], (0, 0), order)
    if sums != struct.unpack(">2I", log[24:32]):
        return {}
    committed: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    step = FRAME_HEADER + size
    for start in range(LOG_HEADER, len(log) - step + 1, step):
        number, commit, first, second, *stated = struct.unpack(">6I", log[start : start + FRAME_HEADER])
        page = log[start + FRAME_HEADER : start + step]
        sums = _checksum(page, _checksum(log[start : start + 8], sums, order), order)
        if struct.pack(">2I", first, second) != log[16:24] or list(sums) != stated:
            break  # of an earlier life of the log, or cut off
        pending[number] = page
        if commit:
            committed |= pending
            pending = {}
    return committed


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2]):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _free(pages: Mapping[int, bytes]) -> set[int]:
    """Numbers of the pages that the header lists as free: they hold what was deleted."""
    free: set[int] = set()
    head = pages.get(1, b"")
    trunk = int.from_bytes(head[32:36], "big") if head.startswith(MAGIC) else 0
    while trunk in pages and trunk not in free:
        free.add(trunk)
        following, count = struct.unpack(">2I", pages[trunk][:8])
        listed = pages[trunk][8 : 8 + 4 * min(count, len(pages[trunk]) // 4 - 2)]
        free.update(struct.unpack(f">{len(listed) // 4}I", listed))
        trunk = following
    return free


def _records(pages: Mapping[int, bytes], page: bytes, start: int) -> Iterator[tuple[int | None, tuple[Value, ...]]]:
    kind = page[start]
    if kind not in (ROWS, KEYS, INNER_KEYS):
        return
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    first = start + (12 if kind == INNER_KEYS else 8)
    pointers = page[first : first + 2 * count]
    for offset in struct.unpack(f">{len(pointers) // 2}H", pointers[: len(pointers) // 2 * 2]):
        try:
            yield _cell(pages, page, kind, offset)
        except (IndexError, KeyError, ValueError, struct.error):
            continue  # this one is lost


def _cell(pages: Mapping[int, bytes], page: bytes, kind: int, offset: int) -> tuple[int | None, tuple[Value, ...]]:
    size, row = len(page), None
    length, offset = _varint(page, offset + (4 if kind == INNER_KEYS else 0))  # the page below comes first
    if kind == ROWS:
        row, offset = _varint(page, offset)
    here, most = length, size - 35 if kind == ROWS else (size - 12) * 64 // 255 - 23
    if length > most:  # the rest is in a chain of overflow pages
        least = (size - 12) * 32 // 255 - 23
        here = least + (length - least) % (size - 4)
        here = here if here <= most else least
    payload = page[offset : offset + here]
    following = int.from_bytes(page[offset + here : offset + here + 4], "big")
    while len(payload) < length:
        overflow = pages[following]
        following = int.from_bytes(overflow[:4], "big")
        payload += overflow[4 : 4 + length - len(payload)]
        if (following == 0) != (len(payload) == length):
            raise ValueError("a chain of pages of another length than the record")
    return row, _record(payload)


def _record(payload: bytes) -> tuple[Value, ...]:
    head, offset = _varint(payload, 0)
    kinds = []
    while offset < head:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
    values = []
    for kind in kinds:
        value, offset = _value(payload, offset, kind)
        values.append(value)
    if offset != len(payload):
        raise ValueError("a record of another length than it says")
    return tuple(values)


def _value(payload: bytes, offset: int, kind: int) -> tuple[Value, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), offset
    length = {5: 6, 6: 8, 7: 8}.get(kind, kind) if kind < 8 else (kind - 12) // 2
    raw = payload[offset : offset + length]
    if len(raw) < length or kind in (10, 11):
        raise ValueError("a value of no known type, or cut off")
    value: Any = raw
    if kind == 7:
        (value,) = struct.unpack(">d", raw)
    elif kind < 7:
        value = int.from_bytes(raw, "big", signed=True)
    elif kind % 2:
        value = raw.decode()
    return value, offset + length


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[offset + count]
        if count == 8:
            return value << 8 | byte, offset + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, offset + count + 1
