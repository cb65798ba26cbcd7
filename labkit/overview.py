"""How far a learner has come: one square an exercise, lesson by lesson."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from labkit import feedback, journal

SQUARES = {"right": "■", "wrong": "◪", "recorded": "▣", "open": "□"}
WORDS = {"right": "right", "wrong": "tried", "recorded": "written", "open": "open"}


@dataclass(frozen=True, repr=False)
class Progress:
    """The status of every exercise by lesson, as a picture and as text."""

    lessons: Mapping[str, Mapping[str, str]]  # lesson -> exercise -> right, wrong, recorded or open
    unsaved: int = 0

    def __repr__(self) -> str:
        width = max((len(name) for name in self.lessons), default=0)
        rows = [f"{name:{width}}  {self._squares(name)}  {self._count(name)}" for name in self.lessons]
        return "\n".join([*rows, self._legend(), *self._warning()])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="letter-spacing:.15em;font-size:1.2em" aria-hidden="true">{self._titled(name)}</td>'
            f'<td style="text-align:left">{self._count(name)}</td></tr>'
            for name in self.lessons
        )
        notes = "".join(f"<p>{escape(line)}</p>" for line in [self._legend(), *self._warning()])
        return f"<table>{rows}</table>{notes}"

    def _squares(self, lesson: str) -> str:
        return "".join(SQUARES[status] for status in self.lessons[lesson].values())

    def _titled(self, lesson: str) -> str:
        return "".join(
            f'<span title="{escape(f"{name}: {WORDS[status]}")}">{SQUARES[status]}</span>'
            for name, status in self.lessons[lesson].items()
        )

    def _count(self, lesson: str) -> str:
        statuses = list(self.lessons[lesson].values())
        done = sum(status in ("right", "recorded") for status in statuses)
        return f"{done} of {len(statuses)}"

    def _legend(self) -> str:
        return ", ".join(f"{SQUARES[status]} {word}" for status, word in WORDS.items())

    def _warning(self) -> list[str]:
        if not self.unsaved or journal.folder() is None:
            return []
        return [f"{self.unsaved} answers could not be saved in {journal.folder()}; they last until this kernel stops."]


def progress(folder: Path = feedback.FOLDER) -> Progress:
    """Show what has been answered so far."""
    known = journal.statuses()
    lessons = {
        path.stem: {name: known.get(name, "open") for name in feedback.decode(path.read_text(encoding="utf-8"))}
        for path in sorted(folder.glob("*.json"))
    }
    return Progress(lessons, journal.unsaved())
