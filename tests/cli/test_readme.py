"""What the documents show works: commands and options exist, specifications parse, the Python example runs."""

import re
import shlex
from pathlib import Path

import pytest
import typer

import lab
from lab.cli import app
from proofs_check.answer import check
from proofs_check.keysets import loads

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def command_lines() -> list[str]:
    """Every command line of the documents: in code blocks from `fpa-lab` on, in the text between backquotes."""
    text = "\n".join((ROOT / name).read_text() for name in DOCUMENTS)
    shown = re.findall(r"^    (?:\$ )?(fpa-lab .*?)(?: +#.*| >.*)?$", text, re.MULTILINE)
    return shown + [" ".join(words.split()) for words in re.findall(r"`(fpa-lab [^`]*)`", text)]


def test_documents_show_every_command():
    shown = {shlex.split(line)[1] for line in command_lines()}
    assert shown >= {command.name for command in app.registered_commands}


@pytest.mark.parametrize("line", sorted(set(command_lines())))
def test_command_lines_of_the_documents_exist(line):
    name, *arguments = shlex.split(line)[1:]
    commands = typer.main.get_command(app).commands
    assert name in commands
    valid = {option for param in commands[name].params for option in param.opts}
    assert {word for word in arguments if word.startswith("--")} <= valid


def test_specifications_of_the_readme_are_specifications():
    family, history, tokens = (loads(text, "readme.yaml") for text in blocks("yaml"))
    assert (family.form, history.form, tokens.form) == ("family", "history", "history")
    increments = check(tokens).heads["fpa-tied-tokens"]["increments"]
    assert increments == {"x": 0, "open": 1, "close": -1}
    (text,) = blocks("text")
    assert loads(text, "readme.txt").targets == ((0, 1), (2,), (0, 2, 3))


def test_the_python_example_of_the_readme_runs(capsys):
    import torch

    (code,) = blocks("python")
    assert "steps=400" in code
    tensors = {name: torch.randn(2, 5, 3) for name in ("query", "key", "value")}
    scope = tensors | {name: torch.randn(2, 5) for name in ("field", "level")}
    exec(code.replace("steps=400", "steps=2"), scope)
    assert scope["out"].shape == (2, 5, 3)
    assert scope["trained"].curve.shape == (4, 3)


def test_every_public_name_of_the_library_is_there():
    assert len(set(lab.__all__)) == len(lab.__all__)
    for name in lab.__all__:
        assert getattr(lab, name) is not None
        assert name in dir(lab)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", lab.__version__)
    with pytest.raises(AttributeError, match="no attribute 'fpa'"):
        _ = lab.fpa
