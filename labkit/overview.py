"""How far a learner has come: one square an exercise, lesson by lesson, and what was predicted first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from labkit import feedback, journal
from labkit.journal import Entry

SQUARES = {"right": "■", "wrong": "◪", "recorded": "▣", "open": "□"}
WORDS = {"right": "right", "wrong": "tried", "recorded": "written", "open": "open"}


@dataclass(frozen=True, repr=False)
class Progress:
    """The status of every exercise by lesson and the first prediction of each, as a picture and as text."""

    lessons: Mapping[str, Mapping[str, str]]  # lesson -> exercise -> right, wrong, recorded or open
    firsts: Mapping[str, Entry]
    unsaved: int = 0

    def __repr__(self) -> str:
        width = max((len(name) for name in self.lessons), default=0)
        rows = [f"{name:{width}}  {self._squares(name)}  {self._count(name)}" for name in self.lessons]
        predicted = [f"{name}: first {answer}; {now}" for name, answer, now in self._predictions()]
        return "\n".join([*rows, self._legend(), *self._warning(), *predicted])

    def _repr_html_(self) -> str:
        left = "text-align:left"
        rows = "".join(
            f'<tr><th scope="row" style="{left}">{escape(name)}</th>'
            f'<td style="{left};letter-spacing:.15em;font-size:1.2em" aria-hidden="true">{self._titled(name)}</td>'
            f'<td style="{left}">{self._count(name)}</td></tr>'
            for name in self.lessons
        )
        notes = "".join(f"<p>{escape(line)}</p>" for line in [self._legend(), *self._warning()])
        predicted = "".join(
            f'<tr><th scope="row" style="{left}">{escape(name)}</th><td style="{left}">{escape(answer)}</td>'
            f'<td style="{left}">{now}</td></tr>'
            for name, answer, now in self._predictions()
        )
        head = "<tr><th>exercise</th><th>first prediction</th><th>now</th></tr>"
        details = f"<details><summary>Your first predictions</summary><table>{head}{predicted}</table></details>"
        return f"<table>{rows}</table>{notes}{details if predicted else ''}"

    def _squares(self, lesson: str) -> str:
        return "".join(SQUARES[status] for status in self.lessons[lesson].values())

    def _titled(self, lesson: str) -> str:
        return "".join(
            f'<span title="{escape(f"{name}: {WORDS[status]}")}">{SQUARES[status]}</span>'
            for name, status in self.lessons[lesson].items()
        )

    def _count(self, lesson: str) -> str:
        """Count what is done and, apart from texts that a person reads, what was right at the first try."""
        statuses = self.lessons[lesson]
        done = sum(status in ("right", "recorded") for status in statuses.values())
        at_once = sum(name in self.firsts and self.firsts[name].status == "right" for name in statuses)
        return f"{done} of {len(statuses)}" + (f", {at_once} right at the first try" if done else "")

    def _predictions(self) -> list[tuple[str, str, str]]:
        return [
            (name, _shortly(self.firsts[name].answer), WORDS[status])
            for exercises in self.lessons.values()
            for name, status in exercises.items()
            if name in self.firsts
        ]

    def _legend(self) -> str:
        return ", ".join(f"{SQUARES[status]} {word}" for status, word in WORDS.items())

    def _warning(self) -> list[str]:
        if not self.unsaved or journal.folder() is None:
            return []
        return [f"Not saved in {journal.folder()}: {self.unsaved} lines, which last until this kernel stops."]


def progress(folder: Path = feedback.FOLDER) -> Progress:
    """Show what has been answered so far."""
    known = journal.statuses()
    lessons = {
        path.stem: {name: known.get(name, "open") for name in feedback.decode(path.read_text(encoding="utf-8"))}
        for path in feedback.files(folder)
    }
    return Progress(lessons, journal.firsts(), journal.unsaved())


def _shortly(answer: object) -> str:
    text = str(answer)
    return text if len(text) <= 60 else text[:59] + "…"
