"""The page a student gets: what they answered, what became of it, and where to look again. No hidden case, no truth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labkit.grading.model import Mark, Result
from labkit.grading.page import block, number, page, text
from labkit.grading.tables import Row, status_words

SIGNS = {"right": "✓", "wrong": "✗", "recorded": "✎", "unmarked": "…"}
LOOKS = {"right": "right", "wrong": "wrong", "recorded": "wait", "unmarked": "wait"}


def feedback_page(row: Row, warning: str = "") -> str:
    """Write one student's page for all lessons they handed in."""
    name = row.student.name
    given = sum(result.points for result in row.results)
    out_of = sum(result.out_of for result in row.results)
    body = [f"<h1>{text(name, 200)}</h1>", f'<p class="soft">{number(given)} of {number(out_of)} points so far</p>']
    if warning:
        body.append(f'<p class="warning">{text(warning)}</p>')
    for result in row.results:
        body.extend(_lesson(result))
    if not row.results:
        body.append("<p>Nothing was handed in.</p>")
    return page(f"Feedback for {name}", body)


def _lesson(result: Result) -> Iterator[str]:
    title = result.lesson.replace("_", " ") or "A file that belongs to no lesson"
    yield f"<h2>{text(title)} · {number(result.points)} of {number(result.out_of)} points</h2>"
    if result.verdict == "internal":
        yield '<p class="warning">Something went wrong on our side. This is no mark; it will be marked again.</p>'
    elif result.verdict != "graded":
        yield f'<p class="warning">{text(result.reason)}</p>'
    if result.attempt is not None:
        yield f'<p class="soft">{_file(result)}</p>'
    for note in result.notes:
        yield f'<p class="soft">{text(note)}</p>'
    yield from map(_mark, result.marks)


def _file(result: Result) -> str:
    attempt = result.attempt
    assert attempt is not None
    parts = [f"This is about the file {text(attempt.source, 200)}"]
    parts += [f"handed in {text(attempt.when)}"] if attempt.when else []
    parts += ["late"] if attempt.late else []
    others = len(result.attempts) - 1
    parts += [f"one of {others + 1} files you handed in"] if others > 0 else []
    return ", ".join(parts) + "."


def _mark(mark: Mark) -> str:
    sign, look = SIGNS.get(mark.status, "○"), LOOKS.get(mark.status, "")
    again = f'<p class="soft">Look again at lesson {text(mark.section)}.</p>' if look == "wrong" else ""
    notes = "".join(f'<p class="soft">{text(note)}</p>' for note in mark.notes)
    return (
        f'<section class="card {look}"><div class="head"><h3>{text(mark.exercise)}</h3>'
        f'<span class="points"><span aria-hidden="true">{sign}</span> {text(status_words(mark))} · '
        f"{number(mark.points)} of {number(mark.out_of)}</span></div>"
        f"{block(mark.answer)}<p>{text(mark.message)}</p>{_picture(mark)}{block(mark.case)}{again}{notes}</section>"
    )


def _picture(mark: Mark) -> str:
    """Draw a row of weights that went wrong, beside the sum it should have: a wrong sum is seen at once."""
    if mark.step != "weights" or mark.status != "wrong" or not _is_row(mark.value):
        return ""
    shares: list[float] = mark.value
    total, left, bars = sum(shares), 0.0, []
    scale = 300 / max(total, 1.0)
    for place, share in enumerate(shares):
        shade = "#5b3fb0" if place % 2 else "#8a73cf"
        bars.append(f'<rect x="{10 + left:.1f}" y="8" width="{share * scale:.1f}" height="22" fill="{shade}"/>')
        left += share * scale
    one = 10 + scale
    words = f"Your weights laid end to end reach {total:.3g}; a full row reaches 1."
    return (
        f'<figure><svg viewBox="0 0 330 52" width="330" height="52" role="img" aria-label="{words}">'
        f'{"".join(bars)}<line x1="{one:.1f}" x2="{one:.1f}" y1="2" y2="36" stroke="#111" stroke-width="2"/>'
        f'<text x="{one:.1f}" y="48" font-size="12" text-anchor="middle" fill="#111">1</text></svg>'
        f"<figcaption>{words}</figcaption></figure>"
    )


def _is_row(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= 12
        and all(type(part) in (int, float) and 0 <= part <= 4 for part in value)
    )
