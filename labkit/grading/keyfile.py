"""Read a solved lesson, MyST source or notebook, into cells that know their part. Standard library only."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from labkit.errors import LabkitError
from labkit.grading.literals import bound_names
from labkit.grading.notebook import read_notebook
from labkit.grading.strict import Refused, decode

Role = Literal["given", "answer", "check"]
Choices = tuple[tuple[str, str], ...]

MARKER = re.compile(
    r"^[ \t]*#[ \t]*exercise:[ \t]*([A-Za-z0-9_.-]{1,100})(?:[ \t]*\([ \t]*([0-9.]+)[ \t]*points?[ \t]*\))?",
    re.MULTILINE,
)
_FENCE = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_OPTIONS = re.compile(r"\A---\n(.*?)^---\n|\A((?::[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,4} +(.+?) *$", re.MULTILINE)
_OPTION = re.compile(r"^:?(answer|points):\s*(.+?)\s*$", re.MULTILINE)
_CHOICE = re.compile(r"^- \*\*([A-Z])\*\* +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class KeyCell:
    """One code cell of a key; `answer` cells carry an id and points, `check` cells the ids they check."""

    role: Role
    source: str
    id: str = ""
    points: float = 1.0
    heading: str = ""  # of the lesson, above the cell
    choices: Choices = ()  # letters and what they stand for, as the prose above lists them
    checks: tuple[tuple[str, str, str], ...] = ()  # (step, exercise id, source of the answer expression)

    @cached_property
    def binds(self) -> tuple[str, ...]:
        """The names the cell gives a value."""
        return bound_names(self.source)


@dataclass(frozen=True)
class KeySource:
    """A key as text: enough for any process to run it."""

    lesson: str
    cells: tuple[KeyCell, ...]
    folder: str
    digest: str


def find_keys(path: Path) -> list[Path]:
    """List the keys of a folder, or the one file; where a source and its notebook both exist, the source counts."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise LabkitError(f"{path} does not exist: --keys takes the folder answer_keys, or one key.")
    found = {file.stem: file for suffix in (".ipynb", ".md") for file in sorted(path.glob(f"*{suffix}"))}
    keys = [file for file in found.values() if file.suffix == ".ipynb" or _FENCE.search(file.read_text("utf-8"))]
    if not keys:
        raise LabkitError(f"{path} holds no key: a key is a solved lesson, NN_name.md or NN_name.ipynb.")
    return sorted(keys)


def read_key(path: Path) -> KeySource:
    """Read one key; its exercises are the cells with an id, its checks say what they ask."""
    data = path.read_bytes()
    try:
        cells = _from_myst(decode(data)) if path.suffix == ".md" else _from_notebook(data)
    except Refused as refused:
        raise LabkitError(f"{path} {refused}.") from None
    return KeySource(path.stem, tuple(map(_with_checks, cells)), str(path.parent), hashlib.sha256(data).hexdigest())


def _from_myst(text: str) -> list[KeyCell]:
    text, heading, end = text.replace("\r\n", "\n"), "", 0
    choices: Choices = ()
    cells = []
    for fence in _FENCE.finditer(text):
        body, prose, end = fence[1], text[end : fence.start()], fence.end()
        heading, choices = _heading(prose, heading), _choices(prose, choices)
        head = _OPTIONS.match(body)
        options = dict(_OPTION.findall(head[0])) if head else {}
        source = body[head.end() :] if head else body
        if "answer" in options:
            points = float(options.get("points", 1))
            cells.append(KeyCell("answer", source, options["answer"], points, heading, choices))
        else:
            cells.append(KeyCell("given", source))
    return cells


def _from_notebook(data: bytes) -> list[KeyCell]:
    cells, heading = [], ""
    choices: Choices = ()
    for cell in read_notebook(data)[0]:
        if cell.kind != "code":
            heading, choices = _heading(cell.source, heading), _choices(cell.source, choices)
            continue
        marker = MARKER.search(cell.source)
        if cell.exercise and not cell.locked:
            points = float(marker[2]) if marker and marker[2] else 1.0
            cells.append(KeyCell("answer", cell.source, cell.exercise, points, heading, choices))
        elif marker:
            points = float(marker[2] or 1)
            cells.append(KeyCell("answer", cell.source, marker[1], points, heading, choices))
        else:
            cells.append(KeyCell("given", cell.source))
    return cells


def _heading(prose: str, before: str) -> str:
    return next(reversed(_HEADING.findall(prose)), before)


def _choices(prose: str, before: Choices) -> Choices:
    """List the options of a question as its prose words them; one list serves all questions under its heading.

    >>> _choices("Which?" + chr(10) + "- **A** Only `x`" + chr(10) + "- **B** Both", ())
    (('A', 'Only `x`'), ('B', 'Both'))
    """
    return tuple(_CHOICE.findall(prose)) or (() if _HEADING.search(prose) else before)


def _with_checks(cell: KeyCell) -> KeyCell:
    """Mark a cell that checks answers, with the step, the id and the expression each check is given."""
    if cell.role == "answer" or "check" not in cell.source:
        return cell
    checks = tuple(_checks(ast.parse(cell.source)))
    return replace(cell, role="check", checks=checks) if checks else cell


def _checks(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="check") | ast.Attribute(attr="check"), attr=step),
                args=[ast.Constant(value=str() as exercise), answer, *_],
            ):
                yield step, exercise, ast.unparse(answer)
