"""Run a lesson's own code with its answers in place, and hold every answer against what labkit computes."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.answers import in_words
from labkit.authoring.coverage import syllabus
from labkit.authoring.problems import BuildError, Problem
from labkit.authoring.source import Exercise, Lesson
from labkit.errors import LabkitError

SETTLED = {"right", "recorded"}


def prove(lesson: Lesson, environment: dict[str, str]) -> dict[str, Any]:
    """Run the source in this process and return each exercise's check record.

    Raises BuildError for answers that are refused by their own check, never checked, or take a slip for the truth.
    """
    from labkit import checks

    with _surroundings(environment), checks.collecting() as collected:
        _run(lesson)
    problems = [
        Problem(lesson.path, exercise.answer.line, f"{exercise.id}: {text}")
        for exercise in lesson.exercises
        for text in _answer_problems(exercise, [made for made in collected if made.exercise.id == exercise.id])
    ]
    if problems:
        raise BuildError(problems)
    return {made.exercise.id: made for made in collected}


def _answer_problems(exercise: Exercise, made: list[Any]) -> Iterator[str]:
    if len(made) != 1:
        yield f"its check ran {len(made)} times; it must run once"
        return
    record = made[0]
    if record.verdict.status not in SETTLED:
        yield f"the answer written here and the computed truth disagree: {_disagreement(record)}"
    elif not _still_so(record):
        yield "its check gives another result after the lesson's end: it uses a name that a later cell reassigns"
    else:
        try:
            yield from _slip_problems(exercise, record.exercise)
        except Exception as error:  # the author's own computation
            said = f"{type(error).__name__}: {error}"
            yield f"its slips cannot be computed ({said}); write slips={{'name': lambda: …}}"


def _disagreement(record: Any) -> str:
    """Say both answers and what the check says, on one line; a function is shown by the call that went wrong."""
    verdict, truth = record.verdict, record.exercise.truth()
    both = "" if truth is None else f"{in_words(record.answer)} is written, {in_words(truth)} is computed. "
    return " ".join(f"{both}{verdict.message} {verdict.case}".split())


def _still_so(record: Any) -> bool:
    """Judge once more after the last cell, as grading does; a lambda in a check sees the names of that moment."""
    try:
        return bool(record.exercise.judge(record.answer).status == record.verdict.status)
    except Exception:
        return False


def _slip_problems(exercise: Exercise, asked: Any) -> Iterator[str]:
    """Yield each slip, listed in the cell or spelled out in the call, whose number the check takes for the truth."""
    wrong = {slip.id: value for slip, value in asked.slips()}
    spelled_out = wrong if exercise.step in ("number", "ordering") else asked.inputs.get("slips", {})
    for name in [*exercise.answer.options.get("slips", []), *spelled_out]:
        if name not in wrong:
            yield f"lists the slip {name!r}, which cannot happen with its inputs; these can: {', '.join(sorted(wrong))}"
        elif asked.judge(wrong[name]).status == "right":
            yield f"would accept the slip {name!r}: choose inputs for which it gives something else"
    yield from _wordless(exercise, asked, wrong)


def _wordless(exercise: Exercise, asked: Any, wrong: Mapping[str, Any]) -> Iterator[str]:
    """Yield each slip of the call without a sentence to show, and each sentence of the cell that none would show."""
    topics = syllabus()
    for slip, _ in asked.slips():
        if not slip.refutation:
            yield f"says nothing about the slip {slip.id!r}: add `why: {{{slip.id}: …}}` with one sentence"
        if slip.section and slip.section not in topics:
            yield f"its slip {slip.id!r} points to {slip.section!r}, which labkit/authoring/ids.toml does not know"
    if exercise.step in ("choice", "written"):
        return
    for name in exercise.answer.options.get("why", {}):
        if name != "right" and name not in wrong:
            yield f"`why` explains {name!r}, which is no slip of its check; add it to `slips={{…}}` in the call"


def _run(lesson: Lesson) -> None:
    """Execute the code cells in order, with the source's own line numbers in any traceback."""
    names = {id(exercise.check): f"{exercise.id}: " for exercise in lesson.exercises}
    namespace: dict[str, Any] = {"__name__": "__main__", "display": lambda *shown: None}
    for cell in lesson.cells:
        if cell.kind != "code":
            continue
        try:
            exec(compile("\n" * (cell.line - 1) + cell.source, str(lesson.path), "exec"), namespace)
        except Exception as error:
            line = _line_in(lesson.path, error) or cell.line
            said = str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"
            raise BuildError([Problem(lesson.path, line, f"{names.get(id(cell), '')}{said}")]) from error


def _line_in(path: Path, error: Exception) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)


@contextlib.contextmanager
def _surroundings(environment: dict[str, str]) -> Iterator[None]:
    """Give the lesson the build's environment, a drawing backend without windows, and nowhere to print."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(environment, MPLBACKEND="Agg")
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
