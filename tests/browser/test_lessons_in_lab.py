"""Every lesson, solved, in a real JupyterLab: it runs to the end and every one of its panels opens and moves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import Lab, Notebook

KEYS = Path(__file__).parents[2] / "answer_keys"
LESSONS = sorted(KEYS.glob("*.ipynb"))


def test_there_are_lessons_to_open() -> None:
    assert len(LESSONS) == len(list(KEYS.glob("*.md"))) >= 9


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_a_lesson_runs_and_its_panels_open(lab: Lab, lesson: Path) -> None:
    shutil.copy(lesson, lab.root / lesson.name)
    notebook = lab.open(lesson.stem)
    notebook.run_all(timeout=180_000)
    assert failed_cells(notebook) == []
    panels = [i for i, cell in enumerate(cells_of(lesson)) if draws_a_panel(cell)]
    for i in panels:
        assert_panel_is_alive(notebook, i)
    assert notebook.errors == []


def cells_of(lesson: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
    return cells


def draws_a_panel(cell: dict[str, Any]) -> bool:
    """Tell by the picture a panel leaves in the stored output."""
    outputs = (output.get("data", {}) for output in cell.get("outputs", []))
    return any("labkit-panel" in "".join(data.get("text/html", "")) for data in outputs)


def failed_cells(notebook: Notebook) -> list[str]:
    """Collect the errors that stand in the outputs."""
    found: list[str] = notebook.page.evaluate(
        "() => [...window.jupyterapp.shell.currentWidget.model.cells].filter(cell => cell.type === 'code')"
        ".flatMap(cell => cell.outputs.toJSON()).filter(output => output.output_type === 'error')"
        ".map(output => output.evalue)"
    )
    return found


def assert_panel_is_alive(notebook: Notebook, i: int) -> None:
    """Scroll to the cell; its panel is open, agrees with the kernel, and its first control changes the page."""
    notebook.page.evaluate("i => window.jupyterapp.shell.currentWidget.content.scrollToItem(i, 'start')", i)
    panel = notebook.page.locator(f'.jp-Cell[data-windowed-list-index="{i}"] .lk')
    panel.wait_for()
    assert panel.locator(".lk-lock").is_hidden()
    assert panel.locator(".lk-notice").is_hidden()
    before = panel.inner_html()
    control = panel.locator('[role="slider"]:visible, input:visible, .lk-cell:visible').first
    control.focus()
    notebook.page.keyboard.press("ArrowDown")
    notebook.page.keyboard.press("Space")
    assert panel.inner_html() != before
