"""What a sweep is to compute: cells (one configuration each), seeds, and units (one cell, one block of seeds).

A cell's identity is a hash of its whole configuration and of the code that matters to it, so a result is reused
exactly when computing it again could not change it.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lab.errors import InputError, nearest
from lab.heads.config import CONFIGS, HeadConfig
from lab.sweeps.code_version import code_version
from lab.training.recipe import Recipe

ID_DIGITS = 16


class _Config(BaseModel):
    """Frozen, no unknown keys, and every mistake is an InputError that names the field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: Any) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise InputError(_describe(cls, error)) from None


class TaskConfig(_Config):
    """A task and the options that differ from its defaults; equal tasks have equal configurations.

    Raises InputError for an unknown task or option, or for an option's value that the task refuses.
    """

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _canonical(self) -> Self:
        try:
            given = json.dumps(self.options, sort_keys=True)
        except TypeError:  # no value of JSON: the task refuses it by name
            given = ""
        kept = json.loads(_kept_options(self.name, given)) if given else _kept(self.name, self.options)
        self.__dict__["options"] = kept  # the model is frozen for everyone else
        return self

    def make(self) -> Any:
        """The task itself, a `lab.tasks.Task`."""
        from lab.tasks import make_task

        return make_task(self.name, **self.options)

    @property
    def data_version(self) -> str | None:
        """Which files a task of files reads, as a hash of their contents; None for tasks that are drawn."""
        version = getattr(self.make(), "data_version", None)
        return version() if version else None

    def __hash__(self) -> int:
        return hash(_canonical_json(self.model_dump()))

    @property
    def label(self) -> str:
        """The task's name, with the options that differ from its defaults: "nested-scope[max_depth=8]"."""
        options = ",".join(f"{name}={_short(value)}" for name, value in self.options.items())
        return f"{self.name}[{options}]" if options else self.name


class Evaluation(_Config):
    """Fresh sequences on which every seed of a cell is measured; `lengths` is ignored by tasks of files."""

    task: TaskConfig
    split: Literal["validation", "test"] = "test"
    lengths: tuple[int, ...] = ()
    sequences: int = Field(default=64, ge=1)

    @field_validator("lengths")
    @classmethod
    def _positive(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if any(length < 1 for length in lengths):
            raise InputError(f"lengths: {list(lengths)}: expected whole numbers of at least 1")
        return lengths


class Cell(_Config):
    """One configuration: a head of one dimension, trained on one task by one recipe, and how it is measured.

    Of cells that differ only in their learning rate one is chosen on validation data, unless `compare_rates`: then
    the rate is what is studied, and each is reported by itself.
    """

    experiment: str = Field(min_length=1)
    task: TaskConfig
    head: HeadConfig
    recipe: Recipe = Recipe()
    evaluations: tuple[Evaluation, ...] = ()
    compare_rates: bool = False

    @cached_property
    def config(self) -> str:
        """The whole configuration as canonical JSON: sorted keys, no spaces."""
        return _canonical_json(self.model_dump(mode="json"))

    @cached_property
    def code(self) -> str:
        """Version of the code and of the data files that matter to this cell; see `lab.sweeps.code_version`."""
        return _version(self.tasks, self.head.kind)

    @property
    def tasks(self) -> tuple[TaskConfig, ...]:
        """The tasks that it is trained and evaluated on, each once, in the order of their labels."""
        tasks = {self.task, *(evaluation.task for evaluation in self.evaluations)}
        return tuple(sorted(tasks, key=lambda task: task.label))

    @cached_property
    def id(self) -> str:
        return _digest(_canonical_json({"config": self.config, "code": self.code}))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, without what was worked out for the cell that is copied."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("config", "code", "id"):
            copy.__dict__.pop(name, None)
        return copy

    @property
    def label(self) -> str:
        """For people: task, head, dimension, learning rate, and what else the recipe does differently."""
        other = self.recipe.model_dump(exclude_defaults=True, exclude={"learning_rate"})
        settings = "".join(f" {name}={_short(value)}" for name, value in other.items())
        return f"{self.task.label} {self.head.label} dim {self.head.dim} rate {self.recipe.learning_rate:g}{settings}"


@dataclass(frozen=True)
class Unit:
    """What one worker computes in one go: one cell for one block of seeds."""

    cell: Cell
    seeds: tuple[int, ...]

    @property
    def id(self) -> str:
        return _digest(_canonical_json({"cell": self.cell.id, "seeds": self.seeds}))


@dataclass(frozen=True)
class Plan:
    """Cells times seeds. `block` seeds are trained together in a unit; results do not depend on it.

    `part` says that these are not all the cells of the experiment: running them leaves the others in its results.

    Raises InputError when a cell or a seed stands twice or when the block is empty.
    """

    name: str
    preset: str
    cells: Sequence[Cell]
    seeds: Sequence[int]
    block: int = 16
    part: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(self.cells))
        object.__setattr__(self, "seeds", tuple(int(seed) for seed in self.seeds))
        if self.block < 1:
            raise InputError(f"plan {self.name}: block: {self.block}: expected at least 1")
        if len(set(self.seeds)) != len(self.seeds) or any(seed < 0 for seed in self.seeds):
            raise InputError(f"plan {self.name}: seeds: expected distinct whole numbers of at least 0")
        configs = [cell.config for cell in self.cells]
        if len(set(configs)) != len(configs):
            twice = next(cell for cell in self.cells if configs.count(cell.config) > 1)
            raise InputError(f"plan {self.name}: cells: the same cell stands twice: {twice.label}")
        stray = {cell.experiment for cell in self.cells} - {self.name}
        if stray:
            raise InputError(f"plan {self.name}: cells: belong to the experiment {sorted(stray)[0]}")

    def select(self, heads: Collection[str] = (), dims: Collection[int] = ()) -> "Plan":
        """The part of the plan with these head labels and these dimensions; nothing given means all.

        Raises InputError for a head or dimension that no cell has, or when no cell has both.
        """
        where = f"{self.name}, preset {self.preset}"
        for head in heads:
            if head not in (labels := {cell.head.label for cell in self.cells}):
                raise InputError(f"{where}: head: {head} is not in it{nearest(head, labels)}")
        for dim in dims:
            if dim not in (known := sorted({cell.head.dim for cell in self.cells})):
                raise InputError(f"{where}: dim: {dim} is not in it; valid: {_listed(known)}")
        cells = [
            cell
            for cell in self.cells
            if (not heads or cell.head.label in heads) and (not dims or cell.head.dim in dims)
        ]
        if not cells:
            raise InputError(f"{where}: no cell has both one of these heads and one of these dimensions")
        return dataclasses.replace(self, cells=cells, part=self.part or len(cells) < len(self.cells))

    def blocks(self) -> list[tuple[int, ...]]:
        """The seeds in blocks. Adding seeds to a plan leaves its earlier full blocks as they are."""
        return [tuple(self.seeds[i : i + self.block]) for i in range(0, len(self.seeds), self.block)]

    def units(self, done: Mapping[str, Collection[int]] | None = None) -> list[Unit]:
        """What is left to compute when `done` maps cell ids to the seeds that are stored.

        Blocks of which a part is done, because they were cut differently then, shrink to their missing seeds.
        """
        stored = done or {}
        units = []
        for seeds in self.blocks():
            for cell in self.cells:
                have = stored.get(cell.id, ())
                missing = tuple(seed for seed in seeds if seed not in have)
                if missing:
                    units.append(Unit(cell, missing))
        return units


@lru_cache(maxsize=1024)
def _kept_options(task: str, options: str) -> str:
    """As `_kept`, for and as JSON: a plan names the same few tasks in all of its cells."""
    return json.dumps(_kept(task, json.loads(options)))


def _kept(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a task that differ from its defaults, sorted, as the task has them."""
    from lab.tasks import make_task

    task: Any = make_task(name, **options)
    given = {option: value for option, value in task.options().items() if option in options}
    default = {field.name: _plain(field.default) for field in dataclasses.fields(task)}
    return {option: given[option] for option in sorted(given) if given[option] != default[option]}


def version_of(tasks: Sequence[TaskConfig], head: str) -> str:
    """Version of the code, as its files are now, and of the data files that matter to cells of this kind."""
    code = code_version(sorted({task.name for task in tasks}), head)
    data = [version for task in tasks if (version := task.data_version) is not None]
    return _digest(_canonical_json([code, *data])) if data else code


# Worked out once in a process, so that a plan stands however long it runs and whatever is edited meanwhile.
_version = lru_cache(maxsize=1024)(version_of)


def _describe(model: type[BaseModel], error: ValidationError) -> str:
    """The first mistake in one line: where it stands, what was expected, and the nearest valid name."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    where = f"{model.__name__.removesuffix('Config').lower()}: {'.'.join(path)}"
    if first["type"] != "extra_forbidden":
        return f"{where}: {first['msg']}"
    return f"{where}: unknown key{nearest(path[-1], _fields_at(model, path[:-1]))}"


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> Collection[str]:
    """Field names valid at a place inside a configuration; the places within a task are its own model's."""
    foreign: dict[str, type[BaseModel]] = {"recipe": Recipe, **CONFIGS}
    return (foreign[path[-1]] if path else model).model_fields.keys()


def _plain(value: Any) -> Any:
    """A default value as JSON would give it back, so that tuples equal lists; None stands for "no default"."""
    return None if value is dataclasses.MISSING else json.loads(json.dumps(value))


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _canonical_json(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]
