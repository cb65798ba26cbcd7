"""Make the pictures of docs/instructors.md: a made class of forty, graded, its report and one student's feedback.

    python -m tools.report_screenshots [--class FOLDER]

Needs Chromium and a sandbox of level A; takes a few minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from labkit.cli import main as labkit
from tests.browser.lab import CHROMIUM, chromium
from tests.grading.make_class import make_class

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
STUDENT = "s008"  # some right, some slips, the last ones not attempted
SHOTS = {  # name -> page of the graded folder, how much of it
    "class_report": ("class_report.html", 1250),
    "feedback": (f"feedback/{STUDENT}.html", 900),
}


def main() -> int:
    """Grade the class where that is still to be done, and photograph both pages."""
    parser = argparse.ArgumentParser(prog="tools.report_screenshots", description=str(__doc__).split("\n")[0])
    parser.add_argument("--class", dest="folder", type=Path, help="keep the class and its marks here")
    options = parser.parse_args()
    if not CHROMIUM:
        parser.error("no Chromium or Chrome on the PATH")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        graded = folder / "graded"
        submissions, roster = make_class(folder)
        words = ["--roster", str(roster), "--keys", str(ROOT / "answer_keys"), "--out", str(graded)]
        if status := labkit(["grade", str(submissions), *words]):
            return status
        with chromium() as browser:
            for name, (page, height) in SHOTS.items():
                photograph(browser, graded / page, IMAGES / f"{name}.png", height)
    return 0


def photograph(browser: Any, page: Path, out: Path, height: int) -> None:
    """Save the top of a page."""
    context = browser.new_context(viewport={"width": 1000, "height": height}, color_scheme="light")
    opened = context.new_page()
    opened.goto(page.resolve().as_uri())
    opened.evaluate("() => { document.documentElement.style.overflow = 'hidden'; }")  # no scrollbar
    opened.screenshot(path=str(out))
    context.close()
    print(f"wrote {out}")


if __name__ == "__main__":
    raise SystemExit(main())
