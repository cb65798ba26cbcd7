"""Whose file is it, which attempt, and is it late: folders, Canvas, Moodle, nbgrader, rosters."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import LabkitError
from labkit.grading.intake import find_files
from labkit.grading.model import Refusal, Submission
from labkit.grading.roster import Roster, read_roster
from labkit.grading.text import file_name, visible, visible_lines

LESSONS = ("01_projections", "02_scores", "03_masks")
EMPTY = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}).encode()


def folder(root: Path, *names: str) -> Path:
    for name in names:
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(EMPTY)
    return root


def zipped(path: Path, *names: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name, (2026, 2, 1, 12, 0, 0)), EMPTY)
    return path


def read_submissions(path: Path, roster: Path | None = None) -> Iterator[Submission | Refusal]:
    files, refusals = find_files([path], read_roster(roster) if roster else Roster())
    yield from refusals
    for group in files.values():
        yield from (handed.read() for handed in group)


def owners(path: Path, roster: Roster | None = None, due: str = "") -> dict[str, list[tuple[str, int, bool | None]]]:
    files, _ = find_files([path], roster or Roster(), LESSONS, due)
    return {
        student: [(one.stem, one.attempt.number, one.attempt.late) for one in group] for student, group in files.items()
    }


def test_a_folder_for_each_student(tmp_path: Path) -> None:
    place = folder(tmp_path, "ada/01_projections.ipynb", "ada/02_scores.ipynb", "bob/deep/er/02_scores.ipynb")
    assert owners(place) == {
        "ada": [("01_projections", 0, None), ("02_scores", 0, None)],
        "bob": [("02_scores", 0, None)],
    }


@pytest.mark.parametrize(
    "name",
    [
        *("ada_02_scores.ipynb", "02_scores_ada.ipynb", "02_scores - ada.ipynb", "ada_02_Scores.ipynb"),
        *("ada_02_scores (1).ipynb", "ada_02_scores(12).ipynb", "02_scores_ada (1).ipynb", "ada_02_scores-Copy1.ipynb"),
    ],
)
def test_a_flat_name_is_split_at_the_lesson(tmp_path: Path, name: str) -> None:
    assert list(owners(folder(tmp_path, name))) == ["ada"]


def test_a_single_lesson_belongs_to_whoever_the_folder_is_called(tmp_path: Path) -> None:
    assert list(owners(folder(tmp_path / "ada", "02_scores.ipynb"))) == ["ada"]


def test_a_wrapping_folder_is_no_student(tmp_path: Path) -> None:
    place = zipped(tmp_path / "class.zip", "class/ada/02_scores.ipynb", "class/bob/02_scores.ipynb")
    assert list(owners(place)) == ["ada", "bob"]


def test_canvas_names(tmp_path: Path) -> None:
    place = zipped(
        tmp_path / "submissions.zip",
        "lovelaceada_1001_900_02_scores.ipynb",
        "lovelaceada_LATE_1001_901_02_scores-1.ipynb",
        "hoppergrace_1002_902_02_scores.ipynb",
    )
    assert owners(place) == {
        "1001": [("02_scores", 0, None), ("02_scores", 1, True)],
        "1002": [("02_scores", 0, None)],
    }


def test_times_in_a_canvas_zip_are_those_of_the_download(tmp_path: Path) -> None:
    place = zipped(tmp_path / "s.zip", "ada_1_9_02_scores.ipynb", "bob_LATE_2_9_02_scores.ipynb")
    late = {student: group[0][2] for student, group in owners(place, due="1990-01-01").items()}
    assert late == {"1": None, "2": True}


def test_what_the_workbook_puts_beside_a_copy_counts_as_older(tmp_path: Path) -> None:
    names = ["02_scores.ipynb", "02_scores.new.ipynb", "02_scores.new2.ipynb", "backups/02_scores.1.ipynb"]
    place = folder(tmp_path / "class", *(f"ada/{name}" for name in names))
    files, _ = find_files([place], Roster(), ("02_scores",))
    assert [one.attempt.source for one in files["ada"]][-1].endswith("ada/02_scores.ipynb")


@pytest.mark.parametrize(
    "name",
    ["Ada Lovelace_77_assignsubmission_file_/02_scores.ipynb", "Ada Lovelace_77_assignsubmission_file_02_scores.ipynb"],
)
def test_moodle_names(tmp_path: Path, name: str) -> None:
    assert owners(zipped(tmp_path / "m.zip", name)) == {"Ada Lovelace": [("02_scores", 0, None)]}


def test_nbgrader_tree_with_its_time_stamps(tmp_path: Path) -> None:
    place = folder(tmp_path / "course", "submitted/ada/hw1/02_scores.ipynb", "submitted/bob/hw1/02_scores.ipynb")
    (place / "submitted/ada/hw1/timestamp.txt").write_text("2026-02-02 00:00:01.250 UTC")
    (place / "submitted/bob/hw1/timestamp.txt").write_text("2026-02-01 23:59:00 UTC")
    late = {student: group[0][2] for student, group in owners(place, due="2026-02-01T23:59:59").items()}
    assert late == {"ada": True, "bob": False}


def test_attempts_are_ordered_by_time_then_number_then_name(tmp_path: Path) -> None:
    place = folder(
        tmp_path,
        "ada_2026-01-12/x.ipynb",
        "ada_2026-01-10/z.ipynb",
        "bob/x (2).ipynb",
        "bob/x.ipynb",
        "bob/x (1).ipynb",
    )
    files, _ = find_files([place], Roster(), LESSONS)
    order = {student: [one.attempt.source for one in group] for student, group in files.items()}
    assert order["ada"] == ["ada_2026-01-10/z.ipynb", "ada_2026-01-12/x.ipynb"]
    assert order["bob"] == ["bob/x.ipynb", "bob/x (1).ipynb", "bob/x (2).ipynb"]


def test_what_is_no_notebook_is_refused_where_somebody_handed_it_in(tmp_path: Path) -> None:
    place = zipped(tmp_path / "m.zip", "Ada L_7_assignsubmission_file_/essay.pdf", "readme.txt")
    (refusal,) = read_submissions(place)
    assert isinstance(refusal, Refusal)
    assert refusal.student is not None
    assert refusal.student.id == "Ada L"
    assert refusal.reason == (
        "m.zip!Ada L_7_assignsubmission_file_/essay.pdf is not a notebook (its name does not end in .ipynb)."
    )


def test_editors_leftovers_are_ignored(tmp_path: Path) -> None:
    left = ["ada/.x.ipynb.swp", "ada/x.ipynb~", "ada/~$x.docx", "bob/.hidden/x.pdf", "cy/.DS_Store"]
    names = ["ada/.ipynb_checkpoints/x.ipynb", "__MACOSX/ada/x.ipynb", "ada/x.ipynb", "ada/notes.txt", *left]
    assert owners(folder(tmp_path, *names)) == {"ada": [("x", 0, None)]}


@pytest.mark.parametrize("ending", ["pdf", "zip", "ipynb.txt", "html", "docx", "py"])
@pytest.mark.parametrize("name", ["class/ada/02_scores.{}", "ada_02_scores.{}", "Lovelace_Ada.{}"])
def test_a_folder_refuses_what_is_no_notebook_as_a_zip_does(tmp_path: Path, name: str, ending: str) -> None:
    people = tmp_path / "l.csv"
    people.write_text("id,name\nada,Ada Lovelace\n")
    place = folder(tmp_path / "class", name.format(ending))
    files, refusals = find_files([place], read_roster(people), LESSONS)
    (refusal,) = (handed.read() for handed in files["ada"])
    assert isinstance(refusal, Refusal)
    assert (list(files), refusals) == (["ada"], [])
    assert refusal.reason == f"{name.format(ending)} is not a notebook (its name does not end in .ipynb)."


def test_whatever_is_all_that_somebody_handed_in_is_named(tmp_path: Path) -> None:
    place = folder(tmp_path, "ada/work.py", "ada/data.csv", "bob/02_scores.ipynb", "bob/data.csv", "roster.csv")
    assert owners(place) == {"ada": [("data", 0, None), ("work", 0, None)], "bob": [("02_scores", 0, None)]}
    (tmp_path / "roster.csv").write_text("id\nbob\n")
    assert list(owners(place, read_roster(tmp_path / "roster.csv"))) == ["bob"]


def test_a_file_of_nobody_is_named_and_archives_are_asked_for_one_by_one(tmp_path: Path) -> None:
    place = folder(tmp_path, "essay.pdf", "ada.ipynb", "week1.zip")
    _, refusals = find_files([place], Roster(), LESSONS)
    assert [refusal.attempt.source for refusal in refusals] == ["essay.pdf", "week1.zip"]
    (place / "ada.ipynb").unlink()
    with pytest.raises(LabkitError, match="holds archives and no notebooks: name the archives one by one"):
        find_files([place], Roster(), LESSONS)


def test_several_places_are_put_together_by_student(tmp_path: Path) -> None:
    one = zipped(tmp_path / "1" / "s.zip", "lovelaceada_1001_900_01_projections.ipynb", "bob_2_9_01_projections.ipynb")
    two = zipped(tmp_path / "2" / "s.zip", "lovelaceada_1001_901_02_scores.ipynb")
    three = folder(tmp_path / "late", "1001/03_masks.ipynb")
    files, _ = find_files([one, two, three, one], Roster(), LESSONS)
    assert {student: [handed.attempt.source for handed in group] for student, group in files.items()} == {
        "1001": [
            f"{one.as_posix()}!lovelaceada_1001_900_01_projections.ipynb",
            f"{two.as_posix()}!lovelaceada_1001_901_02_scores.ipynb",
            "late/1001/03_masks.ipynb",
        ],
        "2": [f"{one.as_posix()}!bob_2_9_01_projections.ipynb"],
    }
    assert all(isinstance(handed.read(), Submission) for group in files.values() for handed in group)


@pytest.mark.skipif(sys.platform == "win32", reason="only on systems with links and pipes")
def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    place = folder(tmp_path / "class", "ada/x.ipynb")
    (place / "bob.ipynb").symlink_to("/etc/passwd")
    os.mkfifo(place / "eve.ipynb")
    refused = {
        one.student.id: one.reason for one in read_submissions(place) if isinstance(one, Refusal) and one.student
    }
    assert refused == {
        "bob": "bob.ipynb is a link, and links are not followed.",
        "eve": "eve.ipynb is not a regular file.",
    }


def test_a_single_notebook_is_a_class_of_one(tmp_path: Path) -> None:
    (one,) = read_submissions(folder(tmp_path, "ada.ipynb") / "ada.ipynb")
    assert isinstance(one, Submission)
    assert one.student.id == "ada"


def test_a_missing_place_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LabkitError, match="does not exist"):
        list(read_submissions(tmp_path / "nowhere"))


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section
    Points Possible,,,,
"Lovelace, Ada",1001,u1,ada@x.org,A
"Hopper, Grace",1002,u2,grace@x.org,A
"""
MOODLE = """Identifier,Full name,Email address
Participant 77,Ada Lovelace,ada@x.org
Participant 78,Grace Hopper,grace@x.org
"""
PLAIN = "\ufeffname;student_id\nGrace Hopper;g2\nAda Lovelace;a1\n"


@pytest.mark.parametrize(
    ("text", "file", "student", "name"),
    [
        (CANVAS, "lovelaceada_1001_9_x.ipynb", "u1", "Lovelace, Ada"),
        (CANVAS, "lovelaceada_4711_9_x.ipynb", "u1", "Lovelace, Ada"),
        (CANVAS, "ada.ipynb", "u1", "Lovelace, Ada"),
        (MOODLE, "Ada Lovelace_77_assignsubmission_file_x.ipynb", "Participant 77", "Ada Lovelace"),
        (MOODLE, "Renamed_77_assignsubmission_file_x.ipynb", "Participant 77", "Ada Lovelace"),
        (PLAIN, "ADA  lovelace.ipynb", "a1", "Ada Lovelace"),
        (PLAIN, "a1/x.ipynb", "a1", "Ada Lovelace"),
        (PLAIN, "Lovelace_Ada/x.ipynb", "a1", "Ada Lovelace"),
        (PLAIN, "Lovelace_Ada (1).ipynb", "a1", "Ada Lovelace"),
        (PLAIN, "stranger.ipynb", "stranger", "stranger"),
    ],
)
def test_rosters_recognise_their_students(tmp_path: Path, text: str, file: str, student: str, name: str) -> None:
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    (one,) = read_submissions(folder(tmp_path / "class", file), tmp_path / "roster.csv")
    assert one.student is not None
    assert (one.student.id, one.student.name) == (student, name)


def test_the_rosters_order_comes_first(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(PLAIN, encoding="utf-8")
    roster = read_roster(tmp_path / "roster.csv")
    place = folder(tmp_path / "class", "aaron.ipynb", "ada lovelace.ipynb", "g2.ipynb")
    assert list(owners(place, roster)) == ["g2", "a1", "aaron"]


def test_what_two_students_share_identifies_neither(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("id,name\n1,Kim Lee\n2,Kim Lee\n")
    assert read_roster(tmp_path / "roster.csv").find("Kim Lee") is None
    (tmp_path / "roster.csv").write_text("id,name\n1,Kim Lee\n2,Lee Kim\n")
    found = [read_roster(tmp_path / "roster.csv").find(name) for name in ("Kim Lee", "lee kim", "Kim_Lee")]
    assert [one and one.id for one in found] == ["1", "2", None]


@pytest.mark.parametrize(
    ("text", "said"), [("a,b\n1,2\n", "names no student"), ("id\n1\n1\n", "lists '1' twice"), ("", "names no student")]
)
def test_a_useless_roster_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "roster.csv").write_text(text)
    with pytest.raises(LabkitError, match=said):
        read_roster(tmp_path / "roster.csv")


@given(st.text(max_size=200))
def test_file_names_are_safe_and_different(text: str) -> None:
    name = file_name(text)
    assert name.strip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
    assert 0 < len(name) < 80
    assert not name.startswith("-")
    assert name != file_name(text + "x")


@pytest.mark.parametrize(
    "pair", [("Ada", "ada"), ("con", "con_"), ("a/b", "a-b"), ("", "student"), ("x", "x-d6b96a97")]
)
def test_names_that_a_file_system_would_confuse_stay_apart(pair: tuple[str, str]) -> None:
    first, second = map(file_name, pair)
    assert first.lower() != second.lower()


@given(st.text(max_size=200))
def test_visible_text_has_no_control_characters(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable() or not any(ord(char) < 32 or 0x202A <= ord(char) <= 0x2069 for char in shown)
    assert "\n" not in shown


def test_visible_lines_keep_lines_and_tabs() -> None:
    assert visible_lines("a\tb\nc\x1b[2J\\t") == "a\tb\nc\\x1b[2J\\t"


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_roster_may_end_its_lines_in_any_way(tmp_path: Path, ends: str) -> None:
    (tmp_path / "roster.csv").write_bytes(f"id,name{ends}ada,Ada Lovelace{ends}".encode())
    assert [student.name for student in read_roster(tmp_path / "roster.csv").students] == ["Ada Lovelace"]


def test_a_roster_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(LabkitError, match="cannot be read"):
        read_roster(tmp_path / "none.csv")
    (tmp_path / "huge.csv").write_text("id,name\nada," + "x" * 200_000, encoding="utf-8")
    with pytest.raises(LabkitError, match="no CSV that can be read"):
        read_roster(tmp_path / "huge.csv")


def test_a_deadline_to_the_minute_and_one_that_is_no_time(tmp_path: Path) -> None:
    place = folder(tmp_path / "class", "ada_2026-02-01_23-59/02_scores.ipynb", "bob_2026-02-02_00-00/02_scores.ipynb")
    late = {student: group[0][2] for student, group in owners(place, due="2026-02-01T23:59").items()}
    assert late == {"ada": False, "bob": True}
    with pytest.raises(LabkitError, match="'tomorrow' is no time"):
        owners(place, due="tomorrow")
