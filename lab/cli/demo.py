"""`fpa-lab demo`: the main job end to end, small enough to be watched."""

from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer

from lab.cli.certificates import print_verdicts
from lab.cli.console import working
from lab.cli.keysets import print_answer
from lab.cli.results import print_summary
from lab.cli.sweeps import compute, plan_of, print_report

EXPERIMENT, PRESET = "target_sets", "quick"
KEYS = 5
FORMATS = ("png", "pdf")
FIGURES: tuple[str, ...] = ()  # all


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where everything goes.")] = Path("demo"),
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.", show_default="one a core")] = None,
) -> int:
    """Sweep, check, draw: all of it in about two minutes.

    Runs the quick preset of target_sets (softmax, FoX and FPA heads over seeds and dimensions), checks a construction
    exactly, draws the figures and prints the summary. Run again, it computes only what is missing.

    \b
    Example:
      fpa-lab demo --out demo
    """
    print("1. A sweep of softmax, FoX and FPA heads over seeds and dimensions")
    swept = _sweep(out / "lab.sqlite", workers)
    print(f"\n2. Every non-empty set of {KEYS} keys, decided and checked exactly")
    proved = _check(out / "certificates.json")
    print("\n3. Figures from the stored results")
    _draw(out / "lab.sqlite", out / "figures")
    print("\n4. Summary")
    _summarise(out / "lab.sqlite")
    return int(not (swept and proved))


def _sweep(path: Path, workers: int | None) -> bool:
    from lab.sweeps import Store

    plan = plan_of(EXPERIMENT, PRESET)
    with Store(path) as store:
        report = compute(plan, store, workers, "cpu")
    print_report(plan, report)
    return not (report.failed or report.remaining)


def _check(certificates: Path) -> bool:
    """The decision, its certificates, and what the independent checker says of them."""
    from proofs_check.answer import check
    from proofs_check.exact import verify_file
    from proofs_check.keysets import from_options

    with working("deciding"):
        answer = check(from_options(KEYS, all_sets(KEYS)))
    answer.certificates.write(certificates)
    print_answer(answer.to_json(), short=True)
    verdicts = verify_file(str(certificates))
    print(f"\nfpa-lab verify {certificates}:")
    print_verdicts(verdicts, short=True)
    return answer.realisable and all(verdict.accepted for verdict in verdicts)


def all_sets(keys: int) -> str:
    """Every non-empty set of keys, as `check --targets` takes them.

    >>> all_sets(2)
    '1;2;1,2'
    """
    names = [str(key) for key in range(1, keys + 1)]
    return ";".join(",".join(chosen) for size in range(1, keys + 1) for chosen in combinations(names, size))


def _draw(store: Path, out: Path) -> None:
    from figures import make_figures

    with working("drawing"):
        paths = make_figures(FIGURES, store, FORMATS, out)
    for path in paths:
        if path.suffix == ".png":
            print(f"   {path}")
    print(f"   beside each: PDF, the rows it shows as CSV, and its caption ({len(paths)} files)")


def _summarise(store: Path) -> None:
    from lab.sweeps import load_frames, summarise

    frames = load_frames(store, [EXPERIMENT])
    print_summary(summarise(frames), frames)
