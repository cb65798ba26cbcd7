"""A graded folder as people get it: every file there, marks by hand kept, nothing hidden in any of them."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit import grading
from labkit.errors import LabkitError
from labkit.grading import reports
from labkit.grading import run as running
from labkit.grading.key import hidden_cases, read_secret, run_key
from labkit.grading.keyfile import KeySource, read_key
from labkit.grading.model import Student
from labkit.grading.probe import Report
from labkit.grading.processes import Sandbox
from labkit.grading.reports import rubric_of, write_reports
from labkit.grading.run import Options, grade
from labkit.grading.store import Store

KEY = Path(__file__).with_name("small_key.md")
NONE = Report((), None)
WRONG_MIX = "def mix(weights, values):\n    return [[0.0 for _ in values[0]] for _ in weights]"
Notebook = Callable[..., bytes]


@pytest.fixture
def classroom(tmp_path: Path, notebook: Notebook) -> Path:
    place = tmp_path / "class"
    answers = {
        "ada": {},
        "bob": {"row_2": "row_2 = [1, 3]", "write_mix": WRONG_MIX, "say": 'words = "=1+1 is a claim."'},
        "cy": {"row_2": "row_2 = [..., ...]", "say": 'words = ""'},
    }
    for name, given in answers.items():
        (place / name).mkdir(parents=True)
        (place / name / "small_key.ipynb").write_bytes(notebook(**given))
    (place / "dee").mkdir()
    (place / "dee" / "small_key.ipynb").write_bytes(b"{")
    return place


@pytest.fixture
def graded(classroom: Path, tmp_path: Path) -> Path:
    """Grade the class without a sandbox: quick, and enough for all but functions."""
    grade(classroom, KEY, tmp_path / "out", report=NONE)
    write_reports(tmp_path / "out")
    return tmp_path / "out"


def sheet(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def fill(path: Path, rows: list[dict[str, str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_everything_is_there(graded: Path) -> None:
    names = {path.relative_to(graded).as_posix() for path in graded.rglob("*") if path.is_file()}
    tables = {"gradebook.csv", "canvas.csv", "moodle.csv", "manual.csv"}
    pages = {"class_report.html", *(f"feedback/{name}.html" for name in ("ada", "bob", "cy", "dee"))}
    assert names - {"secret.txt", "state.sqlite"} == tables | pages


def test_the_same_class_gives_the_same_bytes(graded: Path) -> None:
    before = {path: path.read_bytes() for path in graded.rglob("*.*ml")} | {
        p: p.read_bytes() for p in graded.glob("*.csv")
    }
    write_reports(graded)
    assert {path: path.read_bytes() for path in before} == before


def test_no_zero_is_published_for_what_could_not_be_read(graded: Path) -> None:
    for name, column in (("canvas.csv", "Student"), ("moodle.csv", "Full name"), ("gradebook.csv", "student")):
        dee = next(row for row in sheet(graded / name) if row[column] == "dee")
        assert "0" not in dee.values(), name
        assert "" in dee.values(), name
    assert "could not be read, not graded" in (graded / "gradebook.csv").read_text("utf-8")
    assert "ask for it again" in (graded / "class_report.html").read_text("utf-8")


def test_what_belongs_to_nobody_any_more_goes(graded: Path, classroom: Path) -> None:
    (classroom / "bob" / "small_key.ipynb").unlink()
    grade(classroom, KEY, graded, report=NONE)
    write_reports(graded)
    assert not (graded / "feedback" / "bob.html").exists()
    assert (graded / "feedback" / "ada.html").exists()


def test_the_heading_of_the_lesson_is_shown(tmp_path: Path, classroom: Path) -> None:
    key = tmp_path / "small_key.md"
    key.write_text(
        KEY.read_text("utf-8").replace("```{code-cell}", "## Predict <row> two\n\n```{code-cell}", 2), "utf-8"
    )
    grade(classroom, key, tmp_path / "out", report=NONE)
    write_reports(tmp_path / "out")
    for page in ("feedback/ada.html", "class_report.html"):
        assert "Predict &lt;row&gt; two" in (tmp_path / "out" / page).read_text("utf-8")


# Marks by hand


def test_marks_by_hand_survive_every_regrade(graded: Path, classroom: Path) -> None:
    rows = sheet(graded / "manual.csv")
    assert [(row["student"], row["answer"], row["rubric"], row["points"]) for row in rows] == [
        ("ada", "In between.", "A mixture stays between its values.", ""),
        ("bob", "'=1+1 is a claim.", "A mixture stays between its values.", ""),
    ]
    rows[0] |= {"points": "3.5", "comment": "Say <which> values."}
    fill(graded / "manual.csv", rows)
    for again in (False, True):
        grade(classroom, KEY, graded, Options(again=again), report=NONE)
        write_reports(graded)
        ada = next(row for row in sheet(graded / "gradebook.csv") if row["student"] == "ada")
        assert ada["say"] == "3.5"
        assert sheet(graded / "manual.csv")[0]["points"] == "3.5"
        page = (graded / "feedback" / "ada.html").read_text("utf-8")
        assert "Say &lt;which&gt; values." in page
        assert "3.5 of 4" in page


def test_a_dash_takes_a_mark_back_and_a_blank_leaves_it(graded: Path) -> None:
    for typed, kept in (("3.5", "3.5"), ("", "3.5"), ("-", "")):
        rows = sheet(graded / "manual.csv")
        rows[0]["points"] = typed
        fill(graded / "manual.csv", rows)
        assert grading.report([str(graded)]) == 0
        assert [row["points"] for row in sheet(graded / "manual.csv")] == [kept, ""]


def test_any_mark_can_be_overruled_and_taken_back(graded: Path) -> None:
    page, rows = graded / "feedback" / "bob.html", sheet(graded / "manual.csv")
    for typed, points in (("1.5", "1.5"), ("-", "0")):
        fill(graded / "manual.csv", [*rows, {"student": "bob", "exercise": "row-2", "points": typed, "comment": ""}])
        assert grading.report([str(graded)]) == 0
        bob = next(row for row in sheet(graded / "gradebook.csv") if row["student"] == "bob")
        assert bob["row-2"] == points
        overruled = typed != "-"
        assert ("marked by hand · 1.5 of 2" in page.read_text("utf-8")) == overruled
        assert ("This is what you get from" in page.read_text("utf-8")) != overruled
        assert [(row["student"], row["exercise"]) for row in sheet(graded / "manual.csv")] == [
            ("ada", "say"),
            *[("bob", "row-2")] * overruled,
            ("bob", "say"),
        ]


def test_an_answer_that_lacks_labkit_waits_in_the_sheet(tmp_path: Path, notebook: Notebook, box: Sandbox) -> None:
    (tmp_path / "class/ada").mkdir(parents=True)
    (tmp_path / "class/ada/small_key.ipynb").write_bytes(notebook(row_2="row_2 = masks.causal(2)[1] / 2"))
    summary = grade(tmp_path / "class", KEY, tmp_path / "out", report=Report((), box))
    assert summary.exit_status == 0
    write_reports(tmp_path / "out")
    assert [(row["exercise"], row["rubric"]) for row in sheet(tmp_path / "out/manual.csv")] == [
        ("row-2", "Right is [0.25, 0.75]."),
        ("say", "A mixture stays between its values."),
    ]
    assert sheet(tmp_path / "out/gradebook.csv")[0]["row-2"] == ""
    report, page = ((tmp_path / "out" / name).read_text("utf-8") for name in ("class_report.html", "feedback/ada.html"))
    assert 'data-exercise="row-2"' in report
    assert "Right is [0.25, 0.75]." in report
    assert "Right is" not in page


def test_nobody_is_marked_for_what_they_never_handed_in(graded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(graded) as store:
        store.begin([*store.students(), Student("eve", "Eve", {"id": "eve"})], [], {})
        facts = store.facts()
    assert facts["exercises"]
    fill(graded / "manual.csv", [{"student": "eve", "exercise": "say", "points": "4"}])
    assert grading.report([str(graded)]) == 1
    assert "'eve' handed in no lesson with say" in capsys.readouterr().err


def test_a_sheet_with_a_bad_line_is_named_and_left_alone(graded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sheet(graded / "manual.csv")
    rows[0]["points"], rows[1]["points"] = "4", "lots"
    fill(graded / "manual.csv", rows)
    typed = (graded / "manual.csv").read_bytes()
    assert grading.report([str(graded)]) == 1
    assert "manual.csv, line 3: points 'lots' is not a number." in capsys.readouterr().err
    assert (graded / "manual.csv").read_bytes() == typed
    rows[1]["points"] = "1"
    fill(graded / "manual.csv", rows)
    assert grading.report([str(graded)]) == 0
    assert [row["points"] for row in sheet(graded / "manual.csv")] == ["4", "1"]


def test_what_the_form_saved_is_taken_in(graded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "Downloads.csv"
    saved.write_bytes(b'"student","exercise","points","comment"\r\n"bob","say","2","two\nlines"')
    assert grading.report([str(graded), "--manual", str(saved)]) == 0
    assert [(row["points"], row["comment"]) for row in sheet(graded / "manual.csv")] == [("", ""), ("2", "two lines")]
    assert "say</h3>" in (graded / "class_report.html").read_text("utf-8")  # ada still waits
    assert grading.report([str(graded), "--manual", str(tmp_path / "none.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err


def test_a_folder_that_was_not_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grading.report([str(tmp_path)]) == 1
    assert "run `labkit grade`" in capsys.readouterr().err
    with pytest.raises(LabkitError):
        write_reports(tmp_path)


def test_a_rubric_is_the_text_of_the_answer() -> None:
    assert rubric_of('# note\nclaim = """\n  4 points:\n  a claim.\n"""') == "4 points:\na claim."


def test_a_class_larger_than_the_form_says_so(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MOST_FORMS", 1)
    write_reports(graded)
    html = (graded / "class_report.html").read_text("utf-8")
    assert html.count("data-student=") == 1
    assert "Here are the first 1; the sheet has all 2." in html
    assert len(sheet(graded / "manual.csv")) == 2


# Nothing hidden


def test_no_hidden_case_and_no_key_in_any_output(
    classroom: Path, tmp_path: Path, report: Report, small_key: KeySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: report)
    out, secret = tmp_path / "out", tmp_path / "secret.txt"
    secret.write_text("07" * 32, "ascii")  # which cases are drawn must not decide
    assert grading.grade([str(classroom), "--keys", str(KEY), "--out", str(out), "--secret", str(secret)]) == 0
    page = (out / "feedback" / "bob.html").read_text("utf-8")
    assert "write-mix" in page
    texts = {path.name: path.read_text("utf-8") for path in out.rglob("*") if path.suffix in (".html", ".csv")}
    hidden = list(numbers_of(small_key, read_secret(secret)))
    assert len(hidden) > 20
    for name, text in texts.items():
        assert [number for number in hidden if number in text] == [], name
        assert "sum(w * v[k]" not in text  # the key's own function
        assert read_secret(secret).hex() not in text


def numbers_of(source: KeySource, secret: bytes) -> Iterator[str]:
    """Give the numbers of the drawn cases, inputs and results, that are long enough to be recognised."""
    (item,) = (item for item in run_key(source).items if item.exercise.step == "function")
    task = item.exercise.task
    shown = {number for case in task.visible for number in flat(case)}
    cases = hidden_cases(task, item.id, secret)
    for number in itertools.chain.from_iterable(map(flat, [*cases, *(task.reference(*case) for case in cases)])):
        if number not in shown and len(repr(number)) >= 6:
            yield repr(number)


def flat(value: Any) -> Iterator[float]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from flat(part)
    elif isinstance(value, float):
        yield value


def test_students_are_read_one_at_a_time(tmp_path: Path, notebook: Notebook) -> None:
    place = tmp_path / "class"
    for number in range(12):
        (place / f"s{number}").mkdir(parents=True)
        (place / f"s{number}" / "small_key.ipynb").write_bytes(notebook())
    grade(place, KEY, tmp_path / "out", report=NONE)
    with reports.Store(tmp_path / "out") as store:
        rows = reports.Graded(store).rows()
        assert iter(rows) is rows
        first = next(rows)
        assert first.student.id == "s0"
        assert len(list(rows)) == 11


def test_headings_are_found_in_both_kinds_of_key(tmp_path: Path) -> None:
    given, asked = "```{code-cell} python\n# no heading\n```\n", "```{code-cell} python\n:answer: a\nx = 1\n```\n"
    (tmp_path / "k.md").write_text(f"# Title\n\n## One\n\n{given}\ntext\n\n{asked}", "utf-8")
    code: dict[str, Any] = {"cell_type": "code", "metadata": {"labkit": {"exercise": "a"}}, "source": "x = 1"}
    cells = [{"cell_type": "markdown", "metadata": {}, "source": "# Title\n\n## One"}, code]
    (tmp_path / "n.ipynb").write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    for name in ("k.md", "n.ipynb"):
        (answer,) = (cell for cell in read_key(tmp_path / name).cells if cell.role == "answer")
        assert answer.heading == "One"
