"""Collect what a learner must not read before an attempt: hints, reasons, sealed choices."""

from __future__ import annotations

import ast

from labkit.authoring.source import Exercise, Lesson
from labkit.feedback import Feedback, seal


def collect(lesson: Lesson) -> dict[str, Feedback]:
    """Return the feedback of every exercise of a lesson, as the checks read it."""
    return {exercise.id: _feedback(lesson, exercise) for exercise in lesson.exercises}


def _feedback(lesson: Lesson, exercise: Exercise) -> Feedback:
    options = exercise.answer.options
    return Feedback(
        points=exercise.points,
        covers=tuple(map(str, options.get("covers", []))),
        hints=tuple(map(str, options.get("hints", []))),
        why={str(option): str(text) for option, text in options.get("why", {}).items()},
        sealed=_sealed(exercise),
        kind=exercise.step,
        lesson=lesson.name,
    )


def _sealed(exercise: Exercise) -> str:
    """Seal the key's own choice where no computation decides it."""
    decided = any(word.arg == "outcome" for word in exercise.call.keywords)
    if exercise.step != "choice" or decided:
        return ""
    chosen = [node.value for node in ast.parse(exercise.answer.source).body if isinstance(node, ast.Assign)]
    return seal(exercise.id, ast.literal_eval(chosen[-1])) if chosen else ""
