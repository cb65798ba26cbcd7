"""Turn a lesson into its two notebooks: blank for learners, solved for the key; both executed, both reproducible."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from labkit.authoring.blank import CannotBlankError, blank, marker
from labkit.authoring.guard import output_problems
from labkit.authoring.problems import BuildError, Problem
from labkit.authoring.source import Cell, Exercise, Lesson

AT_A_TIME = 2
CELL_SECONDS = 120
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True)
class Draft:
    """A notebook before and after execution; `lines[i]` is where cell `i` begins in the source."""

    lesson: Lesson
    notebook: Any
    lines: list[int]

    def problem(self, position: int, text: str) -> Problem:
        """Report something wrong with cell `position`, at its line in the source."""
        return Problem(self.lesson.path, self.lines[position], text)


def draft(lesson: Lesson, solved: bool) -> Draft:
    """Lay out one notebook, not yet executed."""
    answers = {id(exercise.answer): exercise for exercise in lesson.exercises}
    checks = {id(exercise.check): exercise for exercise in lesson.exercises}
    cells, lines = [_opening(lesson)], [1]
    for cell, name in zip(lesson.cells, cell_ids(lesson), strict=True):
        if exercise := answers.get(id(cell)):
            made = _answer_cell(name, lesson, exercise, solved)
        elif exercise := checks.get(id(cell)):
            made = _check_cell(name, exercise)
        else:
            made = _plain_cell(name, cell)
        cells.append(made)
        lines.append(cell.line)
    raw = {**_frame(lesson), "cells": cells}
    return Draft(lesson, nbformat.from_dict(raw), lines)  # type: ignore[no-untyped-call]


def execute(drafts: list[Draft], environment: dict[str, str]) -> None:
    """Run every draft in place, two at a time; raises BuildError naming the source line of what failed."""

    async def run_all() -> list[list[Problem]]:
        turn = asyncio.Semaphore(AT_A_TIME)
        return await asyncio.gather(*(_execute(one, environment, turn) for one in drafts))

    problems = [problem for found in asyncio.run(run_all()) for problem in found]
    if problems:
        raise BuildError(problems)


def as_bytes(notebook: Any) -> bytes:
    """Serialise with sorted keys and LF line ends, validated; equal notebooks give equal bytes."""
    nbformat.validate(notebook)
    text = str(nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    return (text.rstrip("\n") + "\n").encode("utf-8")


def environment(feedback: Path) -> dict[str, str]:
    """Return the environment of a build: nobody in particular, nothing written down, the feedback being built."""
    personal = ("LABKIT_", "NBGRADER_", "MPLBACKEND")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(personal)}
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [here, kept.get("PYTHONPATH")]))
    return {**kept, "LABKIT_JOURNAL": "off", "LABKIT_FEEDBACK": str(feedback), "PYTHONPATH": path}


LONGEST_SECTION = 40


def cell_ids(lesson: Lesson) -> list[str]:
    """Name every cell after its exercise, or its section's heading and a count: an edit elsewhere leaves it alone."""
    roles = {id(one.answer): f"answer-{one.id}" for one in lesson.exercises}
    roles |= {id(one.check): f"check-{one.id}" for one in lesson.exercises}
    section, used, names = "start", Counter[str](), list[str]()
    for cell in lesson.cells:
        if title := cell.heading:
            section = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:LONGEST_SECTION] or "section"
        used[section] += id(cell) not in roles
        name = roles.get(id(cell), f"{section}-{used[section]}")
        if name in names:
            text = f"this cell's id {name!r} is taken: give the heading above it other words"
            raise BuildError([Problem(lesson.path, cell.line, text)])
        names.append(name)
    return names


def _frame(lesson: Lesson) -> dict[str, Any]:
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
            "labkit": {"lesson": lesson.name},
        },
    }


def _opening(lesson: Lesson) -> dict[str, Any]:
    """Write the title, the outcome and the minutes from the front matter: every lesson opens the same way."""
    outcome = lesson.front["outcome"]
    points = [outcome] if isinstance(outcome, str) else outcome
    lines = [f"# {lesson.front['title']}", "", f"*About {lesson.front['minutes']} minutes.* Afterwards you can", ""]
    return _markdown("opening", "\n".join([*lines, *(f"- {point}" for point in points)]))


def _plain_cell(name: str, cell: Cell) -> dict[str, Any]:
    if cell.kind == "markdown":
        return _markdown(name, cell.source)
    return _code(name, cell.source, _presentation(cell))


def _answer_cell(name: str, lesson: Lesson, exercise: Exercise, solved: bool) -> dict[str, Any]:
    cell, by_hand = exercise.answer, exercise.step == "written"
    try:
        filling, given = ('""' if by_hand else "..."), cell.options.get("given", [])
        body = cell.source if solved else blank(cell.source, filling, given)
    except CannotBlankError as error:
        raise BuildError([Problem(lesson.path, cell.line + error.line - 1, f"{exercise.id}: {error}")]) from error
    metadata = _roles(exercise, "answer", solution=True, grade=by_hand)
    return _code(name, f"{marker(exercise.id, exercise.points)}\n{body}", metadata)


def _check_cell(name: str, exercise: Exercise) -> dict[str, Any]:
    metadata = _roles(exercise, "check", solution=False, grade=exercise.step != "written")
    return _code(name, exercise.check.source, metadata)


def _roles(exercise: Exercise, role: str, *, solution: bool, grade: bool) -> dict[str, Any]:
    """Return what labkit and nbgrader need to know about a cell; free text is graded by a person, where it stands."""
    nbgrader = {
        "schema_version": 3,
        "grade_id": f"{role}-{exercise.id}",
        "solution": solution,
        "grade": grade,
        "locked": not solution,
        "task": False,
    }
    if grade:
        nbgrader["points"] = exercise.points
    cell = exercise.answer if role == "answer" else exercise.check
    return {**_presentation(cell), "labkit": {"exercise": exercise.id, "role": role}, "nbgrader": nbgrader}


def _presentation(cell: Cell) -> dict[str, Any]:
    folded = {"jupyter": {"source_hidden": True}} if "hide-input" in cell.tags else {}
    return {**folded, **({"tags": cell.tags} if cell.tags else {})}


def _markdown(name: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def _code(name: str, source: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": name,
        "metadata": metadata,
        "source": source,
        "execution_count": None,
        "outputs": [],
    }


async def _execute(one: Draft, environment: dict[str, str], turn: asyncio.Semaphore) -> list[Problem]:
    client = NotebookClient(
        one.notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        coalesce_streams=True,
        store_widget_state=False,
        record_timing=False,
        resources={"metadata": {"path": str(one.lesson.path.parent)}},
    )
    async with turn:
        try:
            await client.async_execute(env=environment, stderr=subprocess.DEVNULL)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return [one.problem(_stopped_at(one.notebook), f"this cell does not run to its end: {_last_line(error)}")]
    _tidy(one.notebook)
    return list(_output_problems(one))


def _stopped_at(notebook: Any) -> int:
    """Return the last cell that was started."""
    started = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code" and _touched(cell)]
    return started[-1] if started else 0


def _touched(cell: Any) -> bool:
    return bool(cell.outputs) or cell.execution_count is not None


def _last_line(error: Exception) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return [line for line in plain.splitlines() if line.strip()][-1]


def _tidy(notebook: Any) -> None:
    """Keep what a reader without a kernel can see, and nothing that changes from run to run."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)


def _output_problems(one: Draft) -> Iterator[Problem]:
    for position, cell in enumerate(one.notebook.cells):
        for output in cell.get("outputs", []):
            yield from (one.problem(position, f"this cell {text}") for text in output_problems(output))
