"""Lookups: the compiled pass against the definition, seeds on their own, and what a head can and cannot represent."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch.nn import functional as F

from lab.errors import InputError
from lab.heads import head_config, make_head
from lab.ops import reference
from lab.sweeps.plan import Cell, Evaluation, TaskConfig
from lab.tasks import make_task
from lab.training import Recipe, lookup, lookup_cells, run_cell
from lab.training.lookup import (
    IN_FORCE,
    LIVE,
    Readout,
    TrainedLookup,
    answer_reading,
    found_reading,
    live_reading,
    lookup_loss,
    lookup_rows,
    read_lookup,
    train_lookup,
)

HEADS = (
    *("softmax-none", "softmax-alibi", "softmax-relative", "fox-gate0", "fpa-walk-tied", "fpa-direct-free"),
    *("fpa-walk-tied-alibi", "fpa-walk-offset-alibi", "fpa-walk-tied-gate", "fpa-walk-offset-gate"),
)
SEEDS = (0, 4)


def task(**options):
    return make_task("scoped-lookup", **{"train_length": 20, "symbols": 4, "values": 5, **options})


def head_of(label, made, seeds=SEEDS, dim=3, **options):
    config = head_config(label, dim, **options)
    return make_head(config, len(made.vocabulary), seeds, max_len=12, initial_scale=0.5)


def dense(head, readout, batch, smoothing=0.0):
    """Losses, weights and logits by the definition: reference operations and autograd, nothing compiled."""
    logits = head.logits(torch.from_numpy(batch.tokens), smoothing=smoothing).double()
    weights = reference.masked_softmax(logits)
    seed = torch.arange(len(batch.tokens))[:, None, None]
    bound = readout.value[seed, torch.from_numpy(batch.values)].double()
    answers = (weights @ bound) @ readout.readout[:, None].double() + readout.constant[:, None, None].double()
    scored = torch.from_numpy(batch.queries > 0)
    losses = [
        F.cross_entropy(answers[s][scored[s]], torch.from_numpy(batch.answers()[s])[scored[s]])
        for s in range(len(batch.tokens))
    ]
    return torch.stack(losses), weights.detach().numpy(), logits.detach().numpy(), answers.detach().numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("label", HEADS)
def test_loss_and_gradients_are_those_of_the_definition(label, smoothing):
    made = task()
    options = {"penalty_scale": 2.0} if label.startswith("fpa") else {}
    head, readout = head_of(label, made, **options), Readout(made.values, SEEDS)
    batch = made.sample("train", SEEDS, 0, 3)
    compiled = lookup_loss(head, readout, batch, smoothing=smoothing)
    expected = dense(head, readout, batch, smoothing)[0]
    torch.testing.assert_close(compiled, expected, rtol=1e-5, atol=1e-6)
    parameters = [*head.parameters(), *readout.parameters()]
    upstream = torch.tensor([1.0, -2.0], dtype=torch.float64)  # per seed, so that mixing seeds would show
    mine, theirs = (torch.autograd.grad((loss * upstream).sum(), parameters) for loss in (compiled, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert other.abs().max() > 1e-6


@pytest.mark.parametrize("label", ["fpa-walk-offset-gate", "softmax-relative"])
def test_readings_are_those_of_the_definition(label):
    made = task()
    head, readout = head_of(label, made), Readout(made.values, SEEDS)
    batch = made.sample("test", SEEDS, 0, 4, length=30)
    rows = lookup_rows(head, readout, batch)
    losses, weights, logits, answers = dense(head, readout, batch)
    targets = batch.targets()
    for s in range(2):
        expected = {name: [] for name in ("right", "mass", "most", "gap", "tv", "exact", "live", "window", "found")}
        for b, i in np.argwhere(batch.queries[s] > 0):
            w, a, target, force = weights[s, b, i], logits[s, b, i], targets[s, b, i], batch.in_force[s, b, i]
            others = np.delete(a[: i + 1], force)
            expected["right"].append(answers[s, b, i].argmax() == batch.values[s, b, force])
            expected["mass"].append(w[force])
            expected["most"].append(a[force] > others.max())
            expected["gap"].append(a[force] - others.max())
            expected["tv"].append(np.abs(w - target / target.sum()).sum() / 2)
            expected["exact"].append(((w > 0.5 / target.sum()) == target).all())
            expected["live"].append(w[target].sum())
            expected["window"].append(np.ptp(a[target]))
            same = (batch.symbols[s, b] == batch.symbols[s, b, i]) & (batch.death[s, b] > 0) & (np.arange(30) <= i)
            expected["found"].append((a[force] >= a[same].max()) / (a[same] == a[force]).sum())
        mean = {name: float(np.mean(values)) for name, values in expected.items()}
        answer = answer_reading(rows[s], batch.queries[s])
        live, found = live_reading(rows[s], batch.queries[s]), found_reading(rows[s], batch.queries[s])
        assert answer.loss == pytest.approx(losses[s].item(), rel=1e-5)
        assert (answer.exact, answer.most_weight) == (mean["right"], mean["most"])
        assert answer_reading(rows[s], batch.queries[s], IN_FORCE).exact == mean["most"]
        assert answer.gap_min == pytest.approx(min(expected["gap"]), rel=1e-4)
        assert (answer.mass, 1 - answer.tv) == pytest.approx((mean["mass"], mean["mass"]), rel=1e-5)
        assert (live.tv, live.mass) == pytest.approx((mean["tv"], mean["live"]), rel=1e-5)
        assert live.exact == mean["exact"]
        assert live.window_mean == pytest.approx(mean["window"], rel=1e-4)
        assert live.excess_loss == pytest.approx(
            live.loss - np.log(batch.target_sizes()[s][batch.queries[s] > 0]).mean()
        )
        assert found.exact == pytest.approx(mean["found"])


def test_equal_weights_are_no_find():
    """Without recency all live bindings weigh the same, and a find among k of them counts 1/k."""
    made = task(symbols=1, active=1, max_depth=1)
    head, readout = head_of("fpa-walk-tied", made, dim=0), Readout(made.values, SEEDS)
    with torch.no_grad():
        head.increment.copy_(torch.tensor([0.0, 1.0, -1.0, 0.0]))
    batch = made.sample("test", SEEDS, 0, 8)
    rows = lookup_rows(head, readout, batch)
    scored = batch.queries[0] > 0
    sizes = batch.target_sizes()[0][scored]
    assert sizes.max() >= 3
    assert found_reading(rows[0], batch.queries[0]).exact == pytest.approx(np.mean(1 / sizes))
    # The use itself weighs as much as well.
    assert answer_reading(rows[0], batch.queries[0]).most_weight == 0


def test_a_seed_alone_equals_itself_in_a_block():
    made, recipe = task(), Recipe(steps=20, batch=2)
    for label in ("softmax-relative", "fpa-walk-offset-gate"):
        block = train_lookup(made, head_config(label, 3), recipe, (5, 0, 2))
        alone = train_lookup(made, head_config(label, 3), recipe, (2,))
        for one, other in (
            (alone.head.state_dict(), block.head.state_dict()),
            (alone.readout.state_dict(), block.readout.state_dict()),
        ):
            assert all(torch.equal(one[name][0], other[name][2]) for name in one)
        assert np.array_equal(alone.curve[0], block.curve[2])
        assert not torch.equal(block.readout.value[0], block.readout.value[1])


def test_permuted_answers_are_those_of_other_queries_of_the_same_seed(monkeypatch):
    seen = []

    def watched(head, readout, batch, *, smoothing):
        seen.append(batch)
        return loss(head, readout, batch, smoothing=smoothing)

    loss = lookup.lookup_loss
    monkeypatch.setattr(lookup, "lookup_loss", watched)
    for permute in (False, True):
        recipe = Recipe(steps=1, batch=4, permute_targets=permute)
        train_lookup(task(), head_config("fox-gate0", 1), recipe, (0, 1))
    own, other = (batch.answers() for batch in seen)
    assert np.array_equal(seen[0].tokens, seen[1].tokens)
    assert np.array_equal(own >= 0, other >= 0)
    for s in range(2):
        scored = own[s][own[s] >= 0]
        assert np.array_equal(other[s][other[s] >= 0], np.roll(scored, len(scored) // 2))
    assert not np.array_equal(own, other)


def test_heads_with_other_logits_are_refused():
    made = task()
    with pytest.raises(TypeError, match="softmax-rope: lookups are compiled for"):
        lookup_loss(head_of("softmax-rope", made), Readout(5, SEEDS), made.sample("train", SEEDS, 0, 1))


# --- what a single head can represent -------------------------------------------------------------------------------


def by_hand(label, made, reach):
    """Numbers that answer every query within `reach` tokens: recency counts for less than scopes, and they for less
    than content."""
    symbols, step = made.symbols, 3.0
    head = head_of(label, made, seeds=(0,), dim=symbols, penalty_scale=1.0)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        fall = step * (reach + 1)
        head.increment[0, symbols], head.increment[0, symbols + 1] = fall, -fall
        if label.endswith("offset-gate") or label.endswith("offset-alibi"):
            head.offset[0, :symbols] = -0.5  # below the walk: room for a walk that sinks
        if label.endswith("gate"):
            head.gate.fill_(100.0)  # stays open
            head.gate[0, :symbols] = -step
        else:
            head.positional.log_slope.fill_(math.log(step))
        content = math.sqrt(2 * symbols**0.5 * fall)  # content of a match: 2 falls after the scale 1/sqrt(dim)
        head.key[0, :symbols] = content * torch.eye(symbols)
        head.query[0, symbols + 2 :] = content * torch.eye(symbols)
    readout = Readout(made.values, (0,))
    with torch.no_grad():
        readout.value.copy_(torch.eye(made.values + 1)[None, :, : made.values])
        readout.readout.copy_(10 * torch.eye(made.values)[None])
        readout.constant.zero_()
    return TrainedLookup(head, readout, (0,), np.zeros((1, 1)))


@pytest.mark.parametrize(
    "label", [label for label in HEADS if label.endswith("alibi") and "fpa" in label] + list(HEADS[-2:])
)
def test_numbers_set_by_hand_answer_every_query(label):
    made = make_task("scoped-lookup")
    trained = by_hand(label, made, reach=384)
    for length in (48, 384):
        found = read_lookup(trained, made, "test", sequences=16, length=length)
        assert [r.exact for r in (found[""][0], found[IN_FORCE][0])] == [1.0, 1.0]
        assert found[""][0].mass > 0.94
        assert found[LIVE][0].mass > 0.99
        assert found[""][0].success


# o: the older binding, n: the newer; both of one symbol. Which of the two is in force at the last query.
HISTORIES = ((["o", "n", "?"], "n"), (["o", "[", "n", "?"], "n"), (["o", "[", "n", *"?" * 40, "]", "?"], "o"))


def preferences(history, field_of, level_of):
    """penalty of o less that of n at the last query, for many heads at once: numbers (heads,) by token."""
    symbol = {"o": "bind", "n": "bind", "[": "open", "]": "close", "?": "use"}
    tokens = [symbol[word] for word in history]
    penalty = reference.penalty(field_of(tokens), level_of(tokens), num_queries=1)[:, 0]
    return penalty[:, history.index("o")] - penalty[:, history.index("n")]


@pytest.mark.parametrize(("field", "level"), list(product(("walk", "direct"), ("tied", "offset", "free"))))
def test_no_numbers_make_penalties_alone_prefer_the_binding_in_force(field, level):
    """The argument in experiments/scoped_lookup.py, tried with 20,000 heads: no content can help, it is the same."""
    generator = torch.Generator().manual_seed(0)

    def numbers():
        scale = torch.randint(1, 4, (20_000, 1), generator=generator).double()
        return (torch.randn(20_000, 4, generator=generator).double() * scale).round(decimals=1)

    place = {"bind": 0, "open": 1, "close": 2, "use": 3}
    moves, own = numbers(), numbers()

    def field_of(tokens):
        values = moves[:, [place[token] for token in tokens]]
        return values.cumsum(-1) if field == "walk" else values

    def level_of(tokens):
        if level == "tied":
            return field_of(tokens)
        values = own[:, [place[token] for token in tokens]]
        return values + field_of(tokens) if level == "offset" else values

    right = torch.ones(20_000, dtype=torch.bool)
    singly = []
    for history, in_force in HISTORIES:
        preferred = preferences(history, field_of, level_of)
        singly.append((preferred > 0) if in_force == "n" else (preferred < 0))
        right &= singly[-1]
    assert not right.any()
    if (field, level) == ("walk", "offset"):  # any two of the three can be had
        assert all((singly[a] & singly[b]).any() for a, b in ((0, 1), (0, 2), (1, 2)))


# --- cells ----------------------------------------------------------------------------------------------------------


def test_a_cell_reads_lengths_and_files(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\ndef f(x):\n    return x\ny = x\nx = y\nprint(x)\n")
    trained_on = TaskConfig(name="scoped-lookup", options={"symbols": 4, "train_length": 16})
    files = TaskConfig(name="source-lookup", options={"path": str(tmp_path), "symbols": 4})
    cell = Cell(
        experiment="tiny",
        task=trained_on,
        head=head_config("fpa-walk-offset-gate", 2),
        recipe=Recipe(steps=4, batch=2),
        evaluations=(
            Evaluation(task=trained_on, split="validation", lengths=(16,), sequences=4),
            Evaluation(task=trained_on, split="test", lengths=(16, 32, 64), sequences=32),
            Evaluation(task=files),
            Evaluation(task=TaskConfig(name="source-lookup", options={**files.options, "scopes": "indent"})),
        ),
    )
    result = run_cell(cell, (3, 1))
    label = trained_on.label
    names = {row["task"] for row in result.evaluations if row["factor"] == 1 and row["split"] == "test"}
    assert names == {label} | {f"{label}/{name}" for name in ("shadowed", "outlived", IN_FORCE, LIVE)}
    assert {row["task"] for row in result.evaluations if row["factor"] == 2} == {label}
    assert {row["task"] for row in result.evaluations if row["split"] == "validation"} == {label}
    recent = [r for r in result.evaluations if r["task"] == f"{files.label}/most recent binding"]
    assert [(r["seed"], r["queries"], r["exact"]) for r in recent] == [(3, 4, 0.75), (1, 4, 0.75)]
    outlived = [r for r in result.evaluations if r["task"] == f"{files.label}/outlived"]
    assert [r["queries"] for r in outlived] == [1, 1]
    assert [(f["file"], f["queries"], f["seeds"]) for f in result.files] == [("a.py", 4, 2), ("a.py (indent)", 4, 2)]
    assert {row["token"] for row in result.parameters} == {"bind", "open", "close", "use"}
    state = load(result.weights)
    assert state["readout.value"].shape == (2, 9, 8)
    assert sum(tensor.numel() for tensor in state.values()) == 2 * result.parameters_per_seed


def test_a_seed_alone_reads_files_as_in_a_block_from_arrays_of_its_own(tmp_path, monkeypatch):
    """PyTorch warns of arrays that it must not write to, as views of a file's tokens are."""
    (tmp_path / "a.py").write_text("x = 1\nx\n")
    made = task()
    [file] = make_task("source-lookup", path=str(tmp_path), symbols=4).files()
    handed = []
    monkeypatch.setattr(lookup_cells, "lookup_rows", lambda *given: handed.append(given[2]) or lookup_rows(*given))

    def read(seeds):
        trained = TrainedLookup(head_of("fpa-walk-offset-gate", made, seeds), None, (), np.zeros((len(seeds), 0)))
        return lookup_cells._read_file(trained, file.batch)

    assert np.array_equal(read(SEEDS[:1])[0], read(SEEDS)[0], equal_nan=True)
    assert [batch.tokens.shape[0] for batch in handed] == [1, 2]
    assert all(batch.tokens.flags.writeable for batch in handed)


def test_files_written_with_other_symbols_are_refused(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\nx\n")
    files = TaskConfig(name="source-lookup", options={"path": str(tmp_path), "symbols": 5})
    cell = Cell(
        experiment="tiny",
        task=TaskConfig(name="scoped-lookup", options={"symbols": 4, "train_length": 8}),
        head=head_config("fox-gate0", 1),
        recipe=Recipe(steps=1, batch=1),
        evaluations=(Evaluation(task=files),),
    )
    with pytest.raises(InputError, match="source-lookup: symbols: 5: expected the 4 that the head knows"):
        run_cell(cell, (0,))
    with pytest.raises(InputError, match="--device: cuda"):
        run_cell(cell, (0,), device="cuda")
