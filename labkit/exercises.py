"""One question about one step: its truth by running the step, its slips, and the judgement of any answer."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np

from labkit import answers, feedback, functions, sections, slips, steps
from labkit.answers import UnreadableError
from labkit.attention import Array
from labkit.slips import Slip
from labkit.steps import Case, Inputs, Task
from labkit.verdict import Status, Verdict

REASONS = {
    "shapes": "Rows first, then how wide each row is.",
    "projection": "Every row times the columns of the same matrix.",
    "scores": "Each query times each key, divided by the root of their width.",
    "weights": "The exponentials of the allowed scores, each divided by the sum of its row.",
    "mixture": "The values added up, each times its weight.",
    "update": "The heads side by side, written back through W_O.",
    "mask": "Each row says which sources its destination may read.",
    "number": "The computation gives the same.",
    "ordering": "The computation gives the same order.",
    "choice": "That is what the computation gives.",
    "sealed": "Yes.",
}


@dataclass(frozen=True)
class Exercise:
    """One question: the step it predicts and the inputs of that step, never a stored answer.

    An input that is a function of one argument is called with the learner's own example.
    """

    id: str
    step: str
    inputs: Inputs
    learner: str | None = None
    example: Mapping[str, Any] = field(default_factory=dict)  # options of the learner's example
    example_of: str = ""  # the exercise whose example this one goes on with

    @property
    def points(self) -> float:
        """Give the points the lesson's source grants."""
        return self.feedback.points

    @property
    def feedback(self) -> feedback.Feedback:
        """Give what the lesson's source says about this exercise."""
        return feedback.of(self.id)

    def for_learner(self, name: str) -> Exercise:
        """Ask the same question with another learner's numbers."""
        return replace(self, learner=name)

    def given(self) -> Inputs:
        """Give the inputs with everything filled in that depends on the learner."""
        return {name: self._for_me(value) for name, value in self.inputs.items()}

    def truth(self) -> Any:
        """Compute the right answer; None where only a sealed one exists, or none."""
        if self.step in ("written", "function") or (self.step == "choice" and "outcome" not in self.inputs):
            return None
        return steps.truth(self.step, self.given())

    def slips(self) -> list[tuple[Slip, Any]]:
        """List every slip that applies, with the answer it leads to."""
        if self.step in ("number", "choice", "ordering"):
            return list(self._inline_slips())
        if self.step == "function":
            return list(functions.slip_functions(self.task))
        if self.step == "written":
            return []
        return [*self._inline_slips(), *slips.values(self.step, self.given())]

    @cached_property
    def _right_numbers(self) -> Array:
        """Compute the truth once: a class answers one exercise many times."""
        return np.asarray(self.truth())

    @cached_property
    def _wrong_numbers(self) -> list[tuple[Slip, Array]]:
        """Compute once what every slip leads to."""
        return [(slip, np.asarray(value, dtype=float)) for slip, value in self.slips()]

    def judge(self, answer: Any) -> Verdict:
        """Compare an answer with the computation; whatever the answer is, the result is a Verdict.

        >>> row = Exercise("row", "weights", {"scores": [1, 3]})
        >>> print(row.judge([1 / 4, 3 / 4]).slip_id, row.judge(["1/4", "3/4"]).status, row.judge(...).status)
        weights-raw-scores unreadable blank
        """
        try:
            if answers.is_blank(answer):
                return self._verdict("blank", "Fill in the cell above and run it, then run this one.")
            return _JUDGES[self.step](self, answer)
        except UnreadableError as reason:
            return self._verdict("unreadable", f"{str(reason)[0].upper()}{str(reason)[1:]}")

    def _verdict(self, status: Status, message: str, slip: Slip | None = None) -> Verdict:
        return Verdict(self.id, status, message, slip, self._section(slip) if status == "wrong" else "", self.points)

    def _section(self, slip: Slip | None) -> str:
        """Name what to look at again: the slip's topic, but never of a later lesson; else where this is explained."""
        covers, lesson = self.feedback.covers, self.feedback.lesson
        names = [slip.section if slip else "", *(covers if self._asks_again() else ()), self.id, *covers]
        found = [(name, section) for name in names if (section := sections.of(name))]
        return next((name for name, section in found if not lesson or section.lesson[:2] <= lesson[:2]), "")

    def _asks_again(self) -> bool:
        """Say whether this repeats a step explained earlier, in code or with the learner's own numbers."""
        mine = any(callable(value) and takes_one_argument(value) for value in self.inputs.values())
        return mine or self.step == "function"

    def _right(self, reason: str = "") -> Verdict:
        return self._verdict("right", reason or self.feedback.why.get("right") or REASONS[self.step])

    def _slipped(self, found: list[Slip]) -> Verdict:
        slip, others = found[0], found[1:]
        cause = f"This is what you get from {slip.label}. " if slip.label else ""
        also = f" (The same comes from {others[0].label}.)" if others and others[0].label else ""
        return self._verdict("wrong", f"{cause}{slip.refutation}{also}", slip)

    def _for_me(self, value: Any) -> Any:
        if not callable(value) or not takes_one_argument(value):
            return value
        from labkit.variants import variant  # late: most checks need no example

        mine = partial(variant, self.example_of or self.id, self.learner, **self.example)
        asked = any(value is self.inputs.get(name) for name in ("by", "outcome"))
        return (lambda: value(mine())) if asked else value(mine())

    @property
    def task(self) -> Task:
        """Give the task of a function exercise."""
        task = self.inputs["task"]
        return task if isinstance(task, Task) else steps.task_named(task)

    def judge_results(
        self, cases: Sequence[Case], outcomes: Sequence[functions.Outcome], names: Sequence[str] = ()
    ) -> Verdict:
        """Judge a function by what its calls gave, wherever they ran: cases[i] gave outcomes[i].

        A failing case is shown with the function's own parameter `names`, if they are known.
        """
        finding = functions.judge(self.task, cases, outcomes, names)
        reason = self.feedback.why.get("right") if finding.status == "right" else ""
        return replace(self._verdict(finding.status, reason or finding.message, finding.slip), case=finding.case)

    def _inline_slips(self) -> Iterator[tuple[Slip, Any]]:
        if self.step == "choice":
            yield from self._wrong_options()
        if self.step == "ordering":
            yield _REVERSED, self.truth()[::-1]
        for name, told in self.inputs.get("slips", {}).items():
            compute, *words = told if isinstance(told, tuple) else (told,)
            value = self._for_me(compute)
            known = slips.CATALOGUE.get(name)
            refutation = words[0] if words else self.feedback.why.get(name, "")
            yield (
                known or Slip(name, self.step, "", refutation, "".join(words[1:]), lambda given: None),
                (value() if callable(value) else value),
            )

    def _wrong_options(self) -> Iterator[tuple[Slip, Any]]:
        for option in self.options():
            if not self._is_right(option):
                why = self.feedback.why.get(option, f"Not {option}.")
                yield Slip(f"{self.id}:{option}", "choice", "", why, "", lambda given: None), option

    def options(self) -> list[str]:
        """List the options of a choice: those given, else those the lesson gives a reason for, else A, B, C."""
        return [str(option) for option in self.inputs.get("options") or self._explained() or "ABC"]

    def _explained(self) -> list[str]:
        return sorted(option for option in self.feedback.why if option != "right")

    def _is_right(self, option: str) -> bool:
        if "outcome" in self.inputs:
            return canonical(option) == canonical(self.truth())
        return feedback.seal(self.id, option) == (self.inputs.get("sealed") or self.feedback.sealed)


_REVERSED = Slip(
    "ordering-reversed", "ordering", "the same order from the other end", "Read again which end comes first.", "", list
)


def takes_one_argument(function: Any) -> bool:
    """Say whether a function asks for exactly one argument, so that a learner's example can be it."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) == 1


ROUNDED = Slip(
    "rounded", "", "the right numbers, rounded", "Write fractions such as 2/3, or six decimals.", "", lambda given: None
)


# One judge for each kind of answer -----------------------------------------------------------------------------


def _judge_numbers(exercise: Exercise, answer: Any) -> Verdict:
    truth = exercise._right_numbers
    expected = truth.astype(float)
    given = _read(answer, expected, truth.dtype == bool)
    if answers.same(given, expected):
        return exercise._right()
    wrong = exercise._wrong_numbers
    if found := [slip for slip, value in wrong if _slip_gives(value, given, expected)]:
        return exercise._slipped(found)
    if answers.is_rounded(given, expected):
        rounded = exercise._verdict("wrong", f"Right, but rounded. {ROUNDED.refutation}", ROUNDED)
        return replace(rounded, section="")  # nothing to read again
    if found := [slip for slip, value in wrong if answers.is_rounded(given, value) and not np.isnan(value).all()]:
        return exercise._slipped(found)
    _refuse_shape(given.shape, expected)
    _refuse_infinite(given, expected)
    return exercise._verdict("wrong", _what_differs(exercise, given, expected))


def _read(answer: Any, expected: Array, booleans: bool) -> Array:
    """Read an answer; of several reasons against it the shape comes first, then what is not finite, then types."""
    try:
        return (answers.read_booleans if booleans else answers.read_numbers)(answer).astype(float)
    except UnreadableError:
        if isinstance(answer, (list, tuple, np.ndarray)):
            _refuse_shape(answers.shape_of(answer), expected)
            _refuse_infinite(answers.floats_only(answer), expected)
        raise


def _refuse_shape(shape: tuple[int, ...], expected: Array) -> None:
    if shape != expected.shape:
        found = f"the shape is {shape}" if shape else "it is a single number"
        raise UnreadableError(f"{found}; expected is {answers.shape_in_words(expected.shape)}.")


def _refuse_infinite(given: Array, expected: Array) -> None:
    if np.isfinite(expected).all() and not np.isfinite(given).all():
        place = tuple(np.argwhere(~np.isfinite(given))[0].tolist())
        raise UnreadableError(f"{answers.where(place)} {answers.NOT_FINITE[str(given[place])]}")


def _slip_gives(wrong: Array, given: Array, expected: Array) -> bool:
    """Say whether a slip explains an answer: it agrees wherever the slip is defined, and is not the truth there."""
    defined = ~np.isnan(wrong)
    if wrong.shape != given.shape or not defined.any():
        return False
    agrees = not (answers.differing(given, wrong) & defined).any()
    return agrees and (wrong.shape != expected.shape or bool((answers.differing(wrong, expected) & defined).any()))


def _what_differs(exercise: Exercise, given: Array, expected: Array) -> str:
    """Point at the entries that differ, without giving their values, and at a rule they break."""
    places = _places(answers.differing(given, expected))
    rule = _BROKEN_RULES.get(exercise.step)
    return f"{places} {rule(given, exercise.given())}".rstrip() if rule else places


def _places(differ: Array) -> str:
    """Say in words which entries are wrong.

    >>> _places(np.array([True, False, True])), _places(np.array([[False, False], [False, True]]))
    ('Entries 1 and 3 are not right yet.', 'Row 2, entry 2 is not right yet.')
    """
    if differ.ndim == 0:
        return "The computation gives another number."
    if differ.ndim == 1:
        return f"{_numbered('Entry', 'Entries', differ)}."
    if differ.ndim > 2:
        return f"{int(differ.sum())} of {differ.size} entries are not right yet."
    rows = np.asarray(differ.any(axis=1))
    if rows.sum() > 1:
        return f"{_numbered('Row', 'Rows', rows)}."
    row = int(np.argmax(rows))
    return f"Row {row + 1}, {_numbered('entry', 'entries', differ[row])}."


def _numbered(one: str, many: str, marked: Any) -> str:
    *others, last = (str(i + 1) for i in np.flatnonzero(marked))
    return f"{many} {', '.join(others)} and {last} are not right yet" if others else f"{one} {last} is not right yet"


def _broken_rule_of_weights(given: Array, inputs: Inputs) -> str:
    allowed = inputs.get("allowed")
    if allowed is not None and (given[~np.broadcast_to(allowed, given.shape)] != 0).any():
        return "A blocked source has weight: it must be exactly 0."
    if (given < 0).any():
        return "A weight is negative: weights are shares."
    off = np.abs(given.sum(axis=-1) - 1) > answers.TOLERANCE
    if off.ndim == 0:
        return "The weights do not sum to 1." if off else ""
    return f"Row {int(np.argmax(off)) + 1} does not sum to 1." if off.any() else ""


def _broken_rule_of_mixtures(given: Array, inputs: Inputs) -> str:
    values = np.asarray(inputs["values"], dtype=float)
    if ((given < values.min(axis=-2) - 1e-9) | (given > values.max(axis=-2) + 1e-9)).any():
        return "A coordinate lies outside the range of the values it is mixed from, where no mixture can lie."
    return ""


def _broken_rule_of_masks(given: Array, inputs: Inputs) -> str:
    readable = {"allowed": given == 1, "blocked": given == 0, "additive": given > -np.inf}
    allowed = readable[inputs.get("form", "allowed")]
    empty = ~allowed.any(axis=-1)
    return f"Row {int(np.argmax(empty)) + 1} may read no source at all." if empty.any() else ""


_BROKEN_RULES: dict[str, Callable[[Array, Inputs], str]] = {
    "weights": _broken_rule_of_weights,
    "mixture": _broken_rule_of_mixtures,
    "mask": _broken_rule_of_masks,
}


def canonical(choice: Any) -> str:
    """Write a choice so that case and spaces do not count."""
    return " ".join(str(choice).split()).casefold()


def _judge_choice(exercise: Exercise, answer: Any) -> Verdict:
    options = {canonical(option): option for option in exercise.options()}
    typed = canonical(answer) if isinstance(answer, str) else ""
    chosen = options.get(typed) or options.get(typed.strip("().: "))  # "(b)" and "B." are a letter too
    if chosen is None:
        raise UnreadableError(f"choose one of {', '.join(map(repr, options.values()))}, in quotes.")
    if "outcome" not in exercise.inputs and not (exercise.inputs.get("sealed") or exercise.feedback.sealed):
        return exercise._verdict("recorded", "Your choice is noted; this lesson has no stored outcome to compare with.")
    if exercise._is_right(chosen):
        decided = "choice" if "outcome" in exercise.inputs else "sealed"
        return exercise._right(exercise.feedback.why.get(chosen) or REASONS[decided])
    return exercise._slipped([slip for slip, option in exercise.slips() if option == chosen])


def _judge_ordering(exercise: Exercise, answer: Any) -> Verdict:
    right = [canonical(item) for item in exercise.truth()]
    if not isinstance(answer, (list, tuple, np.ndarray)):
        raise UnreadableError(f"write a list of {len(right)} items.")
    try:
        given = [canonical(item) for item in islice(answer, len(right) + 1)]  # one too many is enough to see
    except Exception as error:  # an object of the learner's own, or an array without axes
        raise UnreadableError(f"an item of the list cannot be read ({type(error).__name__}).") from error
    if sorted(given) != sorted(right):
        raise UnreadableError(
            f"the list must hold each of these once: {', '.join(sorted(map(str, exercise.truth())))}."
        )
    if given == right:
        return exercise._right()
    found = [slip for slip, wrong in exercise.slips() if [canonical(item) for item in wrong] == given]
    if found:
        return exercise._slipped(found)
    place = next(i for i, (one, other) in enumerate(zip(given, right, strict=True), 1) if one != other)
    where = (
        "The first item comes elsewhere." if place == 1 else f"Item {place} comes elsewhere; before it all is right."
    )
    return exercise._verdict("wrong", where)


def _judge_written(exercise: Exercise, answer: Any) -> Verdict:
    if not isinstance(answer, str):
        raise UnreadableError("write your answer as text between quotes.")
    return exercise._verdict("recorded", "Your words are kept; a person reads them.")


def _judge_function(exercise: Exercise, answer: Any) -> Verdict:
    if not callable(answer):
        raise UnreadableError("give the function itself, its name without parentheses.")
    if functions.is_unwritten(answer):
        return exercise.judge_results([], [])
    cases = exercise.task.cases(random.Random(exercise.id))
    outcomes = functions.run(answer, exercise.task, cases)
    return exercise.judge_results(cases, outcomes, functions.parameter_names(answer, exercise.task))


_JUDGES: dict[str, Callable[[Exercise, Any], Verdict]] = {
    **dict.fromkeys(
        ("shapes", "projection", "scores", "weights", "mixture", "update", "mask", "number"), _judge_numbers
    ),
    "choice": _judge_choice,
    "ordering": _judge_ordering,
    "written": _judge_written,
    "function": _judge_function,
}
