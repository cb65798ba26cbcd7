"""Which exercise or passage teaches which id of the syllabus (`ids.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.authoring.problems import Problem
from labkit.authoring.source import Lesson

HEADER = """# What is taught where

Made by `labkit build` from the `covers` entries of the lesson sources and `labkit/authoring/ids.toml`.
Every topic has at least one checked exercise; those marked *text* have a passage instead.
"""


@dataclass(frozen=True)
class Topic:
    """One id of the syllabus: the number of its lesson, what it says, and whether text is enough."""

    id: str
    lesson: str
    about: str
    text_only: bool


def syllabus() -> dict[str, Topic]:
    """Read every topic, in the order of the lessons."""
    numbers = tomllib.loads((Path(__file__).parent / "ids.toml").read_text(encoding="utf-8"))
    topics = [
        Topic(id, number, about, kind == "text")
        for number, kinds in numbers.items()
        for kind, entries in kinds.items()
        for id, about in entries.items()
    ]
    in_order = sorted(topics, key=lambda topic: (topic.lesson, int(topic.id[1:])))
    return {topic.id: topic for topic in in_order}


def unknown_ids(lessons: list[Lesson]) -> Iterator[Problem]:
    """Yield every `covers` entry that the syllabus does not know."""
    known = syllabus()
    for lesson in lessons:
        for cell, name in lesson.covers:
            if name not in known:
                here = [topic.id for topic in known.values() if topic.lesson == lesson.name.split("_")[0]]
                text = (
                    f"covers {name!r}, which labkit/authoring/ids.toml does not know; this lesson has {', '.join(here)}"
                )
                yield Problem(lesson.path, cell.line, text)


def uncovered(lessons: list[Lesson]) -> list[Topic]:
    """Return the topics of these lessons that no exercise (or, for text, no passage) names in any of them."""
    numbers = {lesson.name.split("_")[0] for lesson in lessons}
    exercised = {name for lesson in lessons for cell, name in lesson.covers if "answer" in cell.options}
    named = {name for lesson in lessons for _, name in lesson.covers}
    return [
        topic
        for topic in syllabus().values()
        if topic.lesson in numbers and topic.id not in (named if topic.text_only else exercised)
    ]


def table(lessons: list[Lesson]) -> str:
    """Return docs/coverage.md."""
    lines = [HEADER]
    for number in sorted({topic.lesson for topic in syllabus().values()}):
        titles = [lesson.front["title"] for lesson in lessons if lesson.name.startswith(number)]
        lines += [f"## {number} {' '.join(titles)}".rstrip(), "", "| id | topic | taught in |", "|---|---|---|"]
        lines += [_row(topic, lessons) for topic in syllabus().values() if topic.lesson == number]
        lines.append("")
    return "\n".join(lines)


def _row(topic: Topic, lessons: list[Lesson]) -> str:
    places = [
        f"[`{cell.options['answer']}`](../notebooks/{lesson.name}.ipynb)"
        if "answer" in cell.options
        else f"[text in {lesson.name[:2]}](../notebooks/{lesson.name}.ipynb)"
        for lesson in lessons
        for cell, name in lesson.covers
        if name == topic.id
    ]
    about = f"{topic.about} *(text)*" if topic.text_only else topic.about
    return f"| {topic.id} | {about} | {', '.join(dict.fromkeys(places)) or '—'} |"
