"""From what a lecturer has (folders, Canvas zips, Moodle zips, nbgrader tree) to each student's files, read as data.

The rule for several attempts: of one student's files for one lesson, the latest that can be read counts (time where
something says it, then the LMS's own count, then the name); all of them are listed.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
_COPY = re.compile(r"(?P<stem>.+?)(?P<copy> ?\(\d{1,3}\)|-Copy\d{1,3})", re.DOTALL)  # a browser's, Jupyter's
_ENDING = re.compile(r"(\.ipynb)?\.[^.]*$", re.IGNORECASE)  # a browser may save notebook.ipynb.txt
_WRAPPERS = {"submitted", "submissions"}
_NO_NOTEBOOK = "is not a notebook (its name does not end in .ipynb)"
_INSTEAD = (  # what people hand in where a notebook was asked for
    *(".pdf", ".html", ".htm", ".doc", ".docx", ".odt", ".rtf", ".pages"),
    *(".zip", ".7z", ".rar", ".gz", ".tgz", ".tar"),
)


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
            raise Refused(_NO_NOTEBOOK)
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
    paths: Sequence[str | Path], roster: Roster, lessons: Collection[str] = (), due: str = ""
) -> tuple[dict[str, list[Handed]], list[Refusal]]:
    """Group a class's files by student, oldest first, without opening one; what belongs to nobody is refused.

    `lessons` are the stems of the notebooks given out; `due` is the deadline, ISO 8601 in the LMS's own time zone.
    """
    due = _deadline(due)
    groups: dict[str, list[Handed]] = {student.id: [] for student in roster.students}
    found = [one for root, label in _labelled(paths) for one in _in_place(root, label, roster, lessons, due)]
    handed = [one for one in found if isinstance(one, Handed)]
    for one in sorted(handed, key=lambda one: one.student.id):
        groups.setdefault(one.student.id, []).append(one)
    ordered = {student: sorted(group, key=_age) for student, group in groups.items() if group}
    return ordered, [one for one in found if isinstance(one, Refusal)]


def _labelled(paths: Sequence[str | Path]) -> Iterator[tuple[Path, str]]:
    """Give each place with what to call it: of several its name, or all of its path where two have one name."""
    roots = list(dict.fromkeys(map(Path, paths)))
    names = Counter(root.name for root in roots)
    for root in roots:
        if not root.exists():
            raise LabkitError(f"{root} does not exist: give a folder of notebooks or a zip as downloaded from the LMS.")
        yield root, "" if len(roots) == 1 else root.name if names[root.name] == 1 else root.as_posix()


def _in_place(root: Path, label: str, roster: Roster, lessons: Collection[str], due: str) -> Iterator[Handed | Refusal]:
    """Give what was handed in in one place, and refuse what belongs to nobody."""
    stamps: dict[tuple[str, ...], str] = {}
    handed: list[Handed] = []
    rest: list[Handed] = []  # no work by its name; but where somebody has nothing else, it is what they handed in
    nobodys: list[Found] = []
    for found in look(root, label):
        if found.parts[-1] == "timestamp.txt" and not found.refused:
            stamps[found.parts[:-1]] = _nbgrader_time(found)
        elif _is_notebook(found) or _lms(found.parts):
            handed.append(_whose(found, root, roster, lessons))
        elif found.refused:
            yield Refusal(Attempt(found.source), sentence(found.source, found.refused))
        elif not _is_leftover(found):
            one = _whose(found, root, roster, lessons)
            if one.student.listed or _names_one(found, lessons) or len(_unwrapped(found.parts, root)) > 1:
                (handed if _is_instead(found, lessons) else rest).append(one)
            elif _is_instead(found, lessons):
                nobodys.append(found)
    if root.is_dir() and any(map(_is_zip, nobodys)) and not any(_is_notebook(one.found) for one in handed):
        raise LabkitError(f"{root} holds archives and no notebooks: name the archives one by one.")
    yield from (Refusal(Attempt(found.source), sentence(found.source, _NO_NOTEBOOK)) for found in nobodys)
    known = {one.student.id for one in handed}
    handed += [one for one in rest if one.student.id not in known and (one.student.listed or not roster.students)]
    yield from (_timed(one, stamps.get(one.found.parts[:-1], ""), due) for one in handed)


_BESIDE = re.compile(r"(?:^|/)backups/|\.new\d*\.ipynb$", re.IGNORECASE)


def is_beside(source: str) -> bool:
    """Say whether the workbook itself put a file beside a learner's copy; such files count as older."""
    return _BESIDE.search(source) is not None


def _age(one: Handed) -> tuple[bool, tuple[str, int, str]]:
    """Sort by the rule of `Attempt.order`."""
    return not is_beside("/".join(one.found.parts)), one.attempt.order


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


def _is_zip(found: Found) -> bool:
    return found.parts[-1].lower().endswith(".zip")


def _is_leftover(found: Found) -> bool:
    """Say whether a program left the file there: hidden, a lock, or a copy from before saving."""
    return any(part.startswith((".", "~$")) for part in found.parts) or found.parts[-1].endswith("~")


def _is_instead(found: Found, lessons: Collection[str]) -> bool:
    """Say whether a file that is no notebook looks like one handed in in its place."""
    name = found.parts[-1].lower()
    return ".ipynb" in name or name.endswith(_INSTEAD) or _names_one(found, lessons)


def _names_one(found: Found, lessons: Collection[str]) -> bool:
    return any(lesson.casefold() in found.parts[-1].casefold() for lesson in lessons)


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
    parts = _unwrapped(parts, root)
    if len(parts) > 1:
        return parts[0], parts[-1]
    stem, copy = _ENDING.sub("", parts[0]), ""
    if again := _COPY.fullmatch(stem):
        stem, copy = again["stem"], again["copy"]
    for lesson in sorted(lessons, key=len, reverse=True):
        if found := re.search(re.escape(lesson), stem, re.IGNORECASE):
            owner = (stem[: found.start()] + stem[found.end() :]).strip(" _-")
            return owner or root.resolve().stem, f"{lesson}{copy}.ipynb"
    return stem, parts[0]


def _unwrapped(parts: tuple[str, ...], root: Path) -> tuple[str, ...]:
    """Take off the folder that is no student's but holds them all."""
    wrapped = len(parts) > 1 and (parts[0].lower() in _WRAPPERS or parts[0] == root.stem)
    return parts[1:] if wrapped else parts


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
