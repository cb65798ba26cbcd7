"""Practice asks answerable questions for ever, adapts to the answers, and is a function of the journal alone."""

import re

import numpy as np
import pytest

from labkit import drills, feedback, journal, overview
from labkit.answers import read_numbers, same
from labkit.checks import Exercise
from labkit.drills import practice
from labkit.errors import LabkitError
from labkit.questions import STEPS, draw, matrix_html, matrix_text

LEVELS = range(1, drills.LEVELS + 1)


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path / "kept"))
    monkeypatch.delenv("LABKIT_LEARNER", raising=False)
    monkeypatch.setattr(journal, "_unsaved", {})


def truth(p):
    return Exercise("x", p.question.step, p.question.inputs).truth()


def wrong(p):
    return np.asarray(truth(p), dtype=float) + 17 if p.question.step != "mask" else ~truth(p)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("step", STEPS)
def test_every_question_is_answerable_and_its_solution_ends_in_the_truth(step, level):
    for k in range(6):
        question = draw(step, level, f"question {k}")
        exercise = Exercise("x", question.step, question.inputs)
        assert exercise.judge(exercise.truth()).status == "right"
        assert exercise.judge(...).status == "blank"
        shown = last_numbers(question.solution[-1])
        expected = np.asarray(exercise.truth(), dtype=float)
        assert same(shown, expected.ravel()) or same(shown, np.atleast_2d(expected)[-1])


def last_numbers(line):
    """Read the row or matrix at the end of a line; a fraction reads like Python's division."""
    text = re.split(r"[=:] |is |weights ", line.removesuffix("."))[-1]
    return read_numbers(eval(text.replace("True", "1").replace("False", "0"))).ravel()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("step", [step for step in STEPS if step != "shapes"])
def test_no_slip_is_accepted(step, level):
    for k in range(6):
        question = draw(step, level, f"slip {k}")
        exercise = Exercise("x", question.step, question.inputs)
        slips = [(slip, value) for slip, value in exercise.slips() if slip.id != "weights-array-maximum"]
        assert slips
        assert [slip.id for slip, value in slips if exercise.judge(value).status == "right"] == []


def test_questions_do_not_repeat_and_the_same_journal_asks_the_same():
    p = practice("weights")
    asked = []
    for _ in range(12):
        asked.append(str(p.question.inputs))
        p.check(truth(p))
        p.next()
    assert len(set(asked)) >= 10
    assert str(practice("weights").question.inputs) == str(p.question.inputs)


def test_mixed_practice_meets_every_step():
    assert {draw("mixed", 1, f"{k}").step for k in range(60)} == set(STEPS)


def test_right_answers_raise_the_level_and_a_miss_lowers_it():
    p = practice("scores")
    for expected in (1, 1, 2, 2, 3, 3, 4, 4):
        assert p.level == expected
        assert p.check(truth(p)).status == "right"
        p.next()
    p.check(wrong(p))
    assert p.next().level == 3


def test_only_the_first_attempt_counts():
    p = practice("mixture")
    assert p.check(truth(p)).streak == 1
    p.next()
    missed = p.check(wrong(p))
    assert (missed.status, missed.streak) == ("wrong", 0)
    assert p.check(truth(p)).status == "right"
    p.check(truth(p))
    assert [entry["right"] for entry in journal.entries("practice")] == [True, False]
    assert p.next().check(truth(p)).streak == 1


def test_blank_and_unreadable_answers_cost_nothing():
    p = practice("weights")
    assert p.check(...).status == "blank"
    assert p.check([..., 0.5]).status == "blank"
    assert p.check("half").status == "unreadable"
    assert p.check([[[1]]]).status in ("unreadable", "wrong")
    assert list(journal.entries("practice")) == [] or p.check([[[1]]]).status == "wrong"


def test_the_solution_waits_for_an_attempt():
    p = practice("weights")
    solved = p.question.solution[0]
    assert solved not in repr(p.solution())
    p.check(wrong(p))
    assert solved in repr(p.solution())
    p.next()
    assert p.question.solution[0] not in repr(p.solution())


def test_a_right_answer_shows_the_working_and_a_wrong_one_does_not():
    p = practice("projection")
    line = p.question.solution[0]
    assert line not in repr(p.check(wrong(p)))
    assert line in repr(p.check(truth(p)))
    assert "1 in a row" not in repr(p.check(truth(p)))


def test_skipping_moves_on_and_records_nothing():
    p = practice("weights")
    before = str(p.question.inputs)
    assert str(p.next().question.inputs) != before
    assert p.number == 2
    assert list(journal.entries("practice")) == []


def test_learners_practise_with_different_numbers(monkeypatch):
    mine = str(practice("projection").question.inputs)
    monkeypatch.setenv("LABKIT_LEARNER", "Ada")
    assert str(practice("projection").question.inputs) != mine


def test_an_unknown_step_is_named():
    with pytest.raises(LabkitError, match=r"wieghts.*mixed"):
        practice("wieghts")


def test_question_cards_hold_the_numbers_and_escape_them():
    p = practice("weights")
    assert matrix_text(p.question.given["scores"]) in repr(p)
    for number in p.question.given["scores"]:
        assert f"<td>{number}</td>" in p._repr_html_()
    assert "<table" not in matrix_html("n", 4)  # a number between two bars looks like its absolute value
    assert "&lt;b&gt;" in matrix_html("<b>", [1])
    assert "<b>x" not in matrix_html("Q", ["<b>x"])


def test_progress_counts_what_is_answered(tmp_path, monkeypatch):
    entries = {name: feedback.Feedback() for name in ("a", "b", "c", "d")}
    (tmp_path / "01_first.json").write_text(feedback.encode(entries), encoding="utf-8")
    (tmp_path / "02_second.json").write_text(feedback.encode({"e": feedback.Feedback()}), encoding="utf-8")
    journal.record("a", 1, "right")
    journal.record("b", "<early>", "wrong")
    journal.record("c", "text", "recorded")
    shown = overview.progress(tmp_path)
    journal.record("b", "<late>", "wrong")
    assert repr(shown).splitlines()[:2] == ["01_first   ■◪▣□  2 of 4, 1 right at the first try", "02_second  □  0 of 1"]
    assert repr(shown).splitlines()[-3:] == ["a: first 1; right", "b: first <early>; tried", "c: first text; written"]
    assert '<td style="text-align:left">&lt;early&gt;</td>' in shown._repr_html_()
    assert 'title="b: tried"' in shown._repr_html_()
    assert "Not saved" not in repr(shown)
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path / "01_first.json" / "no"))
    journal.record("d", 1, "right")
    assert "Not saved" in repr(overview.progress(tmp_path))
    assert "details" not in overview.Progress({"x": {"y": "open"}}, {})._repr_html_()
