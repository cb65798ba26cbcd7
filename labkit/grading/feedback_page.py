"""The page a student gets: what they answered, what became of it, and where to look again. No hidden case, no truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from labkit.grading.archive import own_name
from labkit.grading.model import STATUS_WORDS, Attempt, Mark, Result
from labkit.grading.page import block, number, page, prose, text
from labkit.grading.tables import Row, answer_of, named_shortly, status_words
from labkit.grading.text import plural
from labkit.sections import in_words

TOPICS = 3  # named at the top of a page

SIGNS = {"right": "✓", "wrong": "✗", "recorded": "✎", "unmarked": "…"}
LOOKS = {"right": "right", "wrong": "wrong", "recorded": "wait", "unmarked": "wait"}


def feedback_page(
    row: Row, headings: Mapping[str, str], warning: str = "", lessons: Mapping[str, float] | None = None
) -> str:
    """Write one student's page: the lessons they handed in, and those of `lessons` (with their points) they did not."""
    name = row.student.name
    absent = _absent(row, lessons or {})
    given = sum(result.points for result in row.results)
    out_of = sum(result.out_of for result in row.results if not result.unread) + sum(absent.values())
    body = [f"<h1>{text(name, 200)}</h1>"]
    if out_of:
        so_far = " so far" if any(mark.points is None for mark in row.marks) else ""
        body.append(f'<p class="soft">{number(given)} of {plural(out_of, "point")}{so_far}</p>')
    if warning:
        body.append(f'<p class="warning">{text(warning)}</p>')
    body += [*_start(row)]
    for result in row.results:
        body.extend(_lesson(result, headings))
    for lesson, points in absent.items():
        body.append(f"<h2>{text(lesson.replace('_', ' '))} · 0 of {plural(points, 'point')}</h2>")
        body.append("<p>Nothing was handed in.</p>")
    if not row.results and not absent:
        body.append("<p>Nothing was handed in.</p>")
    return page(f"Feedback for {name}", body)


def _absent(row: Row, lessons: Mapping[str, float]) -> dict[str, float]:
    """Give the lessons in which a missing file is a 0; none while a file that is not graded may be one of them."""
    handed_in = {result.lesson for result in row.results}
    return {lesson: points for lesson, points in lessons.items() if lesson not in handed_in and row.untold == 0}


def _start(row: Row) -> Iterator[str]:
    """Say where another look gains most: the topics in which most points were lost."""
    lost: Counter[str] = Counter()
    for mark in row.marks:
        if mark.status == "wrong" and (place := in_words(mark.section)):
            lost[place] += 1
    if len(lost) > 1:
        yield "<h2>Where another look helps most</h2><ul>"
        for place, count in lost.most_common(TOPICS):
            yield f"<li>{prose(place)}: {plural(count, 'exercise')}</li>"
        yield "</ul>"


def _lesson(result: Result, headings: Mapping[str, str]) -> Iterator[str]:
    if result.unread:
        yield from _unread(result, headings)
        return
    if result.lesson:
        title = result.lesson.replace("_", " ")
        yield f"<h2>{text(title)} · {number(result.points)} of {plural(result.out_of, 'point')}</h2>"
    else:
        yield "<h2>Another file</h2>"
    if result.verdict == "internal":
        yield '<p class="warning">Something went wrong on our side. This is no mark; it will be marked again.</p>'
    elif result.verdict != "graded":
        yield f'<p class="warning">{text(named_shortly(result.reason, result.attempt))}</p>'
    if result.attempt is not None:
        yield f'<p class="soft">{_file(result)}</p>'
    for other in result.attempts:
        if other.note != "counts":
            yield f'<p class="soft">{text(f"{own_name(other.source)} does not count: {_reason(other)}")}</p>'
    for note in result.notes:
        yield f'<p class="soft">{text(note)}</p>'
    if result.marks:
        counts = Counter(STATUS_WORDS[mark.status] for mark in result.marks)
        yield f"<p>{', '.join(f'{count} {words}' for words, count in counts.most_common())}</p>"
    for mark in result.marks:
        yield _mark(mark, headings.get(mark.exercise, ""))


def _unread(result: Result, headings: Mapping[str, str]) -> Iterator[str]:
    """Ask for the file again; what is shown of its exercises is what a person marked all the same."""
    yield f"<h2>{text(result.lesson.replace('_', ' ') or 'A file')} · not graded</h2>"
    reason = named_shortly(result.reason, result.attempt)
    yield (
        f'<p class="warning">{text(reason)} Nothing in it was judged. Please hand it in again, as the notebook '
        "file that Jupyter saves.</p>"
    )
    for mark in result.marks:
        if mark.points is not None:
            yield _mark(mark, headings.get(mark.exercise, ""))


def _file(result: Result) -> str:
    attempt = result.attempt
    assert attempt is not None
    parts = [f"This is about the file {text(own_name(attempt.source), 200)}"]
    parts += [f"handed in {text(attempt.when[:16])}"] if attempt.when else []
    parts += ["late"] if attempt.late else []
    return ", ".join(parts) + "."


def _reason(attempt: Attempt) -> str:
    return f"{attempt.note.replace(attempt.source, 'it').rstrip('.')}."


def _mark(mark: Mark, heading: str) -> str:
    status = "recorded" if mark.via == "manual" else mark.status
    sign, look = SIGNS.get(status, "○"), LOOKS.get(status, "")
    place = in_words(mark.section) if look == "wrong" else ""
    again = f'<p class="soft">{prose(f"Look again at {place}.")}</p>' if place else ""
    notes = "".join(f'<p class="soft">{text(note)}</p>' for note in mark.notes)
    answer = block(answer_of(mark), words=mark.step == "written")
    title = f'{prose(heading)} <span class="soft">{text(mark.exercise)}</span>' if heading else text(mark.exercise)
    return (
        f'<section class="card {look}"><div class="head"><h3>{title}</h3>'
        f'<span class="points"><span aria-hidden="true">{sign}</span> {text(status_words(mark))} · '
        f"{number(mark.points)} of {number(mark.out_of)}</span></div>"
        f"{answer}{_said(mark)}{_picture(mark)}{block(mark.case)}{again}{notes}</section>"
    )


def _said(mark: Mark) -> str:
    if mark.status == "blank" and mark.via == "literal":
        return ""  # what the notebook says then is about running its cells
    return f"<p>{prose(mark.message)}</p>" if mark.message else ""


def _picture(mark: Mark) -> str:
    """Draw a row of weights that went wrong, beside the sum it should have: a wrong sum is seen at once."""
    if mark.step != "weights" or mark.status != "wrong" or not _is_row(mark.value):
        return ""
    shares: list[float] = mark.value
    total, left, bars = sum(shares), 0.0, []
    if abs(total - 1) < 1e-6:
        return ""  # the sum is not what went wrong
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
