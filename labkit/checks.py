"""Check a prediction by running the computation it predicts: what lessons call as `check.…`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from types import CodeType
from typing import Any

from labkit import answers, feedback, journal, kernel
from labkit.exercises import ROUNDED
from labkit.exercises import Exercise as Exercise
from labkit.steps import Task
from labkit.verdict import Verdict


@dataclass(frozen=True)
class Record:
    """One check as it was called: what a builder or a grader needs of a solved key."""

    exercise: Exercise
    answer: Any
    verdict: Verdict


STOPPED = "The answer cell ended in an error when it last ran, so this is about what you answered before."
BORROWED = "It uses `{name}`, which is not there when a class is graded: to hand this in, {instead}."

_ABOUT = re.compile(r'^# exercise: (\S+) \(|\bcheck\.\w+\(\s*"([^"]+)"', re.MULTILINE)  # an answer cell, or a check

_collectors: list[list[Record]] = []


@contextmanager
def collecting() -> Iterator[list[Record]]:
    """Collect every check called inside the `with` block; the journal stays silent.

    The answers are taken for a key's: a choice that no computation decides becomes the right one.
    """
    records: list[Record] = []
    _collectors.append(records)
    try:
        yield records
    finally:
        _collectors.remove(records)


def submit(exercise: Exercise, answer: Any) -> Any:
    """Judge an answer, note it, and return the Verdict; under nbgrader return points or raise AssertionError."""
    if _collectors:
        if exercise.step == "choice" and "outcome" not in exercise.inputs:
            exercise = replace(exercise, inputs={**exercise.inputs, "sealed": feedback.seal(exercise.id, answer)})
        verdict = exercise.judge(answer)
        _collectors[-1].append(Record(exercise, answer, verdict))
        return verdict
    if os.environ.get("NBGRADER_EXECUTION"):
        return _for_nbgrader(exercise.judge(answer))
    if unquoted := _unquoted(exercise):
        return unquoted
    verdict = _noted(exercise, answer, exercise.judge(answer))
    if kernel.stopped(exercise.id):
        return replace(verdict, message=f"{STOPPED} {verdict.message}")
    if verdict.status == "right" and (name := kernel.borrowed(exercise.id)):
        instead = "write it in plain Python or NumPy" if exercise.step == "function" else "type the answer itself"
        return replace(verdict, message=f"{verdict.message} {BORROWED.format(name=name, instead=instead)}")
    return verdict


def _explained(source: str, name: str) -> Verdict | None:
    """Say in words why an answer cell, or the check of one, stopped over a name that does not exist."""
    found = _ABOUT.search(source)
    if not found:
        return None
    exercise_id = found[1] or found[2]
    exercise = Exercise(exercise_id, feedback.of(exercise_id).kind, {})
    if verdict := _unquoted(exercise):
        return verdict
    missing = f"`{name}` does not exist yet: a cell above has not run, or ended in an error. Run it, then this one."
    return Verdict(exercise_id, "unreadable", missing) if found[2] else None


def _unquoted(exercise: Exercise) -> Verdict | None:
    """Say what to do about a choice written without quotes, `my_choice = b`."""
    name = kernel.unquoted(exercise.id) if exercise.step == "choice" else ""
    if not name:
        return None
    verdict = exercise.judge(name)
    quoted = Verdict(exercise.id, "unreadable", f'Write your choice in quotes: "{name}".')
    return verdict if verdict.status == "unreadable" else quoted


def _for_nbgrader(verdict: Verdict) -> Any:
    if verdict.status == "recorded":
        return verdict
    if verdict.status in ("right", "blank"):
        return verdict.points
    raise AssertionError(str(verdict))


def _noted(exercise: Exercise, answer: Any, verdict: Verdict) -> Verdict:
    """Journal the answer and add what attempts have earned: hints one by one, and the first prediction."""
    if verdict.status in ("blank", "unreadable"):
        return verdict
    first, now = journal.first(exercise.id), answers.in_words(answer)
    journal.record(exercise.id, answer, verdict.status, attempt=_fingerprint(answer))
    if first is not None and exercise.step not in ("function", "written"):
        before = answers.in_words(_remembered(first.answer))
        verdict = replace(verdict, first="" if before == now else before)
    if verdict.status != "wrong" or verdict.slip is ROUNDED:
        return verdict
    hints, tries = exercise.feedback.hints, _different_tries(exercise.id)
    return replace(verdict, hints=hints[:tries], hints_left=max(0, len(hints) - tries))


def _different_tries(exercise_id: str) -> int:
    """Count the different wrong answers on record, so that running a cell again earns no hint."""
    tried = (entry for entry in journal.entries("answer") if entry.get("exercise") == exercise_id)
    return len({entry.get("attempt") for entry in tried if entry.get("status") == "wrong"})


def _fingerprint(answer: Any) -> str:
    """Tell one attempt from another; a function is what its body does, not where it is stored."""
    code = getattr(answer, "__code__", None)
    words = answers.in_words(answer) if code is None else repr(_body(code))
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:16]


def _body(code: CodeType) -> tuple[Any, ...]:
    return code.co_code, code.co_names, [_body(c) if isinstance(c, CodeType) else c for c in code.co_consts]


def _remembered(plain: Any) -> Any:
    """Read a journalled answer, in which fractions stand as text."""
    if isinstance(plain, list):
        return [_remembered(part) for part in plain]
    if isinstance(plain, str) and re.fullmatch(r"-?\d{1,30}/[1-9]\d{0,30}", plain):
        return Fraction(plain)
    return plain


class Checks:
    """`labkit.check`: one method for each step a learner predicts."""

    def shapes(self, id: str, answer: Any, *, of: str, **sizes: Any) -> Any:
        """Check a shape, a tuple of whole numbers."""
        return _check(id, "shapes", answer, of=of, **sizes)

    def projection(self, id: str, answer: Any, *, inputs: Any, weights: Any, **context: Any) -> Any:
        """Check `inputs @ weights`."""
        return _check(id, "projection", answer, inputs=inputs, weights=weights, **context)

    def scores(self, id: str, answer: Any, *, queries: Any, keys: Any, **context: Any) -> Any:
        """Check `queries @ keys.T / sqrt(d_k)`; context: d_model, d_v, H."""
        return _check(id, "scores", answer, queries=queries, keys=keys, **context)

    def weights(self, id: str, answer: Any, *, scores: Any = None, allowed: Any = None, **context: Any) -> Any:
        """Check a row or a map of weights, from scores or from queries and keys."""
        return _check(id, "weights", answer, scores=scores, allowed=allowed, **context)

    def mixture(self, id: str, answer: Any, *, values: Any, weights: Any = None, **context: Any) -> Any:
        """Check a mixture of values, from weights or from scores (and allowed)."""
        return _check(id, "mixture", answer, values=values, weights=weights, **context)

    def update(self, id: str, answer: Any, *, outputs: Any, W_O: Any, state: Any = None, **context: Any) -> Any:
        """Check what the heads write back, or the state after it."""
        return _check(id, "update", answer, outputs=outputs, W_O=W_O, state=state, **context)

    def mask(self, id: str, answer: Any, *, rule: str, form: str = "allowed", **context: Any) -> Any:
        """Check a mask."""
        return _check(id, "mask", answer, rule=rule, form=form, **context)

    def number(self, id: str, answer: Any, *, by: Any, slips: Mapping[str, Any] | None = None, **context: Any) -> Any:
        """Check a number, or a small list of them, against a computation."""
        return _check(id, "number", answer, by=by, slips=slips, **context)

    def choice(self, id: str, answer: Any, *, options: Any = None, outcome: Any = None, **context: Any) -> Any:
        """Check a choice against the outcome of a computation, or against the sealed choice of the key."""
        return _check(id, "choice", answer, options=options, outcome=outcome, **context)

    def ordering(self, id: str, answer: Any, *, by: Any, **context: Any) -> Any:
        """Check an order."""
        return _check(id, "ordering", answer, by=by, **context)

    def function(self, id: str, function: Any, *, task: str | Task) -> Any:
        """Run a learner's function against the task's own computation."""
        return _check(id, "function", function, task=task)

    def written(self, id: str, text: Any) -> Any:
        """Record a text that a person will read."""
        return _check(id, "written", text)


def _check(
    id: str, step: str, answer: Any, *, variant: str = "", example: Mapping[str, Any] | None = None, **inputs: Any
) -> Any:
    """Build the exercise and submit the answer; `variant` goes on with another exercise's example of the learner."""
    given = {name: value for name, value in inputs.items() if value is not None}
    return submit(Exercise(id, step, given, example=example or {}, example_of=variant), answer)


check = Checks()
kernel.watch(_explained)
