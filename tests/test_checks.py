"""Checks: what a learner gives is read, compared with the computation, and traced to its slip."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import check, checks, feedback, journal
from labkit.checks import collecting
from labkit.exact import worked_example
from labkit.exercises import Exercise
from labkit.feedback import Feedback
from labkit.variants import variant
from labkit.verdict import Verdict

ROOT = Path(__file__).parents[1]
EX = worked_example()
ROW = Exercise("row", "weights", {"scores": EX.scores[1], "allowed": EX.allowed[1]})
MAP = Exercise("map", "weights", {"scores": EX.scores, "allowed": EX.allowed})
CAUSAL = np.tri(3, dtype=bool)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path))


# Every step accepts its truth and names a slip ----------------------------------------------------------------

STEPS: list[tuple[Any, Any, Any, str]] = [
    (lambda a: check.shapes("x", a, of="W_Q", d_model=12, d_k=3), (12, 3), (3, 12), "shapes-reversed"),
    (lambda a: check.shapes("x", a, of="K", n=5, m=7, d_k=3), (7, 3), (5, 3), "shapes-sources-as-destinations"),
    (
        lambda a: check.projection("x", a, inputs=[[1, 2]], weights=[[1, 0], [2, 5]]),
        [[5, 10]],
        [[1, 12]],
        "projection-transposed-matrix",
    ),
    (
        lambda a: check.scores("x", a, queries=[2, 4, 0, 0], keys=[1, 1, 5, 5], d_model=16),
        3,
        1.5,
        "scores-width-without-root",
    ),
    (lambda a: check.weights("x", a, scores=[0, math.log(3)]), [1 / 4, 3 / 4], [1, 3], "weights-not-normalised"),
    (
        lambda a: check.weights("x", a, queries=[[4.0]], keys=[[0.0], [math.log(3) / 4]], d_model=4),
        [[1 / 4, 3 / 4]],
        [[1 / (1 + 3**0.5), 3**0.5 / (1 + 3**0.5)]],
        "scores-model-width",
    ),
    (
        lambda a: check.mixture("x", a, weights=[1 / 4, 3 / 4], values=[[4, 0], [0, 8]]),
        [1, 6],
        [2, 4],
        "mixture-plain-mean",
    ),
    (
        lambda a: check.mixture("x", a, scores=EX.scores[2], allowed=[True, False, True], values=EX.values),
        [2, Fraction(8, 3)],
        [1.5, 2],
        "weights-zeroed-afterwards",
    ),
    (
        lambda a: check.update("x", a, outputs=[[[1, 0]], [[0, 3]]], W_O=np.eye(4)),
        [[1, 0, 0, 3]],
        [[0.5, 0, 0, 1.5]],
        "update-heads-averaged",
    ),
    (
        lambda a: check.update("x", a, outputs=[[10, 20]], W_O=np.eye(2), state=[3, 1], normalised=[1, -1]),
        [13, 21],
        [11, 19],
        "update-added-to-normalised",
    ),
    (lambda a: check.mask("x", a, rule="causal", n=3), CAUSAL, CAUSAL.T, "mask-future-allowed"),
    (
        lambda a: check.mask("x", a, rule="causal", n=2, form="additive"),
        [[0, -math.inf], [0, 0]],
        [[1, 0], [1, 1]],
        "mask-zero-one-added",
    ),
    (
        lambda a: check.mask("x", a, rule="padding", is_real=[True, False], form="blocked"),
        [[False, True], [False, True]],
        [[False, False], [True, True]],
        "mask-rows-for-columns",
    ),
    (
        lambda a: check.mask("x", a, rule="causal", n=1, m=3, align="bottom-right"),
        [[True, True, True]],
        [[True, False, False]],
        "mask-alignment",
    ),
    (
        lambda a: check.number("x", a, by=lambda: 7, slips={"weights-columns": lambda: 8}),
        7,
        8,
        "weights-columns",
    ),
    (lambda a: check.number("x", a, by=lambda: [1, 2], slips={"own": (lambda: [2, 1], "No.")}), [1, 2], [2, 1], "own"),
    (
        lambda a: check.ordering("x", a, by=lambda: ["a", "b", "c"]),
        ["a", "b", "c"],
        ["c", "b", "a"],
        "ordering-reversed",
    ),
    (lambda a: check.choice("x", a, options="AB", outcome=lambda: "B"), "B", "A", "x:A"),
]


@pytest.mark.parametrize(("ask", "right", "wrong", "slip"), STEPS)
def test_every_step(ask: Any, right: Any, wrong: Any, slip: str) -> None:
    assert ask(right).status == "right"
    assert ask(wrong).slip_id == slip
    assert ask(wrong).status == "wrong"
    assert ask(...).status == "blank"


def test_a_function_and_a_text() -> None:
    assert check.function("f", lambda A: [list(c) for c in zip(*A, strict=True)], task="transpose").status == "right"
    assert check.function("f", ..., task="transpose").status == "blank"
    assert check.function("f", lambda A: ..., task="transpose").status == "blank"
    assert check.function("f", 3, task="transpose").status == "unreadable"
    verdict = check.written("w", "because the row is renormalised")
    assert (verdict.status, verdict.points) == ("recorded", 0)
    assert check.written("w", " ").status == "blank"
    assert check.written("w", 3).status == "unreadable"


# The ladder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (..., "blank", "Fill in"),
        ([..., 2 / 3, 0], "blank", "Fill in"),
        (None, "blank", "Fill in"),
        ("", "blank", "Fill in"),
        ([1 / 3, 2 / 3], "unreadable", "The shape is (2,); expected is one row of 3, shape (3,)."),
        ([[1 / 3, 2 / 3, 0]], "unreadable", "The shape is (1, 3)"),
        ([[1 / 3], [2 / 3], [0]], "unreadable", "The shape is (3, 1)"),
        (1, "unreadable", "It is a single number; expected is one row of 3, shape (3,)."),
        ([], "unreadable", "The shape is (0,)"),
        (
            [1 / 3, math.nan, 0],
            "unreadable",
            "Entry 2 is NaN, which is not a number (0/0 gives it): a finite number is expected.",
        ),
        ([1 / 3, -math.inf, 0], "unreadable", "Entry 2 is infinite: a finite number is expected."),
        ([1 / 3, " NaN", 0], "unreadable", "Entry 2 is NaN, which is not a number"),
        ([True, False, False], "unreadable", "Entry 1 is True; a boolean is not a number"),
        (["1/3", "2/3", 0], "unreadable", "write the number without quotes"),
        ({1 / 3, 2 / 3, 0}, "unreadable", "a set"),
        ([1 / 4, 1 / 2, 1 / 4], "wrong", "a blocked score set to 0"),
        ([1 / 3, 0.5, 0.1], "wrong", "Entries 2 and 3 are not right yet. A blocked source has weight: it must be"),
        ([4 / 3, -1 / 3, 0], "wrong", "A weight is negative"),
        ([0.3, 0.6, 0], "wrong", "The weights do not sum to 1."),
        ([0.4, 0.6, 0], "wrong", "Entries 1 and 2 are not right yet."),
        ([1 / 3, 2 / 3, 0], "right", "The exponentials of the allowed scores"),
    ],
)
def test_ladder(answer: Any, status: str, says: str) -> None:
    verdict = ROW.judge(answer)
    assert verdict.status == status
    assert says in verdict.message


def test_shape_comes_before_finite_before_type() -> None:
    assert "shape" in ROW.judge([math.nan, True]).message
    assert "NaN" in ROW.judge([True, math.nan, 0]).message
    assert "boolean" in ROW.judge([True, 0, 0]).message


def test_a_wrong_answer_is_located_but_not_given_away() -> None:
    for given_row in ([0.4, 0.6, 0], [0.5, 0.2, 0.3]):
        words = ROW.judge(given_row).message
        assert "0.33" not in words
        assert "0.67" not in words
        assert "1/3" not in words
    rows = [[1, 0, 0], [1 / 3, 2 / 3, 0], [0.2, 0.2, 0.2]]
    assert MAP.judge(rows).message == "Row 3, entries 1, 2 and 3 are not right yet. Row 3 does not sum to 1."
    rows[1] = [0.5, 0.5, 0]
    assert MAP.judge(rows).message.startswith("Rows 2 and 3 are not right yet.")
    rows = [[1, 0, 0], [1 / 3, 2 / 3, 0], [0.25, 0.25, 0.6]]
    assert MAP.judge(rows).message.startswith("Row 3, entry 3 is not right yet.")


def test_rounded_numbers_earn_no_hint() -> None:
    with feedback.using({"row": Feedback(hints=("Start with the mask.",), covers=("M1",))}):
        assert check.weights("row", [0.33, 0.67, 0], **ROW.inputs).hints == ()
        assert check.weights("row", [0.4, 0.6, 0], **ROW.inputs).hints == ("Start with the mask.",)


def test_rounded_numbers_are_told_from_wrong_ones() -> None:
    for rounded in ([0.33, 0.67, 0], [0.333, 0.666, 0], [0.3333, 0.6667, 0.0]):
        verdict = ROW.judge(rounded)
        assert (verdict.status, verdict.slip_id) == ("wrong", "rounded")
        assert verdict.message == "Right, but rounded. Write fractions such as 2/3, or six decimals."
        assert verdict.look == ""
    third = Exercise("r", "weights", {"scores": [0, math.log(2), 0], "allowed": [True, True, False]})
    assert third.judge([0.25, 0.5, 0.25]).slip_id == "weights-blocked-score-zero"
    shares = Exercise("r", "weights", {"scores": [1, 2]})
    assert shares.judge([0.33, 0.67]).slip_id == "weights-raw-scores"
    assert shares.judge([0.33, 0.7]).slip is None


def test_broken_rules_of_mixtures_and_masks() -> None:
    mixture = Exercise("m", "mixture", {"weights": [0.5, 0.5], "values": [[0, 0], [2, 4]]})
    assert "outside the range" in mixture.judge([1, 5]).message
    assert "outside the range" not in mixture.judge([1, 3]).message
    mask = Exercise("m", "mask", {"rule": "causal", "n": 3})
    assert "Row 1 may read no source at all." in mask.judge([[0, 0, 0], [1, 1, 0], [1, 1, 0]]).message
    added = Exercise("m", "mask", {"rule": "causal", "n": 2, "form": "additive"})
    assert "no source" not in added.judge([[1, -math.inf], [1, 1]]).message  # 1 added to both leaves both to read
    assert "Row 1 may read no source at all." in added.judge([[-math.inf, -math.inf], [0, 0]]).message
    blocked = Exercise("m", "mask", {"rule": "causal", "n": 3, "form": "blocked"})
    assert "Row 2 may read no source" in blocked.judge([[0, 1, 1], [1, 1, 1], [0, 0, 0]]).message


def test_a_number_and_an_array_of_three_axes_are_located_too() -> None:
    assert Exercise("n", "number", {"by": lambda: 7}).judge(6).message == "The computation gives another number."
    cube = Exercise("c", "split_heads", {"rows": [[1, 2], [3, 4]], "H": 2})
    number = Exercise("c", "number", {"by": cube.truth})
    assert number.judge([[[1], [3]], [[2], [5]]]).message.startswith("1 of 4 entries are not right yet.")


def test_a_slip_with_another_shape_is_named_all_the_same() -> None:
    scores = Exercise("s", "scores", {"queries": [[1, 2]], "keys": [[3, 4], [5, 6]]})
    assert scores.judge(np.transpose(scores.truth())).slip_id == "scores-transposed"


def test_an_undefined_row_matches_whatever_was_made_of_it() -> None:
    for first in ([0, 0, 0], [math.nan] * 3, [1 / 3] * 3):
        weights = [first, [1, 0, 0], [1 / 2, 1 / 2, 0]]
        assert MAP.judge(weights).slip_id == "weights-own-position-blocked"


def test_what_looks_wrong_and_is_right() -> None:
    queries, keys, scores = [[1.0, 2.0]], [[3.0, 1.0], [0.0, 2.0]], np.array(EX.scores)
    scaled_first = (np.array(queries) / 2**0.5) @ np.array(keys).T
    assert check.scores("x", scaled_first, queries=queries, keys=keys).status == "right"
    shifted = scores - np.array([[3.0], [-2.0], [100.0]])
    parts = np.exp(shifted) * CAUSAL
    assert MAP.judge(parts / parts.sum(axis=1, keepdims=True)).status == "right"
    afterwards = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) * CAUSAL
    assert MAP.judge(afterwards / afterwards.sum(axis=1, keepdims=True)).status == "right"
    z1, z2 = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    W_O = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, -1.0]])
    assert check.update("x", z1 @ W_O[:2] + z2 @ W_O[2:], outputs=[z1, z2], W_O=W_O).status == "right"
    mask = check.mask(
        "x", CAUSAL & np.array([True, True, False]), rule="causal+padding", n=3, is_real=[True, True, False]
    )
    assert mask.status == "right"


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=5), st.data())
def test_the_truth_is_always_right_and_never_a_slip(scores: list[float], data: Any) -> None:
    allowed = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)).filter(any))
    exercise = Exercise("h", "weights", {"scores": scores, "allowed": allowed})
    verdict = exercise.judge(exercise.truth())
    assert (verdict.status, verdict.slip) == ("right", None)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists, max_leaves=12))
def test_whatever_is_given_gives_a_verdict(answer: Any) -> None:
    for exercise in (ROW, MAP, Exercise("m", "mask", {"rule": "causal", "n": 2}), Exercise("w", "written", {})):
        assert isinstance(exercise.judge(answer), Verdict)
    for exercise in (
        Exercise("c", "choice", {"options": "AB", "outcome": lambda: "A"}),
        Exercise("o", "ordering", {"by": lambda: [1, 2]}),
        Exercise("f", "function", {"task": "dot"}),
    ):
        assert isinstance(exercise.judge(answer), Verdict)


# Choices and orders -------------------------------------------------------------------------------------------


def test_choices_forgive_case_and_spaces_and_explain() -> None:
    why = {"A": "No: a 0 stays in the sum.", "B": "Yes: -inf has exponential 0."}
    with feedback.using({"c": Feedback(why=why)}):
        for answer in ("B", "b", " B ", np.str_("B")):
            verdict = check.choice("c", answer, options="AB", outcome=lambda: "B")
            assert (verdict.status, verdict.message) == ("right", why["B"])
        verdict = check.choice("c", "A", options="AB", outcome=lambda: "B")
        assert (verdict.status, verdict.message) == ("wrong", why["A"])


def test_choices_by_words() -> None:
    exercise = Exercise("c", "choice", {"options": ["higher", "lower", "the same"], "outcome": lambda: "the same"})
    assert exercise.judge("The  same").status == "right"
    assert exercise.judge("lower").status == "wrong"
    for odd in ("up", True, 1, ["lower"]):
        verdict = exercise.judge(odd)
        assert verdict.status == "unreadable"
        assert "'higher', 'lower', 'the same'" in verdict.message


def test_options_default_to_those_explained_then_to_letters() -> None:
    assert Exercise("c", "choice", {}).options() == ["A", "B", "C"]
    with feedback.using({"c": Feedback(why={"yes": "", "no": "", "right": "Indeed."})}):
        assert Exercise("c", "choice", {}).options() == ["no", "yes"]


def test_sealed_choices() -> None:
    with feedback.using({"c": Feedback(sealed=feedback.seal("c", "B"), why={"A": "No.", "B": "Because."})}):
        assert check.choice("c", "b", options="AB").message == "Because."
        assert check.choice("c", "A", options="AB").message == "No."
        assert [option for _, option in Exercise("c", "choice", {"options": "AB"}).slips()] == ["A"]
    verdict = check.choice("d", "A", options="AB")
    assert (verdict.status, verdict.points) == ("recorded", 0)


def test_orders() -> None:
    exercise = Exercise("o", "ordering", {"by": lambda: ["project", "score", "softmax", "mix"]})
    assert exercise.judge(("Project", "score", "softmax", "mix")).status == "right"
    assert (
        exercise.judge(["project", "softmax", "score", "mix"]).message
        == "Item 2 comes elsewhere; before it all is right."
    )
    assert exercise.judge(["score", "project", "softmax", "mix"]).message == "The first item comes elsewhere."
    assert exercise.judge(["project", "score"]).status == "unreadable"
    assert exercise.judge(["project", "score", "softmax", "softmax"]).status == "unreadable"
    assert exercise.judge("project").status == "unreadable"


def test_inline_slips_may_hold_a_section_and_arrays() -> None:
    slips = {
        "the root forgotten": (lambda: 4.0, "Take the root.", "C3"),
        "a constant": (9, "Not nine."),
    }
    exercise = Exercise("n", "number", {"by": lambda: 2.0, "slips": slips})
    assert exercise.judge(4).message == "Take the root."
    assert exercise.judge(4).look == 'Look again at lesson 02, "Find the right divisor".'
    assert exercise.judge(9).message == "Not nine."
    assert exercise.judge(9).look == ""


def test_a_wrong_answer_points_to_the_slips_section_or_to_its_own() -> None:
    with feedback.using({"row": Feedback(covers=("M4", "M1"), lesson="03_masks")}):
        assert ROW.judge([1 / 4, 1 / 2, 1 / 4]).section == "M2"
        verdict = ROW.judge([0.4, 0.6, 0])
        assert verdict.look == 'Look again at lesson 03, "Remove a source, move every other weight".'
        assert ROW.judge([1 / 3, 2 / 3, 0]).look == ROW.judge(...).look == ""


def test_an_exercise_is_explained_where_it_stands_unless_it_asks_again() -> None:
    stands = Exercise("masks-row-2", "weights", ROW.inputs)
    again = Exercise("masks-mine", "weights", {"scores": lambda ex: ex.scores[1]}, learner="")
    assert stands.judge([0.4, 0.6, 0]).look == 'Look again at lesson 03, "Predict a masked row".'
    assert again.judge([0.4, 0.5, 0.1]).look == 'Look again at lesson 03, "Build the causal mask".'
    softmax = check.function("masks-write-softmax", lambda scores, allowed: 7, task="softmax_row")
    assert softmax.look == 'Look again at lesson 03, "Build the causal mask".'


def test_a_lesson_still_to_come_is_not_looked_at_again() -> None:
    best_source = [0, 1, 0]
    with feedback.using({"row": Feedback(covers=("M1",), lesson="03_masks")}):
        assert ROW.judge(best_source).section == "C5"
    with feedback.using({"row": Feedback(covers=("S2",), lesson="00_start_here")}):
        verdict = ROW.judge(best_source)
        assert verdict.slip_id == "weights-raw-scores"
        assert verdict.section == "S2"


def test_checks_of_a_step_take_slips_of_their_own_beside_the_catalogues() -> None:
    slips = {"everything to the first": (lambda: [1, 0, 0], "Source 2 may be read too.")}
    exercise = Exercise("row", "weights", {"scores": EX.scores[1], "allowed": EX.allowed[1], "slips": slips})
    assert exercise.judge([1, 0, 0]).message == "Source 2 may be read too."
    assert exercise.judge([0, 1, 0]).slip_id == "weights-raw-scores"
    assert exercise.judge([1 / 3, 2 / 3, 0]).status == "right"


def test_answers_that_are_booleans_are_read_as_such() -> None:
    exercise = Exercise("n", "number", {"by": lambda: np.array([True, False])})
    assert exercise.judge([True, False]).status == "right"
    assert exercise.judge([True, True]).status == "wrong"
    assert exercise.judge([0.5, 1]).status == "unreadable"


# A learner's own numbers --------------------------------------------------------------------------------------


def test_inputs_may_be_functions_of_the_learners_example() -> None:
    inputs = {"weights": lambda ex: ex.weights[2], "values": lambda ex: ex.values}
    exercise = Exercise("mine", "mixture", inputs)
    for name in ("Ada", "Grace"):
        assert exercise.for_learner(name).judge(variant("mine", name).output[2]).status == "right"
    assert exercise.for_learner("Ada").truth().tolist() != exercise.for_learner("Grace").truth().tolist()
    assert exercise.for_learner("Ada").judge(variant("mine", "Grace").output[2]).status == "wrong"


def test_the_learner_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_LEARNER", "Ada")
    mine = variant("mine", "Ada").output[2]
    assert check.number("mine", mine, by=lambda ex: ex.output[2]).status == "right"
    assert check.number("other", mine, by=lambda ex: ex.output[2], variant="mine").status == "right"
    monkeypatch.setenv("LABKIT_LEARNER", "Grace")
    assert check.number("mine", mine, by=lambda ex: ex.output[2]).status == "wrong"


def test_choices_and_inline_slips_may_depend_on_the_learner_too() -> None:
    exercise = Exercise(
        "mine",
        "choice",
        {"options": "AB", "outcome": lambda ex: "A" if ex.weights[2][0] > ex.weights[2][1] else "B"},
    ).for_learner("Ada")
    weights = variant("mine", "Ada").weights[2]
    assert exercise.judge("A" if weights[0] > weights[1] else "B").status == "right"
    number = Exercise(
        "mine", "number", {"by": lambda ex: ex.scores[1][0], "slips": {"s": (lambda ex: ex.scores[1][0] + 1, "No.")}}
    ).for_learner("Ada")
    assert number.judge(variant("mine", "Ada").scores[1][0] + 1).slip_id == "s"


def test_the_example_can_have_other_sizes() -> None:
    verdict = check.shapes("mine", (5, 5), of="S", n=lambda ex: len(ex.inputs), example={"positions": 5})
    assert verdict.status == "right"


# Attempts, hints, first prediction ----------------------------------------------------------------------------


def ask(answer: Any) -> Verdict:
    verdict = check.weights("row", answer, scores=EX.scores[1], allowed=EX.allowed[1])
    assert isinstance(verdict, Verdict)
    return verdict


def test_hints_come_one_by_one_and_only_after_an_attempt() -> None:
    with feedback.using({"row": Feedback(hints=("one", "two"))}):
        assert ask(...).hints == ()
        assert ask([1, 2]).hints == ()
        assert ask([1, 0, 0]).hints == ("one",)
        assert ask([1, 0, 0]).hints == ("one",)
        assert ask((1.0, 0, 0)).hints == ("one",)
        verdict = ask([0, 1, 0])
        assert (verdict.hints, verdict.hint, verdict.hints_left) == (("one", "two"), "two", 0)
        assert ask([0, 0, 1]).hints == ("one", "two")
        assert ask([1 / 3, 2 / 3, 0]).hints == ()


def test_a_function_earns_a_hint_for_every_new_body() -> None:
    def attempt(source: str) -> Verdict:
        space: dict[str, Any] = {}
        exec(source, space)
        verdict = check.function("f", space["f"], task="dot")
        assert isinstance(verdict, Verdict)
        return verdict

    with feedback.using({"f": Feedback(hints=("one", "two"))}):
        assert attempt("def f(a, b): ...").hints == ()
        assert attempt("def f(a, b): return [x for x in a]").hints == ("one",)
        assert attempt("# again\ndef f(a, b): return [x for x in a]").hints == ("one",)
        assert attempt("def f(a, b): return [x for x in b]").hints == ("one", "two")


def test_hints_earned_survive_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    with feedback.using({"row": Feedback(hints=("one", "two", "three"))}):
        ask([1, 0, 0])
        monkeypatch.setattr(journal, "_unsaved", {})
        assert ask([0, 1, 0]).hints == ("one", "two")
        journal.record("row", [0, 0, 1], "wrong")  # a line without a fingerprint, from elsewhere
        assert ask([0, 1, 0]).hints == ("one", "two", "three")


def test_the_first_prediction_stays_visible() -> None:
    assert ask(...).first == ""
    assert ask([1 / 4, 1 / 2, 1 / 4]).first == ""
    assert ask([1 / 3, 2 / 3, 0]).first == "[0.25, 0.5, 0.25]"
    assert ask((Fraction(1, 4), 0.5, 0.25)).first == ""
    first = journal.first("row")
    assert first is not None
    assert (first.answer, first.status) == ([1 / 4, 1 / 2, 1 / 4], "wrong")


def test_fractions_are_remembered_as_numbers() -> None:
    assert ask([Fraction(1, 3), Fraction(2, 3), 0]).first == ""
    assert ask([1 / 3, 2 / 3, 0]).first == ""
    assert ask([Fraction(1, 4), Fraction(3, 4), 0]).first == "[0.3333, 0.6667, 0]"
    assert checks._remembered(["-3/2", "1/0", "B", [2]]) == [Fraction(-3, 2), "1/0", "B", [2]]


def test_blank_and_unreadable_answers_are_no_predictions() -> None:
    ask(...)
    ask("x")
    assert journal.first("row") is None


# Collecting and nbgrader --------------------------------------------------------------------------------------


def test_collecting_keeps_the_journal_silent_and_nests() -> None:
    with collecting() as outer:
        verdict = ask([1 / 4, 1 / 2, 1 / 4])
        with collecting() as inner:
            ask([1 / 3, 2 / 3, 0])
    assert [record.verdict.status for record in outer] == ["wrong"]
    assert [record.verdict.status for record in inner] == ["right"]
    assert outer[0].verdict is verdict
    assert outer[0].exercise.id == "row"
    assert outer[0].answer == [1 / 4, 1 / 2, 1 / 4]
    assert journal.first("row") is None


def test_collecting_takes_a_choice_without_outcome_for_the_truth() -> None:
    with collecting() as records:
        check.choice("c", "B", options="ABC")
    exercise = records[0].exercise
    assert records[0].verdict.status == "right"
    assert exercise.judge("b").status == "right"
    assert exercise.judge("A").status == "wrong"
    assert {option for _, option in exercise.slips()} == {"A", "C"}


def test_collecting_ends_with_its_block_even_after_an_error() -> None:
    with pytest.raises(RuntimeError), collecting() as records:
        raise RuntimeError
    ask([1 / 3, 2 / 3, 0])
    assert records == []


@pytest.mark.parametrize("mode", ["autograde", "validate"])
def test_under_nbgrader(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("NBGRADER_EXECUTION", mode)
    with feedback.using({"row": Feedback(points=3)}):

        def grade(answer: Any) -> Any:
            return check.weights("row", answer, scores=EX.scores[1], allowed=EX.allowed[1])

        assert grade([1 / 3, 2 / 3, 0]) == 3
        assert grade(...) == 0
        with pytest.raises(AssertionError, match="a blocked score set to 0"):
            grade([1 / 4, 1 / 2, 1 / 4])
        with pytest.raises(AssertionError, match="cannot compare"):
            grade("x")
    assert check.written("w", "text").status == "recorded"
    assert journal.first("row") is None


@pytest.mark.parametrize("typed", ["B", " b ", "B.", "(b)", "B)", "b:"])
def test_a_choice_may_be_dressed_up(typed: str) -> None:
    assert Exercise("pick", "choice", {"outcome": lambda: "B"}).judge(typed).status == "right"


@pytest.mark.parametrize("typed", ["B or C", "BB", "", "()", "."])
def test_a_choice_is_one_of_the_options(typed: str) -> None:
    assert Exercise("pick", "choice", {"outcome": lambda: "B"}).judge(typed).status in ("unreadable", "blank")


def test_points() -> None:
    with feedback.using({"row": Feedback(points=2.5)}):
        assert ROW.points == 2.5
        right, wrong = ROW.judge([1 / 3, 2 / 3, 0]), ROW.judge([1, 0, 0])
    assert (right.points, right.fraction, right.possible) == (2.5, 1, 2.5)
    assert (wrong.points, wrong.fraction, wrong.possible) == (0, 0, 2.5)


class Unwritable:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "answer", [[Unwritable(), "x"], np.array(1.0), np.zeros(3_000_000)], ids=["raises", "0d", "huge"]
)
def test_an_order_of_anything_is_answered(answer: Any) -> None:
    assert Exercise("order", "ordering", {"by": lambda: ["x", "y"]}).judge(answer).status == "unreadable"


def test_a_case_is_shown_with_the_functions_own_names() -> None:
    def swapped(Q, K):  # type: ignore[no-untyped-def]
        return [[q[0] - k[0] for k in K] for q in Q]

    exercise = Exercise("own-names", "function", {"task": "scores"})
    assert "scores(\n  Q = [[2, 4, 0, 0]],\n  K = [[1, 1, 5, 5]]\n)" in exercise.judge(swapped).case
    assert "queries = " in exercise.judge(lambda *rows: 0).case

    def sorts(rows):  # type: ignore[no-untyped-def]
        rows.append(0)
        return list(map(list, zip(*rows[:-1], strict=True)))

    assert (
        "changes its argument `rows`" in Exercise("own-names", "function", {"task": "transpose"}).judge(sorts).message
    )


def test_a_right_function_is_told_why() -> None:
    told = Feedback(why={"right": "Columns became rows."})
    with feedback.using({"own-names": told}):
        verdict = Exercise("own-names", "function", {"task": "transpose"}).judge(lambda A: list(zip(*A, strict=True)))
    assert (verdict.status, verdict.message) == ("right", "Columns became rows.")


STOPPED_RUNS = [  # the cells of a notebook, and whether the last check speaks of an older answer
    (["# exercise: row (1 point)\nrow = [1/4, 3/4]", "CHECK"], False),
    (["# exercise: row (1 point)\nrow = [1/4, 3/4]", "# exercise: row (1 point)\nrow = [1/4, ", "CHECK"], True),
    (["# exercise: row (1 point)\nrow = [1/4, ", "x = 1", "row = [1/4, 3/4]", "CHECK"], True),
    (["row = 1", "# exercise: row (1 point)\nrow = [1/0, 1]", "CHECK"], True),
    (["# exercise: row (1 point)\nrow = [1/4, ", "# exercise: row (1 point)\nrow = [1/4, 3/4]", "CHECK"], False),
    (["# exercise: row (1 point)\n%time\nrow = [1/4, 3/4]", "1 / 0", "CHECK"], False),
    (["# exercise: other (1 point)\nrow = [", "row = [1/4, 3/4]", "CHECK"], False),
    (["# exercise: row (1 point)\nrow = [", "# exercise: row (1 point)\nrow = [1/4, 3/4]\nCHECK"], False),
]


def test_a_check_notices_an_answer_cell_that_ended_in_an_error(tmp_path: Path) -> None:
    call = 'check.weights("row", row, scores=[0, 1])'
    runs = [[cell.replace("CHECK", call) for cell in cells] for cells, _ in STOPPED_RUNS]
    said = what_cells_say(runs, tmp_path)
    assert [checks.STOPPED in one for one in said] == [noticed for _, noticed in STOPPED_RUNS]


BORROWING_RUNS = [  # the cells of a notebook, and the name of labkit's that its right answer is said to use
    (["# exercise: row (1 point)\nrow = labkit.softmax_over_sources([0, 1])", "CHECK"], "labkit"),
    (
        [
            "mine = labkit.variant('v')",
            "# exercise: row (1 point)\nrow = mine.weights and [1 / (1 + np.e), np.e / (1 + np.e)]",
            "CHECK",
        ],
        "mine",
    ),
    (["soft = labkit.softmax_over_sources", "# exercise: row (1 point)\nrow = soft([0, 1])", "CHECK"], "soft"),
    (["# exercise: row (1 point)\nrow = 1 / (1 + np.exp([1, -1]))", "CHECK"], None),
    (["# exercise: row (1 point)\nrow = labkit.softmax_over_sources([1, 0])", "CHECK"], None),  # it is wrong
]


def test_a_right_answer_is_told_what_grading_lacks(tmp_path: Path) -> None:
    call = 'check.weights("row", row, scores=[0, 1])'
    runs = [["import labkit\nimport numpy as np", *cells] for cells, _ in BORROWING_RUNS]
    said = what_cells_say([[cell.replace("CHECK", call) for cell in cells] for cells in runs], tmp_path)
    for one, (_, name) in zip(said, BORROWING_RUNS, strict=True):
        told = f"It uses `{name}`, which is not there when a class is graded: to hand this in, type the answer itself."
        assert (told in one) if name else ("graded" not in one), one


def test_a_right_function_is_told_what_grading_lacks(tmp_path: Path) -> None:
    call = 'check.function("row", softmax, task="softmax")'
    cells = [
        "import labkit",
        "# exercise: row (1 point)\ndef softmax(scores):\n    return labkit.softmax_over_sources(scores)",
    ]
    [said] = what_cells_say([[*cells, call]], tmp_path)
    assert "It uses `labkit`" in said
    assert said.endswith("to hand this in, write it in plain Python or NumPy.")


QUOTES = 'Write your choice in quotes: "b".'
UNQUOTED_RUNS = [  # the cells of a notebook, and what stands under the last one
    (["ANSWER = b"], QUOTES),
    (["ANSWER = b", "CHECK"], QUOTES),
    (["ANSWER = ...", "CHECK", "ANSWER = b", "CHECK"], QUOTES),
    (["ANSWER = 'c'", "ANSWER = b", "x = 1", "CHECK"], QUOTES),
    (["ANSWER = b", "ANSWER = 'b'", "CHECK"], "✓ Right"),
    (["ANSWER = bb"], "Choose one of 'A', 'B', 'C', in quotes."),
    (["b = 7", "ANSWER = b", "CHECK"], "Choose one of 'A', 'B', 'C', in quotes."),
    (["CHECK"], "`pick` does not exist yet: a cell above has not run, or ended in an error. Run it, then this one."),
    (["ANSWER = 1 / 0", "CHECK"], "`pick` does not exist yet: a cell above"),
    (["# exercise: row (1 point)\nrow = b"], None),
    (["print(b)"], None),
]


def test_a_choice_without_quotes_and_an_answer_that_never_ran_are_put_in_words(tmp_path: Path) -> None:
    call, answer = 'check.choice("pick", pick, outcome=lambda: "B")', "# exercise: pick (1 point)\npick"
    runs = [[cell.replace("CHECK", call).replace("ANSWER", answer) for cell in cells] for cells, _ in UNQUOTED_RUNS]
    for said, (cells, words) in zip(what_cells_say(runs, tmp_path), UNQUOTED_RUNS, strict=True):
        assert (words in said) if words else (said == ""), (cells, said)


def what_cells_say(runs: list[list[str]], folder: Path) -> list[str]:
    """Run notebooks in one IPython, and give what is shown under the last cell of each, errors aside."""
    code = (
        "import json, sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from IPython.utils.capture import capture_output\n"
        "shell, said = InteractiveShell.instance(), []\n"
        "from labkit import check, feedback\n"
        "kinds = {'pick': feedback.Feedback(kind='choice'), 'row': feedback.Feedback(kind='weights')}\n"
        "borrowed = feedback.using(kinds)\n"
        "borrowed.__enter__()\n"
        "for cells in json.loads(sys.argv[1]):\n"
        "    shell.reset()\n"
        "    shell.push({'check': check})\n"
        "    for cell in cells:\n"
        "        with capture_output() as captured:\n"
        "            shown = shell.run_cell(cell, store_history=True).result\n"
        "    said.append(str(shown or '') + ''.join(output.data['text/plain'] for output in captured.outputs))\n"
        "print(json.dumps(said))\n"
    )
    environment = {**os.environ, "IPYTHONDIR": str(folder), "LABKIT_JOURNAL": "off"}
    command = [sys.executable, "-c", code, json.dumps(runs)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=ROOT)
    assert ended.returncode == 0, ended
    found: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return found
