"""`labkit grade`, `regrade`, `report`: read the command line, run, say in a few lines what happened."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.grading.reports import write_reports
from labkit.grading.run import Options, Progress, Summary, grade
from labkit.grading.store import Change
from labkit.grading.text import plural, visible

KEYS = "answer_keys"
NAMED = 10  # people named on the terminal; the class report names more
NO_SANDBOX = (
    "they need code to run, and there is no level A sandbox here. See `labkit doctor`, or use --allow-weaker-sandbox."
)
STRAY = "Everybody else has 0 there. Not due yet? Give the key of each lesson that is due: --keys ONE --keys ANOTHER."
TIMELESS = "--due has no effect: no file says when it was handed in."
EMPTY = "Where no other file counts, cells in the tables are empty, not 0."
EARLIER = "The key changed: marks that --only left alone are still by the earlier one, until you grade without --only."
STOPPED = {
    "grade": "Marks that are done are kept; the same command goes on from there.",
    "regrade": "Marks that are done are kept; the same command starts from the beginning.",
}


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
    said = ""
    try:
        if words.manual and not words.manual.is_file():
            raise LabkitError(f"--manual {words.manual}: there is no such file.")
        with _executor(words.executor, words.scheduler, words.jobs) as (executor, jobs), _progress() as progress:
            options = replace(options, jobs=jobs)
            summary = grade(
                words.submissions, words.keys or KEYS, words.out, options, executor=executor, progress=progress
            )
        if not words.dry_run:
            said = write_reports(words.out, words.manual)
    except (LabkitError, OSError, sqlite3.Error) as error:
        print(f"labkit {command}: {visible(_advice(error, words.out))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nStopped. {'Nothing was written.' if words.dry_run else STOPPED[command]}", file=sys.stderr)
        return 130
    print("\n".join([*lines(summary, words.out, dry_run=words.dry_run, again=options.again), *filter(None, [said])]))
    return summary.exit_status


def report(argv: Sequence[str]) -> int:
    """Write the reports of a graded folder again, with marks given by hand, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="labkit report", description="Write tables and pages again; marks filled in in manual.csv are taken in."
    )
    parser.add_argument("out", type=Path, nargs="?", default=Path("graded"), help="the graded folder (default: graded)")
    parser.add_argument("--manual", type=Path, help="a filled sheet elsewhere (default: manual.csv in the folder)")
    words = parser.parse_args(argv)
    try:
        said = write_reports(words.out, words.manual)
    except (LabkitError, OSError, sqlite3.Error) as error:
        print(f"labkit report: {visible(_advice(error, words.out))}", file=sys.stderr)
        return 1
    print(
        f"wrote {words.out / 'class_report.html'} and the pages and tables beside it", *filter(None, [said]), sep="\n"
    )
    return 0


def _advice(error: Exception, out: Path) -> str:
    """Say what to do; a full disk or a folder of somebody else's is no fault of ours."""
    if isinstance(error, LabkitError):
        return str(error)
    return f"{error}. Marks that are done are kept; can files be written in {out}, and is there room?"


@contextmanager
def _executor(kind: str, scheduler: str, jobs: int) -> Iterator[tuple[Executor | None, int]]:
    """Give the executor of a cluster and how many work in it; None leaves the choice to `--jobs`."""
    if kind == "local":
        yield None, jobs
        return
    if not scheduler:
        raise LabkitError("--executor dask needs --scheduler ADDRESS, such as tcp://10.0.0.1:8786.")
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise LabkitError('--executor dask needs an extra: pip install "labkit[cluster]".') from None
    try:
        client: Any = Client(scheduler, timeout="20s")  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise LabkitError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    with client:
        threads = client.nthreads().values()
        if not threads or max(threads) > 1:  # running a key changes the process's folder and environment
            raise LabkitError("the cluster needs workers of one thread each: dask worker ADDRESS --nthreads 1.")
        yield client.get_executor(pure=False), len(threads)


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Show a bar with the time left, where somebody watches a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("marking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("marking", total=None)
        yield lambda done, total, results: bar.update(task, completed=done, total=total)


def _parser(command: str) -> argparse.ArgumentParser:
    about = {
        "grade": "Mark a class. What was marked before with the same key and files is kept.",
        "regrade": "Mark everything again, and show every mark that changed and why. Marks given by hand stay.",
    }
    parser = argparse.ArgumentParser(prog=f"labkit {command}", description=about[command])
    add = parser.add_argument
    add(
        *("submissions",),
        type=Path,
        nargs="+",
        metavar="SUBMISSIONS",
        help="folders of notebooks, Canvas or Moodle zips, or nbgrader's submitted/ tree",
    )
    add(
        *("--keys",),
        type=Path,
        action="append",
        default=[],
        help="the keys' folder, or one key; may be repeated (default: answer_keys)",
    )
    add("--out", type=Path, default=Path("graded"), help="where marks and reports go (default: graded)")
    add("--roster", type=Path, help="class list: CSV, a Canvas gradebook, or a Moodle grading sheet")
    add("--secret", type=Path, help="file that hidden cases are drawn from; made on first use (default: in OUT)")
    add("--due", default="", metavar="TIME", help="deadline, such as 2026-02-01T23:59, for the late flag")
    add("--only", action="append", default=[], metavar="ID", help="only this student or exercise; may be repeated")
    add("--jobs", type=int, default=1, metavar="N", help="marking processes (default: 1)")
    add("--executor", choices=("local", "dask"), default="local", help="where marking runs (default: this machine)")
    add("--scheduler", default="", metavar="ADDRESS", help="the Dask scheduler's address, for --executor dask")
    add("--manual", type=Path, help="a filled sheet of marks by hand (default: manual.csv in OUT)")
    add("--dry-run", action="store_true", help="read everything, say what would be marked, run and write nothing")
    add("--allow-weaker-sandbox", action="store_true", help="run code even where the sandbox is below level A")
    return parser


def lines(summary: Summary, out: Path, *, dry_run: bool = False, again: bool = False) -> Iterator[str]:
    """Say what happened, in plain text that no file name or answer can disturb."""
    if dry_run:
        yield from _would(summary)
    else:
        students = plural(summary.students, "student")
        yield f"{students}: {summary.marked} marked, {summary.kept} kept from before -> {out}"
    yield from (visible(reason, 300) for reason in summary.refused)
    if summary.unread:
        them = "it" if summary.unread == 1 else "them"
        files = plural(summary.unread, "file")
        yield f"{files} could not be read, not graded: ask for {them} again. {EMPTY}"
    if summary.timeless:
        yield TIMELESS
    if summary.unlisted:
        yield f"Handed in, but not on the class list, {_some(summary.unlisted)}"
    if summary.absent:
        yield f"Nothing handed in, {_some(summary.absent)}"
    for lesson in summary.strays:
        other, many = summary.handed.most_common(1)[0]
        few = plural(summary.handed[lesson], "student")
        yield f"Only {few} handed in {lesson} ({other}: {many}). {STRAY}"
    if summary.earlier:
        yield EARLIER
    if summary.unmarked:
        unmarked = plural(summary.unmarked, "exercise is", "exercises are")
        yield f"{unmarked} unmarked: {NO_SANDBOX}"
    if summary.internal:
        yield f"A fault of ours kept these from being marked, run again, {_some(summary.internal)}"
    yield from changed(summary.changes)
    if again and not summary.changes:
        yield "no mark changed"


def _would(summary: Summary) -> Iterator[str]:
    """Say what a run would find."""
    yield f"would mark {plural(summary.students, 'student')}; nothing was written"
    for lesson, found in sorted(summary.found.items()):
        notebooks, students = plural(found.notebooks, "notebook"), plural(len(found.students), "student")
        late = f", {found.late} late" if found.late else ""
        yield f"  {lesson or 'none of these lessons'}: {notebooks} from {students}{late}"
    if summary.level == "none":
        yield f"functions would stay unmarked: {NO_SANDBOX}"
    else:
        yield f"functions would run in a sandbox of level {summary.level}"


def _some(names: Sequence[str]) -> str:
    """Count people and name the first of them."""
    shown = "; ".join(visible(name, 60) for name in names[:NAMED])  # a listed name may hold a comma
    return f"{len(names)}: {shown}{'; …' if len(names) > NAMED else ''}"


def changed(changes: Sequence[Change]) -> Iterator[str]:
    """Set every mark that changed in a table, with the reason."""
    if not changes:
        return
    rows = [("student", "exercise", "before", "now", "why")]
    rows += [(one.student, one.exercise, one.before, one.after, one.why) for one in changes]
    shown = [[visible(word, 60) for word in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    yield f"marks that changed: {len(changes)}"
    for row in shown:
        yield "  " + "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
