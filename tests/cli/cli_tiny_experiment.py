"""An experiment of two cells that trains in a moment, for the commands that work on experiments."""

from lab.errors import InputError, nearest
from lab.heads import head_config
from lab.sweeps import Cell, Evaluation, Plan, TaskConfig
from lab.training import Recipe

HEADS = ("fpa-walk-tied", "softmax-none")
TASK = TaskConfig(name="subset-drop", options={"train_length": 3})


def plan(preset="quick", seeds=None, heads=None, dims=None, name="tiny") -> Plan:
    if preset not in ("quick", "paper"):
        raise InputError(f"--preset: unknown preset {preset!r}{nearest(preset, ('quick', 'paper'))}")
    evaluations = [Evaluation(task=TASK, split="validation", lengths=(3,), sequences=8)]
    evaluations.append(Evaluation(task=TASK, split="test", lengths=(3, 24), sequences=8))
    cells = [
        Cell(
            experiment=name,
            task=TASK,
            head=head_config(label, 1),
            recipe=Recipe(steps=5, batch=2),
            evaluations=tuple(evaluations),
        )
        for label in heads or HEADS
        if 1 in (dims or [1])
    ]
    return Plan(name, preset, cells, range(2 if seeds is None else seeds), block=2)


def failing_cell(cell, seeds, progress=None):
    """A unit function of which the FPA cell fails."""
    from lab.training import run_cell

    if cell.head.kind == "fpa":
        raise ValueError("an injected failure")
    return run_cell(cell, seeds, progress)


def endless_cell(cell, seeds, progress=None):
    """A unit function of which the softmax cell never ends."""
    import time

    from lab.training import run_cell

    while cell.head.kind == "softmax":
        time.sleep(0.05)
    return run_cell(cell, seeds, progress)
