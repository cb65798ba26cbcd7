"""Of one student's files: which could not be read, which of those to ask for again, and where only a name decided."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from labkit.grading.archive import own_name
from labkit.grading.intake import is_beside
from labkit.grading.model import Attempt, Result


def settled(results: Sequence[Result], lessons: Collection[str]) -> tuple[Result, ...]:
    """Take a file of no known lesson for an extra where the student's file for every lesson of the class was read."""
    read = {result.lesson for result in results if not result.unread}
    if not lessons or not read.issuperset(lessons):
        return tuple(results)  # it may be the one that is missing
    return tuple(replace(one, elsewhere=True) if one.unread and not one.lesson else one for one in results)


def unread_beside(result: Result) -> Iterator[Attempt]:
    """Give the files beside the one that counts that could not be read; an older one is nothing to worry about."""
    for attempt in result.attempts:
        older = result.attempt is not None and attempt.order[:2] < result.attempt.order[:2]
        if _is_unread(attempt) and (result.unread or not older):
            yield attempt


def to_ask_for(result: Result) -> int:
    """Count the files to ask for again: beside a notebook that counts only notebooks, not what else came with it."""
    beside = list(unread_beside(result))
    if result.unread:
        return 1 + len(beside)
    return sum(".ipynb" in own_name(one.source).lower() for one in beside) if result.lesson else 0


def alike(result: Result) -> int:
    """Count the files of which only the name says that the last one counts."""
    before = takewhile(lambda attempt: attempt != result.attempt, result.attempts)
    readable = [one for one in before if not _is_unread(one) and not is_beside(one.source)]
    return 1 + sum(result.attempt is not None and one.order[:2] == result.attempt.order[:2] for one in readable)


def _is_unread(attempt: Attempt) -> bool:
    return attempt.note.endswith(".")  # why a file cannot be read is a sentence, our other notes are not
