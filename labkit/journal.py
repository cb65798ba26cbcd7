"""What a learner has answered: JSON Lines beside their copies, append only, and never a reason for a lesson to stop.

The folder is `.labkit/` beside the notebook, or environment variable `LABKIT_JOURNAL` ("off": nothing on disk).
Whatever cannot be written stays in this kernel's memory and is written with the next line that succeeds.
Order is the order in the file; the clock is noted and never trusted.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

ANSWERED = ("right", "wrong", "recorded")  # a blank or unreadable cell is not a prediction
LONGEST = 4_000  # characters of one stored answer

listeners: list[Callable[[str], None]] = []  # called with the exercise's id once an answer is on record

_unsaved: dict[Path | None, list[bytes]] = {}  # by folder; None is the journal that is switched off


@dataclass(frozen=True)
class Entry:
    """One recorded answer; `answer` is plain JSON (numbers, text, lists)."""

    exercise: str
    answer: Any
    status: str
    at: str


def record(exercise_id: str, answer: object, status: str, **details: object) -> None:
    """Note one answer; blank and unreadable ones are kept as attempts but never count as a prediction."""
    append("answer", exercise=exercise_id, answer=_plain(answer), status=status, **details)
    if status in ANSWERED:
        for listener in list(listeners):  # a listener may take itself off
            with contextlib.suppress(Exception):  # a panel that fails must not cost the learner a verdict
                listener(exercise_id)


def first(exercise_id: str) -> Entry | None:
    """Return the first prediction made for an exercise, in any kernel, or None."""
    return next(_answers(exercise_id), None)


def answered(exercise_id: str) -> bool:
    """Tell whether a prediction for this exercise is on record."""
    return first(exercise_id) is not None


def firsts() -> dict[str, Entry]:
    """Return the first prediction of every answered exercise."""
    found: dict[str, Entry] = {}
    for entry in _answers():
        found.setdefault(entry.exercise, entry)
    return found


def statuses() -> dict[str, str]:
    """Return for every answered exercise "right" if it ever was, otherwise its latest status."""
    found: dict[str, str] = {}
    for entry in _answers():
        if found.get(entry.exercise) != "right":
            found[entry.exercise] = entry.status
    return found


def reveal(exercise_id: str, show: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `show(*args, **kwargs)` once the exercise has an answer on record; until then return a quiet card."""
    return show(*args, **kwargs) if answered(exercise_id) else Locked(exercise_id)


@dataclass(frozen=True, repr=False)
class Locked:
    """What stands in place of a picture until its prediction has been made."""

    exercise_id: str

    def __repr__(self) -> str:
        return f"Locked until you predict: answer {self.exercise_id} above, run its check, then run this cell again."

    def _repr_html_(self) -> str:
        name = f"<code>{html.escape(self.exercise_id)}</code>"
        return (
            '<div role="note" style="border:1px dashed currentColor;border-radius:6px;padding:.6em .9em;opacity:.8">'
            f"<b>Locked until you predict.</b> Answer {name} above, run its check, then run this cell again.</div>"
        )


def append(kind: str, **fields: object) -> None:
    """Add one line of any kind; on any trouble it stays in memory instead."""
    line = {"kind": kind, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **fields}
    waiting = _unsaved.setdefault(folder(), [])
    waiting.append(json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n")
    _save(waiting)


def entries(kind: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of one kind, oldest first, passing over whatever is torn or foreign."""
    for line in [*_stored_lines(), *_unsaved.get(folder(), [])]:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("kind") == kind:
                yield entry


def unsaved() -> int:
    """Count the lines that live in this kernel only (disk full, folder not writable, or journal off)."""
    return len(_unsaved.get(folder(), []))


def folder() -> Path | None:
    """Return the journal's folder, or None when it is switched off."""
    setting = os.environ.get("LABKIT_JOURNAL") or ".labkit"
    return None if setting.lower() == "off" else Path(setting).absolute()


def _answers(exercise_id: str | None = None) -> Iterator[Entry]:
    for entry in entries("answer"):
        with contextlib.suppress(KeyError):
            found = Entry(str(entry["exercise"]), entry["answer"], str(entry["status"]), str(entry["at"]))
            if found.status in ANSWERED and exercise_id in (None, found.exercise):
                yield found


def _stored_lines() -> list[bytes]:
    place = folder()
    try:
        if place is None or not (place / "journal.jsonl").is_file():  # reading a pipe of that name would never end
            return []
        return (place / "journal.jsonl").read_bytes().splitlines()
    except OSError:
        return []


def _save(waiting: list[bytes]) -> None:
    """Write the waiting lines, each with one system call, and keep those that did not get through whole."""
    place = folder()
    if place is None:
        return
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        descriptor = os.open(place / "journal.jsonl", flags, 0o644)
        try:
            with _locked(descriptor):
                while waiting and _write_line(descriptor, waiting[0]):
                    del waiting[0]
        finally:
            os.close(descriptor)


def _write_line(descriptor: int, line: bytes) -> bool:
    """Append one line; a line torn by an earlier accident is closed first, so that it spoils only itself."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if size:
        os.lseek(descriptor, size - 1, os.SEEK_SET)
        line = line if os.read(descriptor, 1) == b"\n" else b"\n" + line
    return os.write(descriptor, line) == len(line)


@contextlib.contextmanager
def _locked(descriptor: int, patience: float = 0.5) -> Iterator[None]:
    """Hold the file's lock; after `patience` seconds go on without it, since a lesson must not wait for a lock."""
    give_up = time.monotonic() + patience
    held = _try_lock(descriptor)
    while not held and time.monotonic() < give_up:
        time.sleep(0.01)
        held = _try_lock(descriptor)
    yield  # closing the file releases the lock


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # a byte far beyond the end, so that readers are not shut out
        with contextlib.suppress(OSError):
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            return True
        return False

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False


def _plain(answer: Any) -> Any:
    """Turn an answer into JSON: numbers and lists as they are, fractions and everything else as text."""
    try:
        plain = _as_json(answer)
        text = json.dumps(plain)
    except Exception as error:  # the answer is the learner's object: whatever it does when read, the lesson goes on
        return f"unreadable ({type(error).__name__})"
    return plain if len(text) <= LONGEST else text[:LONGEST] + " …"


def _as_json(answer: Any) -> Any:
    if answer is None or isinstance(answer, bool | int | str):
        return answer
    if isinstance(answer, float):
        return float(answer) if answer - answer == 0 else str(answer)  # NaN and infinity are not JSON
    if isinstance(answer, list | tuple):
        return [_as_json(part) for part in answer]
    if isinstance(answer, Fraction):
        return str(answer)
    if hasattr(answer, "tolist"):
        return _as_json(answer.tolist())
    return getattr(answer, "__name__", None) or repr(answer)
