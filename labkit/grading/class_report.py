"""The page a lecturer reads after grading: marks, misunderstandings, who needs help, and what waits for a person."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import groupby
from textwrap import shorten
from typing import Any

from labkit import feedback, slips
from labkit.exercises import ROUNDED
from labkit.grading.model import STATUS_WORDS
from labkit.grading.page import block, number, page, prose, table, text
from labkit.grading.statistics import ClassStatistics, Item
from labkit.grading.text import file_name, plural
from labkit.sections import in_words
from labkit.slips import Slip

KNOWN: dict[str, Slip] = {**slips.CATALOGUE, ROUNDED.id: ROUNDED}
COMMONEST = 3  # slips named for one exercise
BRIEF = 70  # characters of a slip in the table of all exercises
LISTED = 60  # names in one list
SHOWN = 12  # rows shown at once of the slips; the rest unfolds

# Collects what was filled in and saves it as a file; nothing leaves the page.
SCRIPT = """
const cards = [...document.querySelectorAll('[data-student]')];
const filled = () => cards.filter(card => card.querySelector('input').value !== '');
const say = text => { document.getElementById('saved').textContent = text; };
let unsaved = false;
document.addEventListener('input', () => { unsaved = true; say(`${filled().length} of ${cards.length} filled in`); });
window.addEventListener('beforeunload', event => { if (unsaved) event.preventDefault(); });
document.getElementById('save').addEventListener('click', () => {
  const wrong = filled().find(card => !card.querySelector('input').checkValidity());
  if (wrong) { wrong.querySelector('input').reportValidity(); return; }
  const quoted = value => '"' + (/^'*[=+@-]/.test(value) ? "'" : '') + value.replace(/"/g, '""') + '"';
  const rows = filled().map(card => [card.dataset.student, card.dataset.exercise,
    card.querySelector('input').value, card.querySelector('textarea').value]);
  const lines = [['student', 'exercise', 'points', 'comment'], ...rows].map(row => row.map(quoted).join(','));
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([lines.join('\\r\\n')], { type: 'text/csv' }));
  link.download = 'manual.csv';
  link.click();
  unsaved = false;
  say(`${rows.length} ${rows.length === 1 ? 'mark' : 'marks'} saved as manual.csv`);
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
    right: str = ""  # what would be right, where that can be computed


@dataclass(frozen=True)
class Report:
    """What the class report is made of."""

    statistics: ClassStatistics
    written: Sequence[Written] = ()
    rubrics: dict[str, str] = field(default_factory=dict)
    refused: Sequence[str] = ()
    warning: str = ""
    level: str = ""
    headings: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # what the letters of a choice stand for


def class_report(report: Report) -> str:
    """Write the whole page."""
    counted = report.statistics
    items = sorted(counted.items.values(), key=lambda item: item.lesson)
    body = ["<h1>Class report</h1>", f'<p class="soft">{_summary(report)}</p>']
    if report.warning:
        body.append(f'<p class="warning">{text(report.warning)}</p>')
    body += [
        *_to_do(report),
        *_marks(counted),
        *_misunderstood(items, report.choices),
        *_help(counted),
        *_alike(counted),
    ]
    body += [
        *_same_names(counted),
        *_times(counted),
        *_items(items, report),
        *_trouble(report),
        *_by_hand(report),
    ]
    return page("Class report", body, SCRIPT if report.written else "")


def _summary(report: Report) -> str:
    counted = report.statistics
    handed = counted.students - len(counted.absent)
    parts = [f"{handed} of {plural(counted.students, 'student')} handed something in"]
    parts += [f"{plural(counted.late, 'file')} late"] if counted.late else []
    parts += [f"code ran in a sandbox of level {report.level}"] if report.level not in ("", "none") else []
    return text(", ".join(parts)) + "."


def _to_do(report: Report) -> Iterator[str]:
    """List what still needs the lecturer, with the way there."""
    counted = report.statistics
    unmarked = sum(item.statuses["unmarked"] for item in counted.items.values())
    others = len(counted.trouble) - counted.unread + len(report.refused)
    alike, same_names = (sum(1 for _ in found) for found in (counted.alike(), counted.same_names()))
    needs = [
        ("Answers that wait for a mark by hand", "by-hand", counted.waiting),
        ("Answers unmarked because no sandbox was strong enough to run them", "exercises", unmarked),
        ("Files to ask for again, because they could not be read and are not graded", "not-graded", counted.unread),
        ("Other files not graded, or not to the end", "not-graded", others),
        ("Handed in, but not on the class list", "list", len(counted.unlisted)),
        ("Answers shared by students whose numbers differ", "alike", alike),
        ("Names shared by several students", "names", same_names),
    ]
    lines = [f'<li><a href="#{place}">{words}: {count}</a></li>' for words, place, count in needs if count]
    if lines:
        yield f"<ul>{''.join(lines)}</ul>"


def _marks(counted: ClassStatistics) -> Iterator[str]:
    yield "<h2>How the class did</h2>"
    shares = sorted(counted.shares)
    if not shares:
        yield "<p>No marks yet.</p>"
        return
    middle = shares[len(shares) // 2]
    bins = [sum(low <= share * 10 < low + 1 or (low == 9 and share >= 1) for share in shares) for low in range(10)]
    words = f"Share of the points reached by {plural(len(shares), 'student')}. The middle student reached {middle:.0%}."
    yield _figure(
        lambda axes: _bars(
            axes, [f"{10 * low}–{10 * low + 10}" for low in range(10)], bins, "share of the points, %", "students"
        ),
        f"{words} Students in each tenth, from 0–10 % up: {', '.join(map(str, bins))}.",
        words,
    )


def _misunderstood(items: Sequence[Item], choices: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """One row a slip, over all exercises in which it was made."""
    yield "<h2>What the class misunderstood</h2>"
    made: dict[tuple[str, str, str], Counter[str]] = {}
    for item in items:
        for slip, count in item.slips.items():
            made.setdefault(_named(slip, item, choices), Counter())[item.exercise] += count
    if not made:
        yield "<p>No known slip was made.</p>"
        return
    ordered = sorted(made.items(), key=lambda one: (-one[1].total(), one[0]))
    rows = [
        [prose(label, 160), str(counts.total()), text(_each(counts)), prose(section)]
        for (label, section, _), counts in ordered
    ]
    header = ("slip", "answers", "in", "to revisit")
    yield table(header, rows[:SHOWN], (1,), "commonest slips")
    if rows[SHOWN:]:
        rest = table(header, rows[SHOWN:], (1,), "rarer slips")
        yield f"<details><summary>{plural(len(rows) - SHOWN, 'rarer slip')}</summary>{rest}</details>"


def _each(counts: Counter[str], most: int | None = None) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common(most))


def _named(slip: str, item: Item, choices: Mapping[str, Mapping[str, str]]) -> tuple[str, str, str]:
    """Say a slip in words, the lesson section, and the exercise where the slip is not a general one."""
    label, section = _label(slip, item, choices), in_words(item.sections[slip]) or item.lesson.replace("_", " ")
    if slip == ROUNDED.id:
        return label, "", ""  # nothing to read again
    return label, section, "" if slip in KNOWN else item.exercise


def _label(slip: str, item: Item, choices: Mapping[str, Mapping[str, str]]) -> str:
    """Say a slip in words: its own, those of the option that was chosen, or the lesson's reason against it.

    >>> item = Item("03_masks", "masks-route", 1)
    >>> _label("masks-route:A", item, {"masks-route": {"A": "Nothing moves"}}), _label("turned-over", item, {})
    ('chose A: Nothing moves', 'turned over')
    """
    if known := KNOWN.get(slip):
        return known.label
    before, chose, option = slip.partition(":")
    short = f"chose {option}" if chose else before.replace("-", " ")
    words = choices.get(item.exercise, {}).get(option) if chose else feedback.of(item.exercise).why.get(slip)
    return f"{short}: {words}" if words else short


def _help(counted: ClassStatistics) -> Iterator[str]:
    yield "<h2>Who needs help</h2>"
    rows = [
        [f'<a href="feedback/{file_name(one.id)}.html">{text(one.name, 200)}</a>', f"{share:.0%}", str(untouched)]
        for one, share, untouched in sorted(counted.struggling, key=lambda one: one[1])[:LISTED]
    ]
    yield (
        table(("student", "points", "not attempted"), rows, (1, 2), "students below half of the points")
        if rows
        else "<p>Everybody who handed in reached half of the points.</p>"
    )
    if counted.absent:
        yield f"<p>Nothing handed in, {_people(counted.absent)}</p>"
    if counted.unlisted:
        yield f'<p id="list">Handed in, but not on the class list, {_people(counted.unlisted)}</p>'


def _people(names: Sequence[str]) -> str:
    more = "; …" if len(names) > LISTED else ""
    return f"{len(names)}: {'; '.join(text(name, 100) for name in names[:LISTED])}{more}"


def _alike(counted: ClassStatistics) -> Iterator[str]:
    rows = [[text(exercise), text(answer, 120), text("; ".join(names))] for exercise, answer, names in counted.alike()]
    if rows:
        yield '<h2 id="alike">Same answer, different numbers</h2>'
        yield (
            "<p>These exercises give every learner numbers of their own. Here at least one of the students gave an "
            "answer that neither fits their numbers nor comes from a known slip, and somebody else gave the same. "
            "Whose numbers it fits is marked. It is worth a talk. It is no proof.</p>"
        )
        yield table(("exercise", "answer", "students"), rows[:LISTED], (), "shared answers")


def _same_names(counted: ClassStatistics) -> Iterator[str]:
    rows = [[text(name, 200), text("; ".join(students))] for name, students in counted.same_names()]
    if rows:
        yield '<h2 id="names">Same name, several students</h2>'
        yield (
            "<p>Names come from the class list and from what a file tells <code>labkit.me(…)</code>. Two people may "
            "share one, somebody may have handed in twice, or a file was passed on with the name still in it.</p>"
        )
        yield table(("name", "students"), rows[:LISTED], (), "shared names")


def _times(counted: ClassStatistics) -> Iterator[str]:
    days = Counter(day for when in counted.times if (day := _day(when)))
    if len(days) < 2:
        return
    yield "<h2>When it was handed in</h2>"
    names, numbers = zip(*sorted(days.items()), strict=True)
    labels = [f"{date.fromisoformat(day):%d %b}" for day in names]
    words = ", ".join(f"{day}: {count}" for day, count in zip(names, numbers, strict=True))
    yield _figure(
        lambda axes: _bars(axes, labels, numbers, "day", "files handed in"), f"Files by day. {words}.", "Files by day"
    )


def _day(when: str) -> str:
    try:
        return datetime.fromisoformat(when).date().isoformat()
    except ValueError:
        return ""


def _items(items: Sequence[Item], report: Report) -> Iterator[str]:
    yield '<h2 id="exercises">Every exercise</h2>'
    yield (
        '<p class="soft">Solved: mean share of the points. Separates: correlation with the rest of a student\'s marks; '
        "near 0 or below, an exercise tells good from weak badly.</p>"
    )
    header = ("exercise", "points", "solved", "separates", "outcomes", "slips")
    for lesson, group in groupby(items, key=lambda item: item.lesson):
        title = lesson.replace("_", " ")
        yield f"<h3>{text(title)}</h3>"
        yield table(header, [_item(item, report) for item in group], (1, 2, 3), f"every exercise of {title}")


def _item(item: Item, report: Report) -> list[str]:
    heading = report.headings.get(item.exercise, "")
    named = Counter(
        {shorten(_label(slip, item, report.choices), BRIEF, placeholder=" …"): n for slip, n in item.slips.items()}
    )
    return [
        f'{text(item.exercise)}<br><small class="soft">{prose(heading)}</small>' if heading else text(item.exercise),
        number(item.out_of),
        "–" if item.difficulty is None else f"{item.difficulty:.0%}",
        "–" if item.discrimination is None else f"{item.discrimination:.2f}",
        text(", ".join(f"{count} {STATUS_WORDS[status]}" for status, count in item.statuses.most_common())),
        prose(_each(named, COMMONEST)),
    ]


def _trouble(report: Report) -> Iterator[str]:
    if report.statistics.trouble or report.refused:
        yield '<h2 id="not-graded">What was not graded</h2>'
    if report.statistics.trouble:
        rows = [
            [text(name), text(lesson.replace("_", " ")), text(words), text(reason)]
            for name, lesson, words, reason in report.statistics.trouble
        ]
        if report.statistics.unread:
            yield (
                "<p>What could not be read is not graded: ask for it again. In the tables its cells are empty, "
                "which is no 0.</p>"
            )
        yield table(("student", "lesson", "what", "why"), rows, (), "files that were not graded")
    if report.refused:
        yield "<h3>Files that belong to nobody</h3>"
        yield "<ul>" + "".join(f"<li>{text(reason, 400)}</li>" for reason in report.refused) + "</ul>"


def _by_hand(report: Report) -> Iterator[str]:
    if not report.written:
        return
    yield '<section><h2 id="by-hand">Answers to mark by hand</h2>'
    yield (
        "<p>Fill in points here and save, then run <code>labkit report</code> with <code>--manual</code> and the saved "
        "file. Or fill in the sheet <code>manual.csv</code> in this folder and run <code>labkit report</code>; a "
        "<code>-</code> there takes a mark back. Marks "
        "given by hand stay when the class is graded again.</p>"
    )
    if report.statistics.waiting > len(report.written):
        yield f"<p>Here are the first {len(report.written)}; the sheet has all {report.statistics.waiting}.</p>"
    waiting: dict[str, list[Written]] = {}
    for one in report.written:
        waiting.setdefault(one.exercise, []).append(one)
    for exercise, answers in waiting.items():
        heading = report.headings.get(exercise, "")
        title = f'{prose(heading)} <span class="soft">{text(exercise)}</span>' if heading else text(exercise)
        shown = block(report.rubrics.get(exercise, ""), words=True)
        rubric = f"<details open><summary>Rubric</summary>{shown}</details>" if shown else ""
        yield f"<h3>{title}</h3>{rubric}"
        yield from map(_form, answers)
    yield '<p class="screen bar"><button id="save" type="button">Save as manual.csv</button> '
    yield '<span id="saved" role="status"></span></p></section>'


def _form(one: Written) -> str:
    who = text(one.name, 200)
    return (
        f'<div class="card wait" data-student="{text(one.student)}" data-exercise="{text(one.exercise)}">'
        f"<h4>{who}</h4>{block(one.answer, words=True)}{f'<p>{text(one.right)}</p>' if one.right else ''}"
        f'<p><label>Points for {who} <input type="number" min="0" max="{one.out_of:g}" step="any"></label> '
        f"of {number(one.out_of)}</p><p><label>Comment for {who} "
        '<textarea rows="2"></textarea></label></p></div>'
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
