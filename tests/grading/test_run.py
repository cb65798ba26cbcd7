"""The class loop: resumed after a kill, beside another grader, through any executor, the same to the byte."""

from __future__ import annotations

import ast
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from labkit import grading
from labkit.errors import LabkitError
from labkit.grading import run as running
from labkit.grading import tables
from labkit.grading.command import EARLIER, EMPTY, NO_SANDBOX, STRAY, TIMELESS, main
from labkit.grading.keyfile import KeySource
from labkit.grading.model import to_json
from labkit.grading.probe import Report
from labkit.grading.processes import Limits, Sandbox
from labkit.grading.reports import take_manual, write_reports
from labkit.grading.run import Here, Options, executor_for, grade
from labkit.grading.store import Manual, Store

Notebook = Callable[..., bytes]
KEY = Path(__file__).with_name("small_key.md")
NONE = Report((), None)  # no sandbox: typed answers only


@pytest.fixture
def classroom(tmp_path: Path, notebook: Notebook) -> Path:
    place = tmp_path / "class"
    for name, answer in (("ada", "row_2 = [1/4, 3/4]"), ("bob", "row_2 = [0, 1]"), ("cy", "row_2 = [..., ...]")):
        (place / name).mkdir(parents=True)
        (place / name / "small_key.ipynb").write_bytes(notebook(row_2=answer))
    (place / "dee").mkdir()
    (place / "dee" / "small_key.ipynb").write_bytes(b"{")
    return place


def stored(out: Path) -> dict[str, str]:
    with Store(out) as store:
        return {result.student.id: json.dumps(to_json(result), sort_keys=True) for result in store.results()}


def points(out: Path) -> dict[str, float]:
    with Store(out) as store:
        return {result.student.id: result.points for result in store.results()}


def test_a_class_is_marked_and_kept(classroom: Path, tmp_path: Path) -> None:
    first = grade(classroom, KEY, tmp_path / "out", report=NONE)
    assert (first.students, first.marked, first.kept) == (4, 4, 0)
    assert first.refused == ["dee/small_key.ipynb is not valid JSON."]
    assert points(tmp_path / "out") == {"ada": 3, "bob": 1, "cy": 1, "dee": 0}
    again = grade(classroom, KEY, tmp_path / "out", report=NONE)
    assert (again.marked, again.kept, again.changes) == (0, 4, [])


def test_a_new_file_is_marked_and_its_change_explained(classroom: Path, tmp_path: Path, notebook: Notebook) -> None:
    grade(classroom, KEY, tmp_path / "out", report=NONE)
    (classroom / "bob" / "small_key (1).ipynb").write_bytes(notebook())
    summary = grade(classroom, KEY, tmp_path / "out", report=NONE)
    assert (summary.marked, summary.kept) == (1, 3)
    (change,) = summary.changes
    assert (change.student, change.exercise, change.before, change.after) == (
        "bob",
        "row-2",
        "0/2 not yet",
        "2/2 correct",
    )
    assert change.why == "another file counts"


def test_a_mark_by_hand_stays_and_the_change_says_so(classroom: Path, tmp_path: Path, notebook: Notebook) -> None:
    grade(classroom, KEY, tmp_path / "out", report=NONE)
    with Store(tmp_path / "out") as store:
        store.mark_by_hand([Manual("bob", "row-2", 1.0), Manual("ada", "row-2", 1.0)])
    (classroom / "bob" / "small_key (1).ipynb").write_bytes(notebook())
    (change,) = grade(classroom, KEY, tmp_path / "out", report=NONE).changes
    assert change.why == "another file counts; the mark by hand stays"


def test_a_later_file_that_cannot_be_read_is_told(classroom: Path, tmp_path: Path) -> None:
    """Two for Bob, and two for Dee, who has nothing else; Cy put it right, and Ada's print is only mentioned."""
    for name in ("bob/small_key (1).ipynb", "bob/small_key (2).ipynb", "dee/small_key (1).ipynb", "ada/print.pdf"):
        (classroom / name).write_bytes(b"{")
    (classroom / "cy" / "small_key.ipynb").rename(classroom / "cy" / "small_key (1).ipynb")
    (classroom / "cy" / "small_key.ipynb").write_bytes(b"{")
    for dry_run in (True, False):
        summary = grade(classroom, KEY, tmp_path / "out", Options(dry_run=dry_run), report=NONE)
        assert sorted(summary.refused) == [
            "ada/print.pdf is not a notebook (its name does not end in .ipynb).",
            "bob/small_key (1).ipynb is not valid JSON.",
            "bob/small_key (2).ipynb is not valid JSON.",
            "dee/small_key (1).ipynb is not valid JSON.",
            "dee/small_key.ipynb is not valid JSON.",
        ]
        assert summary.unread == 4
    write_reports(tmp_path / "out")
    ada, bob, cy, dee = (tmp_path / "out" / "gradebook.csv").read_text("utf-8-sig").splitlines()[1:]
    assert "small_key: not read (print.pdf is not a notebook (its name does not end in .ipynb))" in ada
    assert '"small_key: not read (small_key (1).ipynb is not valid JSON); small_key: not read (small_key (2)' in bob
    assert "valid" not in cy
    assert dee.count("could not be read, not graded") == 2


def test_an_extra_file_is_asked_for_only_where_a_lesson_is_missing(
    classroom: Path, tmp_path: Path, two_lessons: Path
) -> None:
    later = of_lesson("later_key", ("later", "n = 2\nd_k = 3"))
    (classroom / "ada" / "later_key.ipynb").write_bytes(later)
    for name in ("ada", "bob"):
        (classroom / name / "essay.pdf").write_bytes(b"x")
    for dry_run in (True, False):
        summary = grade(classroom, two_lessons, tmp_path / "out", Options(dry_run=dry_run), report=NONE)
        assert sum("essay.pdf is not a notebook" in reason for reason in summary.refused) == 2
        assert summary.unread == 2  # Bob's essay, and Dee's notebook
    write_reports(tmp_path / "out")
    moodle = (tmp_path / "out" / "moodle.csv").read_text("utf-8-sig").splitlines()
    assert [line.split(",")[-2:] for line in moodle[1:3]] == [['"1"', '""'], ['""', '""']]
    assert "essay.pdf is not a notebook" in (tmp_path / "out" / "gradebook.csv").read_text("utf-8-sig")
    assert "hand it in again" not in (tmp_path / "out" / "feedback" / "ada.html").read_text("utf-8")
    assert "hand it in again" in (tmp_path / "out" / "feedback" / "bob.html").read_text("utf-8")


def test_some_lessons_of_many_and_several_archives(
    classroom: Path,
    tmp_path: Path,
    two_lessons: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: NONE)
    (tmp_path / "more" / "ada").mkdir(parents=True)
    (tmp_path / "more" / "ada" / "later_key.ipynb").write_bytes(of_lesson("later_key", ("later", "n = 2\nd_k = 3")))
    (two_lessons / "third_key.md").write_text(LATER.replace("later", "third"), "utf-8")
    (tmp_path / "roster.csv").write_text("Identifier,Full name,Grade\nada,Ada L,\n")
    keys = [word for name in ("small", "later") for word in ("--keys", str(two_lessons / f"{name}_key.md"))]
    words = [str(classroom), str(tmp_path / "more"), *keys, "--out", str(tmp_path / "out")]
    words += ["--roster", str(tmp_path / "roster.csv"), "--due", "2026-02-01"]
    grading.grade(words)
    said = capsys.readouterr().out.splitlines()
    assert {"class/dee/small_key.ipynb is not valid JSON.", TIMELESS, tables.WORKSHEET} <= set(said)
    grading.report([str(tmp_path / "out")])
    assert tables.WORKSHEET in capsys.readouterr().out.splitlines()
    with Store(tmp_path / "out") as store:
        assert store.lessons() == {"small_key", "later_key"}
        assert json.loads(store.facts()["lessons"]) == ["later_key", "small_key"]
    again = [*words, "--keys", str(two_lessons / "small_key.md"), "--only", "ada"]
    grading.grade(again)
    assert "1 student: 0 marked, 1 kept" in capsys.readouterr().out
    grading.grade([*words, "--keys", str(KEY)])
    assert "--keys names two keys of small_key" in capsys.readouterr().err


def test_a_file_of_a_lesson_that_is_not_graded_makes_nobody_new(tmp_path: Path, notebook: Notebook) -> None:
    """In a folder for all only the name says whose it is, and the lessons beside the key are known too."""
    for name in ("keys/01_small.md", "keys/02_later.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(KEY.read_bytes())
    for name, data in (("u1_01_small", notebook()), ("u1_02_later", of_lesson("02_later"))):
        (tmp_path / "class").mkdir(exist_ok=True)
        (tmp_path / "class" / f"{name}.ipynb").write_bytes(data)
    summary = grade(tmp_path / "class", tmp_path / "keys" / "01_small.md", tmp_path / "out", report=NONE)
    assert (summary.students, summary.unread) == (1, 0)
    assert summary.refused == ["u1_02_later.ipynb belongs to none of the lessons graded."]


def test_a_changed_key_marks_everybody_again(classroom: Path, tmp_path: Path) -> None:
    key = tmp_path / "small_key.md"
    key.write_text(KEY.read_text("utf-8"), "utf-8")
    grade(classroom, key, tmp_path / "out", report=NONE)
    key.write_text(KEY.read_text("utf-8").replace("points: 2", "points: 4"), "utf-8")
    summary = grade(classroom, key, tmp_path / "out", report=NONE)
    assert summary.marked == 4
    assert {(change.student, change.why) for change in summary.changes} == {
        (student, "the key changed") for student in ("ada", "bob", "cy", "dee")
    }


def test_whoever_is_gone_is_forgotten(classroom: Path, tmp_path: Path) -> None:
    grade(classroom, KEY, tmp_path / "out", report=NONE)
    (classroom / "bob" / "small_key.ipynb").unlink()
    grade(classroom, KEY, tmp_path / "out", report=NONE)
    assert set(points(tmp_path / "out")) == {"ada", "cy", "dee"}


def test_only_a_student_or_an_exercise(classroom: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert grade(classroom, KEY, out, Options(only=("bob",)), report=NONE).marked == 1
    assert set(points(out)) == {"bob"}
    grade(classroom, KEY, out, report=NONE)
    before = stored(out)
    summary = grade(classroom, KEY, out, Options(only=("shapes",)), report=NONE)
    assert (summary.marked, summary.changes, stored(out)) == (4, [], before)
    with pytest.raises(LabkitError, match="'nobody' is neither"):
        grade(classroom, KEY, out, Options(only=("nobody",)), report=NONE)


def test_only_may_name_a_student_by_the_name(classroom: Path, tmp_path: Path) -> None:
    people, out = tmp_path / "roster.csv", tmp_path / "out"
    people.write_text('id,name\nada,"Lovelace, Ada"\nbob,Bob B\ncy,Bob B\n')
    assert grade(classroom, KEY, out, Options(people, only=("ada lovelace",)), report=NONE).marked == 1
    assert set(points(out)) == {"ada"}
    for word, advice in (
        ("Bob B", "more than one student: say 'bob' or 'cy'"),
        ("Lovelace", r"Did you mean Lovelace, Ada \(ada\)\?"),
        ("shape", r"Did you mean shapes\?"),
    ):
        with pytest.raises(LabkitError, match=advice):
            grade(classroom, KEY, out, Options(people, only=(word,)), report=NONE)


def test_one_exercise_marked_again_takes_away_nothing_that_holds(
    classroom: Path, tmp_path: Path, notebook: Notebook, report: Report
) -> None:
    out, secret = tmp_path / "out", tmp_path / "secret.txt"
    endless = notebook(write_mix="def mix(weights, values):\n    while True: pass")
    (classroom / "ada" / "small_key.ipynb").write_bytes(endless)
    grade(classroom, KEY, out, Options(secret=secret, only=("ada",)), report=report)
    before = stored(out)
    assert json.loads(before["ada"])["verdict"] == "stopped"
    grade(classroom, KEY, out, Options(secret=secret, only=("ada", "shapes")), report=report)
    assert stored(out) == before
    grade(classroom, KEY, out, Options(secret=secret, only=("ada", "write-mix")), report=report)
    assert stored(out) == before


def test_an_exercise_marked_first_is_no_zero_for_the_others(classroom: Path, tmp_path: Path) -> None:
    grade(classroom, KEY, tmp_path / "out", Options(only=("shapes",)), report=NONE)
    write_reports(tmp_path / "out")
    ada = (tmp_path / "out" / "gradebook.csv").read_text("utf-8-sig").splitlines()[1]
    assert ada == '"ada","ada","1","10","","","","1","",""'


def test_marks_left_to_an_earlier_key_are_said_until_all_are_new(
    classroom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: NONE)
    key = tmp_path / "small_key.md"
    words = [str(classroom), "--keys", str(key), "--out", str(tmp_path / "out")]
    key.write_text(KEY.read_text("utf-8"), "utf-8")
    grading.grade([*words, "--only", "bob"])
    grading.grade(words)
    assert EARLIER not in capsys.readouterr().out
    key.write_text(KEY.read_text("utf-8").replace("points: 2", "points: 4"), "utf-8")
    for _ in range(2):
        grading.grade([*words, "--only", "row-2"])
        assert EARLIER in capsys.readouterr().out.splitlines()
    grading.grade(words)
    said = capsys.readouterr().out
    assert EARLIER not in said
    assert "4 marked" in said


LATER = """```{code-cell} python
from labkit import check
```

```{code-cell} python
:answer: later
n = 2
d_k = 3
```

```{code-cell} python
check.shapes("later", (n, d_k), of="Q", n=2, d_k=3)
```
"""


@pytest.fixture
def two_lessons(tmp_path: Path) -> Path:
    """Make a folder of two keys."""
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "small_key.md").write_text(KEY.read_text("utf-8"), "utf-8")
    (folder / "later_key.md").write_text(LATER, "utf-8")
    return folder


def of_lesson(lesson: str, *cells: tuple[str, str]) -> bytes:
    """Make a notebook of (exercise, source); without a lesson and exercises it might be of any."""
    made = [
        {"cell_type": "code", "source": source, "metadata": {"labkit": {"exercise": exercise}} if exercise else {}}
        for exercise, source in cells
    ]
    metadata = {"labkit": {"lesson": lesson}} if lesson else {}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": made}).encode()


def test_a_lesson_handed_in_by_few_is_said(
    classroom: Path,
    tmp_path: Path,
    two_lessons: Path,
    notebook: Notebook,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: NONE)
    (classroom / "eve").mkdir()
    (classroom / "eve" / "small_key.ipynb").write_bytes(notebook())
    (classroom / "dee" / "small_key.ipynb").write_bytes(notebook())
    (classroom / "dee" / "later_key.ipynb").write_bytes(of_lesson("later_key", ("later", "n = 2\nd_k = 3")))
    words = [str(classroom), "--keys", str(two_lessons), "--out", str(tmp_path / "out")]
    for more in ([], ["--dry-run"]):
        grading.grade([*words, *more])
        said = capsys.readouterr().out.splitlines()
        assert f"Only 1 student handed in later_key (small_key: 5). {STRAY}" in said
    words[2] = str(two_lessons / "small_key.md")
    grading.grade(words)
    assert STRAY not in capsys.readouterr().out
    write_reports(tmp_path / "out")
    assert "later_key" not in (tmp_path / "out" / "canvas.csv").read_text("utf-8")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([of_lesson("09_other")], "0"),  # surely not this lesson, which was not handed in then
        ([of_lesson("", ("x-other", "x = 1"))], "0"),
        ([of_lesson("", ("", "x = 1"))], ""),  # it may be this lesson
        ([b"{"], ""),
        ([b"{", of_lesson("09_other")], ""),
        ([of_lesson("09_other"), b"{"], ""),
    ],
)
def test_a_file_that_may_be_a_lesson_is_no_zero(
    classroom: Path, tmp_path: Path, two_lessons: Path, files: list[bytes], expected: str
) -> None:
    (classroom / "dee" / "small_key.ipynb").unlink()
    for number, data in enumerate(files):
        (classroom / "dee" / f"work{number}.ipynb").write_bytes(data)
    grade(classroom, two_lessons, tmp_path / "out", report=NONE)
    write_reports(tmp_path / "out")
    for name in ("canvas.csv", "moodle.csv"):
        assert (tmp_path / "out" / name).read_text("utf-8-sig").splitlines()[-1].endswith(f'"{expected}"')
    dee = (tmp_path / "out" / "gradebook.csv").read_text("utf-8-sig").splitlines()[-1]
    assert dee.endswith(",".join([f'"{expected}"'] * 4))
    assert "not graded (work" in dee


def test_results_of_an_older_folder_still_load(classroom: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    grade(classroom, KEY, out, report=NONE)
    with sqlite3.connect(out / "state.sqlite") as db:
        db.execute("UPDATE results SET data = json_remove(data, '$.elsewhere', '$.names')")
    db.close()
    write_reports(out)
    assert points(out) == {"ada": 3, "bob": 1, "cy": 1, "dee": 0}


def test_a_dry_run_counts_what_is_there_and_writes_nothing(
    classroom: Path,
    tmp_path: Path,
    notebook: Notebook,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "roster.csv").write_text("id,name\nzoe,Zoe, Z\nada,Ada L\nbob,Bob\ncy,Cy\n")
    (classroom / "bob_2026-02-02").mkdir()
    (classroom / "bob_2026-02-02" / "small_key.ipynb").write_bytes(notebook())
    monkeypatch.setattr(running, "find_sandbox", lambda: NONE)
    words = [str(classroom), "--keys", str(KEY), "--out", str(tmp_path / "out"), "--due", "2026-02-01"]
    assert grading.grade([*words, "--roster", str(tmp_path / "roster.csv"), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "would mark 4 students; nothing was written",
        "  small_key: 4 notebooks from 3 students, 1 late",
        f"functions would stay unmarked: {NO_SANDBOX}",
        "dee/small_key.ipynb is not valid JSON.",
        f"1 file could not be read, not graded: ask for it again. {EMPTY}",
        "Handed in, but not on the class list, 1: dee",
        "Nothing handed in, 1: Zoe",
    ]
    assert not (tmp_path / "out").exists()


def test_the_roster_is_kept_with_those_who_handed_nothing_in(classroom: Path, tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("id,name\nzoe,Zoe Z\nada,Ada L\n")
    grade(classroom, KEY, tmp_path / "out", Options(roster=tmp_path / "roster.csv"), report=NONE)
    with Store(tmp_path / "out") as store:
        assert [(student.id, student.name) for student in store.students()][:2] == [("zoe", "Zoe Z"), ("ada", "Ada L")]
        assert [result.student.id for result in store.results()] == ["ada", "bob", "cy", "dee"]


def test_a_run_says_who_is_on_one_list_only(
    classroom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: NONE)
    many = "".join(f"z{number:02}\n" for number in range(12))
    (tmp_path / "roster.csv").write_text(f"id\nada\nbob\n{many}")
    words = [str(classroom), "--keys", str(KEY), "--out", str(tmp_path / "out")]
    grading.grade([*words, "--roster", str(tmp_path / "roster.csv")])
    said = capsys.readouterr().out.splitlines()
    assert "Handed in, but not on the class list, 2: cy; dee" in said
    assert f"Nothing handed in, 12: {'; '.join(f'z{number:02}' for number in range(10))}; …" in said
    grading.grade(words)
    assert "class list" not in capsys.readouterr().out


def test_what_a_file_tells_about_its_owner_is_kept(classroom: Path, tmp_path: Path, notebook: Notebook) -> None:
    (classroom / "bob" / "small_key (1).ipynb").write_bytes(notebook('labkit.me("Ada L")'))
    grade(classroom, KEY, tmp_path / "out", report=NONE)
    with Store(tmp_path / "out") as store:
        told = {result.student.id: result.names for result in store.results()}
    assert told == {"ada": (), "bob": ("Ada L",), "cy": (), "dee": ()}


def test_marks_by_hand_survive(classroom: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    grade(classroom, KEY, out, report=NONE)
    with Store(out) as store:
        store.mark_by_hand([Manual("ada", "say", 3, "good"), Manual("ada", "say", 3.5, "better")])
    grade(classroom, KEY, out, Options(again=True), report=NONE)
    with Store(out) as store:
        assert store.by_hand() == {("ada", "say"): Manual("ada", "say", 3.5, "better")}


def test_progress_is_told(classroom: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, list[str]]] = []
    grade(
        classroom,
        KEY,
        tmp_path / "out",
        report=NONE,
        progress=lambda done, total, results: seen.append((done, total, [result.student.id for result in results])),
    )
    assert seen == [(1, 4, ["ada"]), (2, 4, ["bob"]), (3, 4, ["cy"]), (4, 4, ["dee"])]


# Sandboxes of different strength


def test_code_waits_for_a_sandbox_that_is_strong_enough(classroom: Path, tmp_path: Path) -> None:
    weak = Report((), Sandbox("limits", limits=Limits()))
    summary = grade(classroom, KEY, tmp_path / "out", report=weak)
    assert (summary.level, summary.unmarked, summary.exit_status) == ("none", 3, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="only on POSIX systems can limits be set")
def test_a_weaker_sandbox_is_used_only_when_asked_for_and_said(classroom: Path, tmp_path: Path) -> None:
    weak = Report((), Sandbox("limits", limits=Limits()))
    summary = grade(classroom, KEY, tmp_path / "out", Options(allow_weaker=True), report=weak)
    assert (summary.level, summary.unmarked) == ("C", 0)
    with Store(tmp_path / "out") as store:
        assert store.facts()["level"] == "C"
        assert {result.level for result in store.results() if result.verdict == "graded"} == {"C"}


def test_a_better_sandbox_marks_what_waited(classroom: Path, tmp_path: Path, report: Report) -> None:
    grade(classroom, KEY, tmp_path / "out", report=NONE)
    summary = grade(classroom, KEY, tmp_path / "out", report=report)
    assert (summary.level, summary.unmarked, summary.exit_status) == ("A", 0, 0)
    assert points(tmp_path / "out")["ada"] == 6
    assert {change.why for change in summary.changes} == {"the sandbox changed"}


def test_a_key_that_student_code_could_read_is_refused(
    classroom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "visible_paths", lambda: [str(KEY.parents[1])])
    with pytest.raises(LabkitError, match="which student code can read"):
        grade(classroom, KEY, tmp_path / "out", report=NONE)


# Faults of ours


def test_a_fault_of_ours_takes_no_mark_and_is_tried_again(
    classroom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    grade(classroom, KEY, out, report=NONE)
    before = points(out)
    with monkeypatch.context() as patch:
        patch.setattr("labkit.grading.marking.match", lambda *_: 1 / 0)
        summary = grade(classroom, KEY, out, Options(again=True), report=NONE)
    assert summary.internal == ["ada", "bob", "cy"]
    assert summary.exit_status == 1
    assert points(out) == before
    assert grade(classroom, KEY, out, report=NONE).marked == 3


def test_a_machine_without_the_sandbox_costs_nobody_a_mark(classroom: Path, tmp_path: Path, report: Report) -> None:
    """A worker of a cluster may lack what the machine that asks it has found."""
    lacking = Report((), Sandbox("bubblewrap-root", bwrap=str(tmp_path / "no-bwrap")))
    summary = grade(classroom, KEY, tmp_path / "out", report=lacking)
    assert summary.internal == ["ada", "bob", "cy"]
    assert summary.exit_status == 1
    with Store(tmp_path / "out") as store:
        assert {result.reason for result in store.results()} >= {"FileNotFoundError while marking small_key"}
    assert grade(classroom, KEY, tmp_path / "out", report=report).marked == 3
    assert points(tmp_path / "out")["ada"] == 6


def test_a_torn_state_file_is_said_so(classroom: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "state.sqlite").write_bytes(b"torn" * 500)
    with pytest.raises(LabkitError, match="move it away"):
        grade(classroom, KEY, tmp_path / "out", report=NONE)


# Executors


@pytest.mark.parametrize("make", [Here, lambda: ThreadPoolExecutor(2), lambda: ProcessPoolExecutor(2)])
def test_every_executor_gives_the_same_bytes(classroom: Path, tmp_path: Path, make: Callable[[], Here]) -> None:
    grade(classroom, KEY, tmp_path / "one", report=NONE)
    with make() as executor:
        grade(classroom, KEY, tmp_path / "two", Options(jobs=2), report=NONE, executor=executor)
    assert stored(tmp_path / "one") == stored(tmp_path / "two")


def test_two_jobs_give_the_same_bytes(classroom: Path, tmp_path: Path, report: Report) -> None:
    secret = tmp_path / "secret.txt"
    grade(classroom, KEY, tmp_path / "one", Options(secret=secret), report=report)
    grade(classroom, KEY, tmp_path / "two", Options(secret=secret, jobs=2), report=report)
    assert stored(tmp_path / "one") == stored(tmp_path / "two")


def test_an_ended_pool_stops_the_run_and_keeps_what_is_done(classroom: Path, tmp_path: Path) -> None:
    with executor_for(2) as pool:
        with pytest.raises(Exception, match="terminated abruptly"):
            pool.submit(os._exit, 1).result()
        with pytest.raises(LabkitError, match="run it again"):
            grade(classroom, KEY, tmp_path / "out", Options(jobs=2), report=NONE, executor=pool)


GRADE = "import sys; from labkit import grading; sys.exit(grading.grade(sys.argv[1:]))"


def test_a_kill_at_any_moment_changes_nothing(tmp_path: Path, notebook: Notebook, report: Report) -> None:
    place, out, secret = tmp_path / "class", tmp_path / "out", tmp_path / "secret.txt"
    for number in range(12):
        (place / f"s{number:02}").mkdir(parents=True)
        answer = f"row_2 = [{number}/4, 3/4]"
        (place / f"s{number:02}" / "small_key.ipynb").write_bytes(
            notebook("import time; time.sleep(0.1)", row_2=answer)
        )
    words = [str(place), "--keys", str(KEY), "--out", str(out), "--secret", str(secret), "--jobs", "2"]
    killed = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", GRADE, *words], start_new_session=True)
        before = done(out)
        while process.poll() is None and done(out) < before + 2:
            time.sleep(0.02)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed
    summary = grade(place, KEY, out, Options(secret=secret), report=report)
    assert summary.kept >= 1
    grade(place, KEY, tmp_path / "whole", Options(secret=secret), report=report)
    assert stored(out) == stored(tmp_path / "whole")


def done(out: Path) -> int:
    if not (out / "state.sqlite").exists():
        return 0
    try:
        with Store(out) as store:
            return len(store.finished())
    except LabkitError:
        return 0


def is_grader(pid: int) -> bool:
    try:
        return b"labkit.cli" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return False


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_grader_that_is_ended_takes_all_its_processes_along(
    tmp_path: Path, notebook: Notebook, report: Report, descendants: Callable[[int], list[int]], name: str
) -> None:
    assert report.level == "A"
    for place in range(8):
        (tmp_path / "class" / f"s{place}").mkdir(parents=True)
        endless = notebook(write_mix="def mix(weights, values):\n    while True: pass")
        (tmp_path / "class" / f"s{place}" / "small_key.ipynb").write_bytes(endless)
    words = ["grade", str(tmp_path / "class"), "--keys", str(KEY), "--out", str(tmp_path / "out"), "--jobs", "2"]
    grader = subprocess.Popen([sys.executable, "-m", "labkit.cli", *words], start_new_session=True)
    end = time.monotonic() + 60
    while sum(map(is_grader, started := descendants(grader.pid))) < 2 or len(started) < 9:  # two jobs, their workers
        assert time.monotonic() < end
        time.sleep(0.02)
    if name == "SIGINT":
        os.killpg(grader.pid, signal.SIGINT)  # as a terminal does: to the jobs too
    else:
        grader.kill()
    grader.wait(20)
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_graders_at_once_are_safe(tmp_path: Path, classroom: Path) -> None:
    out = tmp_path / "out"
    words = [str(classroom), "--keys", str(KEY), "--out", str(out)]
    graders = [subprocess.Popen([sys.executable, "-c", GRADE, *words], stderr=subprocess.PIPE) for _ in range(2)]
    for grader in graders:
        assert grader.communicate(timeout=120)[1] == b""
    assert (out / "secret.txt").exists()
    assert points(out)["bob"] >= 1


# Commands


def test_the_command_says_what_happened(
    classroom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: NONE)
    words = [str(classroom), "--keys", str(KEY), "--out", str(tmp_path / "out")]
    assert grading.grade([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would mark 4 students; nothing was written\n")
    assert grading.grade(words) == 2
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("4 students: 4 marked, 0 kept from before")
    assert said[1] == "dee/small_key.ipynb is not valid JSON."
    assert said[2].startswith("1 file could not be read, not graded: ask for it again.")
    assert "3 exercises are unmarked" in said[3]
    assert grading.regrade(words) == 2
    assert "4 marked" in capsys.readouterr().out
    assert grading.grade([str(tmp_path / "nowhere"), "--keys", str(KEY)]) == 1
    assert capsys.readouterr().err.startswith("labkit grade: ")


def test_a_regrade_shows_what_changed(
    classroom: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    notebook: Notebook,
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: NONE)
    words = [str(classroom), "--keys", str(KEY), "--out", str(tmp_path / "out")]
    grading.grade(words)
    (classroom / "bob" / "small_key.ipynb").write_bytes(notebook())
    capsys.readouterr()
    grading.regrade(words)
    said = capsys.readouterr().out.splitlines()
    table = [line.split("  ") for line in said[said.index("marks that changed: 1") + 1 :]]
    assert [[word.strip() for word in row if word] for row in table] == [
        ["student", "exercise", "before", "now", "why"],
        ["bob", "row-2", "0/2 not yet", "2/2 correct", "another file counts"],
    ]
    (classroom / "ada" / "small_key.ipynb").write_bytes(b"{")
    (tmp_path / "roster.csv").write_text("id,name\nada,Ada L\n")
    grading.regrade([*words, "--roster", str(tmp_path / "roster.csv")])
    said = capsys.readouterr().out
    assert "  Ada L (ada)  row-2      2/2 correct " in said
    assert "?/2 could not be read  another file counts" in said
    grading.regrade(words)
    assert "no mark changed" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "words"), [("grade", "goes on from there"), ("regrade", "from the beginning")])
def test_ctrl_c_says_what_becomes_of_the_marks(
    classroom: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    words: str,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("labkit.grading.command.grade", interrupted)
    assert main([str(classroom), "--out", str(tmp_path / "out")], command) == 130
    said = capsys.readouterr().err
    assert said.startswith("\nStopped. Marks that are done are kept; the same command ")
    assert words in said
    assert main([str(classroom), "--out", str(tmp_path / "out"), "--dry-run"], command) == 130
    assert capsys.readouterr().err == "\nStopped. Nothing was written.\n"


def test_memory_does_not_depend_on_the_keys_being_sent_twice(small_key: KeySource) -> None:
    settings = running.Settings((small_key,), bytes(32))
    pickled = running.pickle.dumps(settings)
    assert running._settings(pickled) is running._settings(pickled)


def test_a_folder_that_cannot_be_used_is_no_traceback(
    classroom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    words = [str(classroom), "--keys", str(KEY), "--out"]
    assert grading.grade([*words, str(tmp_path / "file")]) == 1
    assert "can files be written in" in capsys.readouterr().err


def test_two_graders_never_write_the_same_unfinished_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tables.part_of(tmp_path / "gradebook.csv")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert tables.part_of(tmp_path / "gradebook.csv") != ours


def test_a_student_who_left_does_not_stop_the_reports(classroom: Path, tmp_path: Path) -> None:
    out = tmp_path / "graded"
    grade(classroom, KEY, out, report=NONE)
    with Store(out) as store:
        store.mark_by_hand([Manual("gone", "say", 1.0)])
    sheet = out / "manual.csv"
    sheet.write_text("student,exercise,points\ngone,say,1\n", encoding="utf-8")
    with Store(out) as store:
        assert take_manual(store, sheet) == 1


def test_marks_are_made_anew_when_any_module_they_depend_on_changes() -> None:
    """Follow what marking imports; where a file comes from changes no mark."""
    folder = Path(running.__file__).parent

    def needed(name: str) -> set[str]:
        tree = ast.parse((folder / name).read_text("utf-8"))
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        files = {f"{module.removeprefix('labkit.grading.')}.py" for module in modules}
        return {file for file in files if (folder / file).is_file()}

    found, new = {"marking.py"}, {"marking.py"}
    while new := {file for name in new for file in needed(name)} - found:
        found |= new
    found -= {"archive.py", "intake.py", "model.py", "roster.py", "seccomp.py", "strict.py", "text.py"}
    assert found <= set(running.MARKS)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_each_job_has_a_processor_of_its_own_where_there_are_enough() -> None:
    processors = sorted(os.sched_getaffinity(0))
    for jobs, alone in ((len(processors), True), (len(processors) + 1, False)):
        if jobs < 2:
            continue
        with executor_for(jobs) as pool:
            found = dict(pool.map(_where, [0.2] * (4 * jobs)))
        assert len(found) == jobs
        assert sorted(found.values()) == ([[cpu] for cpu in processors] if alone else [processors] * jobs)
    assert sorted(os.sched_getaffinity(0)) == processors


def _where(seconds: float) -> tuple[int, list[int]]:
    time.sleep(seconds)
    return os.getpid(), sorted(os.sched_getaffinity(0))
