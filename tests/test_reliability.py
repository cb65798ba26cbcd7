"""What happens to a whole lesson when things go wrong; docs/reliability.md says it in words, one row for each case.

Lessons run without a kernel here (`tests/lesson_run.py`): the same cells, a hundred times cheaper.
"""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from labkit import check, journal
from labkit.grading.notebook import read_notebook
from tests.conftest import require
from tests.lesson_run import LESSONS, ROOT, Cell, code_cells, run

GOOD = {"right", "recorded"}
every_lesson = pytest.mark.parametrize("lesson", LESSONS)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of this test's own, in a folder whose name is not plain."""
    folder = tmp_path / "Übung 1 — 注意" / ".labkit"
    monkeypatch.setenv("LABKIT_JOURNAL", str(folder))
    monkeypatch.setattr(journal, "_unsaved", {})
    return folder


def pairs(lesson: str) -> list[list[Cell]]:
    """Return the solved answer and its check, for every exercise of a lesson."""
    solved = [cell for cell in code_cells("answer_keys", lesson) if cell.exercise]
    return [solved[start : start + 2] for start in range(0, len(solved), 2)]


# Order and completeness ------------------------------------------------------------------------------------------


def builds_on(answer: Cell, blanks: set[str]) -> bool:
    """Tell whether an answer calls a function that another, still blank exercise asks for."""
    nodes = list(ast.walk(ast.parse(answer.source)))
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return bool(blanks & {node.id for node in nodes if isinstance(node, ast.Name)} - parameters)


@every_lesson
@pytest.mark.parametrize("solved", [0, 1], ids=["even", "odd"])
def test_half_filled_says_which_half(lesson: str, solved: int) -> None:
    filled = {answer.exercise: answer for answer, _ in pairs(lesson)[solved::2]}
    blanks = set(re.findall(r"^def (\w+)", "\n".join(cell.source for cell, _ in pairs(lesson)[1 - solved :: 2]), re.M))
    cells = code_cells("notebooks", lesson)
    said = run(filled.get(cell.exercise, cell) if cell.role == "answer" else cell for cell in cells)
    assert {status for name, status in said.items() if name not in filled} == {"blank"}
    alone = {name for name, answer in filled.items() if not builds_on(answer, blanks)}
    assert {name for name, status in said.items() if status in GOOD} == alone
    assert alone <= set(journal.statuses()) <= set(filled), "nothing but given answers is on record"


@every_lesson
def test_answering_from_the_last_exercise_to_the_first(lesson: str) -> None:
    names: dict[str, Any] = {}
    run(code_cells("notebooks", lesson), names)
    run((cell for pair in reversed(pairs(lesson)) for cell in pair), names)
    said = run((check for _, check in reversed(pairs(lesson))), names)
    assert set(said.values()) <= GOOD
    assert len(said) == len(pairs(lesson))


@every_lesson
def test_a_check_before_anything_else_names_what_is_missing_and_does_no_harm(lesson: str) -> None:
    cells = code_cells("answer_keys", lesson)
    names: dict[str, Any] = {}
    run(cells[:1], names)
    for cell in cells:
        if cell.role == "check":
            with pytest.raises(NameError, match="is not defined"):
                run([cell], names)
    assert not journal.statuses()


@every_lesson
def test_running_everything_twice_changes_nothing(lesson: str) -> None:
    names: dict[str, Any] = {}
    cells = code_cells("answer_keys", lesson)
    once, before = run(cells, names), journal.firsts()
    assert run(cells, names) == once
    assert journal.firsts() == before


# A kernel that dies ------------------------------------------------------------------------------------------------


def test_a_kernel_killed_in_the_middle_of_a_check_leaves_no_half_answer() -> None:
    code = (
        "import time; from labkit import check\n"
        "check.number('earlier', 2, by=lambda: 1)\n"
        "check.number('row', 3, by=lambda: (print('judging', flush=True), time.sleep(600)))"
    )
    kernel = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert kernel.stdout is not None
    assert kernel.stdout.readline() == b"judging\n"
    kernel.kill()
    kernel.communicate()
    assert journal.statuses() == {"earlier": "wrong"}
    assert check.number("row", 1, by=lambda: 1).status == "right"
    kept = journal.first("row")
    assert kept is not None
    assert kept.answer == 1, "what the dead kernel was asked is no prediction"


# Places that cannot be written ---------------------------------------------------------------------------------------


def test_a_lesson_on_a_full_disk_is_judged_to_the_end_and_remembered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        said = run(code_cells("answer_keys", "03_masks"))
    assert set(said.values()) <= GOOD
    assert set(journal.statuses()) == set(said)
    assert journal.unsaved() >= len(said)
    journal.record("room-again", 1, "right")
    assert journal.unsaved() == 0
    assert len((place / "journal.jsonl").read_bytes().splitlines()) > len(said)


def sealed_off(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command where no file system can be written and no network exists."""
    box = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net", "--die-with-parent"]
    return subprocess.run([*box, *command], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can a test cut its own network and disks")
def test_every_lesson_runs_offline_from_a_read_only_disk(place: Path) -> None:
    try:
        require("bwrap", sealed_off("true").returncode == 0)
    except FileNotFoundError:
        require("bwrap", False)
    probe = "import socket; socket.create_connection(('192.0.2.1', 9))"
    assert "unreachable" in sealed_off(sys.executable, "-c", probe).stderr
    assert "Read-only" in sealed_off("touch", str(place.parent.parent / "x")).stderr
    done = sealed_off(sys.executable, "-m", "tests.lesson_run", "answer_keys")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    said = json.loads(done.stdout.splitlines()[-1])
    assert list(said) == LESSONS
    assert {status for lesson in said.values() for status in lesson.values()} <= GOOD


# Odd files and odd answers --------------------------------------------------------------------------------------------


def test_a_folder_with_spaces_and_other_letters_keeps_the_journal(place: Path) -> None:
    said = run(code_cells("answer_keys", "00_start_here"))
    assert journal.unsaved() == 0
    assert len((place / "journal.jsonl").read_bytes().splitlines()) >= len(said)


def test_windows_line_ends_change_no_answer(place: Path) -> None:
    run(
        [
            Cell(cell.source.replace("\n", "\r\n"), cell.exercise, cell.role)
            for cell in code_cells("answer_keys", "03_masks")
        ]
    )
    place.mkdir(parents=True, exist_ok=True)
    stored = place / "journal.jsonl"
    before = journal.statuses()
    assert set(before.values()) <= GOOD
    assert len(before) == len(pairs("03_masks"))
    stored.write_bytes(stored.read_bytes().replace(b"\n", b"\r\n"))
    assert journal.statuses() == before
    text = (ROOT / "answer_keys" / "03_masks.ipynb").read_bytes()
    assert read_notebook(text.replace(b"\n", b"\r\n"))[0] == read_notebook(text)[0]


@pytest.mark.parametrize("paste", ["x" * 10_000_000, "1/3, " * 2_000_000, [1 / 3] * 500_000], ids=["x", "row", "list"])
def test_ten_megabytes_in_an_answer_cell(place: Path, paste: Any) -> None:
    started = time.process_time()
    verdicts = [
        check.weights("row", paste, scores=[0.0, 0.0]),
        check.choice("choice", paste, options="AB", outcome=lambda: "A"),
        check.written("text", paste),
    ]
    assert time.process_time() - started < 10
    assert "right" not in [verdict.status for verdict in verdicts]
    assert max(len(verdict._repr_html_()) for verdict in verdicts) < 20_000, "the notebook stays small"
    assert sum(file.stat().st_size for file in place.glob("*")) < 50_000, "so does the journal"


# The page -------------------------------------------------------------------------------------------------------------


def test_every_row_of_the_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    assert len(rows) >= 14
    for row in rows:
        named = re.findall(r"`(tests/\S+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"


def test_this_file_is_the_pages() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    tests = re.findall(r"^def (test_\w+)\(", Path(__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert [test for test in tests[:-2] if test not in page] == []
