"""The tables of a graded class: gradebook, files for Canvas and Moodle, and the sheet for marks given by hand.

Every cell is inert: quoted, without control characters, and with an apostrophe before whatever a spreadsheet would
take for a formula.
"""

from __future__ import annotations

import csv
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading.archive import own_name
from labkit.grading.attempts import alike, unread_beside
from labkit.grading.keyfile import MARKER
from labkit.grading.matching import ELSEWHERE
from labkit.grading.model import STATUS_WORDS, Attempt, Mark, Result, Student
from labkit.grading.roster import ID_COLUMNS, csv_text, first_of, heading, namesakes, read_csv
from labkit.grading.store import Manual
from labkit.grading.text import plural, visible

FORMULA = "=+-@＝＋－＠"
SHEET = ("student", "name", "lesson", "exercise", "answer", "rubric", "out_of", "points", "comment")
NAMED = 10  # bad lines of a sheet named at once
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
WORKSHEET = (
    "moodle.csv is for Moodle's grade import: your worksheet has room for one lesson, and comes back filled when you "
    "grade with the key of that lesson alone."
)
ASSIGNMENT = re.compile(r" \(\d+\)$")  # the number Canvas adds to an assignment's name


@dataclass(frozen=True)
class Row:
    """One student with everything that was marked; `results` are in lesson order, marks by hand already in them."""

    student: Student
    results: tuple[Result, ...]

    @property
    def marks(self) -> Iterator[Mark]:
        """Every mark, lesson after lesson."""
        for result in self.results:
            yield from result.marks

    @property
    def untold(self) -> object:
        """What stands for a lesson that was not handed in: 0, or nothing while a file without marks may be it."""
        unmarked = any((result.unread or result.verdict == "internal") and not result.marks for result in self.results)
        return "" if unmarked else 0


def cell(value: object) -> str:
    """Write one value so that no spreadsheet runs it.

    >>> cell("=1+1"), cell("a\\nb"), cell(2.5), cell(None)
    ("'=1+1", 'a b', '2.5', '')
    >>> cell("-"), uncell("-")
    ('-', '-')
    """
    if value is None:
        return ""
    if isinstance(value, int | float):
        return f"{value:.10g}"
    text = "".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp") else char for char in str(value))
    return f"'{text}" if _runs(text) else text


def uncell(text: str) -> str:
    """Take back the apostrophe of `cell`."""
    return text[1:] if text.startswith("'") and _runs(text[1:]) else text


def _runs(text: str) -> bool:
    """Say whether a text needs the apostrophe; one that brings its own gets another, so that the two stay apart."""
    inner = text.lstrip().lstrip("'").strip()
    return inner[:1] in FORMULA and inner not in ("", "-")  # a lone dash means nothing in any spreadsheet


def part_of(path: Path) -> Path:
    """Name the file that is written before it takes another's place; two graders at once never share one."""
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table beside the old one and put it in its place, so that nobody ever reads half of it."""
    temporary = part_of(path)
    with open(temporary, "w", encoding="utf-8-sig", newline="") as file:  # the mark lets spreadsheets see UTF-8
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([cell(name) for name in header])
        writer.writerows([cell(value) for value in row] for row in rows)
    os.replace(temporary, path)


def answer_of(mark: Mark) -> str:
    """Give an answer as it was typed: a text as text, anything else without the lesson's marker line.

    >>> answer_of(Mark("a", "number", 1, 1, "right", answer="# exercise: a (1 point)\\nhalf = 1/2"))
    'half = 1/2'
    """
    if mark.step == "written" and isinstance(mark.value, str):
        return mark.value
    return MARKER.sub("", mark.answer, count=1).strip()


def gradebook(path: Path, rows: Iterable[Row], exercises: Mapping[str, str], out_of: float) -> None:
    """A row a student, a column an exercise; empty is what waits or could not be read, 0 what was not handed in.

    `exercises` are given with the lesson of each.
    """
    header = ("student", "name", "points", "out of", "late", "remarks", *exercises)
    write_table(path, header, (_gradebook_row(row, exercises, out_of) for row in rows))


def _gradebook_row(row: Row, exercises: Mapping[str, str], out_of: float) -> list[object]:
    given: dict[str, object] = {mark.exercise: mark.points for mark in row.marks}
    handed_in = {result.lesson for result in row.results}
    waits = bool(row.results) and all(result.unread for result in row.results)
    points = "" if waits else sum(result.points for result in row.results)
    return [row.student.id, row.student.name, points, out_of, "; ".join(late(row)), "; ".join(remarks_of(row))] + [
        given.get(exercise, "" if lesson in handed_in else row.untold) for exercise, lesson in exercises.items()
    ]


def late(row: Row) -> Iterator[str]:
    """Name the lessons whose file that counts came late."""
    for result in row.results:
        if result.attempt is not None and result.attempt.late and not result.elsewhere:
            yield result.lesson or "no lesson"


def remarks_of(row: Row) -> Iterator[str]:
    """Say what is to be known about this row before its sum is trusted; students may read it, as Moodle's comments."""
    if not row.results:
        yield "nothing handed in"
    for result in row.results:
        for remark in _remarks_of(result):
            yield f"{result.lesson}: {remark}" if result.lesson else remark


def _remarks_of(result: Result) -> Iterator[str]:
    if result.verdict != "graded":
        yield f"{result.verdict_words} ({_aside(result.reason, result.attempt)})"
    elif result.marks and all(mark.status == "missing" for mark in result.marks):
        yield "the file holds none of its exercises"
    for attempt in unread_beside(result):
        yield f"{result.verdict_words if result.unread else 'not read'} ({_aside(attempt.note, attempt)})"
    if (files := alike(result)) > 1 and result.attempt:
        yield f"{files} files and no time that tells the later one: {own_name(result.attempt.source)} counts"
    below = [mark.exercise for mark in result.marks if ELSEWHERE in mark.notes and mark.status != "right"]
    if below:
        yield f"answered again further below, which was not read: {', '.join(below)}"
    waiting = sum(mark.points is None for mark in result.marks)
    if waiting and not result.unread:
        yield f"{waiting} without a mark yet"


def _aside(reason: str, attempt: Attempt | None) -> str:
    return named_shortly(reason, attempt).rstrip(".")


def named_shortly(reason: str, attempt: Attempt | None) -> str:
    """Give a reason with the file's own name, not with where it lay."""
    source = attempt.source if attempt else ""
    return reason.replace(visible(source, 200), visible(own_name(source), 200), 1)


def canvas(path: Path, rows: Iterable[Row], lessons: Mapping[str, float]) -> None:
    """The file Canvas imports: who it is, as Canvas knows them, then a column for each lesson.

    Where the roster is Canvas's own gradebook and has an assignment called like a lesson, its heading is kept, so that
    Canvas takes it for the same; and what we cannot fill in stays as it stands there, since Canvas clears empty cells.
    """
    rows = iter(rows)
    first = next(rows, None)
    known = first.student.columns if first and _from_canvas(first.student) else {}
    headings = {lesson: _assignment(known, lesson) for lesson in lessons}
    possible: list[object] = ["    Points Possible", *[""] * (len(CANVAS) - 1), *lessons.values()]

    def lines() -> Iterator[list[object]]:
        yield possible
        for row in chain([first] if first else [], rows):
            totals = zip(headings.values(), _totals(row, lessons), strict=True)
            standing = row.student.columns
            yield _canvas_student(row.student) + [standing.get(name, "") if one == "" else one for name, one in totals]

    write_table(path, (*CANVAS, *headings.values()), lines())


def _from_canvas(student: Student) -> bool:
    """Say whether a student's columns are those of a gradebook that Canvas exported."""
    columns = set(map(heading, student.columns))
    return {"id", "section"} <= columns and not columns.isdisjoint(("student", "lastname"))


def _assignment(columns: Iterable[str], lesson: str) -> str:
    """Give the heading of the assignment called like a lesson: Canvas adds a number to the name."""
    return next((name for name in columns if heading(ASSIGNMENT.sub("", name)) == heading(lesson)), lesson)


def _canvas_student(student: Student) -> list[object]:
    """Fill in Canvas's columns; it looks for the ID, then for the SIS user ID, then for the login, then for the name.

    An id of somebody else's list may be either of the last two, and never Canvas's own number.
    """
    if _from_canvas(student):
        own: list[object] = [first_of(student.columns, name) for name in CANVAS]
        own[0] = own[0] or student.name
        return own
    if not student.listed and student.id.isdecimal() and student.id != student.name:  # from the name of Canvas's file
        return [student.name, student.id, "", "", ""]
    user = first_of(student.columns, "sis user id") or student.id
    login = first_of(student.columns, "sis login id", "login", "username") or student.id
    return [student.name, "", user, login, ""]


def moodle(path: Path, rows: Iterable[Row], lessons: Mapping[str, float]) -> str:
    """The file for Moodle's grade import; with a grading worksheet as roster and one lesson, that worksheet, filled.

    Returns what to say where there is such a worksheet and it could not be filled, else an empty text.
    """
    rows = iter(rows)
    first = next(rows, None)
    rows = chain([first] if first else [], rows)
    worksheet = first is not None and {"Identifier", "Grade"} <= first.student.columns.keys()
    if first and worksheet and len(lessons) == 1:
        ((lesson, out_of),) = lessons.items()
        header = tuple(first.student.columns)  # all of them: Moodle refuses a worksheet without its times
        write_table(path, header, (_worksheet_row(row, header, lesson, out_of) for row in rows))
        return ""
    header = ("ID number", "Full name", "Email address", *lessons)
    write_table(path, header, (_import_row(row, lessons) for row in rows))
    return WORKSHEET if worksheet and lessons else ""


def _worksheet_row(row: Row, header: Sequence[str], lesson: str, out_of: float) -> list[object]:
    """Fill in the mark, and as a comment what has to be said of it; Moodle passes over an empty mark."""
    filled: dict[str, object] = {"Full name": row.student.name, **row.student.columns}
    (filled["Grade"],) = _totals(row, {lesson: out_of})
    filled["Feedback comments"] = "; ".join(remarks_of(row)) or filled.get("Feedback comments")
    return [filled.get(name) for name in header]


def _import_row(row: Row, lessons: Mapping[str, float]) -> list[object]:
    number = first_of(row.student.columns, *ID_COLUMNS) or row.student.id
    email = first_of(row.student.columns, "email address", "email")
    return [number, row.student.name, email, *_totals(row, lessons)]


def _totals(row: Row, lessons: Mapping[str, float]) -> list[object]:
    """Give a student's points for each lesson; empty where a mark still waits for us, a person or a readable file."""
    by_lesson = {result.lesson: result for result in row.results}
    totals: list[object] = []
    for lesson, out_of in lessons.items():
        result = by_lesson.get(lesson)
        if result is None:
            totals.append(row.untold)
        else:
            partly = result.out_of < out_of - 1e-9  # so far only some exercises were marked
            open_ = partly or result.verdict == "internal" or any(mark.points is None for mark in result.marks)
            totals.append("" if open_ else result.points)
    return totals


# Marks given by hand


def manual_sheet(
    path: Path, rows: Iterable[Row], rubrics: Mapping[str, str], given: Mapping[tuple[str, str], Manual]
) -> None:
    """List every answer that waits for a person or has their mark; `points` and `comment` are there to be filled in.

    Whoever left the answer blank has 0 and is not listed.
    """

    def lines() -> Iterator[list[object]]:
        for row in rows:
            for result in row.results:
                for mark in result.marks:
                    own = given.get((row.student.id, mark.exercise))
                    written = mark.exercise in rubrics and mark.status not in ("blank", "missing")
                    rubric = rubrics.get(mark.exercise, mark.right)
                    if own or written or mark.status == "recorded":
                        yield [
                            row.student.id, row.student.name, result.lesson, mark.exercise, answer_of(mark),
                            rubric, mark.out_of, own and own.points, own and own.comment,
                        ]  # fmt: skip

    write_table(path, SHEET, lines())


def read_manual(
    path: Path,
    out_of: Mapping[str, float],
    students: Sequence[Student],
    handed_in: Collection[tuple[str, str]] | None = None,
) -> list[Manual]:
    """Read the marks somebody filled in; a line without points is not marked yet, and `-` takes a mark back.

    A mark of what is not among `handed_in`, (student, exercise), is a mistake. Raises LabkitError with all bad lines.
    """
    text = csv_text(path, "the sheet")
    reader = read_csv(text)
    marks: list[Manual] = []
    bad: list[str] = []
    try:
        missing = {"student", "exercise", "points"} - {*(reader.fieldnames or ())}
        if missing:
            raise LabkitError(f"{path} has no column {', '.join(sorted(missing))}: keep the header of manual.csv.")
        shown: dict[str, list[Student]] = {}  # students by what the sheet writes, which shows no control characters
        for student in students:
            shown.setdefault(cell(student.id), []).append(student)
        for line in reader:
            try:
                marks += _filled(line, out_of, shown, students, handed_in)
            except LabkitError as error:
                bad.append(f"line {reader.line_num}: {str(error).rstrip('.')}")
    except csv.Error as error:
        raise LabkitError(f"{path}, line {reader.line_num}: {error}.") from None
    if bad:
        more = [f"and {plural(len(bad) - NAMED, 'more line')}"] if len(bad) > NAMED else []
        raise LabkitError(f"{path}, {'; '.join(bad[:NAMED] + more)}.")
    return marks


def _filled(
    line: Mapping[str, str | None],
    out_of: Mapping[str, float],
    shown: Mapping[str, list[Student]],
    students: Sequence[Student],
    handed_in: Collection[tuple[str, str]] | None,
) -> Iterator[Manual]:
    """Read one line of a sheet, where it is filled in; raise LabkitError with what is wrong with it."""
    filled, comment = ((line.get(name) or "").strip() for name in ("points", "comment"))
    if comment and not filled:  # the sheet is written anew, so the comment would be gone
        raise LabkitError("a comment without points: give points as well.")
    if not filled:
        return
    named, exercise = line.get("student") or "", uncell(line.get("exercise") or "")
    # a spreadsheet may drop the apostrophe
    owners = shown.get(named) or shown.get(cell(named)) or namesakes(uncell(named), students)
    if len(owners) != 1:
        known = "more than one student is called" if owners else "there is no student"
        raise LabkitError(f"{known} {uncell(named)!r} in this class.")
    student = owners[0].id
    points = _points(filled, out_of.get(exercise))
    if handed_in is not None and (student, exercise) not in handed_in:
        raise LabkitError(f"{student!r} handed in no lesson with {exercise}, so it has no mark.")
    yield Manual(student, exercise, points, uncell(comment))


def _points(text: str, out_of: float | None) -> float | None:
    if out_of is None:
        raise LabkitError("there is no exercise of that name.")
    if text.lstrip("'") in ("-", "–", "—", "−"):  # a spreadsheet may make the one into another
        return None
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        raise LabkitError(f"points {text!r} is not a number.") from None
    if not 0 <= points <= out_of:
        raise LabkitError(f"{text} points; this exercise gives 0 to {out_of:g}.")
    return points


def status_words(mark: Mark) -> str:
    """Say a mark's status as people say it."""
    return "marked by hand" if mark.via == "manual" else STATUS_WORDS[mark.status]
