"""Two hundred learners: exercises with numbers of one's own stay exact, varied, and as sharp as the printed ones."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit import feedback
from labkit.answers import same
from labkit.authoring.feedback_file import collect
from labkit.authoring.source import read_lesson
from labkit.authoring.truth import prove
from labkit.checks import Exercise

SOURCES = sorted((Path(__file__).parents[1] / "answer_keys").glob("[0-9][0-9]_*.md"))
LEARNERS = [f"learner {k}" for k in range(200)]
LARGEST_DENOMINATOR = 144  # two fractions with denominators up to 12, multiplied


def asks_for_an_example(value: Any) -> bool:
    return callable(value) and len(inspect.signature(value).parameters) == 1


def personal(source: Path) -> Iterator[Exercise]:
    """Yield the exercises of a lesson whose numbers come from the learner's name."""
    for record in prove(read_lesson(source), dict(os.environ)).values():
        inputs = record.exercise.inputs
        if record.exercise.step not in ("choice", "function") and any(map(asks_for_an_example, inputs.values())):
            yield record.exercise


def told_apart(exercise: Exercise) -> set[str]:
    """Name the slips whose number differs from the truth."""
    truth = np.asarray(exercise.truth(), dtype=float)
    return {slip.id for slip, wrong in exercise.slips() if not same(np.asarray(wrong, dtype=float), truth)}


def is_a_readable_fraction(number: float) -> bool:
    return any(abs(number * below - round(number * below)) < 1e-9 for below in range(1, LARGEST_DENOMINATOR + 1))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_every_learner_gets_readable_numbers_that_tell_slips_apart(source: Path) -> None:
    with feedback.using(collect(read_lesson(source))):
        for printed in personal(source):
            expected, truths = told_apart(printed), set()
            for name in LEARNERS:
                exercise = printed.for_learner(name)
                assert expected - told_apart(exercise) == set(), (printed.id, name)
                truth = np.ravel(exercise.truth()).astype(float)
                assert all(map(is_a_readable_fraction, truth)), (printed.id, name, truth)
                truths.add(str(truth))
            assert len(truths) >= 6, printed.id


def test_enough_exercises_have_numbers_of_ones_own() -> None:
    if len(SOURCES) < 9:
        pytest.xfail("lessons are still being written")
    assert sum(len(list(personal(source))) for source in SOURCES) >= 15
