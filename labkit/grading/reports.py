"""Write everything a graded folder holds for people: tables, a page for each student, the class report.

Students are read one at a time from the store, so a class of thousands needs no more memory than one of ten.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import cleandoc
from itertools import groupby
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading import tables
from labkit.grading.attempts import settled
from labkit.grading.class_report import Report, Written, class_report
from labkit.grading.feedback_page import feedback_page
from labkit.grading.model import Mark, Result, Student
from labkit.grading.statistics import ClassStatistics
from labkit.grading.store import NAME, Manual, Store
from labkit.grading.tables import Row
from labkit.grading.text import file_name

SHEET = "manual.csv"
MOST_FORMS = 500  # answers shown for marking in the class report; the sheet has them all


@dataclass(frozen=True)
class Listed:
    """One exercise of the keys, as the grader noted it down."""

    lesson: str
    exercise: str
    out_of: float
    rubric: str = ""
    personal: bool = False
    heading: str = ""
    choices: dict[str, str] = field(default_factory=dict)


class Graded:
    """A graded folder, read for reporting."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.by_hand = store.by_hand()
        self.facts = store.facts()

    @cached_property
    def exercises(self) -> list[Listed]:
        """Every exercise of the keys, lesson by lesson."""
        return [Listed(*one) for one in json.loads(self.facts.get("exercises", "[]"))]

    @property
    def rubrics(self) -> dict[str, str]:
        """The rubric of every exercise that a person marks."""
        return {one.exercise: rubric_of(one.rubric) for one in self.exercises if one.rubric}

    @property
    def headings(self) -> dict[str, str]:
        """The heading of the lesson under which each exercise stands."""
        return {one.exercise: one.heading for one in self.exercises}

    @property
    def choices(self) -> dict[str, dict[str, str]]:
        """What the letters of each choice stand for."""
        return {one.exercise: one.choices for one in self.exercises}

    @cached_property
    def lessons(self) -> dict[str, float]:
        """The points of every lesson that somebody handed in, in order."""
        used = self.store.lessons()
        totals: dict[str, float] = {}
        for one in self.exercises:
            if one.lesson in used:
                totals[one.lesson] = totals.get(one.lesson, 0.0) + one.out_of
        return totals

    @property
    def warning(self) -> str:
        """What has to be said on every page when the sandbox was not the strongest."""
        level = self.facts.get("level", "none")
        if level in ("A", "none"):
            return ""
        return f"Code exercises ran in a sandbox below level A (level {level}), at the instructor's wish."

    def rows(self) -> Iterator[Row]:
        """Give each student with what was marked, marks by hand in place: the class, then whoever else handed in."""
        marked = groupby(self.store.results(), key=lambda result: result.student.id)
        current = next(marked, None)
        for student in self.store.students():
            if current is not None and current[0] == student.id:
                results = settled([with_manual(result, self.by_hand) for result in current[1]], self.lessons)
                current = next(marked, None)
            else:
                results = ()
            yield Row(student, results)


def with_manual(result: Result, by_hand: Mapping[tuple[str, str], Manual]) -> Result:
    """Put the marks a person gave into a result; a file that could not be read has no others."""
    marks = (replace(mark, points=None) for mark in result.marks) if result.unread else result.marks
    return replace(result, marks=tuple(_marked(result.student.id, mark, by_hand) for mark in marks))


def _marked(student: str, mark: Mark, by_hand: Mapping[tuple[str, str], Manual]) -> Mark:
    given = by_hand.get((student, mark.exercise))
    if given is None:
        return mark
    return replace(mark, points=given.points, via="manual", message=given.comment)


def rubric_of(source: str) -> str:
    """Give the text that the key's answer cell holds.

    >>> rubric_of('claim = "1 point for a control."')
    '1 point for a control.'
    """
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return cleandoc(max((text for text in texts if isinstance(text, str)), key=len, default=source))


def take_manual(store: Store, path: Path) -> int:
    """Read a filled sheet into the store, where every later run finds it; returns how many marks it held."""
    listed = (Listed(*one) for one in json.loads(store.facts().get("exercises", "[]")))
    by_hand, known = store.by_hand(), {student.id: student for student in store.students()}
    left = {id: Student(id, id) for id, _ in by_hand}  # whoever left the class keeps their line in the sheet
    handed_in = {(result.student.id, mark.exercise) for result in store.results() for mark in result.marks}
    out_of = {one.exercise: one.out_of for one in listed}
    marks = tables.read_manual(path, out_of, [*(left | known).values()], handed_in | by_hand.keys())
    store.mark_by_hand(marks)
    return len(marks)


def write_reports(out: Path, manual: Path | None = None) -> str:
    """Write all tables and pages of a graded folder; marks filled in by hand are taken from its sheet first.

    Returns what has to be said of the file for Moodle, or an empty text.
    """
    if not (out / NAME).is_file():
        raise LabkitError(f"{out} is not a graded folder: run `labkit grade` with --out {out} first.")
    with Store(out) as store:
        for sheet in dict.fromkeys((out / SHEET, *([manual] if manual else []))):
            if sheet.is_file() or sheet == manual:
                take_manual(store, sheet)
        graded = Graded(store)
        exercises = {one.exercise: one.lesson for one in graded.exercises if one.lesson in graded.lessons}
        tables.gradebook(out / "gradebook.csv", graded.rows(), exercises, sum(graded.lessons.values()))
        tables.canvas(out / "canvas.csv", graded.rows(), graded.lessons)
        said = tables.moodle(out / "moodle.csv", graded.rows(), graded.lessons)
        tables.manual_sheet(out / SHEET, graded.rows(), graded.rubrics, graded.by_hand)
        _pages(out, graded)
    return said


def _pages(out: Path, graded: Graded) -> None:
    folder = out / "feedback"
    folder.mkdir(exist_ok=True)
    counted = ClassStatistics(frozenset(one.exercise for one in graded.exercises if one.personal))
    written: list[Written] = []
    names, headings, lessons = set(), graded.headings, graded.lessons
    for row in graded.rows():
        counted.add(row)
        name = f"{file_name(row.student.id)}.html"
        names.add(name)
        _replace(folder / name, feedback_page(row, headings, graded.warning, lessons))
        if len(written) < MOST_FORMS:
            waiting = [mark for mark in row.marks if mark.status == "recorded" and mark.points is None]
            written += [
                Written(row.student.id, row.student.name, one.exercise, tables.answer_of(one), one.out_of, one.right)
                for one in waiting
            ]
    for stale in folder.glob("*.html"):
        if stale.name not in names:
            stale.unlink(missing_ok=True)  # another grader may have been faster
    refused = [refusal.reason for refusal in graded.store.refusals()]
    level = graded.facts.get("level", "none")
    report = Report(counted, written, graded.rubrics, refused, graded.warning, level, headings, graded.choices)
    _replace(out / "class_report.html", class_report(report))


def _replace(path: Path, content: str) -> None:
    temporary = tables.part_of(path)
    temporary.write_text(content, encoding="utf-8", newline="\n")
    os.replace(temporary, path)
