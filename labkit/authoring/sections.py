"""Find the section of each topic and each exercise: where a learner is sent to look again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labkit import slips
from labkit.authoring.coverage import syllabus
from labkit.authoring.notebooks import cell_ids
from labkit.authoring.problems import BuildError, Problem
from labkit.authoring.source import Lesson
from labkit.sections import Section


def table(lessons: list[Lesson]) -> dict[str, Section]:
    """Give every topic and exercise its section; raises BuildError where there is none to send a learner to.

    A topic's is that of the first passage that covers it; failing that, of the first exercise that names it before
    other topics; failing that, of the first one at all.
    """
    exercises, passages, first, further = (dict[str, Section]() for _ in range(4))
    problems: list[Problem] = []
    for lesson in lessons:
        section = None
        for cell, name in zip(lesson.cells, cell_ids(lesson), strict=True):
            if title := cell.heading:
                section = Section(lesson.name, name, title)
            covers, exercise = cell.options.get("covers", []), cell.options.get("answer", "")
            if (covers or exercise) and section is None:
                problems.append(Problem(lesson.path, cell.line, "this stands above the first heading: add a `## ` one"))
            elif section:
                exercises |= {exercise: section} if exercise else {}
                for place, topic in enumerate(covers):
                    found = passages if not exercise else further if place else first
                    found.setdefault(topic, section)
    made = {**further, **first, **passages, **exercises}
    if problems := problems or list(_pointing_nowhere(lessons, made)):
        raise BuildError(problems)
    return made


def _pointing_nowhere(lessons: list[Lesson], made: dict[str, Section]) -> Iterator[Problem]:
    """Yield each slip of the catalogue whose topic does not exist, or not in its lesson, which does."""
    known, there = syllabus(), {lesson.name[:2] for lesson in lessons}
    path = Path(slips.__file__)
    source = path.read_text(encoding="utf-8")
    for slip in slips.CATALOGUE.values():
        topic = known.get(slip.section)
        if slip.section and slip.section not in made and (topic is None or topic.lesson in there):
            line = source[: source.index(f'"{slip.id}"')].count("\n") + 1
            text = f"{slip.id}: no lesson covers {slip.section!r}, so a learner would be sent nowhere"
            yield Problem(path, line, text)
