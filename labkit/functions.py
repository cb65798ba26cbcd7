"""Run a function a learner wrote on shown and on drawn cases, and say where and why it goes wrong.

Calls run in a thread of their own, which works in a notebook's main thread and on every system. A function that does
not come back is asked to stop; one that is busy inside a single built-in call (`sum(range(10**12))`) cannot be asked.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import dis
import inspect
import io
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from labkit import answers, slips
from labkit.answers import UnreadableError
from labkit.attention import Array
from labkit.slips import Slip
from labkit.steps import Case, Task, as_last_step
from labkit.verdict import Status

PATIENCE = 2.0  # seconds for one call
SHOWN = 400  # characters of one argument or result


@dataclass(frozen=True)
class Outcome:
    """What one call gave: a value, or the reason why there is none. Plain data, so it can come from anywhere."""

    value: Any = None
    error: str = ""  # "ZeroDivisionError: division by zero"
    stopped: bool = False  # it was still running when its time was over
    changed: str = ""  # the argument it changed, by its name or in words

    @property
    def blank(self) -> bool:
        """Say whether the function has not been written yet."""
        return self.value is ... or self.error.startswith("NotImplementedError")


@dataclass(frozen=True)
class Finding:
    """The judgement of all calls together; `case` shows the smallest that went wrong, if it can one of the lesson's."""

    status: Status
    message: str
    slip: Slip | None = None
    case: str = ""


def is_unwritten(function: Any) -> bool:
    """Say whether a function's body is still `...`, `pass` or nothing but its docstring.

    >>> is_unwritten(lambda a: ...), is_unwritten(lambda a: a)
    (True, False)
    """
    code = getattr(function, "__code__", None)
    return code is not None and all(
        step.opname in ("RESUME", "NOP", "RETURN_VALUE", "COPY_FREE_VARS")
        or (step.opname in ("LOAD_CONST", "RETURN_CONST") and (step.argval is None or step.argval is ...))
        for step in dis.get_instructions(code)
    )


def parameter_names(function: Callable[..., Any], task: Task) -> tuple[str, ...]:
    """Return what the function itself calls the parameters of the task; the task's names where that cannot be told.

    >>> from labkit.steps import TASKS
    >>> parameter_names(lambda Q, K: ..., TASKS["scores"]), parameter_names(max, TASKS["scores"])
    (('Q', 'K'), ('queries', 'keys'))
    """
    try:
        names = tuple(inspect.signature(function).parameters)
    except Exception:  # a built-in, or an object of the learner's own
        return task.parameters
    return names if len(names) == len(task.parameters) else task.parameters


def run(function: Callable[..., Any], task: Task, cases: Sequence[Case], patience: float = PATIENCE) -> list[Outcome]:
    """Call the function on each case, up to the first that does not come back; what it prints is not shown."""
    outcomes: list[Outcome] = []
    for case in cases:
        with contextlib.redirect_stdout(io.StringIO()):
            outcomes.append(call(function, task, case, patience))
        if outcomes[-1].stopped:
            break
    return outcomes


def call(function: Callable[..., Any], task: Task, case: Case, patience: float = PATIENCE) -> Outcome:
    """Call the function once, on a copy of the case."""
    arguments = copy.deepcopy(case)
    outcome: list[Outcome] = []

    def work() -> None:
        try:
            outcome.append(Outcome(_kept(function(*arguments))))
        except _StopError:
            pass
        except BaseException as error:  # also SystemExit: nothing a learner writes may end the kernel
            outcome.append(Outcome(error=_said(error)))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        worker.join(patience)
    finally:  # also when the learner interrupts the kernel
        _stop(worker)
    if not outcome:
        return Outcome(stopped=True)
    names = parameter_names(function, task)
    changed = [name for name, now, old in zip(names, arguments, case, strict=True) if not _same(now, old)]
    return Outcome(outcome[0].value, outcome[0].error, changed="".join(changed[:1]))


def _kept(value: Any) -> Any:
    """Copy a result, which the function may write the next one into; what cannot be copied stays as it is."""
    try:
        return copy.deepcopy(value) if isinstance(value, (list, tuple, np.ndarray)) else value
    except Exception:
        return value


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}".rstrip(": ")
    except Exception:  # an exception of the learner's own that cannot be written as text
        return type(error).__name__


def _same(now: Any, before: Any) -> bool:
    """Say whether an argument is what it was; the function may have put arrays or objects of its own inside."""
    try:
        return bool(now == before)
    except Exception:  # such as an array, which has no single answer
        return False


class _StopError(BaseException):
    """Raised inside a learner's thread; no `except Exception` of theirs catches it."""


def _stop(worker: threading.Thread) -> None:
    """Ask a thread to end, a few times in case it is busy; a thread that never listens is left behind."""
    for _ in range(5):
        if not worker.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident or 0), ctypes.py_object(_StopError))
        worker.join(0.2)


# Judging -------------------------------------------------------------------------------------------------------


def judge(task: Task, cases: Sequence[Case], outcomes: Sequence[Outcome], names: Sequence[str] = ()) -> Finding:
    """Compare outcomes with the task's own computation: cases[i] gave outcomes[i]; a missing outcome never came.

    The case in the finding names its arguments as `names` does; without them as the task does.

    >>> from labkit.steps import TASKS
    >>> judge(TASKS["dot"], [[[1, 2], [3, 4]]], [Outcome([3, 8])]).slip.label
    'the products, not added up'
    """
    outcomes = [*outcomes, *[Outcome(stopped=True)] * (len(cases) - len(outcomes))]
    if all(outcome.blank for outcome in outcomes):  # also when nothing was called
        return Finding("blank", "Write the body of the function and run its cell, then run this one.")
    runs = [Run(task, case, outcome) for case, outcome in zip(cases, outcomes, strict=True)]
    wrong = [run for run in runs if run.complaint]
    if not wrong:
        return Finding("right", f"Your function agrees with the computation on all {len(runs)} cases.")
    by_size = sorted(wrong, key=lambda run: (run.case not in task.visible, len(repr(run.case))))
    smallest = by_size[0]
    if found := _explaining(task, runs):
        message = f"This is what you get from {found[0].label}. {found[0].refutation}"
        telling = next((run for run in by_size if run.is_finite), smallest)  # overflow shows nothing of a slip
        return Finding("wrong", message, found[0], telling.shown(names))
    return Finding("wrong", smallest.complaint, None, smallest.shown(names))


class Run:
    """One call beside what it should have given."""

    def __init__(self, task: Task, case: Case, outcome: Outcome) -> None:
        self.task, self.case, self.outcome = task, case, outcome
        right = _right_values(task, _as_text(case))
        self.boolean = right.dtype == bool
        self.right: Array = right.astype(float)
        self.given: Array | None = None
        self.about_result = self._compare()
        self.complaint = self.about_result or self._changes()

    def _compare(self) -> str:
        """Say what is wrong with the result, without its numbers; "" if nothing is."""
        outcome = self.outcome
        if outcome.stopped:
            return "Your function was still running when its time was over: is there a loop that never ends?"
        if outcome.error:
            return f"Your function stops with {outcome.error}."
        if outcome.value is None:
            return "Your function returns nothing (None): is there a `return` at the end?"
        try:
            read = answers.read_booleans if self.boolean else answers.read_numbers
            self.given = given = read(outcome.value).astype(float)
        except UnreadableError as reason:
            return f"The result cannot be read: {str(reason).replace('your answer', 'it')}"
        if given.shape != self.right.shape:
            found = f"has shape {given.shape}" if given.shape else "is a single number"
            return f"The result {found}, expected is {answers.shape_in_words(self.right.shape)}."
        if not answers.same(given, self.right):
            return "The result differs from the computation."
        if (given[self._blocked()] != 0).any():  # a leak below any tolerance
            return "A blocked source has weight: it must be exactly 0."
        return ""

    def _changes(self) -> str:
        """Say which argument the call changed; "" if none."""
        changed = self.outcome.changed
        named = f"its argument `{changed}`" if changed.isidentifier() else changed
        return f"Your function changes {named}: work on a copy, or build a new list." if changed else ""

    def _blocked(self) -> Array:
        """Say which weights must be exactly 0; a weight that only came out as 0 need not be."""
        step, given = as_last_step(self.task.step, self.task.given(self.case))
        allowed = given.get("allowed") if step == "weights" else None
        return np.zeros(self.right.shape, dtype=bool) if allowed is None else ~np.asarray(allowed, dtype=bool)

    @property
    def is_finite(self) -> bool:
        """Say whether the call gave finite numbers."""
        return self.given is not None and bool(np.isfinite(self.given).all())

    def comes_from(self, wrong: Any) -> bool:
        """Say whether a slip's value is what the call gave; where the slip divides 0 by 0, anything wrong is."""
        value = np.asarray(wrong, dtype=float)
        undefined = np.isnan(value)
        if self.outcome.error:
            return bool(undefined.any())
        if self.given is None or self.given.shape != value.shape:
            return False
        agrees = not (answers.differing(self.given, value) & ~undefined).any()
        return agrees and (not undefined.any() or not answers.same(self.given, self.right))

    def tells(self, slip: Slip) -> bool:
        """Say whether a slip gives something else than the computation here; one that never does explains nothing."""
        value = _slip_values(self.task, self.case).get(slip.id)
        return value is not None and not answers.same(np.asarray(value, dtype=float), self.right)

    def shown(self, names: Sequence[str] = ()) -> str:
        """Show the call, what it gave and what was expected."""
        pairs = zip(names or self.task.parameters, self.case, strict=True)
        arguments = ",\n  ".join(f"{name} = {_short(value)}" for name, value in pairs)
        gave = "no result in time" if self.outcome.stopped else self.outcome.error or _short(self.outcome.value)
        right = self.right.astype(bool) if self.boolean else self.right
        call = f"{self.task.name}(\n  {arguments}\n)\ngave      {gave}"
        if self.complaint and not self.about_result:
            return f"{call}, as expected\nchanged   {self.outcome.changed}"
        return f"{call}\nexpected  {_short(right)}"


def slip_functions(task: Task) -> list[tuple[Slip, Callable[..., Any]]]:
    """List every slip that can happen in a task, each as the function that makes it on every case."""

    def making(id: str, *case: Any) -> Any:
        return np.asarray(_slip_values(task, list(case)).get(id, task.reference(*case))).tolist()

    return [(slip, partial(making, slip.id)) for slip in _possible(task)]


@lru_cache
def _possible(task: Task) -> list[Slip]:
    found = {slip.id: slip for case in task.baits() for slip, _ in slips.values(task.step, task.given(case))}
    return list(found.values())


def _as_text(case: Case) -> str:
    return json.dumps(case, default=lambda value: value.tolist())  # a task of an author's may hold NumPy's numbers


@lru_cache(maxsize=4096)  # a class hands in hundreds of functions, all called with the same cases
def _right_values(task: Task, case: str) -> Array:
    return np.asarray(task.reference(*json.loads(case)))


def _slip_values(task: Task, case: Case) -> dict[str, Any]:
    return _slip_values_of(task, _as_text(case))


@lru_cache(maxsize=4096)  # as above
def _slip_values_of(task: Task, case: str) -> dict[str, Any]:
    return {slip.id: value for slip, value in slips.values(task.step, task.given(json.loads(case)))}


def _explaining(task: Task, runs: Sequence[Run]) -> list[Slip]:
    """Find the slips that reproduce every run; failing that, every run that gave finite numbers."""
    finite = [run for run in runs if run.is_finite]
    return _common_slips(task, runs) or (_common_slips(task, finite) if any(run.complaint for run in finite) else [])


def _common_slips(task: Task, runs: Sequence[Run]) -> list[Slip]:
    suspects = _possible(task)
    for run in runs:
        if suspects:
            values = _slip_values(task, run.case)
            suspects = [slip for slip in suspects if run.comes_from(values.get(slip.id, run.right))]
    return [slip for slip in suspects if any(run.tells(slip) for run in runs)]


def _short(value: Any) -> str:
    try:
        text = repr(_rounded(value))
    except Exception:  # an object of the learner's own, or a list that holds itself
        text = f"something of the type {type(value).__name__}"
    return text if len(text) <= SHOWN else text[:SHOWN] + " …"


def _rounded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = (value[:SHOWN] if value.ndim else value).tolist()
    if isinstance(value, (list, tuple)):
        return [_rounded(part) for part in value[:SHOWN]]  # each is a character at least: more is not shown anyway
    if not isinstance(value, (float, np.floating)) or not np.isfinite(value):
        return value
    return int(value) if value == int(value) else round(float(value), 4)
