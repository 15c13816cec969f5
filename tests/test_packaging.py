"""The wheel holds what the command needs, works from any folder, and the project files agree with one another."""

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("lab", "experiments", "proofs_check", "figures")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that has the wheel, and sees this environment's dependencies beside it."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    borrowed = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    # A folder named in a .pth file comes last, and .pth files inside it (an editable install) are not followed.
    (Path(site) / "borrowed.pth").write_text("\n".join(borrowed))
    return home / "bin"


def run(*command: object, cwd: Path, status: int = 0) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_wheel_holds_the_packages_and_their_data_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    tracked = run("git", "ls-files", *PACKAGES, cwd=ROOT).split() if (ROOT / ".git").exists() else []
    missing = {name for name in tracked if (ROOT / name).exists()} - set(names)
    assert not missing
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_installed_command_works_from_another_folder(installed, tmp_path):
    assert "Usage: fpa-lab" in run(installed / "fpa-lab", "--help", cwd=tmp_path)
    where = run(installed / "python", "-c", "import lab; print(lab.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "fpa-lab", "--version", cwd=tmp_path) == f"fpa-lab {PROJECT['version']}\n"


def test_installed_command_checks_key_sets_from_another_folder(installed, tmp_path):
    answer = run(installed / "fpa-lab", "check", "--keys", "4", "--targets", "1,3; 2", cwd=tmp_path)
    assert "FPA" in answer
    assert list(tmp_path.iterdir()) == []


def test_constraints_pin_every_dependency_once_and_torch_exactly():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines if line and line[0] != "#"]
    assert all(pins)
    pinned = [canonical(pin[1]) for pin in pins]
    assert len(set(pinned)) == len(pinned)
    assert "torch==2.13.0" in lines
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    assert {canonical(re.match(r"[\w.-]+", need)[0]) for need in wanted} <= set(pinned)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_citation_agrees_with_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert {"message", "title", "authors", "type"} <= citation.keys()
    assert all("name" in author for author in citation["authors"])


def test_every_import_is_a_declared_dependency():
    names = {"yaml": "pyyaml", "flint": "python-flint"}
    declared = {canonical(re.match(r"[\w.-]+", need)[0]) for need in PROJECT["dependencies"]}
    optional = {"ray"}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for name in imported(path):
            known = name in sys.stdlib_module_names or name in PACKAGES
            assert known or names.get(name, canonical(name)) in declared | optional, f"{path}: {name}"


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, at any depth of nesting."""
    tops = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            tops |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            tops.add(node.module.partition(".")[0])
    return tops


def test_arrows_point_one_way():
    """experiments, figures and proofs_check import lab; lab imports none of them while it is being imported."""
    for path in (ROOT / "lab").rglob("*.py"):
        top_level = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in top_level:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not {name.partition(".")[0] for name in names} & {"experiments", "figures", "proofs_check"}, path


def test_the_trusted_core_imports_only_the_standard_library():
    for path in (ROOT / "proofs_check" / "exact").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                own = isinstance(node, ast.ImportFrom) and (node.level or names[0].startswith("proofs_check.exact"))
                assert own or {name.partition(".")[0] for name in names} <= sys.stdlib_module_names, path
