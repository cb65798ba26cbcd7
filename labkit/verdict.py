"""What a check answers: a quiet card in a notebook, the same in plain text, and the numbers a gradebook needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Literal

from labkit import feedback, sections
from labkit.slips import Slip

Status = Literal["blank", "unreadable", "wrong", "right", "recorded"]

# Sign and words carry the meaning; the colour of the edge only repeats it, and reads on white and on black.
_LOOKS: dict[Status, tuple[str, str, str]] = {
    "blank": ("○", "Not answered yet", "#8a8a8a"),
    "unreadable": ("?", "I cannot compare this yet", "#b7791f"),
    "wrong": ("✗", "Not yet", "#c4572b"),
    "right": ("✓", "Right", "#2f8f4e"),
    "recorded": ("✎", "Recorded", "#3b7dc4"),
}


@dataclass(frozen=True, repr=False)
class Verdict:
    """The outcome of one check; `fraction` of `possible` points, never an exception."""

    exercise_id: str
    status: Status
    message: str
    slip: Slip | None = None
    section: str = ""  # the topic worth another look: the slip's, else the exercise's own
    possible: float = 1
    hints: tuple[str, ...] = ()  # those already earned by attempts, the newest last
    hints_left: int = 0
    case: str = ""  # for a function: the smallest call that went wrong
    first: str = ""  # the first recorded prediction, where this answer is another one

    @property
    def fraction(self) -> float:
        """Give the part of the points this answer earns by itself; recorded text waits for a reader."""
        return float(self.status == "right")

    @property
    def points(self) -> float:
        """Give the points this answer earns by itself."""
        return self.fraction * self.possible

    @property
    def slip_id(self) -> str:
        """Name the recognised slip, or give ""."""
        return self.slip.id if self.slip else ""

    @property
    def hint(self) -> str:
        """Give the newest hint, or ""."""
        return self.hints[-1] if self.hints else ""

    @property
    def title(self) -> str:
        """Say the status in words."""
        return _LOOKS[self.status][1]

    @property
    def look(self) -> str:
        """Say what to look at next, or give ""."""
        where = sections.in_words(self.section)
        return f"Look again at {where}." if where else ""

    def __str__(self) -> str:
        sign = _LOOKS[self.status][0]
        lines = [f"{sign} {self.title} · {self.exercise_id}", self.message, self.case, self.look]
        lines += [f"Hint {i}: {hint}" for i, hint in enumerate(self.hints, 1)]
        lines += [self._more_hints(), self._looking_back()]
        return "\n".join(line for line in lines if line)

    __repr__ = __str__

    def _more_hints(self) -> str:
        return "Another try earns the next hint." if self.hints and self.hints_left else ""

    def _looking_back(self) -> str:
        return f"Your first prediction was {self.first}." if self.first else ""

    def _linked_look(self) -> str:
        """Make the place a link; both the words and the link's text are the builder's, so that they agree."""
        section = sections.of(self.section)
        if section is None:
            return ""
        target, words = escape(section.link(feedback.of(self.exercise_id).lesson)), escape(section.words)
        return _row(self.look).replace(words, f'<a href="{target}">{words}</a>')

    def _repr_html_(self) -> str:
        sign, title, colour = _LOOKS[self.status]
        rows = [
            f'<div><strong><span style="color:{colour}" aria-hidden="true">{sign}</span> {title}</strong> '
            f'<span style="opacity:0.7">· {escape(self.exercise_id)}</span></div>',
            _row(self.message),
            f'<pre style="margin:4px 0;padding:0;white-space:pre-wrap">{escape(self.case)}</pre>' if self.case else "",
            self._linked_look(),
            *(_row(hint, f"Hint {i}: ") for i, hint in enumerate(self.hints, 1)),
            _row(self._more_hints(), faint=True),
            _row(self._looking_back(), faint=True),
        ]
        return (
            f'<div role="status" style="border-left:4px solid {colour};padding:4px 12px;margin:4px 0;max-width:720px">'
            + "".join(rows)
            + "</div>"
        )


def _row(text: str, lead: str = "", faint: bool = False) -> str:
    if not text:
        return ""
    style = f"margin-top:4px{';opacity:0.7' if faint else ''}"
    words = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
    return f'<div style="{style}">{lead and f"<strong>{lead}</strong>"}{words}</div>'
