"""Run a key once, trusted, and turn its checks into items that submissions are marked against."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import hmac
import io
import os
import random
import secrets
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from labkit import checks
from labkit.checks import Exercise
from labkit.errors import LabkitError
from labkit.exercises import takes_one_argument
from labkit.grading.keyfile import KeyCell, KeySource
from labkit.grading.literals import bound_names
from labkit.slips import Slip
from labkit.steps import Case, Task

DRAWN = 8  # hidden cases drawn for each function, beside the fixed ones that trip known slips
SECRET_BYTES = 32


class Settled(Exercise):
    """An exercise with the same numbers for everybody: its truth and its slips are computed once for the class."""

    def truth(self) -> Any:
        """Give the right answer."""
        return self._truth

    def slips(self) -> list[tuple[Slip, Any]]:
        """Give every slip with the answer it leads to."""
        return self._slips

    @cached_property
    def _truth(self) -> Any:
        return super().truth()

    @cached_property
    def _slips(self) -> list[tuple[Slip, Any]]:
        return super().slips()


@dataclass(frozen=True)
class Item:
    """One exercise: what the key's check asks, and how its answer is found in a notebook."""

    exercise: Exercise
    points: float
    expression: str  # what the check is given: a name, or an expression of names
    names: tuple[str, ...]  # the names in it that answer cells bind
    cell: str  # id of the answer cell
    rubric: str = ""  # for a written answer: the key's own text

    @property
    def id(self) -> str:
        """The exercise's id."""
        return self.exercise.id

    @property
    def personal(self) -> bool:
        """Whether its numbers depend on the learner's name."""
        return not isinstance(self.exercise, Settled)


@dataclass(frozen=True)
class Stage:
    """One cell of the key in its order: given code with the plain values it makes, or an answer cell."""

    cell: KeyCell
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Key:
    """A lesson's items and stages; holds functions, so it is made again in every process, never sent."""

    lesson: str
    items: tuple[Item, ...]
    stages: tuple[Stage, ...]
    digest: str

    @property
    def out_of(self) -> float:
        """All points of the lesson."""
        return sum(item.points for item in self.items)

    def answers(self) -> dict[str, KeyCell]:
        """The answer cells by id."""
        return {stage.cell.id: stage.cell for stage in self.stages if stage.cell.role == "answer"}

    @cached_property
    def labkits(self) -> frozenset[str]:
        """The names that the lesson's cells import from labkit, none of which a sandbox has."""
        found = {"labkit"}
        for node in self._given_code():
            match node:
                case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "labkit":
                    found.update(one.asname or one.name for one in names)
                case ast.Import(names=names):
                    found.update(one.asname for one in names if one.asname and one.name.partition(".")[0] == "labkit")
        return frozenset(found)

    @cached_property
    def provides(self) -> frozenset[str]:
        """Those, and the names that the lesson's cells bind: some of them need labkit, so a sandbox may lack them."""
        stored = (node for node in self._given_code() if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        return self.labkits.union(node.id for node in stored)

    def _given_code(self) -> Iterator[ast.AST]:
        for stage in self.stages:
            if stage.cell.role != "answer":
                yield from ast.walk(ast.parse(stage.cell.source))


@lru_cache(maxsize=64)
def run_key(source: KeySource) -> Key:
    """Run a key in this process (once), collecting its checks; it must pass all of them."""
    space: dict[str, Any] = {"__name__": "__main__"}
    tainted: set[str] = set()
    stages = []
    with checks.collecting() as records, _quiet(source.folder):
        for number, cell in enumerate(source.cells, start=1):
            try:
                exec(compile(cell.source, f"{source.lesson}, code cell {number}", "exec"), space)
            except Exception as error:
                raise LabkitError(
                    f"key {source.lesson} fails in code cell {number}: {type(error).__name__}: {error}"
                ) from error
            stages.append(Stage(cell, _given_values(cell, space, tainted)))
    found = {record.exercise.id: record for record in records}
    wrong = [record.exercise.id for record in records if record.verdict.status not in ("right", "recorded")]
    if wrong:
        raise LabkitError(f"key {source.lesson} does not pass its own check {wrong[0]!r}: mend the key first.")
    items = tuple(_items(source.cells, {name: record.exercise for name, record in found.items()}))
    return Key(source.lesson, items, tuple(stages), source.digest)


def _items(cells: Sequence[KeyCell], exercises: dict[str, Exercise]) -> Iterator[Item]:
    answers = [cell for cell in cells if cell.role == "answer"]
    owner = {name: cell for cell in answers for name in cell.binds}
    own = {cell.id: cell for cell in answers}
    for cell in cells:
        for _, exercise, expression in cell.checks:
            names = tuple(dict.fromkeys(_loads(ast.parse(expression, mode="eval"))))
            names = tuple(name for name in names if name in owner)
            source = own.get(exercise) or (owner[names[0]] if names else None)
            if source is None or exercise not in exercises:
                continue  # a check of the lesson's own numbers, or one that did not run: no exercise
            points = source.points if source.id == exercise else exercises[exercise].points
            rubric = source.source if exercises[exercise].step == "written" else ""
            yield Item(_settled(exercises[exercise]), points, expression, names, source.id, rubric)


def _settled(exercise: Exercise) -> Exercise:
    if any(callable(value) and takes_one_argument(value) for value in exercise.inputs.values()):
        return exercise
    return Settled(**{one.name: getattr(exercise, one.name) for one in fields(exercise)})


def _loads(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _given_values(cell: KeyCell, space: dict[str, Any], tainted: set[str]) -> dict[str, Any]:
    """Give the plain values a cell of the lesson makes, unless an answer or a learner's name has gone into them."""
    names, tree = bound_names(cell.source), ast.parse(cell.source)
    if cell.role == "answer" or _draws(tree) or not tainted.isdisjoint(_loads(tree)):
        tainted.update(names)
        return {}
    plain = {name: _plain(space.get(name)) for name in names}
    return {name: value for name, value in plain.items() if value is not None}


def _draws(tree: ast.AST) -> bool:
    """Say whether code draws numbers of a learner's own."""
    return any(isinstance(node, ast.Attribute) and node.attr == "variant" for node in ast.walk(tree))


def _plain(value: Any) -> Any:
    """Write small arrays, numbers, text and lists of them as the worker rebuilds them; None is everything else."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "bif" and value.size <= 10_000:
        return {"array": value.tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and len(value) <= 1_000:
        parts = [_plain(part) for part in value]
        return None if None in parts else parts
    return None


@contextlib.contextmanager
def _quiet(folder: str) -> Iterator[None]:
    """Let a key run where it lives: prints go nowhere, nothing is journalled, pictures are drawn by nobody."""
    before, here = dict(os.environ), os.getcwd()
    os.environ.update(LABKIT_JOURNAL="off", LABKIT_LEARNER="", MPLBACKEND="Agg")
    os.environ.pop("NBGRADER_EXECUTION", None)
    with contextlib.suppress(OSError):
        os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


# Hidden cases


def read_secret(path: Path) -> bytes:
    """Read the instructor's secret, made on first use; whoever knows it can compute the hidden cases."""
    try:
        return bytes.fromhex(path.read_text("ascii").strip())
    except FileNotFoundError:
        pass
    except ValueError:
        raise LabkitError(f"{path} is not a secret made by labkit grade: give another name, it will be made.") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    made = secrets.token_bytes(SECRET_BYTES)
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(made.hex() + "\n")
    except FileExistsError:  # another grader was faster
        return read_secret(path)
    return made


@lru_cache(maxsize=256)  # every student of a class is called with the same
def hidden_cases(task: Task, exercise: str, secret: bytes) -> list[Case]:
    """Draw the cases of one function: the fixed ones with every bait, and some only the secret knows."""
    seed = hmac.new(secret, f"{exercise}\0{task.name}".encode(), hashlib.sha256).digest()
    return task.cases(random.Random(seed), DRAWN)
