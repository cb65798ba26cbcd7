"""Look for answers and feedback that a blank notebook would give away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from labkit.answers import UnreadableError, read_numbers
from labkit.authoring.notebooks import Draft
from labkit.authoring.problems import Problem
from labkit.authoring.source import Exercise

NUMBER = re.compile(r"(?<![\w.])-?(\d+\.\d+|\d+)(?:\s*/\s*(\d+))?(?![\w.]*\w)")
TELLING = 3  # shorter rows of numbers turn up by chance
CLOSE = 6e-3  # pictures show two or three decimals


def leaks(blank: Draft, records: dict[str, Any]) -> list[Problem]:
    """Return every place where the executed blank notebook shows an answer, a hint or a reason."""
    return [
        Problem(blank.lesson.path, exercise.answer.line, f"{exercise.id}: {text} in the blank notebook, cell {where!r}")
        for exercise in blank.lesson.exercises
        for where, text in _found(exercise, _row(exercise, records[exercise.id].answer), blank.notebook.cells)
    ]


def _found(exercise: Exercise, row: list[float], cells: list[Any]) -> Iterator[tuple[str, str]]:
    for cell in cells:
        shown = "\n".join([cell.source, *_output_texts(cell)])
        squeezed = _squeeze(shown)
        for statement in answer_statements(exercise):
            if _squeeze(statement) in squeezed:
                yield cell.id, f"the answer `{statement}` stands"
        for sentence in _sentences(exercise):
            if _squeeze(sentence) in squeezed:
                yield cell.id, f"the feedback {sentence[:40]!r} stands"
        if row and _inside(row, _numbers(shown)):
            yield cell.id, "the answer's numbers are shown (add `shown: true` if that is meant)"


def answer_statements(exercise: Exercise) -> list[str]:
    """Return the answer's assignments and function bodies as they must not appear."""
    tree = ast.parse(exercise.answer.source)
    assigned = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    bodies = [node.body[1:] for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [*assigned, *("\n".join(map(ast.unparse, body)) for body in bodies if body)]


def _sentences(exercise: Exercise) -> list[str]:
    options = exercise.answer.options
    return [str(text) for text in [*options.get("hints", []), *options.get("why", {}).values()]]


def _output_texts(cell: Any) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield str(output.get("text", ""))
        yield from (str(data) for kind, data in output.get("data", {}).items() if kind.startswith("text/"))


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text).replace('"', "'")


def _numbers(text: str) -> list[float]:
    return [float(whole) / float(below or 1) for whole, below in NUMBER.findall(text) if float(below or 1)]


def _row(exercise: Exercise, answer: Any) -> list[float]:
    """Return the answer's numbers where they are many and unusual enough to be recognised, otherwise nothing."""
    if exercise.answer.options.get("shown"):
        return []
    try:
        row = [float(number) for number in read_numbers(answer).ravel()]
    except UnreadableError:
        return []
    return row if len(row) >= TELLING and not set(row) <= {0.0, 1.0} else []


def _inside(row: list[float], numbers: list[float]) -> bool:
    """Tell whether the row appears within the numbers, in order and without gaps."""
    return any(
        all(abs(a - b) <= CLOSE for a, b in zip(row, numbers[start:], strict=False))
        for start in range(len(numbers) - len(row) + 1)
    )
