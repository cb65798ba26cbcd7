"""Mark one student's files against the keys: pure data in, `Result`s out, the same on every machine.

Typed answers are read as literals. Only where that is not possible, and for functions, a sandbox runs the student's
cells; what comes back is data, and the comparing is done here.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from labkit.answers import UnreadableError, in_words, is_blank
from labkit.checks import Exercise
from labkit.functions import Outcome
from labkit.grading.archive import whole
from labkit.grading.asking import STOPPED, Asking, Pending, lacking, name_of, said
from labkit.grading.intake import read_bytes
from labkit.grading.key import Item, Key, hidden_cases, run_key
from labkit.grading.keyfile import KeySource
from labkit.grading.literals import (
    KNOWN,
    NotLiteralError,
    assignments,
    evaluate,
    is_blank_function,
    other_meanings,
    parameters,
    used_names,
)
from labkit.grading.matching import Answer, Match, match
from labkit.grading.model import Attempt, Mark, Refusal, Result, Student, Submission, Via
from labkit.grading.processes import Sandbox
from labkit.grading.sandbox import Reply
from labkit.verdict import Verdict

SHOWN = 4_000  # characters of an answer that a report may show
MOST_NAMES = 10  # names of one student, the last told: each costs drawing its numbers
NOT_COMPUTED = "The answer could not be computed with NumPy alone ({}): type the numbers instead."
LACKING = "It uses `{}`, which is not there when a class is graded"
NO_LESSON = "{} belongs to none of the lessons graded."
NO_NAME = "The file tells no name (`labkit.me(…)`), so this was compared with the numbers of the listed name."
ODD = {
    "large": "it is too large",
    "masked": "it is a masked array",
    "entries": "its entries are not numbers",
    "kind": "it is not made of plain numbers, lists or text",
}


@dataclass(frozen=True)
class File:
    """One file of a student: its bytes, or why there are none."""

    attempt: Attempt
    stem: str
    data: bytes = b""
    refusal: str = ""


@dataclass(frozen=True)
class Work:
    """Everything one student handed in, oldest first."""

    student: Student
    files: tuple[File, ...]


@dataclass(frozen=True)
class Settings:
    """What marking needs beside the work: keys as text, the secret, the sandbox (None: no code is run)."""

    keys: tuple[KeySource, ...]
    secret: bytes = field(repr=False)
    sandbox: Sandbox | None = None
    only: tuple[str, ...] = ()  # exercise ids; () is all


def mark_student(work: Work, settings: Settings) -> list[Result]:
    """Mark the file that counts for each lesson; a fault of ours becomes an `internal` result, never a zero."""
    read = [_opened(file, work.student) for file in work.files]
    told = [name for one in read if isinstance(one, Submission) for name in learner_names(one)]
    names = tuple(sorted(list(dict.fromkeys(reversed(told)))[:MOST_NAMES]))
    results = []
    for before, chosen in unmarked(read, settings.keys):
        try:
            result = _mark_one(before, chosen, settings, names)
        except Exception as error:
            reason = f"{type(error).__name__} while marking {before.lesson}"
            result = replace(before, student=work.student, verdict="internal", reason=reason)
        results.append(replace(result, digest=chosen.digest, names=names))
    return results


def unmarked(
    read: Sequence[Submission | Refusal], keys: Sequence[KeySource]
) -> Iterator[tuple[Result, Submission | Refusal]]:
    """Give for each lesson what one student's files say before anything is marked, with the file that counts."""
    for lesson, group in sorted(_by_lesson(read, keys).items()):
        attempts, chosen = _choose(group, keys)
        reason = "" if lesson else NO_LESSON.format(chosen.attempt.source)
        if isinstance(chosen, Refusal):
            reason = chosen.reason
        result = Result(chosen.student or Student("?", "?"), lesson, "rejected" if reason else "graded", reason)
        elsewhere = not lesson and all(map(_is_of_ours, group))
        yield replace(result, attempt=_counts(attempts), attempts=attempts, elsewhere=elsewhere), chosen


def _opened(file: File, student: Student) -> Submission | Refusal:
    if file.refusal:
        return Refusal(file.attempt, file.refusal, student, file.stem)
    return read_bytes(student, file.attempt, file.stem, file.data)


def _by_lesson(
    read: Sequence[Submission | Refusal], keys: Sequence[KeySource]
) -> dict[str, list[Submission | Refusal]]:
    groups: dict[str, list[Submission | Refusal]] = {}
    for one in read:
        groups.setdefault(lesson_of(one, keys), []).append(one)
    return groups


def lesson_of(one: Submission | Refusal, keys: Sequence[KeySource]) -> str:
    """Say which lesson a file belongs to: by its metadata, its exercises or its name; else it is the only one."""
    lessons = [key.lesson for key in keys]
    if isinstance(one, Submission):
        if one.lesson in lessons:
            return one.lesson
        hits = _hits(one, keys)
        best = max(lessons, key=lambda lesson: hits[lesson], default="")
        if best and hits[best]:
            return best
        if _is_of_ours(one):
            return ""  # and none of those graded now
    named = [lesson for lesson in lessons if lesson.casefold() in one.stem.casefold()]
    return named[0] if named else lessons[0] if len(lessons) == 1 else ""


def _is_of_ours(one: Submission | Refusal) -> bool:
    """Say whether a file is surely a notebook of this workbook, whichever lesson it is."""
    return isinstance(one, Submission) and bool(one.lesson or any(cell.exercise for cell in one.cells))


def _hits(one: Submission, keys: Sequence[KeySource]) -> dict[str, int]:
    """Count for each lesson how many of its exercises a file mentions, in metadata, markers or checks."""
    text = "\n".join([*(cell.exercise or "" for cell in one.cells), *(cell.source for cell in one.cells)])
    return {key.lesson: sum(cell.id in text for cell in key.cells if cell.role == "answer") for key in keys}


def _choose(
    group: Sequence[Submission | Refusal], keys: Sequence[KeySource]
) -> tuple[tuple[Attempt, ...], Submission | Refusal]:
    """Take the latest that holds exercises, else the latest that can be read, else the latest; note why on each."""
    readable = {place: one for place, one in enumerate(group) if isinstance(one, Submission)}
    place = max(readable, default=len(group) - 1)
    if len(readable) > 1:  # most hand in one file, and looking for exercises reads all of it
        place = max((i for i, one in readable.items() if any(_hits(one, keys).values())), default=place)
    notes = [
        one.reason if isinstance(one, Refusal) else "a later file counts" if i < place else "it holds no exercise"
        for i, one in enumerate(group)
    ]
    notes[place] = "counts"
    return tuple(replace(one.attempt, note=note) for one, note in zip(group, notes, strict=True)), group[place]


def _counts(attempts: Sequence[Attempt]) -> Attempt:
    return next(attempt for attempt in attempts if attempt.note == "counts")


_ME = re.compile(r"""\bme\(\s*+(?:name\s*+=\s*+)?(?:"([^"\\\n]{1,100})"|'([^'\\\n]{1,100})')\s*+(?:,\s*+)?\)""")


def learner_names(submission: Submission) -> Iterator[str]:
    """Give the names a student told `labkit.me(…)`, which decide their own numbers, and those it told the student."""
    for cell in submission.cells:
        yield from (double or single for double, single in _ME.findall(cell.source[:20_000]))
        if cell.told:  # typed in another lesson, say
            yield cell.told


def _mark_one(before: Result, chosen: Submission | Refusal, settings: Settings, names: tuple[str, ...]) -> Result:
    source = next((key for key in settings.keys if key.lesson == before.lesson), None)
    if source is None or isinstance(chosen, Refusal):
        return replace(before, marks=tuple(_missing(item) for item in run_key(source).items) if source else ())
    key = run_key(source)
    items = [item for item in key.items if not settings.only or item.id in settings.only]
    matched = match(key, chosen.cells)
    listed = (*_said_aloud(chosen.student.name), chosen.student.id, "")
    marker = Marker(key, matched, settings, names, listed)
    marks = marker.mark(items)
    stops = "; ".join(marker.asking.stops) if marker.asking else ""
    level = settings.sandbox.level if settings.sandbox and marker.asking else ""
    notes = (*chosen.notes, *matched.notes)
    marked = replace(before, reason=stops, marks=marks, level=level, notes=notes)
    return replace(marked, verdict="stopped") if stops else marked


def _said_aloud(name: str) -> tuple[str, ...]:
    """Give a name as listed and as its owner types it: gradebooks list "Lovelace, Ada".

    >>> _said_aloud("Lovelace, Ada")
    ('Lovelace, Ada', 'Ada Lovelace')
    """
    last, comma, first = (part.strip() for part in name.partition(","))
    return (name, f"{first} {last}") if comma else (name,)


def _missing(item: Item) -> Mark:
    return Mark(item.id, item.exercise.step, 0.0, item.points, "missing")


class Marker:
    """Marks the items of one submission; starts a sandbox only when there is something to run."""

    def __init__(
        self, key: Key, matched: Match, settings: Settings, told: Sequence[str], listed: Sequence[str]
    ) -> None:
        self.key = key
        self.matched = matched
        self.settings = settings
        self.told = bool(told)
        self.names = tuple(dict.fromkeys((*told, *listed)))
        self.asking: Asking | None = None  # what was run, if anything was

    def mark(self, items: Sequence[Item]) -> tuple[Mark, ...]:
        """Mark the items, in the key's order."""
        tries = {item.id: list(self._by_reading(item)) for item in items}
        pending = [one for some in tries.values() for one in some if isinstance(one, Pending)]
        if pending and self.settings.sandbox is not None:
            self.asking = Asking(self.key, self.matched.program, pending)
            self.asking.ask(self.settings.sandbox)
        return tuple(max(map(self._settled, reversed(tries[item.id])), key=_worth) for item in items)

    # Reading what was typed

    def _by_reading(self, item: Item) -> Iterator[Mark | Pending]:
        """Mark what is typed, and say what has to be run; an answer given again counts where the first is not right."""
        for number, answer in enumerate(self.matched.answers.get(item.cell, Answer()).tries()):
            yield (found := self._reading(item, answer, number))
            if isinstance(found, Mark) and found.status == "right":
                return

    def _reading(self, item: Item, answer: Answer, again: int) -> Mark | Pending:
        if not answer.sources:
            return self._note(_missing(item), answer)
        expression = _renamed(item.expression, answer.renamed)
        if item.exercise.step == "function":
            if is_blank_function(answer.source, expression):
                mark = Mark(item.id, "function", 0.0, item.points, "blank", via="literal")
                return self._note(mark, answer)
            cases = hidden_cases(item.exercise.task, item.id, self.settings.secret)
            return Pending(item, answer, expression, again, cases)
        known = (self.key.digest, item.id, answer)
        if known in _REMEMBERED and not self._speaks_otherwise(answer):
            return _REMEMBERED[known]
        try:
            typed = self._typed(item, answer, expression)
        except NotLiteralError:
            return Pending(item, answer, expression, again)
        mark = self._judged(item, answer, typed, "literal")
        if not item.personal and len(answer.source) < 1_000:
            _remember(known, mark)
        return mark

    def _typed(self, item: Item, answer: Answer, expression: str) -> Any:
        """Read the answer as literals; None where everything is typed and this is not there."""
        if self._speaks_otherwise(answer):
            raise NotLiteralError("a name that means something else here")
        typed = assignments(answer.source)
        if not all(_renamed(name, answer.renamed) in typed for name in item.names):
            return None
        tree = ast.parse(expression, mode="eval")
        try:
            return evaluate(tree.body, typed)
        except NotLiteralError:
            if any(isinstance(node, ast.Name) and node.id not in typed for node in ast.walk(tree)):
                raise  # it needs something of the lesson's own
            return None

    def _speaks_otherwise(self, answer: Answer) -> bool:
        """Say whether an answer uses a name such as `e` or `log` to which the notebook gives another meaning."""
        return bool(self._other_meanings) and not self._other_meanings.isdisjoint(used_names(answer.source))

    @cached_property
    def _other_meanings(self) -> frozenset[str]:
        own = [other_meanings(step.source) for step in self.matched.program if step.source]
        return KNOWN.intersection(self.key.provides).union(*own)

    def _judged(self, item: Item, answer: Answer, value: Any, via: Via) -> Mark:
        verdict = self._verdict(item, value)
        alone = item.personal and verdict.status == "wrong" and not self.told
        mark = replace(_mark_of(item, verdict), via=via, value=plain(value), notes=(NO_NAME,) if alone else ())
        return self._note(mark, answer)

    def _verdict(self, item: Item, value: Any) -> Verdict:
        """Judge with the learner's own numbers: of the names they may have used, the first that fits."""
        if not item.personal or _is_blank(value):
            return _judge(item.exercise, value)
        verdicts: list[Verdict] = []
        for name in self.names:
            mine = item.exercise.for_learner(name)
            verdicts.append(_judge(replace(mine, inputs=mine.given()), value))
            if verdicts[-1].status != "wrong":
                return verdicts[-1]
        return next((verdict for verdict in verdicts if verdict.slip), verdicts[0])

    def _note(self, mark: Mark, answer: Answer) -> Mark:
        shown = _head(answer.source) if mark.step == "function" else answer.source[:SHOWN]
        return replace(mark, answer=shown, found=answer.found, notes=(*answer.notes, *mark.notes))

    # What the sandbox said

    def _settled(self, one: Mark | Pending) -> Mark:
        if isinstance(one, Mark):
            return one
        if self.asking is None:
            mark = Mark(one.item.id, one.item.exercise.step, None, one.item.points, "unmarked")
            return self._note(mark, one.answer)
        return self._by_replies(one, self.asking)

    def _by_replies(self, one: Pending, asking: Asking) -> Mark:
        item, error = one.item, asking.errors.get(one.place, "")
        if one.place in asking.skipped.values():
            mark = replace(_missing(item), status="stopped", message="Its cell ended the run, so it was passed over.")
        elif one.stopped == "never":
            message = "It was not run: what came before it used up the time of the whole file."
            mark = replace(_missing(item), status="stopped", message=message)
        elif one.cases:
            mark = self._of_function(one)
        elif one.stopped:
            mark = replace(_missing(item), status="stopped", message=f"It {STOPPED[one.stopped]}.")
        elif one.replies[0].ok:
            mark = self._judged(item, one.answer, one.replies[0].value, "sandbox")
            if mark.status == "right" or not (name := asking.lacks(error)):
                return mark
            return self._waiting(mark, item, name)  # a line above it, such as np.zeros(3), left a value behind
        else:
            mark = self._without_value(item, one.replies[0], error, asking)
        if error and mark.status not in ("right", "recorded"):
            mark = replace(mark, message=f"{_sentence(error)} {mark.message}".strip())
        return self._note(replace(mark, via="sandbox"), one.answer)

    def _without_value(self, item: Item, reply: Reply, error: str, asking: Asking) -> Mark:
        """Say why an answer has no value; one that lacks only what the lesson gave it waits for a person."""
        mark = replace(_missing(item), status="unreadable")
        if reply.error == "NotPlain":
            return replace(mark, message=_sentence(ODD.get(reply.text, ODD["kind"])))
        name = lacking(error or said(reply))
        if item.exercise.step == "choice" and name in item.exercise.options():
            return replace(mark, message=f'Write your choice in quotes: "{name}".')
        if asking.lacks(error or said(reply)):
            return self._waiting(mark, item, name)
        return replace(mark, message="So it gives no answer." if error else NOT_COMPUTED.format(said(reply)))

    def _waiting(self, mark: Mark, item: Item, name: str) -> Mark:
        message = f"{LACKING.format(name)}, so a person looks at it."
        right = self._right(item)
        return replace(mark, points=None, status="recorded", message=message, slip="", section="", right=right)

    def _right(self, item: Item) -> str:
        """Write the right answer out for whoever marks by hand; "" where only a sealed one exists."""
        truth, name = item.exercise.for_learner(self.names[0]).truth(), self.names[0] or "no name"
        whose = f" (drawn for {name})" if item.personal else ""
        return "" if truth is None else f"Right is {in_words(truth)}{whose}."

    def _of_function(self, one: Pending) -> Mark:
        item = one.item
        odd = next((reply for reply in one.replies if not reply.ok and reply.error == "NotPlain"), None)
        if odd is not None:
            message = f"Its result cannot be read: {ODD.get(odd.text, ODD['kind'])}."
            return replace(_missing(item), status="wrong", message=message)
        if one.replies and one.replies[0].error == "NameError" and one.replies[0].line is None:
            return replace(_missing(item), status="wrong", message=f"There is no function `{one.expression}`.")
        outcomes = [_outcome(reply) for reply in one.replies] + [Outcome(stopped=True)] * bool(one.stopped)
        verdict = item.exercise.judge_results(one.cases, outcomes)
        status = "stopped" if one.stopped else verdict.status
        notes = ("changed its inputs",) if any(reply.changed for reply in one.replies) else ()
        mark = _mark_of(item, verdict)
        if any(reply.error == "NameError" for reply in one.replies):
            borrowed = sorted(used_names(one.answer.source) & self.key.labkits)
            told = [f"{LACKING.format(name)}." for name in borrowed[:1]]
            mark = replace(mark, message=" ".join([mark.message, *told]))
        case = "" if verdict.status == "right" else _shown_case(item, one, outcomes)
        return replace(mark, status=status, case=case, notes=notes)


def _worth(mark: Mark) -> int:
    """Order what became of several tries at one answer."""
    return {"right": 2, "recorded": 1}.get(mark.status, 0)


_REMEMBERED: dict[tuple[str, str, Answer], Mark] = {}  # most of a class types the same few answers


def _remember(known: tuple[str, str, Answer], mark: Mark) -> None:
    if len(_REMEMBERED) >= 4096:
        _REMEMBERED.clear()
    _REMEMBERED[known] = mark


def _renamed(expression: str, renamed: Sequence[tuple[str, str]]) -> str:
    for name, used in renamed:
        expression = re.sub(rf"\b{re.escape(name)}\b", used, expression)
    return expression


def _judge(exercise: Exercise, value: Any) -> Verdict:
    with np.errstate(all="ignore"):
        return exercise.judge(value)


def _is_blank(value: Any) -> bool:
    try:
        return is_blank(value)
    except UnreadableError:
        return False


def _mark_of(item: Item, verdict: Verdict) -> Mark:
    points = (
        None if item.exercise.step == "written" and verdict.status == "recorded" else verdict.fraction * item.points
    )
    return Mark(
        item.id,
        item.exercise.step,
        points,
        item.points,
        verdict.status,
        verdict.message,
        verdict.slip_id,
        verdict.section,
    )


def _outcome(reply: Reply) -> Outcome:
    changed = "an argument" if reply.changed else ""
    return Outcome(reply.value, changed=changed) if reply.ok else Outcome(error=name_of(reply))


def _head(source: str) -> str:
    """Show a function by its first line: the student has the rest, and a report is no place to run into it."""
    lines = source.splitlines()
    head = next((line for line in lines if line.lstrip().startswith("def ")), "")
    return f"{head[:200]}  # {len(lines)} lines" if head else f"# {len(lines)} lines, no function"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _shown_case(item: Item, one: Pending, outcomes: Sequence[Outcome]) -> str:
    """Show what went wrong on a case the lesson itself shows; nothing of a hidden one."""
    task = item.exercise.task
    shown = [(case, outcome) for case, outcome in zip(one.cases, outcomes, strict=False) if case in list(task.visible)]
    names = parameters(one.answer.source, one.expression)
    names = names if len(names) == len(task.parameters) else ()
    verdict = item.exercise.judge_results([case for case, _ in shown], [outcome for _, outcome in shown], names)
    return verdict.case if verdict.status == "wrong" else ""


def plain(value: Any, depth: int = 0) -> Any:
    """Write an answer as JSON types: nan and the infinities as text, `...` and anything else as None."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)) and depth < 8:
        return [plain(part, depth + 1) for part in value]
    if isinstance(value, (bool, str)):
        return whole(value[:SHOWN]) if isinstance(value, str) else value
    if isinstance(value, (int, float, Fraction, np.number)):
        try:
            number = float(value)
        except OverflowError:  # a whole number beyond any float, which only a forged reply can bring
            number = math.inf if value > 0 else -math.inf
        return number if math.isfinite(number) else repr(number)
    return None
