"""Take the answers out of a cell, each by its own shape: numbers become `...`, a function keeps its docstring."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from typing import NamedTuple

CONTAINERS = {"array", "asarray"}  # np.array([[1, 2]]) keeps its brackets


class Hole(NamedTuple):
    """A stretch of the cell, in bytes, and what stands there afterwards."""

    start: int
    end: int
    filling: str


class CannotBlankError(ValueError):
    """A statement that is neither an assignment nor a function; `line` counts from 1 within the cell."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        super().__init__(text)


def blank(source: str, filling: str = "...", given: Sequence[str] = ()) -> str:
    """Return the cell as a learner first sees it; comments survive only where they start a line.

    Parts listed in `given` stay as they are, each once, the first that matches: worked steps that fade.

    >>> blank("row_2 = [1/3, 2/3, 0]  # thirds")
    'row_2 = [..., ..., ...]'
    >>> blank("A = np.array([[1, 0], [1/2, 1/2]])", given=["[1, 0]"])
    'A = np.array([[1, 0], [..., ...]])'
    """
    source = source.rstrip("\n") + "\n"
    tree, starts = ast.parse(source), _line_starts(source)
    kept = [ast.unparse(ast.parse(part, mode="eval")) for part in given]
    answers = [hole for statement in tree.body for hole in _statement(statement, starts, filling, kept)]
    if kept or not answers:
        raise CannotBlankError(
            1, f"`given` keeps {kept[0]}, but no part of the answer reads so" if kept else "nothing is left to answer"
        )
    blanked = _fill(source.encode(), _outermost(sorted([*answers, *_comments(source, starts)]))).decode()
    return "\n".join(line.rstrip() for line in blanked.splitlines()).rstrip("\n")


def marker(exercise_id: str, points: float) -> str:
    """Return the visible first line of an answer cell, which survives editors that drop metadata.

    >>> marker("masks-row-2", 2)
    '# exercise: masks-row-2 (2 points)'
    """
    return f"# exercise: {exercise_id} ({points:g} point{'' if points == 1 else 's'})"


def _fill(text: bytes, holes: list[Hole]) -> bytes:
    pieces, position = [], 0
    for hole in holes:
        pieces += [text[position : hole.start], hole.filling.encode()]
        position = hole.end
    return b"".join([*pieces, text[position:]])


def _statement(statement: ast.stmt, starts: list[int], filling: str, kept: list[str]) -> Iterator[Hole]:
    match statement:
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            yield from _value(value, starts, filling, kept)
        case ast.FunctionDef():
            yield _body(statement, starts)
        case ast.Import() | ast.ImportFrom():
            pass
        case _:
            raise CannotBlankError(
                statement.lineno, "an answer cell holds assignments and functions, nothing else can be blanked"
            )


def _value(value: ast.expr, starts: list[int], filling: str, kept: list[str]) -> Iterator[Hole]:
    if (written := ast.unparse(value)) in kept:
        kept.remove(written)
        return
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts) if parts:
            for part in parts:
                yield from _value(part, starts, filling, kept)
        case ast.Call(func=ast.Attribute(attr=name), args=[ast.List() as inner, *_]) if name in CONTAINERS:
            yield from _value(inner, starts, filling, kept)
        case _:
            yield Hole(*_span(value, starts), filling)


def _body(function: ast.FunctionDef, starts: list[int]) -> Hole:
    """Cut everything after the docstring, up to the end of the function's last line."""
    if ast.get_docstring(function) is None or len(function.body) < 2:
        raise CannotBlankError(function.lineno, f"{function.name} needs a docstring (all a learner sees) and a body")
    docstring = function.body[0]
    assert function.end_lineno is not None
    return Hole(_span(docstring, starts)[1], starts[function.end_lineno] - 1, "\n" + " " * docstring.col_offset + "...")


def _comments(source: str, starts: list[int]) -> Iterator[Hole]:
    """Yield the comments that do not start a line: they would speak about an answer that is gone."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.start[1]:
            start = starts[token.start[0] - 1] + len(token.line[: token.start[1]].encode())
            yield Hole(start, start + len(token.string.encode()), "")


def _outermost(holes: list[Hole]) -> list[Hole]:
    kept: list[Hole] = []
    for hole in holes:
        if not kept or hole.start >= kept[-1].end:
            kept.append(hole)
    return kept


def _span(node: ast.expr | ast.stmt, starts: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _line_starts(source: str) -> list[int]:
    """Return the byte at which each line starts, and at the end the byte after the last one."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts
