"""Every exercise of every lesson against every slip of its step, and against right answers written differently."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit import feedback, kill_matrix, sections
from labkit.authoring.feedback_file import collect
from labkit.authoring.source import read_lesson
from labkit.authoring.truth import prove
from labkit.checks import Exercise, Record
from labkit.kill_matrix import Kill, as_markdown, survey

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "answer_keys").glob("[0-9][0-9]_*.md"))
LEARNERS = ("", "Ada", "Grace Hopper")


@pytest.fixture(scope="module")
def lessons() -> dict[str, list[Record]]:
    made = {}
    for source in SOURCES:
        lesson = read_lesson(source)
        with feedback.using(collect(lesson)):
            made[lesson.name] = list(prove(lesson, dict(os.environ)).values())
    return made


@pytest.fixture(scope="module")
def kills(lessons: dict[str, list[Record]]) -> dict[str, list[Kill]]:
    made: dict[str, list[Kill]] = {}
    for source in SOURCES:
        name = source.stem
        with feedback.using(collect(read_lesson(source))):
            made[name] = [kill for record in lessons[name] for kill in survey(record.exercise)]
    return made


def test_lessons_exist_and_every_check_was_collected(lessons: dict[str, list[Record]]) -> None:
    assert lessons
    for name, made in lessons.items():
        source = (ROOT / "answer_keys" / f"{name}.md").read_text(encoding="utf-8")
        assert len(made) == source.count("\nanswer: "), name


def test_no_exercise_accepts_a_slip(kills: dict[str, list[Kill]]) -> None:
    assert [kill for found in kills.values() for kill in found if kill.survives] == []


def test_at_least_nine_of_ten_distinct_slips_are_named(kills: dict[str, list[Kill]]) -> None:
    distinct = [kill for found in kills.values() for kill in found if kill.distinct]
    unnamed = [kill for kill in distinct if not kill.named]
    assert len(unnamed) <= 0.1 * len(distinct), unnamed


def test_every_exercise_tells_some_slip_from_the_truth(
    kills: dict[str, list[Kill]], lessons: dict[str, list[Record]]
) -> None:
    able = {kill.exercise for found in kills.values() for kill in found if kill.distinct}
    asked = [record.exercise for made in lessons.values() for record in made if record.exercise.step != "written"]
    assert [exercise.id for exercise in asked if exercise.id not in able] == []


def test_every_slip_is_refuted_in_words(lessons: dict[str, list[Record]]) -> None:
    for source in SOURCES:
        with feedback.using(collect(read_lesson(source))):
            pairs = [(record.exercise, slip) for record in lessons[source.stem] for slip, _ in record.exercise.slips()]
            silent = [(exercise.id, slip.id) for exercise, slip in pairs if len(slip.refutation) < 15]
            assert silent == []


def test_every_slip_that_points_somewhere_points_into_the_lessons(lessons: dict[str, list[Record]]) -> None:
    topics = {slip.section for made in lessons.values() for record in made for slip, _ in record.exercise.slips()}
    assert {topic for topic in topics if topic and not sections.of(topic)} == set()


def test_other_learners_numbers_are_as_sharp(lessons: dict[str, list[Record]]) -> None:
    personal = [
        record.exercise.for_learner(name)
        for made in lessons.values()
        for record in made
        if any(map(callable, record.exercise.inputs.values())) and record.exercise.step not in ("number", "choice")
        for name in LEARNERS
    ]
    assert [kill for exercise in personal for kill in survey(exercise) if kill.survives] == []


def test_right_answers_are_accepted_however_they_are_written(lessons: dict[str, list[Record]]) -> None:
    refused = [
        (record.exercise.id, way, str(verdict))
        for made in lessons.values()
        for record in made
        if record.exercise.truth() is not None
        for way, answer in rewritten(record.exercise).items()
        if (verdict := record.exercise.judge(answer)).status != "right"
    ]
    assert refused == []


def rewritten(exercise: Exercise) -> dict[str, Any]:
    """Write the truth of an exercise in other words."""
    truth = exercise.truth()
    if exercise.step == "choice":
        return {"lower case": str(truth).lower(), "spaces": f" {truth} ", "numpy": np.str_(truth)}
    if exercise.step == "ordering":
        return {"tuple": tuple(truth), "array": np.array(truth), "upper case": [str(item).upper() for item in truth]}
    exact = np.asarray(truth)
    if exact.dtype == bool:
        return {"array": exact, "list": exact.tolist(), "0 and 1": exact.astype(int).tolist(), "tuple": _tuples(exact)}
    exact = exact.astype(float)
    ways = {
        "array": exact,
        "list": exact.tolist(),
        "tuple": _tuples(exact),
        "float32": exact.astype(np.float32),
        "computed": (exact * 3 / 3).tolist(),
        "objects": exact.astype(object),
    }
    if np.isfinite(exact).all():
        ways["fractions"] = _each(lambda x: Fraction(x).limit_denominator(10**9), exact.tolist())
        ways["seven digits"] = _each(lambda x: float(f"{x:.7g}"), exact.tolist())
    return ways


def _each(change: Any, numbers: Any) -> Any:
    return [_each(change, part) for part in numbers] if isinstance(numbers, list) else change(numbers)


def _tuples(array: np.ndarray[Any, Any]) -> Any:
    return tuple(map(_tuples, array)) if array.ndim else array[()]


def test_page_is_written(kills: dict[str, list[Kill]]) -> None:
    page = as_markdown(kills)
    (ROOT / "docs" / "kill_matrix.md").write_text(page, encoding="utf-8", newline="\n")
    for name, found in kills.items():
        assert f"## {name}" in page
        assert all(f"| {kill.exercise} |" in page for kill in found)


def test_a_survivor_would_be_seen() -> None:
    blunt = Exercise("blunt", "weights", {"scores": [0, 0]})
    assert not any(kill.survives for kill in survey(blunt))
    assert {kill.slip for kill in survey(blunt) if not kill.distinct} >= {"weights-uniform", "weights-sign-flipped"}
    assert Kill("e", "weights", "s", distinct=True, rejected=False, named="").survives


def test_a_matrix_that_names_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Exercise("row", "weights", {"scores": [0, 1, 2], "allowed": [True, True, False]})
    before = [kill for kill in survey(row) if kill.distinct]
    monkeypatch.setattr(Exercise, "_slipped", lambda self, found: self._verdict("wrong", "no"))
    after = [kill for kill in kill_matrix.survey(row) if kill.distinct]
    assert all(kill.named for kill in before)
    assert not any(kill.named for kill in after)
    assert all(kill.rejected for kill in after)
