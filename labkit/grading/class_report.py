"""The page a lecturer reads after grading: marks, misunderstandings, who needs help, and what waits for a person."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from labkit import slips
from labkit.grading.model import STATUS_WORDS
from labkit.grading.page import block, number, page, table, text
from labkit.grading.statistics import ClassStatistics, Item

COMMONEST = 3  # slips named for one exercise
LISTED = 60  # names in one list

# Collects what was filled in and saves it as a file; nothing leaves the page.
SCRIPT = """
document.getElementById('save').addEventListener('click', () => {
  const quoted = value => '"' + (/^[=+@-]/.test(value) ? "'" : '') + value.replace(/"/g, '""') + '"';
  const lines = [['student', 'exercise', 'points', 'comment']];
  for (const card of document.querySelectorAll('[data-student]')) {
    const [points, comment] = card.querySelectorAll('input, textarea');
    if (points.value !== '') lines.push([card.dataset.student, card.dataset.exercise, points.value, comment.value]);
  }
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([lines.map(line => line.map(quoted).join(',')).join('\\r\\n')]));
  link.download = 'manual.csv';
  link.click();
  document.getElementById('saved').textContent = (lines.length - 1) + ' marks saved as manual.csv';
});
"""


@dataclass(frozen=True)
class Written:
    """One answer that waits for a person."""

    student: str
    name: str
    exercise: str
    answer: str
    out_of: float


@dataclass(frozen=True)
class Report:
    """What the class report is made of."""

    statistics: ClassStatistics
    written: Sequence[Written] = ()
    rubrics: dict[str, str] = field(default_factory=dict)
    refused: Sequence[str] = ()
    warning: str = ""
    level: str = ""


def class_report(report: Report) -> str:
    """Write the whole page."""
    counted = report.statistics
    items = sorted(counted.items.values(), key=lambda item: item.lesson)
    body = ["<h1>Class report</h1>", f'<p class="soft">{_summary(report)}</p>']
    if report.warning:
        body.append(f'<p class="warning">{text(report.warning)}</p>')
    body += [*_marks(counted), *_misunderstood(items), *_help(counted), *_alike(counted), *_times(counted)]
    body += [*_items(items), *_trouble(report), *_by_hand(report)]
    return page("Class report", body, SCRIPT if report.written else "")


def _summary(report: Report) -> str:
    counted = report.statistics
    handed = counted.students - len(counted.absent)
    parts = [f"{handed} of {counted.students} students handed something in"]
    parts += [f"{counted.late} files late"] if counted.late else []
    parts += [f"code ran in a sandbox of level {report.level}"] if report.level not in ("", "none") else []
    return text(", ".join(parts)) + "."


def _marks(counted: ClassStatistics) -> Iterator[str]:
    yield "<h2>How the class did</h2>"
    shares = sorted(counted.shares)
    if not shares:
        yield "<p>No marks yet.</p>"
        return
    middle = shares[len(shares) // 2]
    bins = [sum(low <= share * 10 < low + 1 or (low == 9 and share >= 1) for share in shares) for low in range(10)]
    words = f"Share of the points reached by {len(shares)} students. The middle student reached {middle:.0%}."
    yield _figure(
        lambda axes: _bars(
            axes, [f"{10 * low}–{10 * low + 10}" for low in range(10)], bins, "share of the points, %", "students"
        ),
        f"{words} Students in each tenth, from 0–10 % up: {', '.join(map(str, bins))}.",
        words,
    )


def _misunderstood(items: Sequence[Item]) -> Iterator[str]:
    yield "<h2>What the class misunderstood</h2>"
    found = [(count, item, slip) for item in items for slip, count in item.slips.most_common(COMMONEST)]
    found.sort(key=lambda one: (-one[0], one[1].exercise, one[2]))
    if not found:
        yield "<p>No known slip was made.</p>"
        return
    rows = [[text(item.exercise), str(count), *_named(slip, item)] for count, item, slip in found[:LISTED]]
    yield table(("exercise", "students", "slip", "lesson to revisit"), rows, (1,), "slips by exercise")


def _named(slip: str, item: Item) -> tuple[str, str]:
    """Say a slip in words; one that belongs to a single exercise has only its own name."""
    known = slips.CATALOGUE.get(slip)
    section = known.section if known else next((name for name, _ in item.sections.most_common(1)), "")
    return text(known.label if known else slip.replace("-", " ")), text(section or item.lesson.replace("_", " "))


def _help(counted: ClassStatistics) -> Iterator[str]:
    yield "<h2>Who needs help</h2>"
    rows = [
        [text(name, 200), f"{share:.0%}", str(untouched)]
        for name, share, untouched in sorted(counted.struggling, key=lambda one: one[1])[:LISTED]
    ]
    yield (
        table(("student", "points", "exercises not attempted"), rows, (1, 2), "students below half of the points")
        if rows
        else "<p>Everybody who handed in reached half of the points.</p>"
    )
    if counted.absent:
        names = ", ".join(text(name, 100) for name in counted.absent[:LISTED])
        yield f"<p>Nothing from {len(counted.absent)}: {names}</p>"


def _alike(counted: ClassStatistics) -> Iterator[str]:
    rows = [[text(exercise), text(answer, 120), text(", ".join(names))] for exercise, answer, names in counted.alike()]
    if rows:
        yield "<h2>Same wrong answer, different numbers</h2>"
        yield (
            "<p>These exercises give every learner numbers of their own, so a shared wrong answer is worth a talk. "
            "It is no proof.</p>"
        )
        yield table(("exercise", "answer", "students"), rows[:LISTED], (), "identical wrong answers")


def _times(counted: ClassStatistics) -> Iterator[str]:
    days = Counter(day for when in counted.times if (day := _day(when)))
    if len(days) < 2:
        return
    yield "<h2>When it was handed in</h2>"
    labels, numbers = zip(*sorted(days.items()), strict=True)
    words = ", ".join(f"{day}: {count}" for day, count in zip(labels, numbers, strict=True))
    yield _figure(
        lambda axes: _bars(axes, labels, numbers, "day", "files handed in"), f"Files by day. {words}.", "Files by day"
    )


def _day(when: str) -> str:
    try:
        return datetime.fromisoformat(when).date().isoformat()
    except ValueError:
        return ""


def _items(items: Sequence[Item]) -> Iterator[str]:
    yield "<h2>Every exercise</h2>"
    yield (
        '<p class="soft">Solved: mean share of the points. Separates: correlation with the rest of a student\'s marks; '
        "near 0 or below, an exercise tells good from weak badly.</p>"
    )
    rows = []
    for item in items:
        statuses = ", ".join(f"{STATUS_WORDS[status]} {count}" for status, count in item.statuses.most_common())
        solved = "–" if item.difficulty is None else f"{item.difficulty:.0%}"
        rows.append(
            [text(item.lesson), text(item.exercise), number(item.out_of), solved, number(item.discrimination), statuses]
        )
    yield table(("lesson", "exercise", "points", "solved", "separates", "outcomes"), rows, (2, 3, 4), "every exercise")


def _trouble(report: Report) -> Iterator[str]:
    if report.statistics.trouble:
        yield "<h2>Files that were not graded</h2>"
        rows = [list(map(text, one)) for one in report.statistics.trouble]
        yield table(("student", "lesson", "what", "why"), rows, (), "files that were not graded")
    if report.refused:
        yield "<h2>Files that belong to nobody</h2>"
        yield "<ul>" + "".join(f"<li>{text(reason, 400)}</li>" for reason in report.refused) + "</ul>"


def _by_hand(report: Report) -> Iterator[str]:
    if not report.written:
        return
    yield "<h2>Answers to mark by hand</h2>"
    yield (
        "<p>Fill in points here and save, or use the sheet <code>manual.csv</code>. Put the saved file over the sheet "
        "and run the grader again: marks given by hand stay.</p>"
    )
    for exercise, rubric in report.rubrics.items():
        waiting = [one for one in report.written if one.exercise == exercise]
        if waiting:
            yield f"<h3>{text(exercise)}</h3>{block(rubric)}"
            yield from map(_form, waiting)
    yield '<p class="screen"><button id="save" type="button">Save as manual.csv</button>'
    yield '<span id="saved" role="status"></span></p>'


def _form(one: Written) -> str:
    who = text(one.name, 200)
    return (
        f'<div class="card wait" data-student="{text(one.student)}" data-exercise="{text(one.exercise)}">'
        f"<h3>{who}</h3>{block(one.answer)}"
        f'<p><label>Points for {who} <input type="number" min="0" max="{one.out_of:g}" step="any"></label> '
        f"of {number(one.out_of)}</p><p><label>Comment for {who}<br>"
        '<textarea rows="2" cols="50"></textarea></label></p></div>'
    )


# Pictures


def _figure(draw: Any, description: str, caption: str) -> str:
    """Draw with Matplotlib into the page itself, always with the same numbers in words."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure.add_subplot())
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    data = base64.b64encode(picture.getvalue()).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{text(description)}">'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def _bars(axes: Any, labels: Sequence[str], numbers: Sequence[int], x_label: str, y_label: str) -> None:
    axes.bar(range(len(numbers)), numbers, color="#5b3fb0", width=0.85)
    step = max(1, len(labels) // 10)
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.spines[["top", "right"]].set_visible(False)
