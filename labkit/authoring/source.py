"""Read a lesson source (MyST Markdown with its answers) into cells that remember their lines."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupytext.myst import MystMetadataParsingError, myst_to_notebook  # type: ignore[import-untyped]
from nbformat import ValidationError

from labkit.authoring.problems import BuildError, Problem
from labkit.checks import Checks

ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
MOST_LINES, LONGEST_LINE = 20, 120
LONGEST_ID = 48  # a cell id holds 64 characters and gets a prefix
ANSWER_OPTIONS = {"answer", "points", "covers", "hints", "why", "predict", "slips", "shown", "given", "tags"}
KINDS = {"hints": list, "why": dict, "covers": list, "slips": list, "given": list, "tags": list}
IN_YAML = {list: "a list, `[…]`", dict: "one sentence for each name, `{A: …}`"}
CELL_OPTIONS = {"tags", "covers"}
FRONT_MATTER = {"title", "minutes", "outcome", "jupytext", "kernelspec"}
STEPS = {name: inspect.signature(method) for name, method in vars(Checks).items() if not name.startswith("_")}
UNHINTED = {"choice", "written"}  # a choice explains every option in `why`; free text is read by a person


@dataclass(frozen=True)
class Cell:
    """One cell of the source; `line` is where its text begins."""

    kind: str  # "markdown" or "code"
    source: str
    line: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def tags(self) -> list[str]:
        """Give the cell's tags, such as `hide-input`."""
        return list(self.options.get("tags", []))

    @property
    def headings(self) -> list[tuple[str, str]]:
        """Give the headings outside code blocks: the signs before each, and its words as a reader sees them."""
        prose = "".join(self.source.split("```")[::2]) if self.kind == "markdown" else ""
        return [(signs, re.sub(r"[`*]", "", words)) for signs, words in HEADING.findall(prose)]

    @property
    def heading(self) -> str:
        """Give the heading of a cell that opens a section, else ""."""
        return next((words for _, words in self.headings), "")


@dataclass(frozen=True)
class Exercise:
    """An answer cell and the check that follows it."""

    answer: Cell
    check: Cell

    @property
    def id(self) -> str:
        """Give the exercise's id, unique in the workbook."""
        return str(self.answer.options["answer"])

    @property
    def points(self) -> float:
        """Give the points of a right answer."""
        return float(self.answer.options["points"])

    @property
    def call(self) -> ast.Call:
        """Give the call `check.step("id", …)` as it is written."""
        call = check_call(self.check.source)
        assert call is not None, "read_lesson lets no exercise through without its check"
        return call

    @property
    def step(self) -> str:
        """Name the step that the check asks about, such as `weights`."""
        assert isinstance(self.call.func, ast.Attribute)
        return self.call.func.attr


@dataclass(frozen=True)
class Lesson:
    """One source file: front matter, cells, and the exercises among them."""

    path: Path
    front: dict[str, Any]
    cells: list[Cell]
    exercises: list[Exercise]

    @property
    def name(self) -> str:
        """Give the file's name without its ending, such as `03_masks`."""
        return self.path.stem

    @property
    def covers(self) -> Iterator[tuple[Cell, str]]:
        """Yield each cell that names ids of the syllabus, with each id it names."""
        for cell in self.cells:
            for covered in cell.options.get("covers", []):
                yield cell, str(covered)


def read_lesson(path: Path) -> Lesson:
    """Read one source; raises BuildError with file and line for everything wrong with its structure."""
    text = path.read_text(encoding="utf-8")
    try:
        notebook = myst_to_notebook(text, add_source_map=True)
    except MystMetadataParsingError as error:
        raise BuildError([_unreadable(path, text.splitlines(), str(error))]) from error
    except ValidationError as error:  # tags are the one option that the notebook format itself looks at
        line = next((i for i, line in enumerate(text.splitlines(), 1) if re.match(r"tags: *[^\[ ]", line)), 1)
        raise BuildError([Problem(path, line, f"tags are a list, `tags: [hide-input]`: {error.message}")]) from error
    lines = text.splitlines()
    starts = notebook.metadata.pop("source_map")
    cells = [_cell(raw, start, lines) for raw, start in zip(notebook.cells, starts, strict=True)]
    front = {key: value for key, value in notebook.metadata.items() if key != "jupyter"}
    exercises = list(_pairs(cells))
    problems = [*_front_problems(front), *_cell_problems(cells), *_id_problems(exercises)]
    if problems:
        raise BuildError([Problem(path, line, text) for line, text in problems])
    return Lesson(path, front, cells, exercises)


def _unreadable(path: Path, lines: list[str], said: str) -> Problem:
    """Say in one line, at the line itself, what the YAML reader says in many about a text of its own numbering."""
    fence, mark = (re.search(pattern, said) for pattern in (r"at line (\d+)", r"line (\d+), column"))
    start = int(fence[1]) if fence else 0  # the front matter opens the file
    dashes = lines[start : start + 1] == ["---"]
    line = start + dashes + int(mark[1]) if mark else start or 1
    words = re.sub(r'in "<unicode string>", line \d+, column \d+:|\^|.*Invalid YAML;|Notebook metadata:', "", said)
    return Problem(
        path, line, f"this YAML cannot be read: {' '.join(words.split())} (text with : or ? in it needs quotes)"
    )


def check_call(source: str) -> ast.Call | None:
    """Return the last `check.step("id", …)` call of a cell, or None."""
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if _is_check(node)]
    except SyntaxError:
        return None
    return calls[-1] if calls else None  # type: ignore[return-value]


def _is_check(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "check"
    )


def _cell(raw: Any, start: int, lines: list[str]) -> Cell:
    body = raw.source.splitlines()
    line = next(i for i in range(start, len(lines) + 1) if lines[i : i + len(body)] == body or not body)
    return Cell(raw.cell_type, raw.source, line + 1, dict(raw.metadata))


def _pairs(cells: list[Cell]) -> Iterator[Exercise]:
    """Yield every answer cell with the next code cell."""
    for position, cell in enumerate(cells):
        if "answer" in cell.options:
            following = (later for later in cells[position + 1 :] if later.kind == "code")
            yield Exercise(cell, next(following, Cell("code", "", cell.line)))


def _front_problems(front: dict[str, Any]) -> Iterator[tuple[int, str]]:
    for name, kind in {"title": str, "minutes": int, "outcome": str | list}.items():
        if not front.get(name):
            yield 1, f"front matter has no {name!r}"
        elif not isinstance(front[name], kind):
            yield 1, f"front matter says {name}: {front[name]!r}; it must be {'a number' if kind is int else 'text'}"
    for name in sorted(set(front) - FRONT_MATTER):
        yield 1, f"front matter has an unknown entry {name!r}"


def _cell_problems(cells: list[Cell]) -> Iterator[tuple[int, str]]:
    for cell in cells:
        if any(signs == "#" for signs, _ in cell.headings):
            yield cell.line, "the title comes from the front matter; headings here start with ##"
        if len(cell.headings) > 1:
            yield cell.line, f"two headings in one cell; write `+++` in a line above {cell.headings[1][1]!r}"
        known = ANSWER_OPTIONS if "answer" in cell.options else CELL_OPTIONS
        here = "known here" if "answer" in cell.options else "a cell without `answer` knows"
        for name in sorted(set(cell.options) - known):
            yield cell.line, f"unknown cell option {name!r}; {here}: {', '.join(sorted(known))}"
        for name in sorted(KINDS.keys() & known & cell.options.keys()):
            if not isinstance(given := cell.options[name], kind := KINDS[name]):
                yield cell.line, f"the option {name!r} is {given!r}; it must be {IN_YAML[kind]}"
        if cell.kind == "code":
            yield from _code_problems(cell)


def _code_problems(cell: Cell) -> Iterator[tuple[int, str]]:
    lines = cell.source.splitlines()
    if len(lines) > MOST_LINES:
        yield cell.line, f"a code cell of {len(lines)} lines; a reader follows {MOST_LINES} at most"
    for number, line in enumerate(lines):
        if len(line) > LONGEST_LINE:
            yield cell.line + number, f"a code line of {len(line)} characters; {LONGEST_LINE} at most"
    try:
        ast.parse(cell.source)
    except SyntaxError as error:
        yield cell.line + (error.lineno or 1) - 1, f"not Python: {error.msg} (magics have no place in lessons)"


def _id_problems(exercises: list[Exercise]) -> Iterator[tuple[int, str]]:
    seen: dict[str, int] = {}
    for exercise in exercises:
        line, name = exercise.answer.line, exercise.id
        if not ID.fullmatch(name) or len(name) > LONGEST_ID:
            yield line, f"exercise id {name!r}: use at most {LONGEST_ID} small letters and digits joined by hyphens"
        if name in seen:
            yield line, f"exercise id {name!r} is already used in line {seen[name]}: choose another"
        seen.setdefault(name, line)
        yield from ((line, f"{name}: {text}") for text in _exercise_problems(exercise))


def _exercise_problems(exercise: Exercise) -> Iterator[str]:
    options = exercise.answer.options
    points = options.get("points")
    if isinstance(points, bool) or not isinstance(points, int | float) or points < 0:
        found = f"points are {points!r}, not a number from 0 up" if "points" in options else "no points"
        yield f"{found}; write `points: 2` under the answer"
    if any(not isinstance(options.get(name, kind()), kind) for name, kind in KINDS.items()):
        return
    for text in [*options.get("hints", []), *options.get("why", {}).values()]:
        if not isinstance(text, str):
            yield f"YAML reads a hint or reason as {text!r}, not as text: put it in quotes"
    call = check_call(exercise.check.source)
    if call is None:
        yield "the next code cell holds no check; every answer is followed by its check.<step>(…)"
    elif found := next(_call_problems(exercise, call), ""):
        yield found
    else:
        if exercise.step not in UNHINTED and not options.get("hints"):
            yield "no hints; write at least one, the last of them a worked sibling with other numbers"
        if exercise.step == "choice":
            yield from _choice_problems(call, options.get("why", {}))


def _call_problems(exercise: Exercise, call: ast.Call) -> Iterator[str]:
    """Yield what is wrong with the check as it is written; the first of these is what the author should mend."""
    step = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if step not in STEPS:
        yield f"there is no check.{step}; there are {', '.join(sorted(STEPS))}"
        return
    first = call.args[0] if call.args else None
    if not (isinstance(first, ast.Constant) and first.value == exercise.id):
        yield f"the check that follows is for {ast.unparse(first) if first else 'nothing'}; write {exercise.id!r} first"
    answered = _assigned(exercise.answer.source)
    judged = {node.id for part in call.args[1:2] for node in ast.walk(part) if isinstance(node, ast.Name)}
    if not judged & answered:
        names = ", ".join(sorted(answered)) or "nothing"
        yield f"its check judges {', '.join(sorted(judged)) or 'nothing'}; the answer cell assigns {names}"
    for name in sorted(answered & _assigned(exercise.check.source)):
        yield f"its check cell assigns {name}, the answer's own name, over what the learner wrote: use another name"
    named = {word.arg: word.value for word in call.keywords if word.arg}
    try:  # what stands behind ** is known only when it runs
        (STEPS[step].bind if len(named) == len(call.keywords) else STEPS[step].bind_partial)(None, *call.args, **named)
    except TypeError as error:
        yield f"check.{step} cannot be called like this: {error}; everything after the answer is written name=value"


def _assigned(source: str) -> set[str]:
    """Return the names that a cell binds at its top level."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # reported with its own line
        return set()
    parts = [part for node in body if not isinstance(node, ast.FunctionDef) for part in ast.walk(node)]
    stored = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return stored | {node.name for node in body if isinstance(node, ast.FunctionDef)}


def _choice_problems(call: ast.Call, why: dict[str, str]) -> Iterator[str]:
    given = next((word.value for word in call.keywords if word.arg == "options"), None)
    try:
        offered = list(map(str, ast.literal_eval(given))) if given is not None else list("ABC")
    except (ValueError, TypeError):
        yield f'`options` is {ast.unparse(given) if given else None}; write them out, options="ABC"'
        return
    if sorted(map(str, why)) != sorted(offered):
        yield f"`why` explains {', '.join(map(str, why)) or 'nothing'}; it must explain each of {', '.join(offered)}"
