"""Both sides of a comparison compute the same thing: a ratio between different things says nothing."""

import json

import pytest
import torch

from lab.bench import plain_loop, step, sweep
from lab.bench.measure import Settings
from lab.heads import head_config
from lab.sweeps.plan import Cell, Evaluation, TaskConfig
from lab.tasks import make_task
from lab.training import run_cell, train
from lab.training.recipe import Recipe


@pytest.mark.parametrize("smoothing", [0.0, step.SMOOTHED])
def test_steps_give_the_same_gradients(smoothing):
    given = step.inputs("fpa", seeds=2, batch=3, length=9, dim=4)
    fused, definition, ordinary = (
        side(given, smoothing) for side in (step.fused_step, step.definition_step, step.ordinary_step)
    )
    for ours, one, other in zip(fused, definition, ordinary, strict=True):
        torch.testing.assert_close(ours, one, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-6)


def test_the_trainers_step_and_the_reference_operations_give_the_same_gradients():
    one, other = (make(step.LAB_FPA, 2, 3, 9)() for make in (step.trainer_step, step.reference_head_step))
    for ours, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_attention_and_its_alternatives_give_the_same_output_and_gradients():
    from lab.bench import attention

    given = attention.inputs(1, 2, 33, 8)
    torch.testing.assert_close(attention.attend_fpa(given), attention.attend_biased(given), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(
        attention.step(attention.attend_fpa, given), attention.step(attention.attend_biased, given), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_the_table_of_minima_that_flex_attention_reads():
    from lab.bench import attention

    field = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0])
    expected = [[3.0, 1.0, 2.0, 5.0, 4.0], [1.0, 1.0, 2.0, 4.0, 4.0], [1.0, 1.0, 2.0, 4.0, 4.0]]
    assert attention.minima(field).tolist() == expected


def test_what_flex_attention_is_told_is_first_passage_attention():
    """Its score_mod on every causal pair, as FlexAttention calls it, without what compiles it."""
    from lab.bench import attention

    given = attention.inputs(2, 3, 33, 8, grad=False)
    score = attention.first_passage_score(given.field, given.level)
    logits = given.query @ given.key.transpose(-1, -2) / 8**0.5
    places = torch.meshgrid(*(torch.arange(n) for n in logits.shape), indexing="ij")
    scored = score(logits, *places).masked_fill(places[2] < places[3], float("-inf"))
    torch.testing.assert_close(scored.softmax(-1) @ given.value, attention.attend_fpa(given), rtol=1e-4, atol=1e-5)


NUMBERS = ("loss", "excess_loss", "tv", "exact", "mass", "window", "gap", "queries")
CELLS = [
    ("nested-scope", "softmax-relative", 2),
    ("nested-scope", "fox-gate0", 2),
    ("nested-scope", "fpa-walk-offset", 1),
    ("leveled-dips", "fpa-direct-free", 1),
    ("subset-drop", "fpa-walk-tied", 1),
]


def cell_of(task: str, head: str, dim: int) -> Cell:
    config = TaskConfig(name=task)
    length = config.make().train_length
    return Cell(
        experiment="bench", task=config, head=head_config(head, dim), recipe=Recipe(steps=40, learning_rate=0.03),
        evaluations=(
            Evaluation(task=config, split="validation", lengths=(length,), sequences=20),
            Evaluation(task=config, split="test", lengths=(length, 2 * length), sequences=20),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("task", "head", "dim"), CELLS)
def test_the_plain_loop_trains_to_the_same_numbers_as_the_trainer(task, head, dim):
    cell = cell_of(task, head, dim)
    config = json.loads(cell.config)
    trained = train(make_task(task), cell.head, cell.recipe, [3])
    model, curve = plain_loop.train(config, 3)
    assert curve == pytest.approx(trained.curve[0].tolist(), rel=5e-3, abs=1e-4)
    rows = list(plain_loop.evaluate(model, config, 3, "no files"))
    ours = run_cell(cell, [3]).evaluations
    assert len(rows) == len(ours) == 3
    for row, stored in zip(rows, ours, strict=True):
        for plain, name in (("loss", "loss"), ("tv", "tv"), ("mass", "mass"), ("window", "window_mean")):
            assert row[plain] == pytest.approx(stored[name], rel=1e-2, abs=1e-3), name
        assert row["queries"] == stored["queries"]
        assert row["exact"] == pytest.approx(stored["exact"], abs=0.05)


def test_evaluation_in_chunks_is_evaluation(monkeypatch):
    config = json.loads(cell_of("nested-scope", "fpa-walk-tied", 1).config)
    task = make_task("nested-scope")
    model = plain_loop.PlainHead(config["head"], 3, task.train_length, config["recipe"], 0)
    whole = list(plain_loop.evaluate(model, config, 0, "no files"))
    monkeypatch.setattr(plain_loop, "MOST_LOGITS", 7 * task.train_length**2)
    for row, same in zip(plain_loop.evaluate(model, config, 0, "no files"), whole, strict=True):
        assert [row[name] for name in NUMBERS] == pytest.approx([same[name] for name in NUMBERS], rel=1e-5)


def test_the_sample_has_one_seed_of_every_task_and_kind_and_changes_from_turn_to_turn():
    from experiments.target_sets import plan

    quick = plan("quick")
    first, second = sweep.sample(quick, 0), sweep.sample(quick, 1)
    kinds = {sweep.stratum(cell) for cell in quick.cells}
    for chosen in (first, second):
        assert len(chosen) == len(kinds)
        assert {sweep.stratum(cell) for cell, _ in chosen} == kinds
    assert {seed for _, seed in first}.isdisjoint({seed for _, seed in second})
    assert sweep.sample(quick, 0) == first


def test_the_sweep_is_held_against_what_its_seeds_would_take_one_by_one(monkeypatch):
    """A sweep of 100 s; plain loops of 8 s on two cores, of which 3 s are the start of the process."""
    monkeypatch.setattr(sweep, "warm_up", lambda plan: None)
    monkeypatch.setattr(sweep, "sweep_seconds", lambda store, workers: 100.0)
    monkeypatch.setattr(sweep, "source_files", lambda plan, folder: folder / "files.npz")
    timed = [
        sweep.Plain(task, kind, "", 0, 8.0, 5.0)
        for task in ("nested-scope", "leveled-dips", "subset-drop")
        for kind in ("softmax", "fox", "fpa")
    ]
    monkeypatch.setattr(sweep, "plain_seconds", lambda chosen, files, processes: timed[: len(chosen)])
    found = sweep.run(Settings(quick=False, threads=2), lambda fraction, note: None)
    seeds = 100.0 / found.results[0].sides["quick target_sets sweep"]
    whole, inside = (result.value.median for result in found.results)
    assert whole == pytest.approx(100.0 / seeds / 4.0)
    assert inside == pytest.approx(100.0 / seeds / 2.5)
    assert (found.results[0].value.n, found.results[0].bar, found.results[1].bar) == (2, "1/15", None)
    assert len(found.tables["plain loops"]) == 18
    assert found.tables["plain loops"][0]["sweep_seconds"] == pytest.approx(100.0)


def test_weights_are_the_cells_of_a_kind():
    from experiments.target_sets import plan

    quick = plan("quick")
    timed = [
        sweep.Plain(*kind, "", 0, 1.0 if kind[1] == "fpa" else 2.0, 0.5) for kind in map(sweep.stratum, quick.cells)
    ]
    share = sum(cell.head.kind == "fpa" for cell in quick.cells) / len(quick.cells)
    assert sweep.weighted(quick, timed, "process_seconds") == pytest.approx(2.0 - share)
    assert sweep.weighted(quick, timed, "seconds") == pytest.approx(0.5)


def test_a_plain_loop_runs_as_a_process_and_reads_source_files(tmp_path):
    """As the bench starts it, with one file of each kind: scored, and without any query."""
    import numpy as np

    config = json.loads(cell_of("nested-scope", "softmax-none", 1).config)
    config["recipe"]["steps"] = 2
    config["evaluations"] = [{"task": {"name": "source-scopes", "options": {}}, "split": "test", "lengths": []}]
    (tmp_path / "cell.json").write_text(json.dumps(config))
    scored = {"tokens0": np.array([0, 0]), "death0": np.array([2, 2]), "queries0": np.array([1, 3])}
    unscored = {f"{part}1": np.zeros(2, int) for part in plain_loop.PARTS}
    np.savez(tmp_path / "files.npz", **scored, **unscored)
    answer = sweep.run_plain(tmp_path / "cell.json", 0, tmp_path / "files.npz")
    assert answer["seconds"] > 0
    (row,) = answer["evaluations"]
    assert (row["file"], row["queries"], row["exact"]) == (0, 4.0, 1.0)
