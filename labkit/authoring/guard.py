"""What a stored notebook must be before a comparison of its outputs means anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LARGEST = 2_000_000  # bytes; a notebook is a page, not an archive
UNCOMPARED = {"image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json"}  # nbval passes over these
ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
SILENCED = re.compile(r"#\s*(NBVAL_|PYTEST_VALIDATE_)|\bnbval-|raises-exception", re.IGNORECASE)


def problems(path: Path) -> list[str]:
    """Return why nbval would compare less of this notebook than it seems to, or nothing."""
    size = path.stat().st_size
    found = [f"is {size:,} bytes, above {LARGEST:,}"] if size > LARGEST else []
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if "widgets" in notebook["metadata"]:
        found.append("stores widget state")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if not cells:
        found.append("has no code cell")
    for number, cell in enumerate(cells, 1):
        found += [f"code cell {number} ({cell.get('id')}): {text}" for text in _cell_problems(number, cell)]
    return found


def _cell_problems(number: int, cell: dict[str, Any]) -> Iterator[str]:
    if cell["execution_count"] != number:
        yield f"was not executed in order (count {cell['execution_count']}), so it is not compared"
    if SILENCED.search("".join(cell["source"])) or SILENCED.search(" ".join(cell["metadata"].get("tags", []))):
        yield "tells nbval to look away"
    for output in cell["outputs"]:
        yield from output_problems(output)


def output_problems(output: dict[str, Any]) -> Iterator[str]:
    """Yield why one output cannot be stored and compared; each sentence continues "this cell …"."""
    if output["output_type"] == "error":
        yield f"stores an error ({output.get('ename')})"
    if output.get("name") == "stderr":
        yield "stores something written to stderr"
    data = output.get("data", {})
    if any(ADDRESS.search("".join(text)) for text in (output.get("text", ""), data.get("text/plain", ""))):
        yield "shows an object's address, which changes from run to run"
    kinds = set(data)
    if "application/vnd.jupyter.widget-view+json" in kinds:
        yield "stores a widget view, which nobody can open again"
    if kinds and not kinds - UNCOMPARED - {"text/plain"} and _says_nothing(data.get("text/plain", "")):
        yield "stores a picture and not one word about it, so nothing is compared: use labkit.figures"


def _says_nothing(text: str | list[str]) -> bool:
    """Tell whether a text twin is empty or only a type, such as `<Figure size 640x480 with 1 Axes>`."""
    return re.fullmatch(r"(<.*>)?", "".join(text), re.DOTALL) is not None
