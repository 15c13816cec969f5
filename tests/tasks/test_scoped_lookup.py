"""scoped-lookup against its definition followed word by word, its readers by hand, and names in source files."""

import numpy as np
import pytest

from lab.errors import InputError
from lab.tasks import make_task
from lab.tasks.scoped_lookup import LOOKUP_SHORTCUTS, OUTLIVED, SHADOWED, shortcut_accuracy
from lab.tasks.source_lookup import read_lookups, symbol_of
from tests.tasks.helpers import words

OPTIONS = [{}, {"symbols": 1, "active": 1, "max_depth": 1}, {"symbols": 20, "active": 5, "max_depth": 9, "values": 2}]


def followed(sequence, values):
    """Per row that uses a symbol: (live bindings of it, the newest binding of it), scopes as stacks of dictionaries."""
    scopes, newest, found = [[]], {}, {}
    for row, word in enumerate(sequence):
        kind, _, symbol = word.partition(" ")
        if kind == "open":
            scopes.append([])
        elif kind == "close":
            scopes.pop()
        elif kind == "bind":
            scopes[-1].append((symbol, row))
            newest[symbol] = row
        else:
            live = [place for scope in scopes for name, place in scope if name == symbol]
            found[row] = (live, newest[symbol])
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_every_use_asks_for_the_innermost_live_binding(options):
    made = make_task("scoped-lookup", **options)
    batch = made.sample("train", [0, 3], 5, 12, length=60)
    assert batch.values.max() == made.values  # nothing bound
    for s, b in np.ndindex(2, 12):
        one = batch[s, b]
        expected = followed(words(made, one), one.values)
        rows = np.flatnonzero(one.queries)
        assert rows.tolist() == list(expected)  # a symbol without a live binding is never used
        targets = one.targets()
        for row, (live, newest) in expected.items():
            assert np.flatnonzero(targets[row]).tolist() == live
            assert one.target_sizes()[row] == len(live)
            assert one.in_force[row] == live[-1]
            assert one.newest()[row] == newest
            assert one.answers()[row] == one.values[live[-1]] < made.values
        assert one.group(SHADOWED).nonzero()[0].tolist() == [
            row for row, (live, _) in expected.items() if len(live) > 1
        ]
        assert one.group(OUTLIVED).nonzero()[0].tolist() == [
            row for row, (live, n) in expected.items() if n != live[-1]
        ]
        assert not targets[one.queries == 0].any()
        assert (one.in_force[one.queries == 0] == -1).all()
        bound = one.tokens < made.symbols
        assert (one.values[bound] < made.values).all()
        assert (one.values[~bound] == made.values).all()


def test_sequences_do_not_depend_on_what_is_drawn_beside_them():
    made = make_task("scoped-lookup")
    whole = made.sample("test", [4, 1], 0, 6, length=70)
    part = made.sample("test", [1], 2, 2, length=40)
    for name in ("tokens", "values", "in_force", "symbols", "queries"):
        assert np.array_equal(getattr(whole, name)[1, 2:4, :40], getattr(part, name)[0])
    other = make_task("scoped-lookup", symbols=16).sample("test", [4, 1], 0, 6, length=70)
    # More symbols are more names for the same scopes.
    assert np.array_equal(other.death, whole.death)
    assert np.array_equal(other.in_force, whole.in_force)
    assert len(np.unique(other.tokens)) > len(np.unique(whole.tokens))
    assert (made.sample("train", [1], 0, 6, length=70).tokens != whole.tokens[1]).any()


def test_one_sequence_uses_its_active_symbols_alone():
    made = make_task("scoped-lookup", symbols=50, active=4)
    symbols = made.sample("train", [0], 0, 200, length=200).symbols[0]
    assert {len(set(row[row >= 0])) for row in symbols} == {4}
    assert len(set(symbols[symbols >= 0])) == 50


def by_hand():
    """bind a=3, open, bind a=5, bind b=3, use a, close, use a: the second a outlives nobody, the first is in force."""
    made = make_task("scoped-lookup", symbols=2, active=2, values=6)
    batch = made.sample("test", [0], 0, 1, length=7)[0, 0]
    names = ["bind s0", "open", "bind s0", "bind s1", "use s0", "close", "use s0"]
    batch.tokens[:] = [made.vocabulary.index(name) for name in names]
    batch.symbols[:] = [0, -1, 0, 1, 0, -1, 0]
    batch.values[:] = [3, 6, 5, 3, 6, 6, 6]
    batch.death[:] = [7, 0, 5, 5, 0, 0, 0]
    batch.queries[:] = [0, 0, 0, 0, 1, 0, 1]
    batch.in_force[:] = [-1, -1, -1, -1, 2, -1, 0]
    return batch


def test_readers_that_know_less_by_hand():
    batch = by_hand()
    assert batch.answers()[[4, 6]].tolist() == [5, 3]
    right = {name: read(batch)[[4, 6]].tolist() for name, read in LOOKUP_SHORTCUTS.items()}
    assert right == {
        "chance": [1 / 6, 1 / 6],
        "most frequent value": [0, 1],
        "random live binding": [0.5, 1],
        "most recent binding": [1, 0],
    }
    assert shortcut_accuracy("most recent binding", batch) == 0.5
    assert shortcut_accuracy("most recent binding", batch, OUTLIVED) == 0
    assert shortcut_accuracy("random live binding", batch, SHADOWED) == 0.5


def test_what_readers_reach_is_well_below_success():
    batch = make_task("scoped-lookup").sample("test", range(8), 0, 64)
    levels = {name: shortcut_accuracy(name, batch) for name in LOOKUP_SHORTCUTS}
    assert levels["chance"] == 1 / 8
    assert max(levels.values()) < 0.9


def test_chance_of_a_reader_of_all_bindings():
    levels = make_task("scoped-lookup", symbols=2, active=2, values=6).chance_levels(by_hand())
    assert levels == pytest.approx({"tv": 2 / 3, "exact": 1 / 6, "excess_loss": np.log(6)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"symbols": 0}, "scoped-lookup: symbols: expected a whole number from 1 to 100000, got 0"),
        ({"active": 9}, "scoped-lookup: active: expected a whole number from 1 to 8, got 9"),
        ({"values": 1}, "scoped-lookup: values: expected a whole number from 2 to 1000, got 1"),
        ({"use_probability": 0.9}, "scoped-lookup: use_probability: expected no more than 1 together with"),
        ({"bind_probability": 0}, "scoped-lookup: bind_probability: expected a number from 0.01 to 0.98, got 0"),
        ({"symbol": 3}, "scoped-lookup: unknown option 'symbol'; did you mean symbols?"),
    ],
)
def test_bad_options_name_field_and_cure(options, message):
    with pytest.raises(InputError) as error:
        make_task("scoped-lookup", **options)
    assert str(error.value).startswith(message)


# --- source files ---------------------------------------------------------------------------------------------------

SOURCE = b"""\
x = 1
y = x
def f(x, z=y):
    x = x + z
    return [x for x in z if x], x, len(z)
print(x, f)
x = x
class C:
    global y
    y = x
print(y)
"""


def test_names_in_a_file_refer_to_the_newest_live_binding_of_that_name():
    file = read_lookups("a.py", SOURCE, symbols=4)
    batch = file.batch
    # In the order in which names are read and bound; bindings have numbers, brackets stand for scopes.
    text = "x1 x y1 y f1 ( x2 z1 x z x3 z [ x4 x x ] x len z ) print x f x x5 C1 { x } print y"
    order = text.split(" ")
    kinds = {"(": "open", "[": "open", "{": "open", ")": "close", "]": "close", "}": "close"}
    task = make_task("source-lookup", symbols=4)
    expected = []
    for word in order:
        name = word.rstrip("12345")
        if word in kinds:
            expected.append(kinds[word])
        else:
            expected.append(f"{'use' if name == word else 'bind'} s{symbol_of(name, 4)}")
    assert words(task, batch) == expected
    place = {word: n for n, word in enumerate(order) if word[-1].isdigit()}
    refers = ["x1", "y1", "x2", "z1", "z1", "x4", "x4", "x3", "z1", "x1", "f1", "x1", "x5", "y1"]
    assert batch.in_force[batch.queries > 0].tolist() == [place[word] for word in refers]
    assert (file.uses, file.unscored) == (17, 3)  # nothing binds len and print
    assert (file.bindings, file.scopes, file.max_depth) == (len(place), 3, 2)
    assert batch.death[place["x4"]] == order.index("]")
    assert batch.death[place["x3"]] == order.index(")")
    assert batch.death[place["x5"]] == len(order)


def test_names_of_one_symbol_are_told_apart_in_what_is_asked():
    batch = read_lookups("a.py", b"a = 1\nb = 2\na\n", symbols=1).batch
    assert batch.tokens.tolist() == [0, 0, 3]
    assert batch.targets()[2].tolist() == [True, False, False]
    assert batch.in_force[2] == 0
    assert LOOKUP_SHORTCUTS["most recent binding"](batch)[2] == 1


def test_a_walrus_binds_around_its_comprehension():
    batch = read_lookups("a.py", b"[y := x for x in z]\ny, x\n", symbols=4).batch
    assert [n for n, asked in enumerate(batch.queries) if asked] == [3, 6]
    assert batch.in_force[[3, 6]].tolist() == [2, 5]  # x inside, y after the comprehension has closed


def test_files_are_cut_and_sampled_whole(tmp_path):
    (tmp_path / "a.py").write_bytes(SOURCE)
    task = make_task("source-lookup", path=str(tmp_path), symbols=4)
    [file] = task.files()
    assert task.train_length == file.batch.seq_len
    drawn = task.sample("test", [0], 0, 1, length=file.batch.seq_len + 3)[0, 0]
    for name in ("tokens", "values", "in_force", "symbols", "queries"):
        assert np.array_equal(getattr(drawn, name)[:-3], getattr(file.batch, name))
    assert not drawn.queries[-3:].any()
    cut = make_task("source-lookup", path=str(tmp_path), symbols=4, max_tokens=8).files()[0]
    assert cut.truncated
    assert np.array_equal(cut.batch.tokens, file.batch.tokens[:8])
    assert task.data_version() == make_task("source-scopes", path=str(tmp_path)).data_version()
