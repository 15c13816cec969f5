"""An edit of a file that another file's kernel was compiled from reaches the kernel."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from lab.kernel_cache import PACKAGES, STAMP, drop_stale, source_digest

RUN = """
from pathlib import Path
from lab.kernel_cache import drop_stale
import made
drop_stale(Path(made.__file__).parent, ("ops",))
from made.ops.kernel import double
print(double(3))
"""


def make_package(root, factor):
    for folder in (root / "made", root / "made" / "ops"):
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "__init__.py").touch()
    helper = f"""
        from numba import njit

        @njit
        def times(x):
            return {factor} * x
    """
    (root / "made" / "ops" / "helper.py").write_text(textwrap.dedent(helper))
    kernel = root / "made" / "ops" / "kernel.py"
    if not kernel.exists():
        text = """
            from numba import njit
            from made.ops.helper import times

            @njit(cache=True)
            def double(x):
                return times(x)
        """
        kernel.write_text(textwrap.dedent(text))


def run(root, code=RUN):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.getcwd()])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_kernel_follows_the_files_it_is_compiled_from(tmp_path):
    make_package(tmp_path, 2)
    assert run(tmp_path) == 6
    cache = tmp_path / "made" / "ops" / "__pycache__"
    kept = {path: path.stat().st_mtime_ns for path in cache.glob("*.nb[ic]")}
    assert kept
    assert run(tmp_path) == 6
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*.nb[ic]")} == kept  # nothing was compiled again
    make_package(tmp_path, 5)
    assert run(tmp_path) == 15
    # Without it numba runs what it compiled before: the reason for all of this.
    make_package(tmp_path, 7)
    assert run(tmp_path, RUN.replace('drop_stale(Path(made.__file__).parent, ("ops",))', "")) == 15


def test_every_package_with_kernels_is_looked_after():
    import lab

    root = next(iter(lab.__path__))
    with_kernels = subprocess.run(
        ["grep", "-rlE", "njit", "--include=*.py", root], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {Path(path).parent.relative_to(root).as_posix() for path in with_kernels} <= set(PACKAGES)


def test_the_digest_is_of_every_source_that_kernels_are_compiled_from(tmp_path):
    import lab

    tree = tmp_path / "lab"
    shutil.copytree(next(iter(lab.__path__)), tree, ignore=shutil.ignore_patterns("__pycache__"))
    seen = {source_digest(tree)}
    for name in PACKAGES:
        for path in (tree / name).glob("*.py"):
            path.write_text(path.read_text() + "\n# an edit\n")
            seen.add(source_digest(tree))
    one, other = tree / "tasks" / "nested_scope.py", tree / "tasks" / "kernels" / "nested_scope.py"
    texts = one.read_text(), other.read_text()
    for path, text in zip((other, one), texts):
        path.write_text(text)
    seen.add(source_digest(tree))
    assert len(seen) == 2 + sum(len([*(tree / name).glob("*.py")]) for name in PACKAGES)


def test_stale_kernels_go_even_where_no_stamp_can_be_left(tmp_path):
    make_package(tmp_path, 2)
    cache = tmp_path / "made" / "ops" / "__pycache__"
    cache.mkdir()
    (cache / "kernel.nbi").touch()
    (cache / STAMP).mkdir()  # so the stamp cannot be written
    drop_stale(tmp_path / "made", ("ops",))
    assert not (cache / "kernel.nbi").exists()
