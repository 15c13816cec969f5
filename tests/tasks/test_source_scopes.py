"""Source files as sequences: tokens, deaths and queries by hand, counts, the corpus and its refusals."""

import ast
import json
import sysconfig
import textwrap
from pathlib import Path

import numpy as np
import pytest

from lab.errors import InputError
from lab.tasks import make_task
from lab.tasks.source_scopes import read_source
from tests.tasks.helpers import words
from tests.tasks.oracles import nested_scope_targets


def read(source, scopes="python", max_tokens=None):
    return read_source("x.py", textwrap.dedent(source).encode(), scopes, max_tokens)


def tokens(file):
    """Tokens with the queries that stand on them: key*2 is a key with two uses after it."""
    symbols = ["key", "(", ")"]
    batch = file.batch
    return " ".join(
        symbols[token] + (f"*{queries}" if queries else "") for token, queries in zip(batch.tokens, batch.queries)
    )


BY_HAND = """
    print(len)              # two uses before any event
    import os               # key 0
    def f(x, y=os):         # use os; key 1, open 2, key 3, key 4
        z = x + y           # use x, use y; key 5
        return [z for _ in os]  # use os, open 6, key 7, use z, close 8
    f(os)                   # close 9, use f, use os
"""


def test_a_file_by_hand():
    file = read(BY_HAND)
    assert tokens(file) == "key*1 key ( key key*2 key*1 ( key*1 ) )*2"
    assert file.batch.death.tolist() == [10, 10, 0, 9, 9, 9, 0, 8, 0, 0]
    assert (file.scopes, file.bindings, file.uses, file.unscored, file.max_depth) == (2, 6, 9, 2, 2)
    assert not file.truncated


def test_uses_with_nothing_in_scope_are_unscored():
    file = read("lambda: a\n(lambda b: b)\nlambda: c\n")
    assert tokens(file) == "( ) ( key*1 ) ( )"
    assert (file.uses, file.unscored) == (3, 2)


def test_bindings_of_other_scopes_make_no_key():
    file = read("""
        x = 0
        def f():
            global x
            x = 1
            def x(): pass
            import x
            y = 2
            class C:
                x = 3
            def g():
                nonlocal y
                y = x = 4
    """)
    # x f ( ( ) y C ( x ) g ( x ) ): no key for what is stored to the global x and to the nonlocal y.
    assert tokens(file) == "key key ( ( ) key key ( key ) key ( key ) )"


def test_global_at_module_level_changes_nothing():
    assert tokens(read("global x\nx = 1\n")) == "key"


def test_a_walrus_in_comprehensions_binds_around_all_of_them():
    file = read("""
        def f():
            [[(m := y) for y in x] for x in z]
            m
    """)
    # f, open, use z, open, x, use x, open, y, use y, close, close, and only then m; use m, close.
    assert tokens(file) == "key (*1 ( key*1 ( key*1 ) ) key*1 )"
    assert file.batch.death.tolist() == [10, 0, 0, 7, 0, 6, 0, 0, 9, 0]


def test_a_walrus_in_a_comprehension_may_bind_a_global():
    file = read("""
        def f():
            global m
            [(m := y) for y in z]
    """)
    assert tokens(file) == "key (*1 ( key*1 ) )"


def test_a_walrus_in_a_lambda_stays_there():
    assert tokens(read("[lambda: (m := y) for y in z]")) == "( key (*1 key ) )"


def test_blocks_of_indentation():
    file = read(
        """
        x = 0
        if x:
            y = 1
            y
        y
    """,
        "indent",
    )
    assert tokens(file) == "key*1 ( key*1 )*1"
    assert (file.scopes, file.max_depth) == (1, 1)


@pytest.mark.parametrize("scopes", ["python", "indent"])
def test_targets_are_those_of_nested_scope(scopes):
    """The same oracle as for nested-scope, on a file of the standard library."""
    task = make_task("source-scopes", path=str(Path(ast.__file__).with_name("bisect.py")), scopes=scopes)
    (file,) = task.files()
    targets = nested_scope_targets(words(task, file.batch))
    matrix = file.batch.targets()
    for row in range(file.batch.seq_len):
        assert set(np.flatnonzero(matrix[row])) == targets[row]
    assert (file.batch.queries[[not target for target in targets]] == 0).all()
    assert file.uses == file.batch.queries.sum() + file.unscored


def test_counts_agree_with_the_syntax_tree():
    folder = Path(ast.__file__).parent
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    scopes += (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    for name in ("ast.py", "dataclasses.py", "heapq.py"):
        source = (folder / name).read_bytes()
        nodes = list(ast.walk(ast.parse(source)))
        loads = sum(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) for node in nodes)
        loads += sum(isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) for node in nodes)
        file = read_source(name, source)
        assert file.uses == loads
        assert file.scopes == sum(isinstance(node, scopes) for node in nodes)
        assert file.bindings == (file.batch.death > 0).sum()


def test_a_long_file_is_cut():
    whole, cut = read(BY_HAND), read(BY_HAND, max_tokens=6)
    assert cut.truncated
    assert tokens(cut) == "key*1 key ( key key*2 key*1"
    assert cut.batch.death.tolist() == [6, 6, 0, 6, 6, 6]
    assert np.array_equal(cut.batch.targets(), whole.batch.targets()[:6, :6])
    assert (cut.scopes, cut.bindings, cut.max_depth) == (1, 5, 1)
    assert not read(BY_HAND, max_tokens=10).truncated


@pytest.fixture
def corpus(tmp_path):
    files = {
        "b.py": "x = 1\nx\n",
        "a/deep.py": "def f(x):\n    return x\n",
        "a/test/test_f.py": "import f\nf\n",
        "a/.hidden/h.py": "h = 1\nh\n",
        "a/__pycache__/c.py": "c = 1\nc\n",
        "site-packages/p.py": "p = 1\np\n",
        "bad.py": "def (",
        "empty.py": "",
        "only_bindings.py": "x = 1\n",
        "latin.py": "x = 'é'\n",
        "notes.txt": "x",
        "long.py": "".join(f"x{n} = x{n - 1}\n" for n in range(1, 40)),
    }
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.encode("latin-1" if name == "latin.py" else "utf-8"))
    return tmp_path


def names(task):
    return [file.name for file in task.files()]


def test_a_folder_and_what_is_left_out(corpus):
    task = make_task("source-scopes", path=str(corpus))
    assert names(task) == ["a/deep.py", "b.py", "long.py"]
    assert task.skipped() == {
        "not Python": ["bad.py"],
        "not decodable": ["latin.py"],
        "nothing to score": ["empty.py", "only_bindings.py"],
    }
    assert names(make_task("source-scopes", path=str(corpus), include_tests=True)) == [
        "a/deep.py",
        "a/test/test_f.py",
        "b.py",
        "long.py",
    ]


def test_a_file_alone(corpus):
    task = make_task("source-scopes", path=str(corpus / "b.py"))
    assert names(task) == ["b.py"]
    assert task.files()[0].batch.tokens.tolist() == [0]


def test_some_files_from_the_smallest_to_the_largest(tmp_path):
    for n in range(1, 10):
        (tmp_path / f"f{n}.py").write_text("x = 1\nx\n" * n)
    chosen = {count: names(make_task("source-scopes", path=str(tmp_path), max_files=count)) for count in (1, 3, 20)}
    assert chosen[1] == ["f5.py"]
    assert chosen[3] == ["f1.py", "f5.py", "f9.py"]
    assert len(chosen[20]) == 9


def test_the_digest_follows_names_and_contents(corpus):
    digest = make_task("source-scopes", path=str(corpus)).digest()
    assert make_task("source-scopes", path=str(corpus)).digest() == digest
    (corpus / "notes.txt").write_text("other")
    assert make_task("source-scopes", path=str(corpus)).digest() == digest
    (corpus / "b.py").rename(corpus / "c.py")
    renamed = make_task("source-scopes", path=str(corpus)).digest()
    (corpus / "c.py").write_text("x = 2\nx\n")
    edited = make_task("source-scopes", path=str(corpus)).digest()
    assert len({digest, renamed, edited}) == 3


def test_sampling_draws_whole_files_cut_or_padded(corpus):
    task = make_task("source-scopes", path=str(corpus))
    files = {file.batch.tokens.tobytes(): file for file in task.files()}
    batch = task.sample("test", [0], 0, 60)
    assert batch.seq_len == task.train_length == 39
    seen = set()
    for n in range(60):
        one = batch[0, n]
        length = int((one.death > 0).sum() + (one.tokens > 0).sum())
        file = files[one.tokens[:length].tobytes()]
        seen.add(file.name)
        assert np.array_equal(one.targets()[:length, :length], file.batch.targets())
        assert one.death[:length].tolist() == [39 if row == length else row for row in file.batch.death]
        assert one.queries.sum() == file.batch.queries.sum()
        assert not one.tokens[length:].any()
        assert not one.death[length:].any()
    assert seen == {"a/deep.py", "b.py", "long.py"}
    cut = task.sample("test", [0], 0, 60, length=4)
    assert np.array_equal(cut.targets(), batch.targets()[..., :4, :4])


def test_options_travel_as_json(corpus):
    task = make_task("source-scopes", path=str(corpus), scopes="indent", max_files=2, max_tokens=9)
    assert make_task("source-scopes", **json.loads(json.dumps(task.options()))) == task


@pytest.mark.parametrize("missing", ["nowhere", "a/nowhere.py"])
def test_a_path_that_does_not_exist(corpus, missing):
    task = make_task("source-scopes", path=str(corpus / missing))  # configurations can be read without the files
    with pytest.raises(InputError, match=r"source-scopes: path: no such file or folder: .*nowhere"):
        task.files()


def test_a_folder_without_python(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"source-scopes: path: no Python file that can be read in .* \(none found\)"):
        make_task("source-scopes", path=str(tmp_path)).files()
    (tmp_path / "bad.py").write_text("def (")
    with pytest.raises(InputError, match=r"\(1 not Python\)"):
        make_task("source-scopes", path=str(tmp_path)).files()


def test_the_standard_library_is_the_default():
    task = make_task("source-scopes", max_files=12)
    files = task.files()
    library = Path(sysconfig.get_path("stdlib"))
    assert files
    assert all((library / file.name).is_file() for file in files)
    assert not any({"test", "tests", "site-packages"} & set(file.name.split("/")) for file in files)
    assert max(file.batch.seq_len for file in files) > 500 > min(file.batch.seq_len for file in files)


def test_the_data_version_follows_names_and_contents(tmp_path):
    """A cell that read other files is another cell."""
    (tmp_path / "a.py").write_text("x = 1\nx\n")
    task = make_task("source-scopes", path=str(tmp_path))
    first = task.data_version()
    assert make_task("source-scopes", path=str(tmp_path)).data_version() == first
    (tmp_path / "a.py").write_text("x = 2\nx\n")
    second = task.data_version()
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").rename(tmp_path / "inner" / "a.py")
    assert len({first, second, task.data_version()}) == 3
