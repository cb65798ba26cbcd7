"""nbgrader's own commands, run on the notebooks as they are stored: a key earns everything, a blank nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from labkit import testing
from tests.conftest import require

ROOT = testing.ROOT
LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
READ_GRADES = """
import json
import os
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    print(json.dumps([
        [submission.student.id, notebook.name, grade.name, grade.auto_score, grade.max_score, grade.needs_manual_grade]
        for submission in book.assignment_submissions("work")
        for notebook in submission.notebooks
        for grade in notebook.grades
    ]))
"""
pytestmark = pytest.mark.slow


def run(course: Path, *words: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # nbgrader calls alembic by name
    environment = {**testing.environment(), "PYTHONPATH": str(ROOT), "HOME": str(course), "PATH": path}
    command = [sys.executable, *words]
    ran = subprocess.run(command, cwd=course, env=environment, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate the assignment from the blank notebooks, then autograde the keys and the released blanks."""
    require("nbgrader", find_spec("nbgrader"))
    folder = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "docs/nbgrader_config.py", folder)
    shutil.copytree(ROOT / "notebooks", folder / "source/work", ignore=shutil.ignore_patterns(".*"))
    run(folder, "-m", "nbgrader", "generate_assignment", "work")
    shutil.copytree(folder / "release/work", folder / "submitted/blank/work")
    (folder / "submitted/key/work").mkdir(parents=True)
    for name in LESSONS:
        shutil.copy(ROOT / "answer_keys" / name, folder / "submitted/key/work")
    run(folder, "-m", "nbgrader", "autograde", "work")
    return folder


@pytest.fixture(scope="module")
def grades(course: Path) -> list[list[object]]:
    found: list[list[object]] = json.loads(run(course, "-c", READ_GRADES))
    return found


def test_release_keeps_the_blanks_as_they_are(course: Path) -> None:
    for name in LESSONS:
        before, after = (
            json.loads(path.read_text()) for path in (ROOT / "notebooks" / name, course / "release/work" / name)
        )
        assert [cell["source"] for cell in before["cells"]] == [cell["source"] for cell in after["cells"]]


def test_key_earns_every_point_that_a_machine_can_give(grades: list[list[object]]) -> None:
    mine = [grade for grade in grades if grade[0] == "key"]
    assert len(mine) >= 8 * len(LESSONS)
    for _, notebook, name, score, most, by_hand in mine:
        assert by_hand or score == most, f"{notebook} {name}: {score} of {most}"
    assert all(by_hand == str(name).startswith("answer-") for _, _, name, _, _, by_hand in mine)


def test_blank_earns_nothing(grades: list[list[object]]) -> None:
    theirs = [grade for grade in grades if grade[0] == "blank"]
    assert len(theirs) == len(grades) / 2
    assert {score for _, _, _, score, _, _ in theirs} == {0.0}


@pytest.mark.parametrize("student", ["blank", "key"])
def test_nothing_stops(course: Path, student: str) -> None:
    for name in LESSONS:
        notebook = json.loads((course / "autograded" / student / "work" / name).read_text())
        outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
        assert not [output for output in outputs if output["output_type"] == "error"]
        assert not [output for output in outputs if output.get("name") == "stderr"]
