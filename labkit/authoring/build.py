"""`labkit build`: read every source, prove its answers, and write (or compare) everything made from it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit import feedback
from labkit.authoring import coverage, notebooks, sections
from labkit.authoring.feedback_file import collect
from labkit.authoring.leaks import leaks
from labkit.authoring.problems import BuildError, Problem
from labkit.authoring.source import Lesson, read_lesson
from labkit.authoring.truth import prove
from labkit.sections import FILE, encode

ROOT = Path(__file__).resolve().parents[2]
Files = dict[Path, bytes]  # relative to the project's root


def main(argv: list[str] | None = None) -> int:
    """Run `labkit build [--check] [NN …]`; exit status 1 when something is wrong or, with --check, stale."""
    options = _parse(argv)
    try:
        made = make(options.root, options.lessons)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    stale = [path for path, content in made.items() if _read(options.root / path) != content]
    if options.check:
        print("\n".join(f"stale: {path}" for path in stale) or f"{len(made)} files are what the builder makes.")
        return 1 if stale else 0
    for path in stale:
        _write(options.root / path, made[path])
    print("\n".join(f"wrote {path}" for path in stale) or f"{len(made)} files were already up to date.")
    return 0


def make(root: Path, chosen: list[str]) -> Files:
    """Return every file that the chosen lessons (all, when none is named) give; raises BuildError.

    Every source is read, since ids are unique across lessons; one that is broken stops only those who chose it, and
    the tables of all lessons wait until all of them can be read.
    """
    every, problems = _read_all(sorted((root / "answer_keys").glob("[0-9]*.md")))
    named = tuple(chosen) or ("",)
    lessons = [lesson for lesson in every if lesson.name.startswith(named)]
    if mine := [problem for problem in problems if problem.path.stem.startswith(named)]:
        raise BuildError(mine)
    if not lessons:
        raise BuildError([Problem(root / "answer_keys", 1, f"no lesson called {', '.join(chosen) or '*.md'}")])
    made = _feedback_files(lessons)
    if not problems:
        made[Path("docs/coverage.md")] = coverage.table(every).encode()
        made[Path("labkit/feedback") / FILE] = encode(sections.table(every)).encode()
    return made | _notebook_files(lessons, made)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="labkit build", description="Make the notebooks from their sources.")
    parser.add_argument("lessons", nargs="*", metavar="NN", help="only these lessons, e.g. 03 or 03_masks")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and list what is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _read_all(paths: list[Path]) -> tuple[list[Lesson], list[Problem]]:
    """Read every source; return the lessons that can be read, and everything wrong with any."""
    lessons, problems = [], []
    for path in paths:
        try:
            lessons.append(read_lesson(path))
        except BuildError as error:
            problems += error.problems
    return lessons, [*problems, *_shared_ids(lessons), *coverage.unknown_ids(lessons)]


def _shared_ids(lessons: list[Lesson]) -> Iterator[Problem]:
    """Yield every id that two lessons use, for each of them: whichever is being built has to hear of it."""
    uses: dict[str, list[Problem]] = {}
    for lesson in lessons:
        for one in lesson.exercises:
            uses.setdefault(one.id, []).append(Problem(lesson.path, one.answer.line, f"exercise id {one.id!r}"))
    for places in uses.values():
        for here in places:
            others = ", ".join(f"{other.path.name}:{other.line}" for other in places if other is not here)
            if others:
                yield Problem(here.path, here.line, f"{here.text} is already used in {others}: choose another")


def _feedback_files(lessons: list[Lesson]) -> Files:
    return {
        Path(f"labkit/feedback/{lesson.name}.json"): feedback.encode(collect(lesson)).encode() for lesson in lessons
    }


def _notebook_files(lessons: list[Lesson], made: Files) -> Files:
    """Prove the answers, execute both notebooks of every lesson against the new feedback, and look for leaks."""
    with tempfile.TemporaryDirectory() as folder:
        for path, content in made.items():
            _write(Path(folder) / path, content)
        environment = notebooks.environment(Path(folder) / "labkit/feedback")
        records = _prove(lessons, environment)
        blanks = [notebooks.draft(lesson, solved=False) for lesson in lessons]
        keys = [notebooks.draft(lesson, solved=True) for lesson in lessons]
        print(f"Running {len(blanks) + len(keys)} notebooks, {notebooks.AT_A_TIME} at a time …", file=sys.stderr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the Jupyter libraries' own, about each other
            notebooks.execute([*blanks, *keys], environment)
    if problems := [problem for one in blanks for problem in leaks(one, records)]:
        raise BuildError(problems)
    return {
        Path(where) / f"{one.lesson.name}.ipynb": notebooks.as_bytes(one.notebook)
        for where, drafts in (("notebooks", blanks), ("answer_keys", keys))
        for one in drafts
    }


def _prove(lessons: list[Lesson], environment: dict[str, str]) -> dict[str, Any]:
    """Hold every answer against the computed truth; return the check records by exercise id."""
    records: dict[str, Any] = {}
    problems: list[Problem] = []
    for lesson in lessons:
        try:
            with feedback.using(collect(lesson)):
                records |= prove(lesson, environment)
        except BuildError as error:
            problems += error.problems
    if problems:
        raise BuildError(problems)
    return records


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
