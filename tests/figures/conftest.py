"""A small sweep of made-up results, run through the real plan, store and summary: FPA succeeds, baselines do not."""

import numpy as np
import pytest

from lab.heads.config import head_config
from lab.sweeps import Cell, CellResult, Curves, Evaluation, InlineExecutor, Plan, Store, TaskConfig, run
from lab.training.recipe import Recipe

HEADS = {
    "nested-scope": ("fpa-walk-tied", "fpa-walk-offset", "fox-gate0", "softmax-none", "softmax-alibi"),
    "leveled-dips": ("fpa-walk-tied", "fpa-direct-free", "fox-gate4", "softmax-relative"),
    "subset-drop": ("fpa-walk-offset", "fox-gate0", "softmax-none"),
}
FITTING = {
    ("nested-scope", "fpa-walk-tied"),
    ("nested-scope", "fpa-walk-offset"),
    ("leveled-dips", "fpa-direct-free"),
    ("subset-drop", "fpa-walk-offset"),
}
FACTORS = (1, 4)
SEEDS = range(4)
LEARNED = {
    "nested-scope": {"key": 0.0, "open": 4.0, "close": -4.0},
    "subset-drop": {"key": 3.0, "drop": -3.0, "keep": 0.5, "query": 0.0},
    "leveled-dips": {f"key{i}": 9.0 for i in range(1, 5)} | {f"dip{i}": 2.0 * i + 0.5 for i in range(1, 5)},
}


def make_plan() -> Plan:
    """Every head of HEADS at dimensions 1 and 4; baselines at two learning rates."""
    cells = []
    for name, heads in HEADS.items():
        task = TaskConfig(name=name)
        train = task.make().train_length
        lengths = tuple(train * factor for factor in FACTORS)
        evaluations = [
            Evaluation(task=task, split="validation", lengths=(train,)),
            Evaluation(task=task, lengths=lengths),
        ]
        if name == "nested-scope":
            evaluations.append(Evaluation(task=TaskConfig(name="source-scopes")))
        for head in heads:
            for dim in (1, 4):
                for rate in (0.05,) if head.startswith("fpa") else (0.01, 0.05):
                    cells.append(
                        Cell(
                            experiment="target_sets",
                            task=task,
                            head=head_config(head, dim),
                            recipe=Recipe(learning_rate=rate),
                            evaluations=tuple(evaluations),
                        )
                    )
    return Plan("target_sets", "quick", cells, SEEDS, block=4)


def made_up(cell, seeds, progress) -> CellResult:
    """Numbers that look like a trained cell's, from the cell and the seed alone."""
    name, head, dim = cell.task.name, cell.head.label, cell.head.dim
    fits = (name, head) in FITTING
    evaluations, parameters, files, curves = [], [], [], []
    steps = np.arange(0, 201, 20)
    for seed in seeds:
        rng = np.random.default_rng([seed, dim, len(head)])
        succeeds = fits and not (dim == 1 and seed == 3)
        for evaluation in cell.evaluations:
            for length in evaluation.lengths or (0,):
                factor = length / cell.task.make().train_length
                exact = 1 - 0.001 * seed if succeeds else 0.4 / (1 + factor) + 0.02 * rng.random()
                loss = (0.01 if fits else 0.5) + 0.001 * dim + abs(np.log10(cell.recipe.learning_rate / 0.05)) * 0.1
                place = {"task": evaluation.task.label, "split": evaluation.split, "length": length, "factor": factor}
                numbers = dict.fromkeys(("mass", "window_mean", "window_max", "gap_mean", "gap_min"), 0.5)
                numbers |= {"loss": loss, "excess_loss": loss, "tv": 0.01 if succeeds else 0.5, "exact": exact}
                evaluations.append({"seed": seed, "queries": 100, "success": int(succeeds), **place, **numbers})
        curves.append(0.005 + np.exp(-steps / 20) if fits else 0.4 + np.exp(-steps / 60) + 0.01 * seed)
        parameters += learned(name, head, seed, rng)
    if name == "nested-scope":
        files = [file_row(number, len(seeds), fits) for number in range(12)]
    return CellResult(evaluations, 7, Curves(steps, np.stack(curves)), parameters, files)


def learned(name, head, seed, rng):
    """Increments, offsets, fields and levels near those of the theory, at a scale of the seed's own."""
    if not head.startswith("fpa"):
        return []
    scale = 1 + 0.1 * seed
    shape = "increment" if "walk" in head else "field"
    values = {token: scale * (value + 0.01 * rng.normal()) for token, value in LEARNED[name].items()}
    rows = [{"seed": seed, "name": shape, "token": token, "value": value} for token, value in values.items()]
    if head.endswith("offset"):
        rows += [{"seed": seed, "name": "offset", "token": token, "value": -0.3 * scale} for token in values]
    if head.endswith("free"):
        levels = {f"key{i}": 2.0 * i for i in range(1, 5)}
        rows += [{"seed": seed, "name": "level", "token": t, "value": scale * v} for t, v in levels.items()]
    return rows


def file_row(number, seeds, fits):
    length = 30 * 2**number
    exact = 1.0 if fits else 0.9 / (1 + number)
    return {
        "file": f"package/module{number}.py",
        "seq_len": length,
        "scopes": length // 10,
        "queries": length // 3,
        "seeds": seeds,
        "exact_mean": exact,
        "exact_min": exact,
        "tv_mean": 1 - exact,
        "perfect": seeds if fits else 0,
    }


def _store(path, run_unit):
    with Store(path) as store:
        run(make_plan(), store, InlineExecutor(), run_unit=run_unit)
    return path


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """A store that holds everything its plan asked for."""
    return _store(tmp_path_factory.mktemp("figures") / "complete.sqlite", made_up)


@pytest.fixture(scope="session")
def incomplete_store(tmp_path_factory):
    """The same, but every unit of FoX at dimension 4 failed."""

    def breaks(cell, seeds, progress):
        if cell.head.kind == "fox" and cell.head.dim == 4:
            raise RuntimeError("made up")
        return made_up(cell, seeds, progress)

    return _store(tmp_path_factory.mktemp("figures") / "incomplete.sqlite", breaks)


@pytest.fixture(scope="session")
def results(store):
    from figures.inputs import load

    loaded, missing = load(store)
    assert missing == []
    return loaded
