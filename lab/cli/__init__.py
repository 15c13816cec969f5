"""The command `fpa-lab`: parses, calls the lab, and turns every outcome into an exit status.

0    done, and true
1    ran, and the claim, test or comparison is false or incomplete
2    bad input: one line on stderr naming the file or option and the field
130  interrupted, with the command that resumes

This file and those beside it import nothing heavy at module level, so that every `--help` answers at once.
"""

import gc
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lab.cli import bench, certificates, demo, keysets, prove, results, sweeps, tasks, training
from lab.cli.errors import USER_ERRORS, describe, say, silence_stdout
from lab.errors import InputError, nearest


class Commands(TyperGroup):
    """The commands in the order in which they were added; a misspelt one is answered with the nearest name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and name not in self.commands:
            raise InputError(f"no such command {name}{nearest(name, self.commands)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,  # plain help: half the start-up time, and it can be piped
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from lab import __version__

        print(f"fpa-lab {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """The laboratory of First Passage Attention.

    Sweeps of attention heads over seeds, exact checks of what a head can and cannot do for key sets of your
    own, and figures drawn from stored results.

    \b
    Start here:
      fpa-lab demo
      fpa-lab check --keys 4 --targets "1,3; 2"
      fpa-lab task nested-scope --show
    """


app.command("demo")(demo.demo)
app.command("sweep")(sweeps.sweep)
app.command("status")(sweeps.status)
app.command("results")(results.results)
app.command("figures")(results.figures)
app.command("export")(results.export)
app.command("check")(keysets.check)
app.command("verify")(certificates.verify)
app.command("prove")(prove.prove)
app.command("task")(tasks.task)
app.command("train")(training.train)
app.command("bench")(bench.bench)


def run(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit status; says what was wrong in one line on stderr."""
    arguments = list(argv) or ["--help"]
    command = typer.main.get_command(app)
    try:
        with command.make_context("fpa-lab", arguments) as context:
            status = command.invoke(context)
        sys.stdout.flush()
        return int(status or 0)
    except typer.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, typer.Abort) as stop:
        done = f" ({stop})" if str(stop) else ""
        say(f"interrupted{done}; resume with: {shlex.join(['fpa-lab', *argv])}")
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        silence_stdout()
        return 141
    except USER_ERRORS as error:
        message = describe(error)
        if message is None:
            raise
        say(f"error: {message}")
        return 2


def main() -> None:
    """Entry point of `fpa-lab` and of `python -m lab`."""
    # Imports and tables of results are many objects that stay: looking for garbage so often costs a tenth of the time.
    gc.set_threshold(50_000, 20, 20)
    sys.exit(run(sys.argv[1:]))
