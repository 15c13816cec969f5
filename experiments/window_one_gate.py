"""The open row of fox-table (THEORY.md): FoX with one gate for all drops, windows, all subsets of n keys, free queries.

The least content dimension lies between floor(n / 2), which fox-pairs proves, and ceil(2n / 3) - 1, which a
construction reaches. This searches every dimension from the one to the other for n = 3..7:

    python -m experiments.window_one_gate [--out DIR]

A head counts only if it is exact: found by training from many starts, rounded to fractions and measured in them, or the
construction; it is written out as a certificate that `fpa-lab verify` checks. Where none is found at ratio 1/4 of
window to gap, heads are trained for ratios up to 0.999, and the ratio that they come to is reported. A ratio that comes
ever nearer to 1, and never below, is no proof that there is no head, but the look of one: of a bound that is met
exactly where windows stop to be windows.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.errors import InputError
from proofs_check.bounds.cases import Cases, cases
from proofs_check.bounds.lower import ONE_GATE, Head
from proofs_check.certificates import Certificates
from proofs_check.constructions import dim_search, fox_table, upper
from proofs_check.keysets import Family

FOLDER = Path(__file__).parent / "published" / "window_one_gate"
TABLE = "searched.csv"
HEAD = Head("fox", ONE_GATE)
KEYS = (3, 4, 5, 6, 7)
RATIO = Fraction(1, 4)
# Ratios that are tried where there is no head of ratio 1/4.
RATIOS = (Fraction(1, 4), Fraction(3, 4), Fraction(9, 10), Fraction(99, 100), Fraction(999, 1000))
# One dimension below what fox-pairs allows: what it looks like where there is no head.
CONTROLS = (4, 6)
STARTS, STEPS = 12, 3000
COLUMNS = ("keys", "dimension", "how", "starts", "asked_ratio", "loss", "window", "gap", "ratio", "certificate")


def all_subsets(keys: int) -> Family:
    """Every non-empty subset, dips after each key."""
    names = tuple(str(key + 1) for key in range(keys))
    targets = tuple(of for size in range(1, keys + 1) for of in combinations(range(keys), size))
    return Family(names, targets, tuple(range(keys)))


def search(keys: int, out: Path, starts: int = STARTS, steps: int = STEPS) -> Iterator[dict[str, object]]:
    """Rows for the controls and for the dimensions between the bounds, from below, until a head is found; writes its
    certificate."""
    spec = all_subsets(keys)
    family = cases(spec)
    if keys in CONTROLS:
        excluded: dict[str, object] = {"keys": keys, "dimension": keys // 2 - 1, "how": "excluded", "starts": starts}
        yield from _misses(excluded, family, keys // 2 - 1, starts, steps)
    for dimension in range(keys // 2, -(-2 * keys // 3)):
        row: dict[str, object] = {"keys": keys, "dimension": dimension, "starts": starts}
        found, how = dim_search.attempt(family, HEAD, "window", RATIO, dimension, starts, steps), "training"
        if found is None:
            known = fox_table.window_one_gate(family, RATIO)
            found, how = (known, "construction") if known and known.dimension == dimension else (None, "")
        if found is not None:
            window, gap = found.measure(family)
            certificates = Certificates(spec)
            certificates.add("construction", "construction", *upper.construction(found, (window, gap), RATIO))
            file = out / f"{keys}_keys_dimension_{dimension}.json"
            certificates.write(file)
            assert gap is not None
            measured = {"window": window, "gap": gap, "ratio": float(window / gap)}
            yield row | {"how": how, "asked_ratio": RATIO, "certificate": file.name} | measured
            return
        yield from _misses(row | {"how": "none found"}, family, dimension, starts, steps)


def _misses(
    row: dict[str, object], family: Cases, dimension: int, starts: int, steps: int
) -> Iterator[dict[str, object]]:
    for ratio in RATIOS:
        loss, window, gap = dim_search.nearest(family, HEAD, ratio, dimension, starts, steps)
        measured = {"loss": f"{loss:.3g}", "window": f"{window:.6g}", "gap": f"{gap:.6g}"}
        yield row | {"asked_ratio": ratio, "ratio": f"{window / gap:.6g}"} | measured


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER)
    try:
        write(parser.parse_args(argv).out)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the table is not written", file=sys.stderr)
        return 130
    return 0


def write(out: Path) -> None:
    """The searches of all KEYS, printed as they go; certificates and table reach the folder at the end, the table last.

    InputError where that is no folder that can be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = TemporaryDirectory(dir=out, prefix=".search-")
    except OSError as error:
        raise InputError(f"--out: {out}: expected a folder to write to: {error.strerror}") from None
    with folder as name:
        rows = []
        for keys in KEYS:
            for row in search(keys, Path(name)):
                rows.append(row)
                print(", ".join(f"{column} {row[column]}" for column in COLUMNS if column in row), flush=True)
        with (Path(name) / TABLE).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        for found in sorted(Path(name).iterdir(), key=lambda file: (file.name == TABLE, file.name)):
            found.replace(out / found.name)


if __name__ == "__main__":
    sys.exit(main())
