"""Make the README's picture, docs/images/lesson.png: lesson 03 in a real JupyterLab, one answer right and one wrong.

python -m tools.screenshot [--dark] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.browser.lab import CHROMIUM, Lab, chromium, jupyterlab

ROOT = Path(__file__).resolve().parent.parent
LESSON = "03_masks"
WRONG = {"masks-row-2": "row_2 = [2/7, 1/7, 4/7]"}  # the mask forgotten
SIZE = {"width": 1180, "height": 1000}
NO_NBGRADER = {"disabledExtensions": {"@jupyter/nbgrader": True}}  # learners do not have its menus
SHOW = """exercise => {
  const content = window.jupyterapp.shell.currentWidget.content;
  const at = content.widgets.findIndex(
    cell => cell.model.sharedModel.getSource().startsWith(`# exercise: ${exercise} `));
  content.activeCellIndex = at + 1;
  return content.scrollToItem(at, 'start');
}"""


def main() -> int:
    """Open the lesson as a learner has it after a few minutes, and photograph it."""
    parser = argparse.ArgumentParser(prog="tools.screenshot", description=str(__doc__).split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "lesson.png")
    parser.add_argument("--dark", action="store_true", help="in JupyterLab's dark theme")
    options = parser.parse_args()
    if not CHROMIUM:
        parser.error("no Chromium or Chrome on the PATH")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, jupyterlab(browser, Path(folder)) as lab:
        config = Path(folder, "jupyter", "CONFIG", "labconfig")
        config.mkdir(parents=True)
        (config / "page_config.json").write_text(json.dumps(NO_NBGRADER), encoding="utf-8")
        (lab.root / f"{LESSON}.ipynb").write_text(json.dumps(half_done()), encoding="utf-8")
        photograph(lab, options.out, options.dark)
    print(f"wrote {options.out}")
    return 0


def half_done() -> dict[str, object]:
    """Return the solved lesson with its outputs taken out and one answer spoilt."""
    notebook: dict[str, object] = json.loads((ROOT / "answer_keys" / f"{LESSON}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:  # type: ignore[attr-defined]
        source = "".join(cell["source"])
        for exercise, answer in WRONG.items():
            if source.startswith(f"# exercise: {exercise} "):
                cell["source"] = source.split("\n")[0] + "\n" + answer
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return notebook


def photograph(lab: Lab, out: Path, dark: bool) -> None:
    """Run the lesson, bring the spoilt exercise into view, and save the picture."""
    notebook = lab.open(LESSON, **SIZE, device_scale_factor=1.5)
    if dark:
        notebook.page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', "
                               "{theme: 'JupyterLab Dark'})")  # fmt: skip
    notebook.run_all()
    for _ in range(2):  # cells take their height when they come into view, which moves the others
        notebook.page.evaluate(SHOW, next(iter(WRONG)))
        notebook.page.wait_for_timeout(1_500)
    notebook.page.screenshot(path=str(out))


if __name__ == "__main__":
    raise SystemExit(main())
