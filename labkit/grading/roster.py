"""The class list: whose file is this?  Reads a plain CSV, a Canvas gradebook or a Moodle grading sheet."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading.model import Student
from labkit.grading.strict import Refused, decode
from labkit.grading.text import same_name

ID_COLUMNS = (
    "student id",
    "sis user id",
    "id number",
    "sis login id",
    "username",
    "login",
    "id",
    "identifier",
    "email",
    "email address",
)
NAME_COLUMNS = ("name", "full name", "student", "display name")
FIRST_NAMES = ("first name", "given name")
LAST_NAMES = ("last name", "family name", "surname")


@dataclass(frozen=True)
class Roster:
    """Students in the list's own order, found again by any of their identifiers or by name."""

    students: tuple[Student, ...] = ()
    index: Mapping[str, Student] = field(default_factory=dict)

    def find(self, *hints: str) -> Student | None:
        """Give the student whom the first known hint belongs to, else who has a hint's words as name, or None."""
        keys = (*map(same_name, hints), *map(_in_any_order, hints))
        return next((self.index[key] for key in keys if key in self.index), None)


def csv_text(path: Path, what: str) -> str:
    """Read the text of a table somebody saved; LabkitError says what to do with one that is not text."""
    try:
        return decode(path.read_bytes())
    except Refused as refused:
        raise LabkitError(f"{path} {refused}: save {what} as UTF-8 CSV.") from None
    except OSError as error:
        raise LabkitError(f"{path} cannot be read ({error.strerror}).") from None


def read_roster(path: Path) -> Roster:
    """Read a class list; it needs a header with a column for an id or a name."""
    text = csv_text(path, "the class list")
    try:
        rows = list(read_csv(text))
    except csv.Error as error:
        raise LabkitError(f"{path} is no CSV that can be read: {error}.") from None
    students = [student for row in rows if (student := _student(row)) is not None]
    if not students:
        known = ", ".join((*ID_COLUMNS, *NAME_COLUMNS))
        raise LabkitError(f"{path} names no student: give it a header line with one of these columns: {known}.")
    twice = [student_id for student_id, count in Counter(student.id for student in students).items() if count > 1]
    if twice:
        raise LabkitError(f"{path} lists {twice[0]!r} twice: every student needs an id of their own.")
    return Roster(tuple(students), _index(students))


def read_csv(text: str) -> csv.DictReader[str]:
    """Read rows whichever of the usual signs separates the columns, and whatever ends the lines."""
    header = text.splitlines()[0] if text else ""
    return csv.DictReader(io.StringIO(text, newline=None), delimiter=max(",;\t", key=header.count))


@lru_cache
def heading(text: str) -> str:
    """Fold a column's heading, however its words are set apart.

    >>> heading("First Name"), heading("first_name"), heading("FirstName"), heading("E-mail")
    ('firstname', 'firstname', 'firstname', 'email')
    """
    return re.sub(r"[\W_]+", "", same_name(text))


def first_of(columns: Mapping[str, str], *headings: str) -> str:
    """Give the first of these columns that holds something, else an empty text."""
    by_heading = {heading(name): value.strip() for name, value in columns.items()}
    return next((value for name in headings if (value := by_heading.get(heading(name)))), "")


def _student(row: Mapping[str | None, object]) -> Student | None:
    columns = {key: value for key, value in row.items() if isinstance(key, str) and isinstance(value, str)}
    names = (first_of(columns, *FIRST_NAMES), first_of(columns, *LAST_NAMES))
    name = first_of(columns, *NAME_COLUMNS) or " ".join(filter(None, names))
    student_id = first_of(columns, *ID_COLUMNS) or name
    if not student_id or name == "Points Possible":  # Canvas puts it under its header
        return None
    return Student(student_id, name or student_id, columns)


def _index(students: Sequence[Student]) -> dict[str, Student]:
    """Map every folded identifier to its student; what two students share identifies neither."""
    owners: dict[str, set[str]] = {}
    by_id = {student.id: student for student in students}
    for student in students:
        for key in (*map(same_name, _keys(student)), _in_any_order(student.name)):
            owners.setdefault(key, set()).add(student.id)
    return {key: by_id[next(iter(ids))] for key, ids in owners.items() if key and len(ids) == 1}


def _keys(student: Student) -> Iterator[str]:
    yield student.id
    yield student.name
    yield from squeezed(student.name)
    for column, value in student.columns.items():
        if heading(column) in map(heading, ID_COLUMNS):
            yield value
            yield value.partition("@")[0]
            if number := re.fullmatch(r"\D*(\d+)", value):  # Moodle's "Participant 12345"
                yield f"#{number[1]}"


def squeezed(name: str) -> Iterator[str]:
    """Give the ways Canvas squeezes a name into a file name: family name first, letters and digits only.

    >>> list(squeezed("Jane Ann Doe"))
    ['doejaneann', 'janeanndoe']
    """
    last, comma, first = name.partition(",")
    words = name.split()
    ordered = last + first if comma else " ".join(words[-1:] + words[:-1])
    for text in (ordered, name):
        yield re.sub(r"[\W_]+", "", text).casefold()


def name_words(name: str) -> list[str]:
    """Give the words of a name in an order of their own: gradebooks list "Lovelace, Ada", files "Lovelace_Ada".

    >>> name_words("Lovelace, Ada") == name_words("Lovelace_Ada") == name_words("Ada Lovelace")
    True
    """
    return sorted(re.findall(r"[^\W_]+", same_name(name)))


def _in_any_order(name: str) -> str:
    """Make a key of a name's words that is no name itself, so that it never stands in the way of one."""
    return "|".join(name_words(name))


def namesakes(word: str, people: Iterable[Student]) -> list[Student]:
    """List whom a word may mean: the one of that id, else all of that name.

    >>> ada = Student("a1", "Ada Lovelace")
    >>> namesakes("a1", [ada]) == namesakes("lovelace, ada", [ada]) == [ada]
    True
    """
    people, words = list(people), name_words(word)
    return [one for one in people if one.id == word] or [one for one in people if words == name_words(one.name) != []]
