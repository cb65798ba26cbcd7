"""Practice without end: fresh exact numbers for one step, checked by name, with the worked solution afterwards.

A practice run is a function of the journal alone: the level follows the last few answers, and the next question follows
from how many were answered before. So a lesson built twice asks the same thing, and a learner never meets a repeat.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit import journal
from labkit.errors import LabkitError
from labkit.exercises import Exercise
from labkit.questions import STEPS, Question, draw, matrix_html, matrix_text
from labkit.variants import whoever

LEVELS = 4


def practice(step: str = "mixed") -> Practice:
    """Start practising one step ("shapes", "projection", "scores", "weights", …) or a mixture of them all.

    >>> p = practice("weights")
    >>> p.check(...).status
    'blank'
    """
    if step != "mixed" and step not in STEPS:
        raise LabkitError(f'no practice called "{step}": choose one of {", ".join(STEPS)} or "mixed".')
    return Practice(step)


class Practice:
    """One question at a time: `p.check(answer)`, `p.solution()` after an attempt, `p.next()`."""

    number: int  # of this question, counted over all kernels
    level: int
    question: Question

    def __init__(self, step: str) -> None:
        self.step = step
        self._skipped = 0
        self._tried = False
        self._begin()

    def check(self, answer: object) -> Attempt:
        """Judge an answer; the first one counts for the streak, later tries are free."""
        verdict = Exercise(f"practice-{self.step}", self.question.step, self.question.inputs).judge(answer)
        if verdict.status in ("right", "wrong") and not self._tried:
            self._tried = True
            journal.append("practice", practice=self.step, step=self.question.step, right=verdict.status == "right")
        return Attempt(verdict, self.question.solution if verdict.status == "right" else (), streak(_history()))

    def solution(self) -> Worked:
        """Show the worked solution, once there has been an attempt."""
        return Worked(self.question.solution if self._tried else ("Try it first: p.check(your answer).",))

    def next(self) -> Practice:
        """Go on to a fresh question; skipping one costs nothing."""
        self._skipped += not self._tried
        self._begin()
        return self

    def _begin(self) -> None:
        past = [entry for entry in journal.entries("practice") if entry.get("practice") == self.step]
        self._tried = False
        self.number = len(past) + self._skipped + 1
        self.level = level([bool(entry.get("right")) for entry in past])
        self.question = draw(self.step, self.level, f"{whoever()} {self.step} {self.number}")

    def __repr__(self) -> str:
        given = "\n".join(f"{name} = {matrix_text(rows)}" for name, rows in self.question.given.items())
        return f"{self._heading()}\n{self.question.ask}\n{given}\nAnswer with p.check(…)"

    def _repr_html_(self) -> str:
        given = "".join(matrix_html(name, rows) for name, rows in self.question.given.items())
        return (
            f'<div style="border-left:4px solid #8888;padding:.2em 1em"><b>{html.escape(self._heading())}</b>'
            f"<p>{html.escape(self.question.ask)}</p><div>{given}</div>"
            "<p>Answer with <code>p.check(…)</code>; another one with <code>p.next()</code>.</p></div>"
        )

    def _heading(self) -> str:
        return f"Practice: {self.question.step}, question {self.number}, level {self.level} of {LEVELS}"


@dataclass(frozen=True, repr=False)
class Worked:
    """A worked solution, line by line."""

    lines: Sequence[str]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f'<div style="margin:.4em 1em">{"<br>".join(map(html.escape, self.lines))}</div>' if self.lines else ""


@dataclass(frozen=True, repr=False)
class Attempt:
    """The verdict on one practice answer, the worked solution once it is right, and the streak."""

    verdict: Any
    solution: Sequence[str]
    streak: int

    @property
    def status(self) -> str:
        """Give the verdict's status."""
        return str(self.verdict.status)

    def __repr__(self) -> str:
        return "\n".join(part for part in (str(self.verdict), repr(Worked(self.solution)), self._after()) if part)

    def _repr_html_(self) -> str:
        return f"{self.verdict._repr_html_()}{Worked(self.solution)._repr_html_()}<p>{html.escape(self._after())}</p>"

    def _praise(self) -> str:
        return f"Right first time, {self.streak} in a row." if self.streak else "Now you have it."

    def _after(self) -> str:
        if self.status == "right":
            return f"{self._praise()} p.next() brings another."
        return "Try again, or see p.solution()." if self.status == "wrong" else ""


def level(results: Sequence[bool]) -> int:
    """Move up after two right answers in a row at a level, down after each miss.

    >>> [level([True] * count) for count in range(7)]
    [1, 1, 2, 2, 3, 3, 4]
    >>> level([True, True, True, True, False])
    2
    """
    now, run = 1, 0
    for right in results:
        run = run + 1 if right else 0
        if not right:
            now = max(1, now - 1)
        elif run == 2:
            now, run = min(LEVELS, now + 1), 0
    return now


def streak(results: Sequence[bool]) -> int:
    """Count the right answers since the last miss.

    >>> streak([True, False, True, True])
    2
    """
    return len(results) - max((k + 1 for k, right in enumerate(results) if not right), default=0)


def _history() -> list[bool]:
    return [bool(entry.get("right")) for entry in journal.entries("practice")]
