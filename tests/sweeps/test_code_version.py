import hashlib
import shutil

import pytest

from lab.sweeps.code_version import ROOT, code_version, normalised, relevant_modules

SOURCE = '''
"""A module."""
import math


class Walk:
    """A walk."""

    def step(self, x):
        "Doubles."
        value = f"{x!r:>{math.tau}} {'#'}"  # comment
        text = """
# kept

"""
        return (2 *
                x), value, text
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A module."""', "# nothing"),
        ('    """A walk."""', ""),
        ('"Doubles."', '"""Doubles,\n\n   twice."""'),
        ("  # comment", ""),
        ("import math\n", "import math\n\n\n"),
        ("(2 *\n                x)", "(2*x)"),
        ("        return", "        # why\n\n        return"),
    ],
)
def test_explanations_and_layout_do_not_matter(old, new):
    assert old in SOURCE
    assert normalised(SOURCE.replace(old, new)) == normalised(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 *", "3 *"),
        ("{'#'}", "{'?'}"),
        ("# kept", "# changed"),
        ("kept\n\n", "kept\n"),
        ("x!r", "x!s"),
        ("import math\n", "import math\nimport os\n"),
        ("        return", "        if x: value\n        return"),
        ("        return", "    return"),
    ],
)
def test_code_matters(old, new):
    assert old in SOURCE
    assert normalised(SOURCE.replace(old, new)) != normalised(SOURCE)


def test_indentation_matters():
    assert normalised("if a:\n  b\nc\n") != normalised("if a:\n  b\n  c\n")
    assert normalised("if a:\n  b\n") == normalised("if a:\n     b\n")


def test_every_python_gives_this_hash():
    """Measured under 3.11, 3.12 and 3.13, which cut f-strings into tokens differently."""
    assert hashlib.sha256(normalised(SOURCE).encode()).hexdigest()[:16] == "e01915b0ea6cfbb2"


def test_a_cell_depends_on_its_own_head_and_task_alone():
    modules = relevant_modules(["nested-scope"], "softmax")
    assert {"lab.heads.softmax", "lab.heads.positional", "lab.heads.base", "lab.tasks.nested_scope"} <= modules.keys()
    assert {"lab.ops.reference", "lab.training.ensemble", "lab.tasks.base"} <= modules.keys()
    assert {"lab.tasks.streams", "lab.tasks.kernels.random", "lab.tasks.kernels.nested_scope"} <= modules.keys()
    others = {"lab.heads.fox", "lab.heads.fpa", "lab.heads.config", "lab.heads", "lab.tasks"}
    others |= {"lab.tasks.leveled_dips", "lab.tasks.kernels.leveled_dips"}
    assert not others & modules.keys()
    assert not [name for name in modules if name.startswith(("lab.sweeps", "lab.cli"))]


@pytest.fixture
def tree(tmp_path):
    """A copy of the package, to edit."""
    return shutil.copytree(ROOT, tmp_path / "lab", ignore=shutil.ignore_patterns("__pycache__"))


def test_edits_invalidate_what_they_can_change(tree):
    softmax, fox = (lambda: code_version(["nested-scope"], "softmax", tree)), (lambda: code_version([], "fox", tree))
    before = softmax(), fox()
    assert before[0] == code_version(["nested-scope"], "softmax")  # the copy is the same code

    edit(tree / "heads" / "fox.py", "\n# a comment\n")
    assert (softmax(), fox()) == before
    edit(tree / "heads" / "fox.py", "\nCHANGED = 1\n")
    assert softmax() == before[0]
    assert fox() != before[1]
    for folder in (tree / "tasks", tree / "tasks" / "kernels"):
        edit(folder / "leveled_dips.py", "\nCHANGED = 1\n")
    assert softmax() == before[0]
    edit(tree / "tasks" / "kernels" / "nested_scope.py", "\nCHANGED = 1\n")
    assert (after := softmax()) != before[0]
    edit(tree / "ops" / "reference.py", "\nCHANGED = 1\n")
    assert softmax() != after


def edit(path, text):
    path.write_text(path.read_text() + text)
