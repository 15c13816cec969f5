"""Specifications: the three formats agree, and every fault is one line that names file, line and field."""

import io
import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import InputError
from proofs_check import keysets
from proofs_check.keysets import Family, Histories, from_options, load, loads

FAMILY_YAML = """
# a comment
keys: [a, b, c, d]
targets:
  - [a, c]
  - [b]
  - [d, a, b]
"""
FAMILY = Family(("a", "b", "c", "d"), ((0, 2), (1,), (0, 1, 3)), (0, 1, 2, 3))
HISTORY_YAML = "histories:\n  - [{push: a}, {push: b}, {query: [b, a]}, {push: c}, {query: [a, c]}]\n"
HISTORIES = Histories(("a", "b", "c"), ((0, 1, (0, 1), 2, (0, 2)),))


def test_the_family_form_in_every_format():
    assert loads(FAMILY_YAML, "s.yaml") == FAMILY
    assert loads(FAMILY_YAML, "anything") == FAMILY
    as_json = json.dumps({"keys": list("abcd"), "targets": [["a", "c"], ["b"], ["d", "a", "b"]]})
    assert loads(as_json, "s.json") == loads(as_json, "-") == FAMILY
    assert loads("{keys: [a, b, c, d], targets: [[a, c], [b], [d, a, b]]}", "-") == FAMILY
    assert loads("a, b c d\na c # two\n\nb\n", "s.txt").targets == ((0, 1, 2, 3), (0, 2), (1,))
    assert from_options("a b,c,d", "a c; b; d,a,b") == FAMILY


def test_the_history_form():
    assert loads(HISTORY_YAML, "s.yml") == HISTORIES
    in_order = loads("keys: [c, b, a]\n" + HISTORY_YAML)
    assert in_order == Histories(("c", "b", "a"), ((2, 1, (1, 2), 0, (0, 2)),))


@pytest.mark.parametrize("spec", [FAMILY, HISTORIES, from_options(3, "1; 2 3", "at-end"), from_options(3, "1", "1,3")])
def test_plain_data_reads_back(spec):
    assert loads(json.dumps(spec.to_data()), "s.json") == spec
    assert loads(json.dumps(spec.to_data()), "s.yaml") == spec


def test_where_dips_may_stand():
    assert from_options(3, "1").dips == "after-each-key"
    assert from_options(3, "1", "at-end").slots == (2,)
    assert from_options(3, "1", "at-end").dips == "at-end"
    assert from_options(3, "1", "3 1").dips == ["1", "3"]
    assert loads("keys: 3\ntargets: [[1]]\ndips: [2]").slots == (1,)
    assert loads("keys: 3\ntargets: [[1]]\ndips: []").slots == ()
    assert loads("keys: 3\ntargets: [[1]]\ndips: [2]", dips="at-end").slots == (2,)


def test_whole_numbers_name_the_key_of_their_digits():
    spec = loads("keys: [10, '9', b]\ntargets: [[10], ['10', 9], [b]]")
    assert spec.keys == ("10", "9", "b")
    assert spec.targets == ((0,), (0, 1), (2,))
    assert loads("10 9\n2\n").keys == ("2", "9", "10")
    assert loads("10 9\nb\n").keys == ("10", "9", "b")


def test_harmless_oddities_are_warnings():
    spec = loads("keys: 3\ntargets: [[1], [], [2, 1, 2], [1, 2], [1]]")
    assert spec.targets == ((0,), (0, 1))
    assert spec.warnings == (
        "targets: set 2: empty, ignored",
        "targets: set 3: 2 is repeated, counted once",
        "targets: set 4: the same as set 3, kept once",
        "targets: set 5: the same as set 1, kept once",
    )
    spec = loads("keys: [a, b]\nhistories: [[{push: a}, {query: []}, {query: [a, a]}]]")
    assert spec.histories == ((0, (0,)),)
    assert spec.warnings == (
        "histories: history 1: event 2: query: empty, ignored",
        "histories: history 1: event 3: query: 'a' is repeated, counted once",
        "keys: never pushed: b",
    )


FAULTS = [
    ("keys: [a, b]\ntargets:\n  - [a]\n  - [b, c]\n", "line 4: targets: set 2: name 2: unknown key 'c'; valid: a, b"),
    ("keys: [alpha, beta]\ntargets: [[alhpa]]", "line 2: targets: set 1: name 1: unknown key 'alhpa'; did you"),
    ("keys: [a, a]\ntargets: [[a]]", "line 1: keys: name 2: key 'a' is listed twice"),
    ("keys: [a]\ntargts: [[a]]", "line 2: targts: unknown field; did you mean targets?"),
    ("keys: [a]", "line 1: targets: missing; expected a list of sets of key names"),
    ("targets: [[a]]", "line 1: keys: missing; expected a list of names or a whole number"),
    ("keys: a\ntargets: [[a]]", "line 1: keys: expected a list of names or a whole number, found 'a'"),
    ("keys: [a]\ntargets: a", "line 2: targets: expected a list, found 'a'"),
    ("keys: [a]\ntargets: [a]", "line 2: targets: set 1: expected a list, found 'a'"),
    ("keys: [a]\ntargets: []", "line 2: targets: expected at least one non-empty set"),
    ("keys: [a]\ntargets: [[]]", "line 2: targets: expected at least one non-empty set"),
    ("keys: 0\ntargets: [[1]]", "line 1: keys: expected a whole number from 1 to 10,000,000, found 0"),
    ("keys: 2.0\ntargets: [[1]]", "line 1: keys: expected a list of names or a whole number, found 2.0 (a"),
    ("keys: true\ntargets: [[1]]", "line 1: keys: expected a list of names or a whole number, found true (a boolean"),
    ("keys: [yes]\ntargets: [[yes]]", "line 1: keys: name 1: expected a name, found yes (a boolean; a name needs"),
    ("keys: [a, 1.5]\ntargets: [[a]]", "line 1: keys: name 2: expected a name, found 1.5 (a decimal number; a"),
    ("keys: [a, ~]\ntargets: [[a]]", "line 1: keys: name 2: expected a name, found ~ (nothing; a name needs quotes)"),
    ("keys: [a, 2026-01-01]\ntargets: [[a]]", "line 1: keys: name 2: expected a name, found 2026-01-01 (a date"),
    ("keys: [a, 010]\ntargets: [[a]]", "line 1: keys: name 2: expected a name, found 010 (not a plain whole number"),
    ("keys: [a, [b]]\ntargets: [[a]]", "line 1: keys: name 2: expected a name, found a list of 1"),
    ("keys: [a, '']\ntargets: [[a]]", "line 1: keys: name 2: expected a name of 1 to 100 printable characters, found"),
    ("keys: ['a\\nb', c]\ntargets: [[c]]\ndips: atend", "line 3: dips: expected after-each-key, at-end or a list"),
    ("keys: [c]\ntargets: [[c]]\ndips: after-each-keys", "line 3: dips: expected after-each-key, at-end or a "
     "list of keys, found 'after-each-keys'; did you mean after-each-key?"),
    ("keys: [c]\ntargets: [[c]]\ndips: [d]", "line 3: dips: name 1: unknown key 'd'; valid: c"),
    ("keys: [c]\nkeys: [d]\ntargets: [[c]]", "line 2: keys: the field is given twice"),
    ("keys: &x [c]\ntargets: [*x]", "line 2: targets: set 1: aliases (*name) are not read; write the value out"),
    ("keys: !!python/tuple [c]\ntargets: [[c]]", "line 1: keys: tags (!name) are not read"),
    ("keys: [!!int '3']\ntargets: [[c]]", "line 1: keys: name 1: tags (!name) are not read"),
    ("keys: [c]\ntargets: [[c]\n", "line 3: expected YAML: while parsing a flow sequence"),
    ("keys: [c]\n---\nkeys: [c]", "line 2: expected one document"),
    ("- [a]\n", "expected the fields keys and targets, or histories; found a list of 1"),
    ("[a]: 1\n", "line 1: expected a field name"),
    ("histories: [[{push: a}]]\ntargets: [[a]]", "line 2: targets: not used together with histories: histories hold"),
    ("histories: [[{push: a}]]\ndips: at-end", "line 2: dips: not used together with histories: a dip may stand"),
    ("histories:\n  - [{push: a},\n     {push: a}]", "line 3: histories: history 1: event 2: push: key 'a' is pushed"),
    ("histories:\n  - [{push: a}, {query: [b]},\n     {push: b}]",
     "line 2: histories: history 1: event 2: query: name 1: key 'b' is not pushed yet in this history"),
    ("histories:\n  - [{push: a}, {query: [a]}]\n  - [{push: b}, {query: [a]}]",
     "line 3: histories: history 2: event 2: query: name 1: key 'a' is not pushed yet in this history"),
    ("keys: [a, b]\nhistories: [[{push: c}]]", "line 2: histories: history 1: event 1: push: unknown key 'c'"),
    ("histories: [[{push: a}, {querry: [a]}]]",
     "line 1: histories: history 1: event 2: querry: unknown event; did you mean query?"),
    ("histories: [[{push: a, query: [a]}]]", "line 1: histories: history 1: event 1: expected one of "
     "{push: NAME}, {query: [NAME, ...]}, found 2 fields"),
    ("histories: [[push]]", "line 1: histories: history 1: event 1: expected one of {push: NAME}, "
     "{query: [NAME, ...]}, found 'push'"),
    ("histories: [[{push: a}]]", "line 1: histories: expected at least one query of a key"),
    ("histories: []", "line 1: histories: expected at least one history"),
    ("histories: [[{push: a}, {query: a}]]", "line 1: histories: history 1: event 2: query: expected a list, found"),
    ("histories: [[{push: no}]]", "line 1: histories: history 1: event 1: push: expected a name, found no (a boolean"),
    ("", "expected a specification, found an empty file"),
    ("# nothing\n", "expected a specification, found nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault_is_one_line_with_its_place(text, message):
    with pytest.raises(InputError) as caught:
        loads(text, "s.yaml")
    line = str(caught.value)
    assert line.startswith(f"s.yaml: {message}")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"keys": ["a"],\n "targets": [["a"],\n  ["b"]]}', "line 3: targets: set 2: name 1: unknown key 'b'"),
        ('{"keys": ["a"],\n "targets": [["a"],\n  [true]]}', "line 3: targets: set 2: name 1: expected a name, found"),
        ('{"keys": ["a"],\n "targets": [["a"],\n  [1.0]]}', "line 3: targets: set 2: name 1: expected a name, found"),
        ('{"keys": ["a"],\n "targets": [["a"],\n  [NaN]]}', "line 3: targets: set 2: name 1: expected a name, found"),
        ('{"keys": ["a", null],\n "targets": []}', "line 1: keys: name 2: expected a name, found nothing"),
        ('{"keys": 99999999999999999999, "targets": []}', "line 1: keys: expected a list of names or a whole number"),
        ('{"keys": ["a"],\n "keys": ["a"]}', "line 2: keys: the field is given twice"),
        ('{"keys": ["a"],\n "targets": }', "line 2: expected JSON: Expecting value at column 13"),
        ("[" * 100_000, "lists are nested too deeply"),
        ('{"histories": [[{"push": "a"},\n {"push":\n "a"}]]}', "line 3: histories: history 1: event 2: push: key 'a'"),
    ],
)  # fmt: skip
def test_json_faults_have_their_lines_too(text, message):
    with pytest.raises(InputError) as caught:
        loads(text, "s.json")
    assert str(caught.value).startswith(f"s.json: {message}")


def test_faults_of_plain_text_and_of_options():
    with pytest.raises(InputError, match=r"^s\.txt: expected one target set per line, found none$"):
        loads(" # nothing\n", "s.txt")
    long = "x" * 101
    with pytest.raises(InputError, match=r"^s\.txt: line 2: .*printable characters"):
        loads(f"a b\na {long}\n", "s.txt")
    with pytest.raises(InputError, match=r"^--targets: set 2: name 1: unknown key '5'; valid: 1, 2, 3$"):
        from_options(3, "1; 5")
    with pytest.raises(InputError, match=r"^--keys: expected a whole number from 1"):
        from_options(0, "1")
    with pytest.raises(InputError, match=r"^--dips: .*found 'att-end'; did you mean at-end\?$"):
        from_options(3, "1", "att-end")
    with pytest.raises(InputError, match=r"^--dips: name 1: unknown key '9'"):
        from_options(3, "1", "9")
    assert from_options("a b", "a", "b").slots == (1,)


def test_unreadable_files(tmp_path, monkeypatch):
    for file in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(InputError, match=r"cannot be read: "):
            load(str(file))
    (tmp_path / "latin.yaml").write_bytes(b"keys: [a]\ntargets: [[\xe9]]\n")
    with pytest.raises(InputError, match=r"latin\.yaml: line 2: expected text in UTF-8$"):
        load(str(tmp_path / "latin.yaml"))
    with pytest.raises(InputError, match="null"):
        load("a\0b")
    monkeypatch.setattr(keysets, "MAX_BYTES", 10)
    (tmp_path / "large.yaml").write_text(FAMILY_YAML)
    with pytest.raises(InputError, match="expected at most"):
        load(str(tmp_path / "large.yaml"))


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FAMILY_YAML.encode())))
    assert load("-") == FAMILY
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"keys: [a]\ntargets: [[b]]")))
    with pytest.raises(InputError, match=r"^standard input: line 2: targets: set 1"):
        load("-")


def test_too_many_events(monkeypatch):
    monkeypatch.setattr(keysets, "MAX_EVENTS", 5)
    with pytest.raises(
        InputError, match=r"line 1: histories: history 1: event 4: more than 5 events and queried names"
    ):
        loads("histories: [[{push: a}, {push: b}, {push: c}, {query: [a, b]}]]")
    with pytest.raises(InputError, match=r"line 2: targets: set 2: more than 5 names in all"):
        loads("keys: [a, b]\ntargets: [[a, b], [b, a]]")


def test_an_alias_bomb_is_refused_at_its_first_alias():
    levels = ["a0: &a0 [x, x]"] + [f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, 60)]
    with pytest.raises(InputError, match="aliases"):
        loads("\n".join(levels), "bomb.yaml")


# Fuzzing: a specification or one InputError line, never anything else.

NAMES = st.sampled_from(["a", "b", "c", "no", "1", 1, 2, True, None, 1.5, "", "x\n", "é", "\ud800", -3, 10**30])
EVENTS = st.dictionaries(
    st.sampled_from(["push", "query", "token", "pull"]), NAMES | st.lists(NAMES, max_size=3), max_size=2
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "keys": NAMES | st.lists(NAMES, max_size=4) | st.integers(-2, 5),
        "targets": NAMES | st.lists(NAMES | st.lists(NAMES, max_size=3), max_size=3),
        "dips": NAMES | st.sampled_from(["at-end", "after-each-key"]) | st.lists(NAMES, max_size=2),
        "histories": NAMES | st.lists(NAMES | st.lists(NAMES | EVENTS, max_size=6), max_size=2),
        "extra": NAMES,
    },
)


def read_or_refuse(text, file):
    spec, refusal = None, "one line"
    try:
        spec = loads(text, file)
    except InputError as error:
        refusal = str(error)
    assert refusal.isprintable()
    if spec is not None:
        again = loads(json.dumps(spec.to_data()), "s.json")
        assert again == replace(spec, warnings=again.warnings)


@given(SPECS)
def test_any_data_is_read_or_refused(data):
    for file in ("s.json", "s.yaml"):
        read_or_refuse(json.dumps(data), file)


@given(st.text(max_size=60), st.sampled_from(["s.json", "s.yaml", "s.txt", "s"]))
def test_any_text_is_read_or_refused(text, file):
    read_or_refuse(text, file)


@given(st.lists(st.sampled_from([*"{}[]:,-#&*!|>'\"%@ \n\tab1", "keys: ", "targets: ", "? "]), max_size=30))
def test_any_punctuation_is_read_or_refused(parts):
    read_or_refuse("".join(parts), "s.yaml")


@pytest.mark.parametrize("name", ["s.yaml", "s.json", "s.txt"])
def test_half_a_surrogate_pair_is_no_text(name):
    """Python strings may hold one, files in UTF-8 cannot; the YAML reader would end in a traceback."""
    with pytest.raises(InputError, match="half of a surrogate pair"):
        loads("keys: 3\ntargets:\n- \udedf[1]\n", name)
