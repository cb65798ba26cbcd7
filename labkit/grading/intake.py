"""From what a lecturer has (folder, Canvas zip, Moodle zip, nbgrader tree) to each student's files, read as data.

The rule for several attempts: of one student's files for one lesson, the latest that can be read counts (time where
something says it, then the LMS's own count, then the name); all of them are listed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading.archive import Found, look, sentence
from labkit.grading.model import Attempt, Refusal, Student, Submission
from labkit.grading.notebook import digest, read_notebook
from labkit.grading.roster import Roster
from labkit.grading.strict import Refused

_CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<file>\d+)_(?P<rest>.+)", re.DOTALL)
_MOODLE = re.compile(r"(?P<name>.+)_(?P<user>\d+)_assignsubmission_file_?(?P<rest>.*)", re.DOTALL)
_AGAIN = re.compile(r"(?P<stem>.+?)(?:-(?P<canvas>\d{1,3})| ?\((?P<browser>\d{1,3})\))", re.DOTALL)
_DATED = re.compile(
    r"(?P<name>.+?)[_ -](?P<day>\d{4}-\d{2}-\d{2})(?:[T_ -](?P<hour>\d{2})[:.-]?(?P<minute>\d{2}))?", re.DOTALL
)
_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2})?")
_WRAPPERS = {"submitted", "submissions"}


@dataclass(frozen=True)
class Handed:
    """One file before it is opened: whose, which attempt, which notebook its name says it is."""

    student: Student
    attempt: Attempt
    stem: str
    found: Found

    def read(self) -> Submission | Refusal:
        """Open the file and read it as data, or say in one sentence why not."""
        try:
            return read_bytes(self.student, self.attempt, self.stem, self.bytes())
        except Refused as refused:
            return self.refuse(str(refused))

    def bytes(self) -> bytes:
        """Fetch the file's bytes; raise `Refused` with a reason."""
        if self.found.refused:
            raise Refused(self.found.refused)
        if not self.found.parts[-1].lower().endswith(".ipynb"):
            raise Refused("is not a notebook (its name does not end in .ipynb)")
        return self.found.read()

    def refuse(self, reason: str, hexdigest: str = "") -> Refusal:
        """Make the refusal of this file."""
        return Refusal(self.attempt, sentence(self.attempt.source, reason), self.student, self.stem, hexdigest)


def read_bytes(student: Student, attempt: Attempt, stem: str, data: bytes) -> Submission | Refusal:
    """Read one file's bytes as a submission, or refuse them."""
    try:
        cells, lesson = read_notebook(data)
    except Refused as refused:
        return Refusal(attempt, sentence(attempt.source, str(refused)), student, stem, digest(data))
    return Submission(student, attempt, stem, cells, digest(data), lesson)


def find_files(
    path: str | Path, roster: Roster, lessons: Collection[str] = (), due: str = ""
) -> tuple[dict[str, list[Handed]], list[Refusal]]:
    """Group a class's files by student, oldest first, without opening one; what belongs to nobody is refused.

    `lessons` are the stems of the notebooks given out; `due` is the deadline, ISO 8601 in the LMS's own time zone.
    """
    root = Path(path)
    if not root.exists():
        raise LabkitError(f"{root} does not exist: give a folder of notebooks or a zip as downloaded from the LMS.")
    due = _deadline(due)
    stamps: dict[tuple[str, ...], str] = {}
    handed: list[Handed] = []
    refusals: list[Refusal] = []
    for found in look(root):
        if found.parts[-1] == "timestamp.txt" and not found.refused:
            stamps[found.parts[:-1]] = _nbgrader_time(found)
        elif _is_notebook(found) or _lms(found.parts):
            handed.append(_whose(found, root, roster, lessons))
        elif found.refused:
            refusals.append(Refusal(Attempt(found.source), sentence(found.source, found.refused)))
    groups: dict[str, list[Handed]] = {student.id: [] for student in roster.students}
    for one in sorted(handed, key=lambda one: one.student.id):
        groups.setdefault(one.student.id, []).append(_timed(one, stamps.get(one.found.parts[:-1], ""), due))
    ordered = {student: sorted(group, key=_age) for student, group in groups.items() if group}
    return ordered, refusals


_BESIDE = re.compile(r"(?:^|/)backups/|\.new\d*\.ipynb$", re.IGNORECASE)


def _age(one: Handed) -> tuple[bool, tuple[str, int, str]]:
    """Sort by the rule of `Attempt.order`; what the workbook itself puts beside a learner's copy counts as older."""
    return not _BESIDE.search("/".join(one.found.parts)), one.attempt.order


def _deadline(due: str) -> str:
    """Write a deadline as times of handing in are written, so that the two compare as text."""
    if not due:
        return ""
    try:
        time = datetime.fromisoformat(due)
    except ValueError:
        time = None
    if time is None or time.tzinfo:
        raise LabkitError(f"the deadline {due!r} is no time such as 2026-02-01T23:59, in the LMS's own time zone.")
    return time.isoformat(sep=" ", timespec="seconds")


def _is_notebook(found: Found) -> bool:
    return found.parts[-1].lower().endswith(".ipynb")


def _lms(parts: tuple[str, ...]) -> re.Match[str] | None:
    """Recognise the names Canvas and Moodle give to what somebody handed in."""
    matches = (_MOODLE.fullmatch(part) or _CANVAS.fullmatch(part) for part in parts)
    return next((match for match in matches if match), None)


def _whose(found: Found, root: Path, roster: Roster, lessons: Collection[str]) -> Handed:
    """Read from the path alone who handed the file in, which time, and what it is."""
    file, late, when = found.parts[-1], None, found.when
    if match := _lms(found.parts):
        name, hints = match["name"], [f"#{match['user']}", match["user"], match["name"]]
        late = True if match.groupdict().get("late") else None
        if match.re is _CANVAS:  # its zip holds the time of the download, not of handing in; `_LATE` says what is late
            when = ""
        file = match["rest"] if match.string == file and match["rest"] else file
        own_id = match["user"] if match.re is _CANVAS else name
    else:
        name, file = _plain(found.parts, root, lessons)
        hints, own_id = [name], name
        if (dated := _DATED.fullmatch(name)) and not roster.find(name):
            name = own_id = dated["name"]
            hints, when = [name], f"{dated['day']} {dated['hour'] or '00'}:{dated['minute'] or '00'}:00"
    student = roster.find(*hints) or Student(unicodedata.normalize("NFC", own_id), name)
    stem, number = _stem(file)
    return Handed(student, Attempt(found.source, number, when, late), stem, found)


def _plain(parts: tuple[str, ...], root: Path, lessons: Collection[str]) -> tuple[str, str]:
    """Give (student, file) of `student/…/file` or of one flat name such as `alice_02_scores.ipynb`."""
    if len(parts) > 1 and (parts[0].lower() in _WRAPPERS or parts[0] == root.stem):
        parts = parts[1:]
    if len(parts) > 1:
        return parts[0], parts[-1]
    stem = parts[0].rpartition(".")[0]
    for lesson in sorted(lessons, key=len, reverse=True):
        before, found, after = stem.partition(lesson)
        if found:
            return (before + after).strip(" _-") or root.resolve().stem, f"{lesson}.ipynb"
    return stem, parts[0]


def _stem(file: str) -> tuple[str, int]:
    """Split off the number that Canvas (`-2`) or a browser (` (2)`) adds to a second file of the same name."""
    stem = file.rpartition(".")[0] or file
    again = _AGAIN.fullmatch(stem)
    return (again["stem"], int(again["canvas"] or again["browser"])) if again else (stem, 0)


def _nbgrader_time(found: Found) -> str:
    try:
        stamp = _STAMP.match(found.read()[:200].decode("ascii", "replace"))
    except Refused:
        return ""
    return stamp[0].replace("T", " ") if stamp else ""


def _timed(one: Handed, stamp: str, due: str) -> Handed:
    """Put the better known time in, and decide whether it was late where that can be said."""
    when = stamp or one.attempt.when
    late = one.attempt.late
    if late is None and due and when:
        late = when > due
    return replace(one, attempt=replace(one.attempt, when=when, late=late))
