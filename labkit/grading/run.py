"""The class loop: find, mark through any executor, store, compare with last time. `grade` is the whole of it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.grading.attempts import settled, to_ask_for, unread_beside
from labkit.grading.intake import Handed, find_files
from labkit.grading.key import read_secret, run_key
from labkit.grading.keyfile import KeySource, find_keys, read_key
from labkit.grading.marking import File, Settings, Work, lesson_of, mark_student, unmarked
from labkit.grading.model import Result, Student, Submission
from labkit.grading.notebook import digest
from labkit.grading.probe import Report, find_sandbox
from labkit.grading.processes import end_servers, visible_paths
from labkit.grading.roster import Roster, name_words, namesakes, read_roster
from labkit.grading.store import Change, Store, changes
from labkit.grading.strict import Refused

AHEAD = 3  # students in flight for each job: enough to keep it busy, few enough to keep memory flat

NEAR = 3  # names that might have been meant
STRAY = 4  # a lesson is a stray where more than this many times as many students handed in another one

# The modules of grading that a mark depends on.
MARKS = (
    *("asking.py", "key.py", "keyfile.py", "literals.py", "marking.py", "matching.py", "notebook.py"),
    *("processes.py", "sandbox.py", "inside/forkserver.py", "inside/worker.py"),
)

Progress = Callable[[int, int, Sequence[Result]], None]


@dataclass
class Found:
    """The notebooks of one lesson that can be read."""

    notebooks: int = 0
    late: int = 0
    students: set[str] = field(default_factory=set)


@dataclass
class Summary:
    """What a run did; `internal` names students a fault of ours kept from being marked."""

    students: int = 0
    kept: int = 0  # marked before, with the same key and the same files
    marked: int = 0
    level: str = "none"
    refused: list[str] = field(default_factory=list)  # why a file was not graded, one sentence each
    unread: int = 0  # of those, the files that could not be read and are to be asked for again
    unlisted: list[str] = field(default_factory=list)  # handed in, but not on the class list
    absent: list[str] = field(default_factory=list)  # on the class list, but handed nothing in
    timeless: bool = False  # there is a deadline, and no file says when it was handed in
    found: dict[str, Found] = field(default_factory=dict)  # lesson -> its notebooks; only a dry run counts them
    handed: Counter[str] = field(default_factory=Counter)  # lesson -> how many students handed it in
    internal: list[str] = field(default_factory=list)
    unmarked: int = 0  # exercises that no sandbox here was strong enough for
    changes: list[Change] = field(default_factory=list)
    earlier: bool = False  # the marks that `only` leaves alone were made with an earlier key

    @property
    def strays(self) -> list[str]:
        """The lessons that few of the class handed in: too early perhaps, and all others have a 0 there."""
        most = max(self.handed.values(), default=0)
        return sorted(lesson for lesson, count in self.handed.items() if count * STRAY < most)

    @property
    def exit_status(self) -> int:
        """0: everything that can be marked is; 1: a fault of ours; 2: exercises wait for a sandbox."""
        return 1 if self.internal else 2 if self.unmarked else 0


@dataclass(frozen=True)
class Options:
    """How to run: `only` names students or exercises, `again` marks anew what is already marked."""

    roster: Path | None = None
    secret: Path | None = None
    due: str = ""
    only: tuple[str, ...] = ()
    jobs: int = 1
    dry_run: bool = False
    again: bool = False
    allow_weaker: bool = False


def grade(
    submissions: str | Path | Sequence[str | Path],
    keys: str | Path | Sequence[str | Path] = "answer_keys",
    out: str | Path = "graded",
    options: Options | None = None,
    *,
    executor: Executor | None = None,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Grade a class into `out`; what was marked before with the same key and files is kept.

    `submissions` and `keys` may be one path or several; files of several are put together by student.

    `executor` is anything with the interface of `concurrent.futures.Executor`; `progress(done, total, results)` is
    called after each student. A kill at any moment loses at most the students in flight.
    """
    options = options or Options()
    sources = tuple(map(read_key, _key_files(_paths(keys))))
    roster = read_roster(options.roster) if options.roster else Roster()
    files, refusals = find_files(_paths(submissions), roster, _given_out(sources), options.due)
    listed = _class(roster, files)
    students, exercises = _wanted(options.only, files, sources)
    _keep_out_of_sight(*_paths(keys), Path(out))
    sandbox = _sandbox(report or find_sandbox(), options.allow_weaker)
    summary = Summary(
        len(students),
        level=sandbox.level if sandbox else "none",
        refused=[refusal.reason for refusal in refusals],
        unlisted=[one.label for one in listed if roster.students and not one.listed],
        absent=[student.name for student in roster.students if student.id not in files],
        timeless=bool(options.due and files) and not any(one.attempt.when for group in files.values() for one in group),
    )
    if options.dry_run:
        _look(summary, [files[student] for student in students], sources)
        return summary
    settings = Settings(sources, read_secret(options.secret or Path(out, "secret.txt")), sandbox, exercises)
    with Store(Path(out)) as store:
        before, facts = store.facts(), _facts(settings)
        why = _why(before, settings)
        if options.only and before.get("keys", facts["keys"]) != facts["keys"]:
            summary.earlier, facts["keys"] = True, before["keys"]  # until everybody is marked with the new one
        store.begin(listed, refusals, {**facts, "exercises": _exercises(sources)})
        if not options.only:
            store.forget(files)
        done = {} if options.again or exercises else store.finished()
        with executor_for(options.jobs, executor) as pool:
            todo = _todo(files, students, done, settings)
            ahead = 0 if isinstance(pool, Here) else AHEAD * options.jobs
            for fingerprint, student, results in _unbroken(_marked(todo, settings, pool, ahead)):
                if results is not None:
                    _keep(store, summary, student, fingerprint, results, exercises, why)
                summary.kept += results is None
                if progress:
                    progress(summary.kept + summary.marked, summary.students, results or ())
        _count(store, summary)
    return summary


def _paths(given: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(given)] if isinstance(given, str | Path) else [Path(one) for one in given]


def _key_files(keys: Sequence[Path]) -> list[Path]:
    """List the keys that files and folders name, each once."""
    files = {file.resolve(): file for key in keys for file in find_keys(key)}
    names = Counter(file.stem for file in files.values())
    if twice := [name for name, count in names.items() if count > 1]:
        raise LabkitError(f"--keys names two keys of {twice[0]}: name the one to grade with.")
    return sorted(files.values(), key=lambda file: file.name)


def _given_out(sources: Sequence[KeySource]) -> list[str]:
    """Name the lessons that files may be called by: those graded, and those whose keys lie beside theirs."""
    beside = {file.stem for source in sources for file in Path(source.folder).glob("[0-9][0-9]_*.*")}
    return sorted(beside | {source.lesson for source in sources})


def _look(summary: Summary, groups: Iterable[Sequence[Handed]], sources: Sequence[KeySource]) -> None:
    """Open every file as marking would, and count what is there."""
    everybody: list[list[Result]] = []
    for group in groups:
        read = [handed.read() for handed in group]
        everybody.append([result for result, _ in unmarked(read, sources)])
        for one in read:
            if isinstance(one, Submission):
                found = summary.found.setdefault(lesson_of(one, sources), Found())
                found.notebooks += 1
                found.late += bool(one.attempt.late)
                found.students.add(one.student.id)
    summary.handed.update({lesson: len(found.students) for lesson, found in summary.found.items() if lesson})
    lessons = {result.lesson for results in everybody for result in results if result.lesson}
    for results in everybody:
        _tell(summary, settled(results, lessons))


def _keep(
    store: Store,
    summary: Summary,
    student: str,
    fingerprint: str,
    results: list[Result],
    exercises: Sequence[str],
    why: str,
) -> None:
    """Store one student's results, and note what changed."""
    before = list(store.results(student))
    if exercises:
        results, fingerprint = _merged(before, results), ""
    if any(result.verdict == "internal" for result in results):
        fingerprint = ""
        summary.internal.append(student)
        kept = {result.lesson: result for result in before}  # a fault of ours takes no mark away
        results = [
            replace(result, marks=kept[result.lesson].marks)
            if result.verdict == "internal" and result.lesson in kept
            else result
            for result in results
        ]
    store.save(student, fingerprint, results)
    summary.marked += 1
    summary.changes += changes(before, results, why, store.by_hand(student)) if before else ()


def _merged(before: Sequence[Result], results: Sequence[Result]) -> list[Result]:
    """Put newly marked exercises among the others of the same lesson."""
    old = {result.lesson: result for result in before}
    merged = [_with_others(old.pop(result.lesson, None), result) for result in results]
    return sorted([*merged, *old.values()], key=lambda result: result.lesson)


def _with_others(was: Result | None, result: Result) -> Result:
    """Add the marks that were not made anew, and what holds of them; a file that could not be read has none."""
    if was is None or was.unread or result.verdict not in ("graded", "stopped"):
        return result
    new = {mark.exercise: mark for mark in result.marks}
    cost = {mark.exercise for mark in was.marks if mark.status == "stopped"}
    if was.verdict == "stopped" and not (cost and cost <= new.keys()):
        reason = "; ".join(dict.fromkeys(filter(None, (was.reason, result.reason))))
        result = replace(result, verdict="stopped", reason=reason)
    kept = [new.pop(mark.exercise, mark) for mark in was.marks]
    return replace(result, marks=(*kept, *new.values()), level=result.level or was.level)


def _count(store: Store, summary: Summary) -> None:
    lessons = store.lessons()
    for _, group in groupby(store.results(), key=lambda result: result.student.id):
        results = settled(tuple(group), lessons)
        _tell(summary, results)
        for result in results:
            if result.lesson:
                summary.handed[result.lesson] += 1
            summary.unmarked += sum(mark.status == "unmarked" for mark in result.marks)


def _tell(summary: Summary, results: Iterable[Result]) -> None:
    """Note which of a student's files were not graded, and how many of them to ask for again."""
    for result in results:
        summary.refused += [attempt.note for attempt in unread_beside(result)]
        summary.refused += [result.reason] * (result.verdict == "rejected")
        summary.unread += to_ask_for(result)


# What there is to do


def _wanted(
    only: Sequence[str], files: dict[str, list[Handed]], sources: Sequence[KeySource]
) -> tuple[list[str], tuple[str, ...]]:
    """Split `only` into students and exercises; a word that is neither is a mistake worth stopping for."""
    known = {item.id for source in sources for item in run_key(source).items}
    exercises = tuple(word for word in only if word in known)
    people = [group[0].student for group in files.values()]
    students = [_named(word, people, known) for word in only if word not in known]
    return list(dict.fromkeys(students)) or list(files), exercises


def _named(word: str, people: Sequence[Student], exercises: Iterable[str]) -> str:
    """Give the id of the student somebody names: by the id, or by a name that only one has."""
    meant = namesakes(word, people)
    if len(meant) == 1:
        return meant[0].id
    if meant:
        ids = " or ".join(repr(one.id) for one in meant)
        raise LabkitError(f"--only {word!r} names more than one student: say {ids}.")
    near = [one.label for one in people if {*name_words(one.name)} & {*name_words(word)}]
    near += get_close_matches(word, [*exercises, *(one.id for one in people)], NEAR)
    advice = f" Did you mean {' or '.join(near[:NEAR])}?" if near else ""
    raise LabkitError(f"--only {word!r} is neither a student who handed something in nor an exercise.{advice}")


def _todo(
    files: dict[str, list[Handed]], students: Sequence[str], done: dict[str, str], settings: Settings
) -> Iterator[tuple[str, Work | None]]:
    """Read each student's files when their turn comes; None stands for work that is already done."""
    made_with = json.dumps(_facts(settings), sort_keys=True)
    for student in students:
        work = Work(files[student][0].student, tuple(map(_file, files[student])))
        parts = [made_with, repr(work.student), *(f"{file.attempt} {file.stem} {file.refusal}" for file in work.files)]
        parts += [digest(file.data) for file in work.files]
        fingerprint = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        yield fingerprint, (None if done.get(student) == fingerprint else work)


def _file(handed: Handed) -> File:
    try:
        return File(handed.attempt, handed.stem, handed.bytes())
    except Refused as refused:
        return File(handed.attempt, handed.stem, refusal=handed.refuse(str(refused)).reason)


def _class(roster: Roster, files: dict[str, list[Handed]]) -> list[Student]:
    listed = {student.id for student in roster.students}
    return [*roster.students, *(group[0].student for student, group in files.items() if student not in listed)]


def _sandbox(report: Report, allow_weaker: bool) -> Any:
    return report.sandbox if report.level == "A" or allow_weaker else None


def _keep_out_of_sight(*private: Path) -> None:
    """Refuse to grade where a worker could see the key: inside a folder it needs for Python or NumPy."""
    for path in private:
        for seen in visible_paths():
            if path.resolve().is_relative_to(os.path.realpath(seen)):
                raise LabkitError(f"{path} lies inside {seen}, which student code can read: move it elsewhere.")


# What marks depend on


def _facts(settings: Settings) -> dict[str, str]:
    """Give what the marks of this run depend on, beside the submissions."""
    return {
        "lessons": json.dumps([key.lesson for key in settings.keys]),
        "keys": digest("".join(key.digest for key in settings.keys).encode()),
        "secret": digest(b"labkit" + settings.secret),
        "level": settings.sandbox.level if settings.sandbox else "none",
        "labkit": _own_digest(),
    }


def _exercises(sources: Sequence[KeySource]) -> str:
    """Note down what the reports have to know of the keys: never a truth, only what a lecturer may read."""
    return json.dumps(
        [
            (source.lesson, item.id, item.points, item.rubric, item.personal, cell.heading, dict(cell.choices))
            for source in sources
            for cells in [{cell.id: cell for cell in source.cells if cell.role == "answer"}]
            for item in run_key(source).items
            for cell in [cells[item.cell]]
        ]
    )


def _why(before: dict[str, str], settings: Settings) -> str:
    """Say what differs from the last run, in words for a table of changed marks."""
    words = {"keys": "the key", "secret": "the secret", "level": "the sandbox", "labkit": "labkit itself"}
    now = _facts(settings)
    differing = [word for name, word in words.items() if before.get(name, now[name]) != now[name]]
    return f"{' and '.join(differing)} changed" if differing else "marked again"


@lru_cache
def _own_digest() -> str:
    """Hash the code and the feedback that marks depend on; reports may change without marking anybody again."""
    root = Path(__file__).parents[1]
    files = sorted({*root.glob("*.py"), *root.glob("feedback/*.json"), *(root / "grading" / name for name in MARKS)})
    return digest(b"".join(file.read_bytes() for file in files))


# Executors


class Here(Executor):
    """Runs everything at once in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def executor_for(jobs: int, executor: Executor | None = None) -> Iterator[Executor]:
    """Give the executor to use: the one given, this process, or a pool of processes."""
    if executor is not None or jobs <= 1:
        yield executor or Here()
        return
    # Forked processes share the keys that have been run; forking happens here, before anything starts a thread.
    fork = "fork" if "fork" in multiprocessing.get_all_start_methods() and os.name == "posix" else None
    context: Any = multiprocessing.get_context(fork)
    pool = ProcessPoolExecutor(jobs, context, _begin_job, (context.Value("i", 0), jobs))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pool.submit(os.getpid).result()
        yield pool
    except BaseException:  # Ctrl-C, say: nobody waits for the students in flight, they are marked next time
        for process in pool._processes.values():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_job(started: Any, jobs: int) -> None:
    """Prepare one of the processes that mark."""
    _end_with_grader()
    with started.get_lock():
        number = started.value
        started.value += 1
    _stay_on_one_processor(number, jobs)
    end_servers()  # the grader's; ours starts on our processor


def _stay_on_one_processor(number: int, jobs: int) -> None:
    """Stay there with all that is started: in one job one thing waits for the other, and moving about costs time."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        processors = sorted(os.sched_getaffinity(0))
        if jobs <= len(processors):
            os.sched_setaffinity(0, {processors[number % len(processors)]})


def _end_with_grader() -> None:
    """Leave Ctrl-C to the grader, and end when it ends, however that comes about."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    grader = multiprocessing.parent_process()
    assert grader is not None

    def follow() -> None:
        grader.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def mark_with(settings: bytes, work: Work) -> list[Result]:
    """Mark one student in whatever process this is; the settings are unpickled once in each."""
    return mark_student(work, _settings(settings))


@lru_cache(maxsize=4)
def _settings(pickled: bytes) -> Settings:
    settings = pickle.loads(pickled)  # our own, never anything a student made
    assert isinstance(settings, Settings)
    return settings


def _marked(
    todo: Iterable[tuple[str, Work | None]], settings: Settings, pool: Executor, ahead: int
) -> Iterator[tuple[str, str, list[Result] | None]]:
    """Send work out and give results back in order, never more than `ahead` students in flight."""
    pickled = pickle.dumps(settings)
    flying: deque[tuple[str, Work | None, Future[list[Result]] | None]] = deque()
    for fingerprint, work in todo:
        flying.append((fingerprint, work, pool.submit(mark_with, pickled, work) if work else None))
        while len(flying) > ahead:
            yield _landed(*flying.popleft())
    while flying:
        yield _landed(*flying.popleft())


def _unbroken(marked: Iterator[Any]) -> Iterator[Any]:
    """Say in words that the executor's processes were ended from outside."""
    try:
        yield from marked
    except BrokenExecutor as error:
        raise LabkitError("a marking process was ended from outside: run it again, what is done is kept.") from error


def _landed(
    fingerprint: str, work: Work | None, future: Future[list[Result]] | None
) -> tuple[str, str, list[Result] | None]:
    if work is None or future is None:
        return fingerprint, "", None
    try:
        return fingerprint, work.student.id, future.result()
    except BrokenExecutor:
        raise  # no fault of this student's
    except Exception as error:
        fault = Result(work.student, "", "internal", f"{type(error).__name__} while marking {work.student.id}")
        return fingerprint, work.student.id, [fault]
