"""Tables: nothing in them is a formula, both learning platforms' columns, and marks given by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import LabkitError
from labkit.grading import tables
from labkit.grading.model import Attempt, Mark, Result, Student
from labkit.grading.reports import with_manual
from labkit.grading.roster import read_roster
from labkit.grading.store import Manual
from labkit.grading.tables import WORKSHEET, Row, cell, read_manual, uncell

FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "＝1+1",
    "＋1",
    "－1",
    "＠x",
    "  =1+1",
    "\t=1+1",
    "\n-1",
    "\u00a0=1",
    "\u3000@x",
]
CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Old (1)
    Points Possible,,,,,5
"Lovelace, Ada",1001,u-1,ada,Tue,3
"Hopper, Grace",1002,,grace,Tue,
"""
MOODLE = """Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (grade),Feedback comments
Participant 77,Ada Lovelace,ada@x.org,Submitted,,2,"Monday, 2 March 2026, 9:15 AM",Well done.
Participant 78,Grace Hopper,grace@x.org,,1,2,-,
"""
MARKED = "Monday, 2 March 2026, 9:15 AM"


def read(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def mark(exercise: str = "a", points: float | None = 1.0, status: str = "right", **more: object) -> Mark:
    return Mark(exercise, "number", points, 2.0, status, **more)  # type: ignore[arg-type]


def row(student: Student, *marks: Mark, lesson: str = "03_masks", late: bool = False) -> Row:
    return Row(student, (Result(student, lesson, "graded", marks=marks, attempt=Attempt("f", late=late)),))


ADA = Student("ada", "Ada L")


# Nothing a spreadsheet runs


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_an_apostrophe(text: str) -> None:
    assert cell(text).startswith("'")


@pytest.mark.parametrize("text", ["a=1", "", " ", "-", "Zoë", "1-2", "x\u200b"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert cell(text) == text


def test_negative_numbers_stay_numbers() -> None:
    assert (cell(-1.5), cell(0.1 + 0.2), cell(1e6)) == ("-1.5", "0.3", "1000000")


@given(st.text())
def test_no_cell_is_a_formula_or_holds_a_control_character(text: str) -> None:
    shown = cell(text)
    assert shown.strip() in ("", "-") or shown.strip()[0] not in tables.FORMULA
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)


@given(st.text(st.characters(exclude_categories=["Cc", "Zl", "Zp", "Cs"])).filter(lambda text: text[:1] != "'"))
def test_the_apostrophe_comes_off_again(text: str) -> None:
    assert uncell(cell(text)) == text


def test_hostile_names_are_inert_in_every_table(tmp_path: Path) -> None:
    rows = [row(Student("=cmd|' /C calc'!A0", "@evil\r\n=1", {"Identifier": "+1"}), mark(answer="-2+3"))]
    tables.gradebook(tmp_path / "g.csv", rows, {"a": "03_masks"}, 2)
    tables.canvas(tmp_path / "c.csv", rows, {"03_masks": 2})
    tables.moodle(tmp_path / "m.csv", rows, {"03_masks": 2})
    tables.manual_sheet(tmp_path / "s.csv", rows, {"a": "=rubric"}, {})
    for name in "gcms":
        data = (tmp_path / f"{name}.csv").read_bytes()
        assert b"evil" in data
        assert data.count(b"\r") == data.count(b"\n") == data.count(b"\r\n")  # line ends only
        for line in read(tmp_path / f"{name}.csv"):
            assert not any(one.strip()[:1] in tuple("=+-@") for one in line if one.strip())


# Gradebook


def test_the_gradebook_has_a_row_a_student_and_a_column_an_exercise(tmp_path: Path) -> None:
    rows = [
        row(ADA, mark("a", 2.0), mark("b", None, "recorded"), late=True),
        Row(Student("bob", "Bob"), ()),
        Row(Student("cy", "Cy"), (Result(Student("cy", "Cy"), "", "internal", "ValueError"),)),
    ]
    tables.gradebook(tmp_path / "g.csv", rows, {"a": "03_masks", "b": "03_masks"}, 4)
    assert read(tmp_path / "g.csv") == [
        ["student", "name", "points", "out of", "late", "remarks", "a", "b"],
        ["ada", "Ada L", "2", "4", "03_masks", "03_masks: 1 without a mark yet", "2", ""],
        ["bob", "Bob", "0", "4", "", "nothing handed in", "0", "0"],
        ["cy", "Cy", "0", "4", "", "not graded through a fault of ours (ValueError)", "", ""],
    ]


def test_the_lessons_that_came_late_are_named(tmp_path: Path) -> None:
    first, second = (row(ADA, mark(), lesson=name, late=name == "04_worked") for name in ("03_masks", "04_worked"))
    other = Result(ADA, "", "rejected", "f belongs to none of them.", attempt=Attempt("f", late=True), elsewhere=True)
    rows = [Row(ADA, (other, *first.results, *second.results))]
    tables.gradebook(tmp_path / "g.csv", rows, {"a": "03_masks"}, 2)
    assert read(tmp_path / "g.csv")[1][4] == "04_worked"


def test_what_is_not_marked_yet_is_no_zero(tmp_path: Path) -> None:
    """Of the first lesson one exercise was marked, of the second none was handed in."""
    rows = [row(ADA, mark("a"))]
    tables.gradebook(tmp_path / "g.csv", rows, {"a": "03_masks", "b": "03_masks", "c": "04_worked"}, 6)
    assert read(tmp_path / "g.csv")[1][-3:] == ["1", "", "0"]
    tables.moodle(tmp_path / "m.csv", rows, {"03_masks": 4.0, "04_worked": 2.0})
    assert read(tmp_path / "m.csv")[1][-2:] == ["", "0"]


def test_a_file_without_any_exercise_is_no_silent_zero(tmp_path: Path) -> None:
    tables.gradebook(tmp_path / "g.csv", [row(ADA, mark("a", 0.0, "missing"))], {"a": "03_masks"}, 2)
    assert read(tmp_path / "g.csv")[1][5] == "03_masks: the file holds none of its exercises"


def test_a_file_that_could_not_be_read_leaves_its_cells_empty(tmp_path: Path) -> None:
    """Of two lessons, a the unreadable one; in the second row nobody can tell which of them it is."""
    lessons = {"03_masks": 2.0, "04_worked": 2.0}
    marks = (mark("a", 0.0, "missing"),)
    known = Result(ADA, "03_masks", "rejected", "f.ipynb is not valid JSON.", marks)
    unknown = Result(ADA, "", "rejected", "f.docx is not a notebook.")
    other = Result(ADA, "", "rejected", "f.ipynb belongs to none of the lessons graded.", elsewhere=True)
    rows = [Row(ADA, (with_manual(one, {}),)) for one in (known, unknown, other)]
    tables.canvas(tmp_path / "c.csv", rows, lessons)
    tables.moodle(tmp_path / "m.csv", rows, lessons)
    tables.gradebook(tmp_path / "g.csv", rows, {"a": "03_masks", "b": "04_worked"}, 4)
    empty = [["", "0"], ["", ""], ["0", "0"]]  # a notebook of another lesson is no reason to wait for this one
    assert [line[-2:] for line in read(tmp_path / "c.csv")[2:]] == empty
    assert [line[-2:] for line in read(tmp_path / "m.csv")[1:]] == empty
    graded = read(tmp_path / "g.csv")[1:]
    assert [line[-2:] for line in graded] == empty
    assert [line[2] for line in graded] == ["", "", "0"]
    assert graded[0][5] == "03_masks: could not be read, not graded (f.ipynb is not valid JSON)"


# Canvas and Moodle


def roster(tmp_path: Path, text: str) -> list[Student]:
    (tmp_path / "roster.csv").write_text(text, "utf-8")
    return list(read_roster(tmp_path / "roster.csv").students)


def test_canvas_gets_its_own_columns_back(tmp_path: Path) -> None:
    ada, grace = roster(tmp_path, CANVAS)
    tables.canvas(tmp_path / "c.csv", [row(ada, mark()), Row(grace, ())], {"03_masks": 2.0})
    assert read(tmp_path / "c.csv") == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "03_masks"],
        ["    Points Possible", "", "", "", "", "2"],
        ["Lovelace, Ada", "1001", "u-1", "ada", "Tue", "1"],
        ["Hopper, Grace", "1002", "", "grace", "Tue", "0"],
    ]


def test_canvas_gets_the_heading_of_its_own_assignment_back(tmp_path: Path) -> None:
    """What stands there stays where we have nothing to say: Canvas would clear an empty cell."""
    text = CANVAS.replace("Old (1)", "03 Masks (81)")
    ada, grace = roster(tmp_path, text)
    rows = [row(ada, mark("a", None, "recorded")), row(grace, mark())]
    tables.canvas(tmp_path / "c.csv", rows, {"03_masks": 2.0, "04_worked": 2.0})
    header, _, first, second = read(tmp_path / "c.csv")
    assert header[5:] == ["03 Masks (81)", "04_worked"]
    assert (first[5:], second[5:]) == (["3", "0"], ["1", "0"])


def test_canvas_may_export_family_names_apart(tmp_path: Path) -> None:
    text = "LastName,FirstName,ID,SIS Login ID,Section\n    Points Possible,,,,\nLovelace,Ada,1001,ada,Tue\n"
    (ada,) = roster(tmp_path, text)
    tables.canvas(tmp_path / "c.csv", [row(ada, mark())], {"03_masks": 2.0})
    assert read(tmp_path / "c.csv")[2] == ["Ada Lovelace", "1001", "", "ada", "Tue", "1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,name\n7,Ada L\n", ["Ada L", "", "7", "7", ""]),
        ("student_id,username,name\n7,ada,Ada L\n", ["Ada L", "", "7", "ada", ""]),
        ("ID number,SIS User ID,name\n7,u-1,Ada L\n", ["Ada L", "", "u-1", "u-1", ""]),
    ],
)
def test_an_id_of_ones_own_list_is_no_number_of_canvas(tmp_path: Path, text: str, expected: list[str]) -> None:
    (ada,) = roster(tmp_path, text)
    tables.canvas(tmp_path / "c.csv", [row(ada, mark())], {"03_masks": 2.0})
    assert read(tmp_path / "c.csv")[2] == [*expected, "1"]


@pytest.mark.parametrize(
    ("student", "expected"),
    [
        (Student("1001", "lovelaceada"), ["lovelaceada", "1001", "", "", ""]),  # from the name of Canvas's file
        (Student("1001", "1001"), ["1001", "", "1001", "1001", ""]),  # from a folder's name
        (ADA, ["Ada L", "", "ada", "ada", ""]),
    ],
)
def test_who_is_on_no_list_is_found_by_what_their_file_says(
    tmp_path: Path, student: Student, expected: list[str]
) -> None:
    tables.canvas(tmp_path / "c.csv", [row(student, mark())], {"03_masks": 2.0})
    assert read(tmp_path / "c.csv")[2] == [*expected, "1"]


@pytest.mark.parametrize(
    "header",
    [
        "first_name,last_name",
        "Firstname,Lastname",
        "First Name,SURNAME",
        "given name,family name",
        "FirstName,LastName",
    ],
)
def test_names_are_found_however_their_columns_are_written(tmp_path: Path, header: str) -> None:
    assert [one.name for one in roster(tmp_path, f"student_id,{header}\n7,Ada,Lovelace\n")] == ["Ada Lovelace"]


def test_moodles_worksheet_comes_back_filled(tmp_path: Path) -> None:
    """With every column of its own: Moodle refuses a worksheet that lacks the time of the last mark."""
    ada, grace = roster(tmp_path, MOODLE)
    tables.moodle(tmp_path / "m.csv", [row(ada, mark()), Row(grace, ()), row(ADA, mark())], {"03_masks": 2.0})
    assert read(tmp_path / "m.csv") == [
        MOODLE.splitlines()[0].split(","),
        ["Participant 77", "Ada Lovelace", "ada@x.org", "Submitted", "1", "2", MARKED, "Well done."],
        ["Participant 78", "Grace Hopper", "grace@x.org", "", "0", "2", "-", "nothing handed in"],
        ["", "Ada L", "", "", "1", "", "", ""],
    ]


def test_moodles_grade_import_has_a_column_a_lesson(tmp_path: Path) -> None:
    (ada,) = roster(tmp_path, "ID number,First name,Surname,Email address\n7,Ada,Lovelace,ada@x.org\n")
    tables.moodle(tmp_path / "m.csv", [row(ada, mark())], {"03_masks": 2.0, "04_worked": 3.0})
    assert read(tmp_path / "m.csv") == [
        ["ID number", "Full name", "Email address", "03_masks", "04_worked"],
        ["7", "Ada Lovelace", "ada@x.org", "1", "0"],
    ]


def test_a_total_is_empty_while_a_person_or_we_stand_before_it(tmp_path: Path) -> None:
    rows = [
        row(ADA, mark("a"), mark("b", None, "recorded")),
        Row(ADA, (Result(ADA, "03_masks", "internal", marks=(mark(),)),)),
        Row(ADA, (Result(ADA, "", "internal"),)),
    ]
    tables.moodle(tmp_path / "m.csv", rows, {"03_masks": 4.0})
    assert [line[-1] for line in read(tmp_path / "m.csv")[1:]] == ["", "", ""]


def test_remarks_name_every_file_that_could_not_be_read_by_its_own_name(tmp_path: Path) -> None:
    """Students read them as comments in Moodle: no archive, no folder, no word about what we call no lesson."""
    (ada, _) = roster(tmp_path, MOODLE)
    first, second = "m.zip!Ada L_7_file_/a.ipynb", "m.zip!Ada L_7_file_/b.pdf"
    attempts = (Attempt(first, note=f"{first} is empty."), Attempt(second, note="counts"))
    result = Result(ada, "", "rejected", f"{second} is not a notebook.", attempt=attempts[1], attempts=attempts)
    tables.moodle(tmp_path / "m.csv", [Row(ada, (result,))], {"03_masks": 2.0})
    assert read(tmp_path / "m.csv")[1][-1] == (
        "could not be read, not graded (b.pdf is not a notebook); could not be read, not graded (a.ipynb is empty)"
    )


@pytest.mark.parametrize(
    ("attempts", "remark"),
    [
        ([("a.ipynb", 0, "counts"), ("b.ipynb", 1, "b.ipynb is empty.")], "03_masks: not read (b.ipynb is empty)"),
        ([("b.ipynb", 0, "b.ipynb is empty."), ("a.ipynb", 1, "counts")], ""),  # it was put right since
        (
            [("u/a-Copy1.ipynb", 0, "a later file counts"), ("u/a.ipynb", 0, "counts")],
            "03_masks: 2 files and no time that tells the later one: a.ipynb counts",
        ),
        ([("a.ipynb", 0, "a later file counts"), ("a (1).ipynb", 1, "counts")], ""),  # a browser's own count
        ([("u/backups/a.ipynb", 0, "a later file counts"), ("u/a.ipynb", 0, "counts")], ""),
        ([("a.ipynb", 0, "counts"), ("b.ipynb", 0, "it holds no exercise")], ""),
    ],
)
def test_what_to_know_of_several_files_is_in_the_remarks(attempts: list[tuple[str, int, str]], remark: str) -> None:
    made = tuple(Attempt(source, number, note=note) for source, number, note in attempts)
    counts = next(one for one in made if one.note == "counts")
    result = Result(ADA, "03_masks", "graded", marks=(mark(),), attempt=counts, attempts=made)
    assert list(tables.remarks_of(Row(ADA, (result,)))) == [remark] * bool(remark)


def test_a_worksheet_that_cannot_be_filled_is_said_so(tmp_path: Path) -> None:
    ada, _ = roster(tmp_path, MOODLE)
    assert tables.moodle(tmp_path / "m.csv", [row(ada, mark())], {"03_masks": 2.0, "04_worked": 2.0}) == WORKSHEET
    assert tables.moodle(tmp_path / "m.csv", [row(ada, mark())], {"03_masks": 2.0}) == ""
    assert tables.moodle(tmp_path / "m.csv", [row(ADA, mark())], {"03_masks": 2.0, "04_worked": 2.0}) == ""


# Marks by hand


def people(*ids: str) -> list[Student]:
    return [Student(id, id) for id in ids]


def written(student: str, points: float | None = None, status: str = "recorded", value: str = "a claim") -> Row:
    one = Student(student, student.title())
    return row(one, Mark("say", "written", points, 4.0, status, answer=f"words = {value!r}", value=value))  # type: ignore[arg-type]


def test_a_filled_sheet_is_read_and_written_again_with_its_marks(tmp_path: Path) -> None:
    path, rubrics = tmp_path / "manual.csv", {"say": "4 points: a claim."}
    rows = [written("ada"), written("-bob"), written("cy", 0.0, "blank", "")]
    tables.manual_sheet(path, rows, rubrics, {})
    lines = read(path)
    assert [line[0] for line in lines] == ["student", "ada", "'-bob"]  # nobody marks what is blank
    assert lines[1][4:7] == ["a claim", "4 points: a claim.", "4"]
    for line, points in zip(lines[1:], ("3,5", "0"), strict=True):
        line[7:] = [points, "=good"]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";").writerows(lines)  # as a German spreadsheet saves it
    marks = read_manual(path, {"say": 4.0}, people("ada", "-bob"))
    assert marks == [Manual("ada", "say", 3.5, "=good"), Manual("-bob", "say", 0.0, "=good")]
    tables.manual_sheet(path, rows, rubrics, {(one.student, one.exercise): one for one in marks})
    assert [line[7:] for line in read(path)[1:]] == [["3.5", "'=good"], ["0", "'=good"]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ada,say,five,", "line 3: points 'five' is not a number"),
        ("ada,say,nan,", "line 3: nan points; this exercise gives 0 to 4"),
        ("ada,say,5,", "line 3: 5 points; this exercise gives 0 to 4"),
        ("ada,say,-1,", "line 3: -1 points"),
        ("ada,sya,-,", "line 3: there is no exercise of that name"),
        ("ada,say,,Well put.", "line 3: a comment without points"),
        ("ada,row-2,1,", "line 3: there is no exercise of that name"),
        ("eve,say,1,", "line 3: there is no student 'eve' in this class"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "manual.csv"
    path.write_text(f"student,exercise,points,comment\nada,say,,\n{line}\n", "utf-8")
    with pytest.raises(LabkitError) as caught:
        read_manual(path, {"say": 4.0}, people("ada"))
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_all_bad_lines_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "manual.csv"
    path.write_text("student,exercise,points\neve,say,1\nada,say,2\nada,say,five\nbob,say,1\n", "utf-8")
    with pytest.raises(LabkitError) as caught:
        read_manual(path, {"say": 4.0}, people("ada", "bob"), {("ada", "say")})
    assert str(caught.value) == (
        f"{path}, line 2: there is no student 'eve' in this class; line 4: points 'five' is not a number; "
        "line 5: 'bob' handed in no lesson with say, so it has no mark."
    )
    path.write_text("student,exercise,points\n" + "eve,say,1\n" * 13, "utf-8")
    with pytest.raises(LabkitError, match=r"line 11: [^;]*; and 3 more lines\.$"):
        read_manual(path, {"say": 4.0}, people("ada"))


def test_a_sheet_may_name_a_student_as_only_does(tmp_path: Path) -> None:
    path = tmp_path / "manual.csv"
    known = [Student("a1", "Lovelace, Ada"), Student("b1", "Kim Lee"), Student("b2", "Kim Lee")]
    path.write_text("student,exercise,points\nada lovelace,say,1\nb2,say,2\n", "utf-8")
    assert read_manual(path, {"say": 4.0}, known) == [Manual("a1", "say", 1.0), Manual("b2", "say", 2.0)]
    path.write_text("student,exercise,points\nKim Lee,say,1\n", "utf-8")
    with pytest.raises(LabkitError, match="more than one student is called 'Kim Lee'"):
        read_manual(path, {"say": 4.0}, known)


@pytest.mark.parametrize(("data", "words"), [(b"a,b\n1,2\n", "has no column"), (b"\xff\xfe\x00\xd8", "UTF-8 CSV")])
def test_a_sheet_that_is_none_is_said_so(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "manual.csv").write_bytes(data)
    with pytest.raises(LabkitError, match=words):
        read_manual(tmp_path / "manual.csv", {}, ())


def test_a_table_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    tables.write_table(path, ["old"], [])

    def rows() -> object:
        yield ["new"]
        raise RuntimeError

    with pytest.raises(RuntimeError):
        tables.write_table(path, ["new"], rows())  # type: ignore[arg-type]
    assert read(path) == [["old"]]


@pytest.mark.parametrize("names", [("=eve", "'=eve"), ("'=eve", "''=eve"), ("d\te",), ("f\u202eg",), ("'cy", "cy")])
def test_a_mark_reaches_the_student_it_was_given_to(tmp_path: Path, names: tuple[str, ...]) -> None:
    lines = [[name, "say", number] for number, name in enumerate(names, 1)]
    tables.write_table(tmp_path / "manual.csv", ("student", "exercise", "points"), lines)
    marks = read_manual(tmp_path / "manual.csv", {"say": 4.0}, people(*names))
    assert [(mark.student, mark.points) for mark in marks] == [(name, n) for n, name in enumerate(names, 1)]


def test_a_name_that_could_be_two_students_is_refused(tmp_path: Path) -> None:
    tables.write_table(tmp_path / "manual.csv", ("student", "exercise", "points"), [["d\te", "say", 1]])
    with pytest.raises(LabkitError, match="more than one student is called"):
        read_manual(tmp_path / "manual.csv", {"say": 4.0}, people("d\te", "d e"))
