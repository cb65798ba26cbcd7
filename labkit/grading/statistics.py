"""What a class as a whole shows, gathered one student at a time so that memory does not grow with answers."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from labkit.grading.attempts import to_ask_for, unread_beside
from labkit.grading.model import Mark, Result, Student
from labkit.grading.roster import name_words
from labkit.grading.tables import Row

STRUGGLING = 0.5  # share of the points below which a student is named as one to talk to
NO_WORK = ("internal", "rejected")  # says nothing about what the student understood
SHOWN_ALIKE = 20  # students named for one shared answer


@dataclass
class Item:
    """One exercise over the class; `scores` are shares of its points, one for each student who handed the lesson in."""

    lesson: str
    exercise: str
    out_of: float
    statuses: Counter[str] = field(default_factory=Counter)
    slips: Counter[str] = field(default_factory=Counter)
    sections: dict[str, str] = field(default_factory=dict)  # where each slip is explained
    scores: array[float] = field(default_factory=lambda: array("d"))
    rest: array[float] = field(default_factory=lambda: array("d"))  # the student's share of all other points

    @property
    def difficulty(self) -> float | None:
        """Give the mean share of the points: 1 is solved by everybody. None while no more than half have a mark."""
        known = 2 * len(self.scores) > self.statuses.total()
        return sum(self.scores) / len(self.scores) if known else None

    @property
    def discrimination(self) -> float | None:
        """Correlate this exercise with the rest of the marks; None where either does not vary."""
        return correlation(self.scores, self.rest)


@dataclass
class Alike:
    """One answer to an exercise with personal numbers: who gave it, and whether it fits the numbers of all of them."""

    names: list[str] = field(default_factory=list)
    misfit: bool = False


@dataclass
class ClassStatistics:
    """Everything the class report shows; feed it `add(row)` for each student."""

    personal: frozenset[str] = frozenset()  # exercises whose numbers differ from learner to learner
    students: int = 0
    absent: list[str] = field(default_factory=list)
    shares: array[float] = field(default_factory=lambda: array("d"))
    items: dict[str, Item] = field(default_factory=dict)
    struggling: list[tuple[Student, float, int]] = field(default_factory=list)  # share, exercises not attempted
    times: list[str] = field(default_factory=list)
    late: int = 0
    trouble: list[tuple[str, str, str, str]] = field(default_factory=list)  # name, lesson, verdict in words, reason
    unread: int = 0  # files to ask for again
    waiting: int = 0  # answers without a mark yet
    _listed: int = 0
    _unlisted: list[str] = field(default_factory=list)
    _names: dict[str, list[str]] = field(default_factory=dict)  # folded: the name as first met, then who goes by it
    _alike: dict[tuple[str, str], Alike] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Count one student."""
        self.students += 1
        label = row.student.label
        for folded, name in _names_of(row).items():
            self._names.setdefault(folded, [name]).append(label)
        if row.student.listed:
            self._listed += 1
        else:
            self._unlisted.append(label)
        if not row.results:
            self.absent.append(row.student.name)
            return
        for result in row.results:
            self._result(row, result)
        marks = [mark for result in row.results if result.verdict not in NO_WORK for mark in result.marks]
        marked = [mark for mark in marks if mark.points is not None]
        points, out_of = sum(mark.points or 0.0 for mark in marked), sum(mark.out_of for mark in marked)
        for mark in marks:
            self._mark(row, mark, points, out_of)
        if out_of:
            self.shares.append(points / out_of)
            if points / out_of < STRUGGLING:
                untouched = sum(mark.status in ("blank", "missing") for mark in marks)
                self.struggling.append((row.student, points / out_of, untouched))

    @property
    def unlisted(self) -> list[str]:
        """Give who handed in without being on the class list, where there is one."""
        return self._unlisted if self._listed else []

    def same_names(self) -> Iterator[tuple[str, list[str]]]:
        """Give names that several students go by: as listed, or as their files told `labkit.me(…)`."""
        for _, (name, *students) in sorted(self._names.items()):
            if len(students) > 1:
                yield name, students

    def alike(self) -> Iterator[tuple[str, str, list[str]]]:
        """Give answers that several students share although at least one of them had other numbers.

        A misfit is wrong for its owner's numbers and no known slip leads there; so what many get by the same slip,
        each from their own numbers, is not listed.
        """
        for (exercise, answer), shared in sorted(self._alike.items()):
            if shared.misfit and len(shared.names) > 1:
                yield exercise, answer, shared.names

    def _result(self, row: Row, result: Result) -> None:
        self.unread += to_ask_for(result)
        if result.verdict != "graded":
            self.trouble.append((row.student.name, result.lesson, result.verdict_words, result.reason))
        for attempt in unread_beside(result):
            self.trouble.append((row.student.name, result.lesson, "another file, not read", attempt.note))
        if result.attempt is not None:
            self.late += bool(result.attempt.late)
            if result.attempt.when:
                self.times.append(result.attempt.when)
        for mark in result.marks:
            self.items.setdefault(mark.exercise, Item(result.lesson, mark.exercise, mark.out_of))

    def _mark(self, row: Row, mark: Mark, points: float, out_of: float) -> None:
        item = self.items[mark.exercise]
        item.statuses[mark.status] += 1
        if mark.slip:
            item.slips[mark.slip] += 1
            item.sections[mark.slip] = mark.section
        if mark.points is not None and mark.out_of:
            item.scores.append(mark.points / mark.out_of)
            others = out_of - mark.out_of
            item.rest.append((points - mark.points) / others if others else 0.0)
        self.waiting += mark.status == "recorded" and mark.points is None
        named = any(result.names for result in row.results)  # else a wrong one may fit a name that we do not know
        if mark.exercise in self.personal and (mark.status == "right" or (mark.status == "wrong" and named)):
            answer = repr(mark.value) if mark.value is not None else mark.answer
            shared = self._alike.setdefault((mark.exercise, answer[:200]), Alike())
            shared.misfit |= mark.status == "wrong" and not mark.slip
            if len(shared.names) < SHOWN_ALIKE:
                shared.names.append(f"{row.student.name} (it fits)" if mark.status == "right" else row.student.name)


def _names_of(row: Row) -> dict[str, str]:
    """Give the names a student goes by, under what makes "Lovelace, Ada" the same as "Ada Lovelace"."""
    names = (row.student.name, *(name for result in row.results for name in result.names))
    folded = {" ".join(name_words(name)): name for name in reversed(names)}
    return {words: name for words, name in folded.items() if words}


def correlation(xs: array[float], ys: array[float]) -> float | None:
    """Give Pearson's r, or None with fewer than three students or no variation.

    >>> correlation(array("d", [0, 1, 1]), array("d", [0.2, 0.6, 0.6]))
    1.0
    """
    count = len(xs)
    if count < 3:
        return None
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    spread_x = math.fsum((x - mean_x) ** 2 for x in xs)
    spread_y = math.fsum((y - mean_y) ** 2 for y in ys)
    if spread_x < 1e-12 or spread_y < 1e-12:
        return None
    together = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return round(together / math.sqrt(spread_x * spread_y), 6)
