"""Run a lesson's code cells without a kernel, in any order and any mixture of blank and solved: milliseconds a lesson.

`python -m tests.lesson_run notebooks|answer_keys` runs every lesson in one process and prints each check's status.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


@dataclass(frozen=True)
class Cell:
    """One code cell; `exercise` and `role` ("answer" or "check") are empty for cells that ask nothing."""

    source: str
    exercise: str = ""
    role: str = ""


def code_cells(folder: str, lesson: str) -> list[Cell]:
    """Read the code cells of a stored notebook: `folder` is `notebooks` (blank) or `answer_keys` (solved)."""
    stored = json.loads((ROOT / folder / f"{lesson}.ipynb").read_text(encoding="utf-8"))
    return [
        Cell("".join(cell["source"]), **cell["metadata"].get("labkit", {}))
        for cell in stored["cells"]
        if cell["cell_type"] == "code"
    ]


def run(cells: Iterable[Cell], names: dict[str, Any] | None = None) -> dict[str, str]:
    """Run cells in the order given, show what a notebook would show, and return each check's status."""
    names = {} if names is None else names
    statuses = {}
    for cell in cells:
        shown = run_cell(cell.source, names)
        if cell.role == "check":
            assert str(shown).strip()
            assert shown._repr_html_()
            statuses[cell.exercise] = shown.status
    return statuses


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run one cell and return the value of its last expression, as a notebook does."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    repr(value)
    return value


if __name__ == "__main__":
    print(json.dumps({lesson: run(code_cells(sys.argv[1], lesson)) for lesson in LESSONS}))
