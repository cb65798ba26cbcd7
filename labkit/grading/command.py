"""`labkit grade`, `regrade`: read the command line, run, say in a few lines what happened."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading.run import Options, Summary, grade
from labkit.grading.text import visible


def main(argv: Sequence[str], command: str) -> int:
    """Run one command of an instructor and return its exit status."""
    words = _parser(command).parse_args(argv)
    options = Options(
        roster=words.roster,
        secret=words.secret,
        due=words.due,
        only=tuple(words.only),
        jobs=words.jobs,
        dry_run=words.dry_run,
        again=command == "regrade",
        allow_weaker=words.allow_weaker_sandbox,
    )
    try:
        summary = grade(words.submissions, words.keys, words.out, options)
    except LabkitError as error:
        print(f"labkit {command}: {visible(str(error))}", file=sys.stderr)
        return 1
    print("\n".join(lines(summary, words.out, dry_run=words.dry_run)))
    return summary.exit_status


def _parser(command: str) -> argparse.ArgumentParser:
    about = {
        "grade": "Mark a class. What was marked before with the same key and files is kept.",
        "regrade": "Mark everything again, and show every mark that changed and why. Marks given by hand stay.",
    }
    parser = argparse.ArgumentParser(prog=f"labkit {command}", description=about[command])
    add = parser.add_argument
    add("submissions", type=Path, help="folder of notebooks, Canvas or Moodle zip, or nbgrader's submitted/ tree")
    add("--keys", type=Path, default=Path("answer_keys"), help="the keys' folder, or one key (default: answer_keys)")
    add("--out", type=Path, default=Path("graded"), help="where marks and reports go (default: graded)")
    add("--roster", type=Path, help="class list: CSV, a Canvas gradebook, or a Moodle grading sheet")
    add("--secret", type=Path, help="file that hidden cases are drawn from; made on first use (default: in OUT)")
    add("--due", default="", metavar="TIME", help="deadline, such as 2026-02-01T23:59, for the late flag")
    add("--only", action="append", default=[], metavar="ID", help="only this student or exercise; may be repeated")
    add("--jobs", type=int, default=1, metavar="N", help="marking processes (default: 1)")
    add("--dry-run", action="store_true", help="read names and keys, say what would be marked, write nothing")
    add("--allow-weaker-sandbox", action="store_true", help="run code even where the sandbox is below level A")
    return parser


def lines(summary: Summary, out: Path, *, dry_run: bool = False) -> Iterator[str]:
    """Say what happened, in plain text that no file name or answer can disturb."""
    if dry_run:
        yield f"would mark {summary.students} students"
    else:
        yield f"{summary.students} students: {summary.marked} marked, {summary.kept} kept from before -> {out}"
    yield from (visible(reason, 300) for reason in summary.refused)
    if summary.unmarked:
        yield (
            f"{summary.unmarked} exercises are unmarked: they need code to run, and there is no level A sandbox here. "
            "See `labkit doctor`, or use --allow-weaker-sandbox."
        )
    if summary.internal:
        names = ", ".join(visible(name, 60) for name in summary.internal[:10])
        yield f"A fault of ours kept these from being marked, run again: {names}"
    for change in summary.changes:
        yield visible(f"{change.student}  {change.exercise}: {change.before} -> {change.after} ({change.why})", 400)
