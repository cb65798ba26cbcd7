"""Read one notebook file as data: cells and their ids. Of outputs only the name in a line of `labkit.me` is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, get_args

from labkit.grading.model import Cell, CellKind
from labkit.grading.strict import Refused, read_json
from labkit.variants import DRAWN_FOR

MAX_NOTEBOOK = 10 << 20  # bytes of one file
MAX_CELLS = 2_000
MAX_SOURCE = 200_000  # characters of one cell
MAX_SOURCES = 2_000_000  # characters of all cells
MAX_ID = 100
MAX_LINES = 100  # of an output
KINDS = get_args(CellKind)
_DRAWN_FOR = re.compile("^" + re.escape(DRAWN_FOR).replace(r"\{\}", rf"([^\n]{{1,{MAX_ID}}})") + "$", re.MULTILINE)


def read_notebook(data: bytes) -> tuple[tuple[Cell, ...], str]:
    """Give the cells and the lesson's name (or "") of notebook format 3 or 4; raise `Refused` with a reason."""
    if not data.strip():
        raise Refused("is empty")
    document = read_json(data, cap=MAX_NOTEBOOK, constants=True)
    if type(document) is not dict or "nbformat" not in document:
        raise Refused("is JSON, but not a notebook")
    raw = _raw_cells(document)
    if len(raw) > MAX_CELLS:
        raise Refused(f"holds {len(raw)} cells, more than {MAX_CELLS}")
    cells = tuple(_cell(cell, number) for number, cell in enumerate(raw, start=1))
    if sum(len(cell.source) for cell in cells) > MAX_SOURCES:
        raise Refused(f"holds more than {MAX_SOURCES} characters in its cells")
    return cells, _text(_dict(_dict(document.get("metadata")).get("labkit")).get("lesson"))


def digest(data: bytes) -> str:
    """Give the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _raw_cells(document: dict[str, Any]) -> list[Any]:
    version = document["nbformat"]
    if version not in (3, 4) or type(version) is not int:
        raise Refused(f"claims notebook format {str(version)[:20]}; formats 3 and 4 are read")
    if version == 3:
        sheets = document.get("worksheets")
        cells: Any = [cell for sheet in sheets for cell in _sheet(sheet)] if type(sheets) is list else None
    else:
        cells = document.get("cells")
    if type(cells) is not list:
        raise Refused("has no list of cells")
    return cells


def _sheet(sheet: Any) -> Iterator[Any]:
    for cell in _dict(sheet).get("cells") or []:
        if type(cell) is dict and "input" in cell:  # format 3 called the source of a code cell its input
            cell = {**cell, "source": cell["input"]}
        if type(cell) is dict and cell.get("cell_type") == "heading":
            cell = {**cell, "cell_type": "markdown"}
        yield cell


def _cell(cell: Any, number: int) -> Cell:
    kind: Any = cell.get("cell_type") if type(cell) is dict else None
    if kind not in KINDS:
        raise Refused(f"has no known type in cell {number} (code, markdown or raw)")
    metadata = _dict(cell.get("metadata"))
    labkit, nbgrader = _dict(metadata.get("labkit")), _dict(metadata.get("nbgrader"))
    exercise = _text(labkit.get("exercise")) or _text(labkit.get("id")) or _text(nbgrader.get("grade_id"))
    locked = labkit.get("role") == "check" or labkit.get("locked") is True or nbgrader.get("locked") is True
    source = _source(cell.get("source"), number)
    return Cell(kind, source, exercise or None, locked, _told(cell) if "me(" in source else "")


def _told(cell: dict[str, Any]) -> str:
    """Give the name that `labkit.me` printed when the cell last ran, or ""."""
    outputs = cell.get("outputs")
    for output in outputs if type(outputs) is list else ():
        text = _dict(output).get("text")
        lines = text if type(text) is list else [text]
        printed = "".join(line for line in lines[:MAX_LINES] if type(line) is str)
        if found := _DRAWN_FOR.search(printed[: MAX_LINES * MAX_ID]):
            return found[1]
    return ""


def _source(source: Any, number: int) -> str:
    if type(source) is list and all(type(line) is str for line in source):
        source = "".join(source)
    if type(source) is not str:
        raise Refused(f"has no text in cell {number}")
    if len(source) > MAX_SOURCE:
        raise Refused(f"holds {len(source)} characters in cell {number}, more than {MAX_SOURCE}")
    text: str = source
    if not text.isascii():  # JSON may carry half a character
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _dict(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _text(value: Any) -> str:
    return value if type(value) is str and len(value) <= MAX_ID else ""
