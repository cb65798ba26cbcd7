"""The same learner always meets the same numbers, different learners different ones, and slips never hide in them."""

import subprocess
import sys
from fractions import Fraction

import pytest

from labkit import journal, variants
from labkit.errors import LabkitError
from labkit.exact import transpose, weights_from_exp
from labkit.variants import me, normalised, tells_slips_apart, variant, whoever

LEARNERS = ["", *(f"learner {k}" for k in range(199))]


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path))
    monkeypatch.delenv("LABKIT_LEARNER", raising=False)
    monkeypatch.setattr(journal, "_unsaved", {})


@pytest.mark.parametrize("typed", ["josé maría", "José María", "  JOSÉ \t MARÍA ", "Jose\u0301 Mari\u0301a"])
def test_a_name_may_be_typed_in_many_ways(typed):
    assert normalised(typed) == "josé maría"


def test_names_that_differ_stay_different():
    assert normalised("José") != normalised("Jose")
    assert normalised("Straße") == normalised("STRASSE")


def test_another_process_draws_the_same_numbers():
    code = "from labkit.variants import variant; print(variant('row-2', 'Ada').dots)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(variant("row-2", "ADA").dots)


def test_me_is_remembered_and_the_environment_wins(monkeypatch, capsys):
    me("")
    assert whoever() == ""
    me("Ada")
    me(" Bo ")
    assert whoever() == "bo"
    assert variant("row-2").dots == variant("row-2", "Bo").dots
    monkeypatch.setenv("LABKIT_LEARNER", "Cy")
    me("Dee")
    assert whoever() == "cy"
    monkeypatch.delenv("LABKIT_LEARNER")
    me("  ")
    assert whoever() == "dee"
    assert capsys.readouterr().out.splitlines() == [
        "No name yet: these are the printed numbers.",
        "Your numbers are drawn for ada.",
        "Your numbers are drawn for bo.",
        "Your numbers are drawn for cy.",
        "Your numbers are drawn for dee.",
        "Type this name between the quotes before you hand in: only so are your answers checked with your numbers.",
    ]


def test_learners_and_exercises_get_different_examples():
    assert len({str(variant("row-2", name)) for name in LEARNERS[:40]}) == 40
    assert variant("row-2", "Ada") != variant("row-3", "Ada")


def test_two_hundred_learners_get_exact_numbers_in_which_slips_show():
    for name in LEARNERS:
        example = variant("some-exercise", name)
        assert all(isinstance(weight, Fraction) for row in example.weights for weight in row)
        assert max(weight.denominator for row in example.weights for weight in row) <= 12
        by_column = transpose(weights_from_exp(transpose(example.exp_scores)))
        for i in (1, 2):
            right = example.weights[i]
            read = [dot for dot, ok in zip(example.dots[i], example.allowed[i], strict=True) if ok]
            assert right != weights_from_exp(transpose(example.exp_scores), example.allowed)[i]
            assert right != by_column[i]
            assert sum(read) == 0 or right[: i + 1] != [Fraction(dot, sum(read)) for dot in read]
            assert right[: i + 1] != [Fraction(1, i + 1)] * (i + 1)


def test_acceptance_is_deterministic_and_can_fail():
    def steep(example):
        return example.weights[2][0] < Fraction(1, 6)

    example = variant("row-2", "Ada", accept=steep)
    assert steep(example)
    assert example == variant("row-2", "Ada", accept=steep)
    with pytest.raises(LabkitError, match="row-2"):
        variant("row-2", "Ada", accept=lambda example: False)


def test_options_reach_the_draw():
    example = variant("wide", "Ada", d_v=3, causal=False)
    assert len(example.values[0]) == 3
    assert all(all(row) for row in example.allowed)


def test_a_symmetric_score_matrix_is_refused():
    from labkit.exact import worked_example

    assert worked_example().dots == transpose(worked_example().dots)
    assert not tells_slips_apart(worked_example())
    assert variants.tells_slips_apart(variant("row-2", "Ada"))
