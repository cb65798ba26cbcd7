"""What travels through grading: plain frozen records, picklable and JSON-able, made once and never changed.

A `Submission` (or a `Refusal`) comes from intake, a `Result` from marking; a `Result` holds one `Mark` per exercise.
Every string that came from a student is inert text here; whoever shows it escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

CellKind = Literal["code", "markdown", "raw"]
Verdict = Literal["graded", "rejected", "stopped", "internal"]
Status = Literal["right", "wrong", "blank", "missing", "unreadable", "stopped", "recorded", "unmarked"]
Via = Literal["literal", "sandbox", "manual", "none"]
Found = Literal["metadata", "marker", "name", "missing"]
Level = Literal["A", "B", "C"]

STATUS_WORDS: dict[str, str] = {
    "right": "correct",
    "wrong": "not yet",
    "blank": "not attempted",
    "missing": "missing",
    "unreadable": "could not be read",
    "stopped": "stopped at a limit",
    "recorded": "waiting for a mark by hand",
    "unmarked": "not marked: no sandbox that is strong enough",
}
VERDICT_WORDS: dict[str, str] = {
    "graded": "graded",
    "rejected": "not graded",
    "stopped": "stopped at a limit",
    "internal": "not graded through a fault of ours",
}


@dataclass(frozen=True)
class Student:
    """One person: `id` is the row key of every table, `name` what is shown, `columns` the roster's own row."""

    id: str
    name: str
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def listed(self) -> bool:
        """Whether the class list has them: whoever comes from it brings its columns."""
        return bool(self.columns)

    @property
    def label(self) -> str:
        """The name, with the id where it says more: two people may have one name."""
        return self.name if self.name == self.id else f"{self.name} ({self.id})"


@dataclass(frozen=True)
class Cell:
    """One notebook cell: the id its metadata carries, whether they say read-only, and the name its output tells."""

    kind: CellKind
    source: str
    exercise: str | None = None
    locked: bool = False
    told: str = ""


@dataclass(frozen=True)
class Attempt:
    """One file somebody handed in, as named by the LMS.

    `when` is ISO 8601 or "" where nothing says it; `late` is None where neither the LMS nor a deadline says it.
    """

    source: str  # file, or archive!member
    number: int = 0  # the LMS's own count of resubmissions
    when: str = ""
    late: bool | None = None
    note: str = ""  # "counts", or why it does not

    @property
    def order(self) -> tuple[str, int, str]:
        """Sort key of the stated rule: latest time, then highest resubmission number, then last name."""
        return self.when, self.number, self.source


@dataclass(frozen=True)
class Submission:
    """One readable notebook of one student."""

    student: Student
    attempt: Attempt
    stem: str  # the notebook's file name without ending, as far as the LMS left it alone
    cells: tuple[Cell, ...]
    digest: str  # SHA-256 of the file, hexadecimal
    lesson: str = ""  # from the notebook's metadata, when it is there
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """One file that is not read; `reason` is one sentence that names the file."""

    attempt: Attempt
    reason: str
    student: Student | None = None
    stem: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Mark:
    """One exercise of one student; `points` is None while a person still has to mark it."""

    exercise: str
    step: str
    points: float | None
    out_of: float
    status: Status
    message: str = ""  # one or two sentences for the student, never a hidden input or an expected value
    slip: str = ""  # id in labkit.slips
    section: str = ""  # lesson section to revisit
    answer: str = ""  # what they gave, as they wrote it, capped
    value: Any = None  # what it was read as: nested lists of numbers, booleans, text; nan and infinities as text
    case: str = ""  # for a function: a case the lesson shows, and what the function gave there
    via: Via = "none"
    found: Found = "missing"
    notes: tuple[str, ...] = ()
    right: str = ""  # the right answer where a person marks this one; for the lecturer alone


@dataclass(frozen=True)
class Result:
    """Everything about one student and one lesson; equal inputs give an equal Result, byte for byte."""

    student: Student
    lesson: str
    verdict: Verdict
    reason: str = ""  # for rejected, stopped, internal: one sentence
    marks: tuple[Mark, ...] = ()
    attempt: Attempt | None = None  # the one that counts
    attempts: tuple[Attempt, ...] = ()  # all of them, oldest first
    digest: str = ""
    level: str = ""  # sandbox level that was used, "" when no code ran
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # what the student's files told `labkit.me(…)`
    elsewhere: bool = False  # rejected because it is of a lesson that is not graded here

    @property
    def unread(self) -> bool:
        """Whether the file could not be read as a lesson: nothing in it was judged, so its marks are no zeros."""
        return self.verdict == "rejected" and not self.elsewhere

    @property
    def verdict_words(self) -> str:
        """Say the verdict as people say it."""
        return "could not be read, not graded" if self.unread else VERDICT_WORDS[self.verdict]

    @property
    def points(self) -> float:
        """Sum of the points given so far."""
        return sum(mark.points or 0.0 for mark in self.marks)

    @property
    def out_of(self) -> float:
        """Sum of the points there are."""
        return sum(mark.out_of for mark in self.marks)


def to_json(result: Result) -> dict[str, Any]:
    """Turn a result into what JSON can write (`dataclasses.asdict` is too slow for a class of thousands)."""
    made = dict(vars(result))
    made["student"] = {**vars(result.student), "columns": dict(result.student.columns)}
    made["marks"] = [dict(vars(mark)) for mark in result.marks]
    made["attempt"] = result.attempt and dict(vars(result.attempt))
    made["attempts"] = [dict(vars(attempt)) for attempt in result.attempts]
    return made


def result_from_json(data: Mapping[str, Any]) -> Result:
    """Rebuild a result from `to_json`, equal to the original."""
    made = dict(data)
    made["student"] = Student(**made["student"])
    made["marks"] = tuple(Mark(**{**mark, "notes": tuple(mark["notes"])}) for mark in made["marks"])
    made["attempt"] = Attempt(**made["attempt"]) if made["attempt"] else None
    made["attempts"] = tuple(Attempt(**attempt) for attempt in made["attempts"])
    made["notes"] = tuple(made["notes"])
    made["names"] = tuple(made.get("names", ()))  # folders graded before names were kept have none
    return Result(**made)
