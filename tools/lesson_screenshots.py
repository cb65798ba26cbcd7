"""Photograph every lesson in a real JupyterLab, a page at a time, for a person to look through.

python -m tools.lesson_screenshots [--lesson 03] [--form dark] [--blank] [--out screenshots/]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.browser.lab import CHROMIUM, Lab, Notebook, chromium, jupyterlab

ROOT = Path(__file__).resolve().parent.parent
FORMS = {  # width, height, theme
    "light": (1100, 1400, "JupyterLab Light"),
    "dark": (1100, 1400, "JupyterLab Dark"),
    "narrow": (420, 1400, "JupyterLab Light"),
}
NO_NBGRADER = {"disabledExtensions": {"@jupyter/nbgrader": True}}  # learners do not have its menus
PIECES = """() => { const node = window.jupyterapp.shell.currentWidget.content.outerNode;
  const step = node.clientHeight - 60;
  return Array.from({ length: Math.ceil(node.scrollHeight / step) }, (_, i) => i * step); }"""
SCROLL = "top => { window.jupyterapp.shell.currentWidget.content.outerNode.scrollTop = top; }"
STILL = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"""
WIDE = """() => [...document.querySelectorAll('.jp-MarkdownOutput, .jp-OutputArea-output')]
  .filter(node => node.scrollWidth > node.clientWidth + 1)
  .map(node => `${node.scrollWidth} > ${node.clientWidth}: ${node.textContent.trim().slice(0, 60)}`)"""


def main() -> int:
    """Write the pictures and say what scrolls sideways."""
    parser = argparse.ArgumentParser(prog="tools.lesson_screenshots", description=str(__doc__).split("\n")[0])
    parser.add_argument("--lesson", default="", help="only lessons whose name starts like this")
    parser.add_argument("--form", choices=FORMS, action="append", help="default: all of them")
    parser.add_argument("--blank", action="store_true", help="as handed out; default: every answer filled in")
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots")
    options = parser.parse_args()
    if not CHROMIUM:
        parser.error("no Chromium or Chrome on the PATH")
    state = "blank" if options.blank else "solved"
    lessons = sorted((ROOT / ("notebooks" if options.blank else "answer_keys")).glob(f"{options.lesson}*.ipynb"))
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, jupyterlab(browser, Path(folder)) as lab:
        config = Path(folder, "jupyter", "CONFIG", "labconfig")
        config.mkdir(parents=True)
        (config / "page_config.json").write_text(json.dumps(NO_NBGRADER), encoding="utf-8")
        for lesson in lessons:
            (lab.root / lesson.name).write_text(without_outputs(lesson), encoding="utf-8")
            visit(lab, lesson.stem, options.form or list(FORMS), options.out / lesson.stem, state)
    return 0


def without_outputs(lesson: Path) -> str:
    """Give a lesson as a learner opens it."""
    notebook = json.loads(lesson.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return json.dumps(notebook)


def visit(lab: Lab, lesson: str, forms: list[str], out: Path, state: str) -> None:
    """Run a lesson once and photograph it in every form."""
    notebook = lab.open(lesson)
    notebook.run_all(180_000)
    notebook.draw_all()
    out.mkdir(parents=True, exist_ok=True)
    for form in forms:
        width, height, theme = FORMS[form]
        notebook.page.set_viewport_size({"width": width, "height": height})
        notebook.use_theme(theme)
        for old in out.glob(f"{state}_{form}_*.png"):
            old.unlink()
        count = photograph(notebook, out / f"{state}_{form}")
        print(f"{lesson}, {state}, {form}: {count} pictures")
        for wide in notebook.page.evaluate(WIDE):
            print(f"  scrolls sideways: {wide}")
    lab.close_pages()


def photograph(notebook: Notebook, start_of_name: Path) -> int:
    """Scroll through the notebook and save what comes into view."""
    notebook.page.evaluate(STILL)
    tops = notebook.page.evaluate(PIECES)
    for i, top in enumerate(tops, 1):
        notebook.page.evaluate(SCROLL, top)
        notebook.page.evaluate(STILL)
        notebook.page.locator(".jp-NotebookPanel:visible .jp-WindowedPanel-outer").screenshot(
            path=f"{start_of_name}_{i:02}.png"
        )
    return len(tops)


if __name__ == "__main__":
    raise SystemExit(main())
