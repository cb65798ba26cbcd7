"""Functions learners write: run, timed, compared on shown and drawn cases, and traced to slips."""

from __future__ import annotations

import math
import random
import threading
import time
from typing import Any

import numpy as np
import pytest

from labkit import functions, steps
from labkit.checks import Exercise
from labkit.functions import Outcome, call, is_unwritten, judge, run
from labkit.kill_matrix import survey
from labkit.steps import TASKS, Task


def judged(function: Any, task: str, patience: float = 10) -> functions.Finding:
    cases = TASKS[task].cases(random.Random("tests"))
    return judge(TASKS[task], cases, run(function, TASKS[task], cases, patience))


# Right functions, however they are written --------------------------------------------------------------------


def dot(a: Any, b: Any) -> Any:
    total = 0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def matmul(A: Any, B: Any) -> Any:
    return [[dot(row, column) for column in zip(*B, strict=True)] for row in A]


def scores(queries: Any, keys: Any) -> Any:
    return [[dot(q, k) / len(q) ** 0.5 for k in keys] for q in queries]


def softmax(scores: Any, allowed: Any) -> Any:
    rows = []
    for row, mask in zip(scores, allowed, strict=True):
        top = max(s for s, ok in zip(row, mask, strict=True) if ok)
        parts = [math.exp(s - top) if ok else 0 for s, ok in zip(row, mask, strict=True)]
        rows.append([part / sum(parts) for part in parts])
    return rows


def softmax_with_numpy(scores: Any, allowed: Any) -> Any:
    masked = np.where(allowed, np.array(scores, dtype=float), -np.inf)
    parts = np.exp(masked - masked.max(axis=1, keepdims=True))
    return (parts / parts.sum(axis=1, keepdims=True)).astype(np.float32)


def attend(inputs: Any, W_Q: Any, W_K: Any, W_V: Any, allowed: Any) -> Any:
    weights = softmax(scores(matmul(inputs, W_Q), matmul(inputs, W_K)), allowed)
    return matmul(weights, matmul(inputs, W_V))


def multi_head(inputs: Any, heads: Any, W_O: Any, allowed: Any) -> Any:
    outputs = [attend(inputs, *head, allowed) for head in heads]
    return matmul([[x for output in outputs for x in output[i]] for i in range(len(inputs))], W_O)


def sound_rows(weights: Any, allowed: Any) -> Any:
    leaks = [
        any(w for w, ok in zip(row, mask, strict=True) if not ok) for row, mask in zip(weights, allowed, strict=True)
    ]
    return [abs(sum(row) - 1) < 1e-6 and not leak for row, leak in zip(weights, leaks, strict=True)]


def induction_targets(tokens: Any) -> Any:
    last: dict[Any, int] = {}
    found = []
    for i, token in enumerate(tokens):
        found.append(last.get(token, -2) + 1)
        last[token] = i
    return found


RIGHT = {
    "dot": [dot, np.dot],
    "matmul": [matmul, lambda A, B: np.array(A) @ np.array(B)],
    "transpose": [lambda A: list(zip(*A, strict=True)), np.transpose],
    "normalise": [lambda row: [x / sum(row) for x in row]],
    "scores": [scores],
    "softmax_over_sources": [softmax, softmax_with_numpy],
    "mix": [matmul],
    "attend": [attend],
    "causal": [lambda n: [[j <= i for j in range(n)] for i in range(n)], lambda n: np.tri(n), lambda n: np.tri(n) > 0],
    "split_heads": [lambda rows, H: np.array(rows).reshape(len(rows), H, -1).swapaxes(0, 1)],
    "multi_head": [multi_head],
    "sound_rows": [sound_rows],
    "by_norm": [
        lambda weights, values: [[w * math.hypot(*v) for w, v in zip(row, values, strict=True)] for row in weights]
    ],
    "previous_token_score": [lambda weights: sum(row[i] for i, row in enumerate(weights[1:])) / (len(weights) - 1)],
    "induction_targets": [induction_targets],
}


@pytest.mark.parametrize(("task", "function"), [(task, one) for task, several in RIGHT.items() for one in several])
def test_right_functions(task: str, function: Any) -> None:
    finding = judged(function, task)
    assert finding.status == "right", finding
    assert finding.case == ""


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_is_consistent(task: Task) -> None:
    rng = random.Random(1)
    for case in [*task.baits(), *(task.draw(rng) for _ in range(50))]:
        assert len(case) == len(task.parameters)
        assert np.isfinite(np.asarray(task.reference(*case), dtype=float)).all()
        plain = task.reference(*case)
        assert "array" not in repr(plain)
    assert all(case in task.baits() for case in task.visible)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_cases_come_smallest_first_and_repeat_with_the_seed(task: Task) -> None:
    one, two = (task.cases(random.Random("same")) for _ in range(2))
    assert one == two
    assert one != task.cases(random.Random("other"))
    assert [steps._size(case) for case in one] == sorted(steps._size(case) for case in one)


@pytest.mark.parametrize("task", TASKS)
def test_every_slip_of_a_task_is_caught_and_named(task: str) -> None:
    kills = survey(Exercise(f"write-{task}", "function", {"task": task}))
    assert any(kill.distinct for kill in kills)
    assert [kill for kill in kills if kill.distinct and not (kill.rejected and kill.named)] == []


def test_two_slips_at_once_are_still_named() -> None:
    """No maximum subtracted *and* a blocked score of 0: the overflow must not hide the mask."""

    def naive(scores: Any, allowed: Any) -> Any:
        rows = []
        for row, mask in zip(scores, allowed, strict=True):
            parts = [math.exp(s) if ok else 1 for s, ok in zip(row, mask, strict=True)]
            rows.append([part / sum(parts) for part in parts])
        return rows

    finding = judged(naive, "softmax_over_sources")
    assert finding.slip is not None
    assert finding.slip.id == "weights-blocked-score-zero"


SHIFTS: dict[str, Any] = {  # what a learner may subtract before exp, of the allowed scores of a row
    "first": lambda row: row[0],
    "last": lambda row: row[-1],
    "smallest": min,
    "mean": lambda row: sum(row) / len(row),
    "median": lambda row: sorted(row)[len(row) // 2],
    "middle of the range": lambda row: (min(row) + max(row)) / 2,
    "sum": sum,
    "largest, but at least 0": lambda row: max(0, *row),
    "largest of the sizes": lambda row: max(map(abs, row)),
    "nothing": lambda row: 0,
}
SHIFTS_NAMED = {
    "first": "weights-first-subtracted",
    "smallest": "weights-smallest-subtracted",
    "mean": "weights-mean-subtracted",
    "nothing": "weights-no-maximum",
}


def _softmax_of(row: Any, mask: Any, shift: Any) -> Any:
    subtracted = shift([s for s, ok in zip(row, mask, strict=True) if ok])
    parts = [math.exp(s - subtracted) if ok else 0 for s, ok in zip(row, mask, strict=True)]
    return [part / sum(parts) for part in parts]


def _with_softmax(softmax_row: Any) -> dict[str, Any]:
    """Give every function of the lessons that holds a softmax, with this one in it."""

    def attend(inputs: Any, W_Q: Any, W_K: Any, W_V: Any, allowed: Any) -> Any:
        rows = scores(matmul(inputs, W_Q), matmul(inputs, W_K))
        return matmul(list(map(softmax_row, rows, allowed)), matmul(inputs, W_V))

    return {
        "softmax": lambda row: softmax_row(row, [True] * len(row)),
        "softmax_row": softmax_row,
        "softmax_over_sources": lambda rows, masks: list(map(softmax_row, rows, masks)),
        "attend": attend,
    }


@pytest.mark.parametrize("task", _with_softmax(None))
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_softmax_that_subtracts_anything_but_the_largest_is_found_out(shift: str, task: str) -> None:
    finding = judged(_with_softmax(lambda row, mask: _softmax_of(row, mask, SHIFTS[shift]))[task], task)
    assert finding.status == "wrong"
    assert (finding.slip.id if finding.slip else None) == SHIFTS_NAMED.get(shift)


@pytest.mark.parametrize("task", _with_softmax(None))
def test_a_softmax_of_scores_cut_off_at_a_bound_is_found_out(task: str) -> None:
    def cut(row: Any, mask: Any) -> Any:
        return _softmax_of([max(-700, min(700, s)) for s in row], mask, max)

    finding = judged(_with_softmax(cut)[task], task)
    assert (finding.slip, finding.message) == (None, "The result differs from the computation.")


@pytest.mark.parametrize("task", ["softmax_row", "softmax_over_sources"])
def test_the_largest_of_a_row_without_a_matrix_is_no_maximum_of_the_whole_array(task: str) -> None:
    def blocked_too(row: Any, mask: Any) -> Any:
        return _softmax_of(row, mask, lambda _: max(row))

    finding = judged(_with_softmax(blocked_too)[task], task)
    assert finding.slip is not None
    assert finding.slip.id == "weights-blocked-maximum"


def _close(total: float) -> bool:
    return abs(total - 1) < 1e-6


def _audit(sums: Any = _close, leaks: Any = bool) -> Any:
    def audit(weights: Any, allowed: Any) -> Any:
        rows = [list(zip(row, mask, strict=True)) for row, mask in zip(weights, allowed, strict=True)]
        return [sums(sum(w for w, _ in row)) and not any(leaks(w) for w, ok in row if not ok) for row in rows]

    return audit


def _moved(length: Any) -> Any:
    return lambda weights, values: [[w * length(v) for w, v in zip(row, values, strict=True)] for row in weights]


def _leaking(exponentials: Any, source: int) -> Any:
    kept = sum(exponentials) - exponentials[source]
    return [1e-9 if i == source else e / kept for i, e in enumerate(exponentials)]


def _filled(inputs: Any, W_Q: Any, W_K: Any, W_V: Any, allowed: Any) -> Any:
    filled = np.where(allowed, scores(matmul(inputs, W_Q), matmul(inputs, W_K)), -1000)
    return matmul(softmax(filled, np.ones_like(allowed)), matmul(inputs, W_V))


NEARLY: dict[str, tuple[str, Any]] = {  # right on most inputs
    "any sum above 1": ("sound_rows", _audit(lambda total: total > 1 - 1e-6)),
    "a sum close to 1": ("sound_rows", _audit(lambda total: bool(np.isclose(total, 1)))),
    "the sum of the allowed": ("sound_rows", lambda A, M: _audit()(np.multiply(A, M).tolist(), M)),
    "small leaks": ("sound_rows", _audit(leaks=lambda w: abs(w) >= 0.01)),
    "negative leaks": ("sound_rows", _audit(leaks=lambda w: w > 0)),
    "two coordinates": ("by_norm", _moved(lambda v: math.hypot(*v[:2]))),
    "whole lengths": ("by_norm", _moved(lambda v: math.hypot(*v) // 1)),
    "a leak": ("forbid", _leaking),
    "characters": ("induction_targets", lambda T: ["".join(T[:i]).rfind(t) + 1 or -1 for i, t in enumerate(T)]),
    "first characters": ("induction_targets", lambda tokens: induction_targets([token[0] for token in tokens])),
    "blocked scores of -1000": ("attend", _filled),
}  # fmt: skip


@pytest.mark.parametrize("name", NEARLY)
def test_functions_that_are_nearly_right_are_found_out(name: str) -> None:
    task, function = NEARLY[name]
    assert judged(function, task).status == "wrong"


@pytest.mark.parametrize("tolerance", [0, 1e-15, 1e-3])
def test_an_audit_with_another_tolerance_is_found_out(tolerance: float) -> None:
    def audit(weights: Any, allowed: Any) -> Any:
        clean = sound_rows([[w / sum(row) for w in row] for row in weights], allowed)
        return [ok and abs(sum(row) - 1) <= tolerance for ok, row in zip(clean, weights, strict=True)]

    assert judged(audit, "sound_rows").status == "wrong"


# What goes wrong ----------------------------------------------------------------------------------------------


def test_a_wrong_result_shows_a_case_of_the_lesson_with_given_and_expected() -> None:
    finding = judged(lambda a, b: dot(a, b) + 1, "dot")
    assert (finding.status, finding.slip) == ("wrong", None)
    assert finding.message == "The result differs from the computation."
    assert finding.case == "dot(\n  a = [2],\n  b = [-3]\n)\ngave      -5\nexpected  -6"


def test_a_case_is_drawn_when_the_shown_ones_are_right() -> None:
    shown = [case[0] for case in TASKS["dot"].visible]
    finding = judged(lambda a, b: dot(a, b) if a in shown else 99, "dot")
    assert finding.status == "wrong"
    assert "gave      99" in finding.case


def test_the_message_holds_no_numbers_of_a_case() -> None:
    finding = judged(lambda a, b: 12345.678, "dot")
    assert "12345" not in finding.message
    assert "12345.678" in finding.case


@pytest.mark.parametrize(
    ("function", "task", "message"),
    [
        (lambda a, b: None, "dot", "returns nothing (None)"),
        (lambda a, b: 1 / 0, "dot", "stops with ZeroDivisionError: division by zero"),
        (lambda a: 1, "dot", "stops with TypeError"),
        (lambda a, b: "six", "dot", "cannot be read: it is the text 'six'"),
        (lambda a, b: True, "dot", "a boolean is not a number"),
        (lambda A: zip(*A, strict=True), "transpose", "wrap it in list(...)"),
        (lambda a, b: [a, b], "dot", "has shape (2, 1), expected is one number"),
        (lambda n: [[2.0]], "causal", "only True and False"),
    ],
)
def test_what_is_said(function: Any, task: str, message: str) -> None:
    finding = judged(function, task)
    assert finding.status == "wrong"
    assert message in finding.message


def test_a_changed_input_is_seen_although_the_result_is_right() -> None:
    def greedy(row: list[float]) -> list[float]:
        total = sum(row)
        for i, x in enumerate(row):
            row[i] = x / total
        return row

    finding = judged(greedy, "normalise")
    assert finding.status == "wrong"
    assert finding.message == "Your function changes its argument `row`: work on a copy, or build a new list."
    assert finding.case == "normalise(\n  row = [1, 3]\n)\ngave      [0.25, 0.75], as expected\nchanged   row"
    unnamed = judge(TASKS["normalise"], [[[1, 3]]], [Outcome([0.25, 0.75], changed="an argument")])
    assert unnamed.message == "Your function changes an argument: work on a copy, or build a new list."


def test_the_tasks_own_cases_survive_a_function_that_changes_them() -> None:
    before = repr(TASKS["dot"].baits())
    judged(lambda a, b: a.clear() or b.clear(), "dot")
    assert repr(TASKS["dot"].baits()) == before


def test_a_leak_below_every_tolerance_is_seen() -> None:
    def leaky(scores: Any, allowed: Any) -> Any:
        return [[w or 1e-12 for w in row] for row in softmax(scores, allowed)]

    finding = judged(leaky, "softmax_over_sources")
    assert finding.message == "A blocked source has weight: it must be exactly 0."


def test_an_endless_loop_is_stopped_and_leaves_no_thread_behind() -> None:
    def endless(a: Any, b: Any) -> Any:
        while True:
            pass

    before, started = set(threading.enumerate()), time.monotonic()
    finding = judged(endless, "dot", patience=0.3)
    assert time.monotonic() - started < 15  # one call, not twenty
    assert "still running" in finding.message
    assert "gave      no result in time" in finding.case
    for left in set(threading.enumerate()) - before:
        left.join(10)
    assert set(threading.enumerate()) <= before


def test_a_loop_that_catches_every_exception_is_stopped_too() -> None:
    def stubborn(a: Any, b: Any) -> Any:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue

    assert call(stubborn, TASKS["dot"], [[1], [2]], patience=0.2).stopped


def test_a_sleeper_is_left_behind_and_its_late_answer_ignored() -> None:
    outcome = call(lambda a, b: time.sleep(0.6), TASKS["dot"], [[1], [2]], patience=0.05)
    assert outcome == Outcome(stopped=True)
    time.sleep(0.6)  # its stop request arrives when it wakes
    assert outcome == Outcome(stopped=True)


def test_interrupting_the_kernel_stops_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []
    monkeypatch.setattr(threading.Thread, "join", _interrupted)
    monkeypatch.setattr(functions, "_stop", stopped.append)
    with pytest.raises(KeyboardInterrupt):
        call(dot, TASKS["dot"], [[1], [2]])
    assert len(stopped) == 1


def _interrupted(self: threading.Thread, timeout: float | None = None) -> None:
    raise KeyboardInterrupt


def test_exit_and_recursion_do_not_end_the_kernel() -> None:
    def leave(a: Any, b: Any) -> Any:
        raise SystemExit

    def deep(a: Any, b: Any) -> Any:
        return deep(a, b)

    assert call(leave, TASKS["dot"], [[1], [2]]) == Outcome(error="SystemExit")
    assert call(deep, TASKS["dot"], [[1], [2]]).error.startswith("RecursionError")


def test_what_it_prints_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def chatty(a: Any, b: Any) -> Any:
        print("here I am")
        return dot(a, b)

    assert judged(chatty, "dot").status == "right"
    assert capsys.readouterr().out == ""


# Blank --------------------------------------------------------------------------------------------------------


def test_unwritten_bodies() -> None:
    def dots(a: Any) -> Any: ...

    def documented(a: Any) -> Any:
        """Return it."""

    def passing(a: Any) -> Any:
        pass

    def returning(a: Any) -> Any:
        return ...

    def written(a: Any) -> Any:
        b = a
        del b

    def constant(a: Any) -> Any:
        return 0

    assert all(map(is_unwritten, (dots, documented, passing, returning)))
    assert not any(map(is_unwritten, (written, constant, len, np.dot)))


def test_blank_outcomes() -> None:
    task, cases = TASKS["dot"], [[[1], [2]], [[3], [4]]]
    assert judge(task, [], []).status == "blank"
    assert judge(task, cases, [Outcome(...), Outcome(...)]).status == "blank"
    assert judge(task, cases, [Outcome(error="NotImplementedError: later")] * 2).status == "blank"
    assert judge(task, cases, [Outcome(...), Outcome(12)]).status == "wrong"


# From another process ----------------------------------------------------------------------------------------


def test_missing_outcomes_are_never_right() -> None:
    task, cases = TASKS["dot"], [[[1], [2]], [[3], [4]]]
    assert judge(task, cases, [Outcome(2), Outcome(12)]).status == "right"
    assert judge(task, cases, [Outcome(2)]).status == "wrong"
    assert judge(task, cases, []).status == "wrong"
    with pytest.raises(ValueError, match="zip"):
        judge(task, cases, [Outcome(2)] * 3)


def test_results_can_be_judged_as_plain_data() -> None:
    exercise = Exercise("x", "function", {"task": "dot"})
    cases = exercise.task.cases(random.Random(3))
    outcomes = [Outcome(exercise.task.reference(*case)) for case in cases]
    assert exercise.judge_results(cases, outcomes).status == "right"
    outcomes[-1] = Outcome(error="MemoryError")
    verdict = exercise.judge_results(cases, outcomes)
    assert (verdict.status, verdict.fraction) == ("wrong", 0)
    assert "MemoryError" in verdict.case


def test_a_task_of_ones_own() -> None:
    task = Task("twice", "dot", ("a", "b"), ([[1], [2]],), (), lambda rng: [[rng.randint(1, 9)], [2]])
    assert Exercise("x", "function", {"task": task}).judge(dot).status == "right"


def test_long_cases_are_cut() -> None:
    task = Task("long", "dot", ("a", "b"), ([[1] * 1000, [1] * 1000],), (), lambda rng: [[1], [1]])
    finding = judge(task, list(task.visible), [Outcome(7)])
    assert len(finding.case) < 1000
    assert "…" in finding.case


class Unwritable:
    def __repr__(self) -> str:
        raise RuntimeError("repr")


class UnwritableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("str")


def puts_arrays_in(a: Any, b: Any) -> Any:
    a[0] = np.array([1.0, 2.0])  # compared with a list, an array has no single answer
    return 0


def fails_wordlessly(a: Any, b: Any) -> Any:
    raise UnwritableError


def holds_itself(a: Any, b: Any) -> Any:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "function", [puts_arrays_in, fails_wordlessly, holds_itself, lambda a, b: Unwritable(), lambda a, b: [Unwritable()]]
)
def test_whatever_a_function_gives_back_or_leaves_behind_is_judged(function: Any) -> None:
    finding = judged(function, "dot")
    assert finding.status == "wrong"
    assert finding.case


def test_an_error_that_cannot_be_written_is_named() -> None:
    assert call(fails_wordlessly, TASKS["dot"], [[1], [2]]).error == "UnwritableError"


def test_a_huge_result_is_shown_without_walking_it() -> None:
    started = time.monotonic()
    finding = judge(TASKS["dot"], [[[1, 2], [3, 4]]], [Outcome(np.zeros((1000, 3000)))])
    assert finding.status == "wrong"
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("length", "cut"), [(functions.SHOWN - 2, False), (functions.SHOWN - 1, True)])
def test_only_what_is_longer_than_the_limit_is_cut(length: int, cut: bool) -> None:
    assert functions._short("x" * length).endswith(" …") is cut  # its two quotes count


def test_a_single_number_is_called_so() -> None:
    finding = judge(TASKS["transpose"], [[[[1, 2]]]], [Outcome(3)])
    assert finding.message == "The result is a single number, expected is shape (2, 1): 2 rows of 1."


def test_a_case_is_shown_with_the_names_it_is_told() -> None:
    cases, outcomes = [[[[1, 2]], [[3, 4]]]], [Outcome([[0]])]
    assert judge(TASKS["scores"], cases, outcomes, ("Q", "K")).case.startswith(
        "scores(\n  Q = [[1, 2]],\n  K = [[3, 4]]\n)"
    )
    assert judge(TASKS["scores"], cases, outcomes).case.startswith("scores(\n  queries = [[1, 2]],\n")


def test_a_changed_argument_is_called_what_the_function_calls_it() -> None:
    assert call(lambda rows: rows.append(0), TASKS["transpose"], [[[1]]]).changed == "rows"


def test_a_right_result_with_changed_arguments_is_not_put_down_to_a_slip_that_gives_the_same():
    """With W_O the identity, heads laid side by side are the update: that slip explains nothing here."""

    def concatenate(outputs):
        joined = outputs[0]
        for other in outputs[1:]:
            for row, more in zip(joined, other, strict=True):
                row.extend(more)
        return joined

    found = judge(*_judged(TASKS["concatenate"], concatenate))
    assert found.slip is None
    assert found.message == "Your function changes its argument `outputs`: work on a copy, or build a new list."


def test_a_result_kept_in_one_list_is_copied_before_the_next_call():
    kept = []

    def transpose(matrix):
        kept.clear()
        kept.extend([list(column) for column in zip(*matrix, strict=True)])
        return kept

    assert judge(*_judged(TASKS["transpose"], transpose)).status == "right"


def test_a_case_of_numpy_numbers_is_read():
    case = [list(np.array([1, 2])), np.array([3, 4])]
    assert judge(TASKS["dot"], [case], [Outcome(11)]).status == "right"


def _judged(task, function):
    cases = task.cases(random.Random(0), 4)
    return task, cases, [call(function, task, case) for case in cases]
