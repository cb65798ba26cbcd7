"""What has been marked so far, in one SQLite file: survives a kill at any moment, and two graders at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading.model import STATUS_WORDS, Attempt, Mark, Refusal, Result, Student, result_from_json, to_json

NAME = "state.sqlite"
PATIENCE = 60.0  # seconds to wait for another grader's write

_TABLES = """
CREATE TABLE IF NOT EXISTS students (
    id TEXT PRIMARY KEY, place INTEGER NOT NULL, name TEXT NOT NULL, columns TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results (
    student TEXT NOT NULL, lesson TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (student, lesson));
CREATE TABLE IF NOT EXISTS done (student TEXT PRIMARY KEY, fingerprint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS refusals (source TEXT PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS manual (
    student TEXT NOT NULL, exercise TEXT NOT NULL, points REAL NOT NULL, comment TEXT NOT NULL,
    PRIMARY KEY (student, exercise));
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Manual:
    """A mark given by a person; it survives every regrade. None takes an earlier one back."""

    student: str
    exercise: str
    points: float | None
    comment: str = ""


@dataclass(frozen=True)
class Change:
    """One mark that differs from the last time, and why it may; the student is named as people know them."""

    student: str
    lesson: str
    exercise: str
    before: str
    after: str
    why: str


class Store:
    """The state of one graded folder; use it as a context manager. Every method is one transaction."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(self.path, timeout=PATIENCE)
        except sqlite3.Error as error:
            raise LabkitError(f"{self.path} cannot be opened ({error}): is {folder} a folder of yours?") from error
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last marks, never the file
            self._db.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            self.close()
            raise LabkitError(f"{self.path} cannot be used ({error}): move it away to start afresh.") from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def begin(self, students: Sequence[Student], refusals: Sequence[Refusal], facts: dict[str, str]) -> None:
        """Note who is in the class, which files belong to nobody, and what this run marks with."""
        rows = [(s.id, place, s.name, json.dumps(dict(s.columns))) for place, s in enumerate(students)]
        with self._db as db:
            db.execute("DELETE FROM students")
            db.executemany("INSERT INTO students VALUES (?, ?, ?, ?)", rows)
            db.execute("DELETE FROM refusals")
            db.executemany(
                "INSERT OR REPLACE INTO refusals VALUES (?, ?)", [(r.attempt.source, r.reason) for r in refusals]
            )
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def finished(self) -> dict[str, str]:
        """Give the fingerprint of the work each student was last marked for."""
        with self._db as db:
            return dict(db.execute("SELECT student, fingerprint FROM done"))

    def save(self, student: str, fingerprint: str, results: Iterable[Result]) -> None:
        """Replace a student's results, all at once; without a fingerprint they will be marked again next time."""
        with self._db as db:
            db.execute("DELETE FROM results WHERE student = ?", (student,))
            rows = [(student, result.lesson, json.dumps(to_json(result), sort_keys=True)) for result in results]
            db.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", rows)
            db.execute("DELETE FROM done WHERE student = ?", (student,))
            if fingerprint:
                db.execute("INSERT INTO done VALUES (?, ?)", (student, fingerprint))

    def forget(self, keep: Iterable[str]) -> None:
        """Drop the results of everybody who is no longer among the submissions."""
        gone = self.finished().keys() - set(keep)
        with self._db as db:
            for table in ("results", "done"):
                db.executemany(f"DELETE FROM {table} WHERE student = ?", [(one,) for one in gone])

    def students(self) -> list[Student]:
        """List the class in the roster's order, those who handed nothing in included."""
        with self._db as db:
            rows = db.execute("SELECT id, name, columns FROM students ORDER BY place").fetchall()
        return [Student(id, name, json.loads(columns)) for id, name, columns in rows]

    def results(self, student: str | None = None) -> Iterator[Result]:
        """Give the results one at a time, in the class's order, then by lesson."""
        where = "" if student is None else "WHERE results.student = ?"
        query = f"""SELECT data FROM results LEFT JOIN students ON students.id = results.student {where}
                    ORDER BY students.place IS NULL, students.place, results.student, results.lesson"""
        with self._db as db:
            for (data,) in db.execute(query, () if student is None else (student,)):
                yield result_from_json(json.loads(data))

    def lessons(self) -> set[str]:
        """Name the lessons that somebody handed in."""
        with self._db as db:
            return {lesson for (lesson,) in db.execute("SELECT DISTINCT lesson FROM results WHERE lesson != ''")}

    def refusals(self) -> list[Refusal]:
        """List the files that belong to nobody."""
        with self._db as db:
            rows = db.execute("SELECT source, reason FROM refusals ORDER BY source").fetchall()
        return [Refusal(Attempt(source), reason) for source, reason in rows]

    def facts(self) -> dict[str, str]:
        """Give what the last run marked with: sandbox level, digests of keys, lessons."""
        with self._db as db:
            return dict(db.execute("SELECT name, value FROM facts"))

    def mark_by_hand(self, marks: Iterable[Manual]) -> None:
        """Keep marks given by a person, and forget those taken back."""
        with self._db as db:
            for mark in marks:
                db.execute("DELETE FROM manual WHERE student = :student AND exercise = :exercise", asdict(mark))
                if mark.points is not None:
                    db.execute("INSERT INTO manual VALUES (:student, :exercise, :points, :comment)", asdict(mark))

    def by_hand(self, student: str | None = None) -> dict[tuple[str, str], Manual]:
        """Give the marks given by a person, by (student, exercise)."""
        where = "" if student is None else "WHERE student = ?"
        query = f"SELECT student, exercise, points, comment FROM manual {where}"
        with self._db as db:
            rows = db.execute(query, () if student is None else (student,)).fetchall()
        return {
            (student, exercise): Manual(student, exercise, points, comment)
            for student, exercise, points, comment in rows
        }


def changes(
    before: Sequence[Result], after: Sequence[Result], why: str, by_hand: Collection[tuple[str, str]] = ()
) -> Iterator[Change]:
    """Compare two markings of one student, exercise by exercise; say where a mark by hand stands above both."""
    old, new = _by_exercise(before), _by_exercise(after)
    student = next((result.student for result in (*after, *before)), Student("", ""))
    for lesson, exercise in sorted(old.keys() | new.keys()):
        was, now = old.get((lesson, exercise)), new.get((lesson, exercise))
        if _shown(was) != _shown(now):
            other_file = was is not None and now is not None and was[0].digest != now[0].digest
            reason = "another file counts" if other_file else why
            stays = "; the mark by hand stays" if (student.id, exercise) in by_hand else ""
            yield Change(student.label, lesson, exercise, _shown(was), _shown(now), f"{reason}{stays}")


def _by_exercise(results: Sequence[Result]) -> dict[tuple[str, str], tuple[Result, Mark]]:
    return {(result.lesson, mark.exercise): (result, mark) for result in results for mark in result.marks}


def _shown(one: tuple[Result, Mark] | None) -> str:
    if one is None:
        return "—"
    result, mark = one
    if result.unread:
        return f"?/{mark.out_of:g} {STATUS_WORDS['unreadable']}"
    return f"{'?' if mark.points is None else format(mark.points, 'g')}/{mark.out_of:g} {STATUS_WORDS[mark.status]}"
