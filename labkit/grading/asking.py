"""Run the cells of one submission in a sandbox, and ask for what its answers and functions give.

Each answer is read right after its own cells, so that using its name again later changes nothing. Functions are called
when everything has run: before that no hidden input is in the process, and an error's text can be told. First all is
asked at once; where something ends the worker, fresh ones are asked step by step, and what ended one is passed over.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

from labkit.grading.key import Item, Key
from labkit.grading.literals import touched_names
from labkit.grading.matching import Answer, Step
from labkit.grading.processes import Sandbox, SandboxError
from labkit.grading.sandbox import Reply, Request, Stopped, Worker, call, given, keep, run, value
from labkit.steps import Case

Place = tuple[str, int]  # an answer cell, and which of the tries at it

STOPPED = {
    "time": "was still running when its time was over",
    "died": "ended the process it ran in",
    "reply": "gave back something that is not plain data of a reasonable size",
}


@dataclass
class Pending:
    """An item that literals could not settle: what to ask the sandbox for."""

    item: Item
    answer: Answer
    expression: str
    again: int = 0  # which try: 0 is the answer itself, those below its check follow
    cases: Sequence[Case] = ()  # for a function
    replies: list[Reply] = field(default_factory=list)
    stopped: str = ""

    @property
    def place(self) -> Place:
        """Where the answer stands."""
        return self.item.cell, self.again

    @property
    def done(self) -> bool:
        """Whether nothing is left to ask."""
        return bool(self.stopped) or len(self.replies) >= max(1, len(self.cases))

    def reading(self) -> Request:
        """Ask for the value; of a function, keep it as its own cells left it."""
        return keep(self.expression, self._kept) if self.cases else value(self.expression)

    def calling(self, place: int) -> Request:
        """Call the function with one of its cases."""
        return call(self.expression, self.cases[place], self._kept)

    @property
    def _kept(self) -> str:
        return f"{self.item.id} {self.again}"


class Asking:
    """All that is asked about one submission, and what came of it."""

    def __init__(self, key: Key, program: Sequence[Step], pending: Sequence[Pending]) -> None:
        self.key = key
        self.pending = pending
        self.functions = [one for one in pending if one.cases]
        self.entries = tuple(self._entries(program))
        self.stops: list[str] = []  # sentences, for the verdict "stopped"
        self.errors: dict[Place, str] = {}  # what the student's error was
        self.skipped: dict[int, Place] = {}  # number of the entry that ended a worker
        self.lost: set[str] = set()  # names of cells that lacked what the lesson gave

    def ask(self, sandbox: Sandbox) -> None:
        """Ask for everything, within the time of one submission."""
        left, work = sandbox.limits.total, self._at_once
        while left > 0:
            with _started(sandbox) as worker:
                begun = time.monotonic()
                worker.deadline = begun + left
                if work(worker):
                    return
                left -= time.monotonic() - begun
            work, sandbox = self._stepwise, _sharing(sandbox, left / (2 + sum(not one.done for one in self.pending)))
        for one in self.pending:
            if not one.done:
                one.stopped = "time" if one.replies else "never"
        if not self.stops:
            self.stops.append(f"it {STOPPED['time']}")

    def lacks(self, error: str) -> str:
        """Give the name that an error lacks if it is the lesson's, was to be made of the lesson's, or is a module's."""
        name = lacking(error)
        known = name in self.key.provides or name in self.lost or "ModuleNotFoundError" in error
        return name if known else ""

    def _entries(self, program: Sequence[Step]) -> Iterator[Step | Pending]:
        """Order what is run and asked for: each answer after the last of its cells."""
        last = {(step.answer, step.again): number for number, step in enumerate(program)}
        asked: dict[int, list[Pending]] = defaultdict(list)
        for one in self.pending:
            numbers = [last[place] for place in self._places(one) if place in last]
            asked[max(numbers, default=len(program) - 1)].append(one)
        yield from asked[-1]  # there is nothing to run
        for number, step in enumerate(program):
            yield step
            yield from asked[number]

    def _places(self, one: Pending) -> Iterator[Place]:
        yield one.place
        for id, cell in self.key.answers().items():
            if id == one.item.cell or not set(cell.binds).isdisjoint(one.item.names):
                yield id, 0

    def _request(self, entry: Step | Pending) -> Request:
        if isinstance(entry, Pending):
            return entry.reading()
        if entry.stage is None:
            return run(entry.source)
        stage = self.key.stages[entry.stage]
        return run(stage.cell.source, stage.values)

    def _note(self, entry: Step | Pending, reply: Reply) -> None:
        """Keep what came of one entry."""
        if isinstance(entry, Pending):
            if not entry.cases:
                entry.replies.append(reply)
        elif not reply.ok and entry.stage is None:
            if self.lacks(said(reply)):
                self.lost |= touched_names(entry.source)
            self.errors.setdefault((entry.answer, entry.again), f"the cell stops with {said(reply)}")

    def _at_once(self, worker: Worker) -> bool:
        """Do everything in two requests, hidden inputs in the second; False: something ended the worker."""
        try:
            worker.ask(given(self.key.provides))
            ran = worker.all([self._request(entry) for entry in self.entries])
            asked = [one.calling(place) for one in self.functions for place in range(len(one.cases))]
            called = iter(worker.all(asked) if asked else ())
        except Stopped:
            return False
        for entry, reply in zip(self.entries, ran, strict=True):
            self._note(entry, reply)
        for one in self.functions:
            one.replies += islice(called, len(one.cases))
        return True

    def _stepwise(self, worker: Worker) -> bool:
        """Do one thing after the other; False: something ended the worker, and will be passed over next time."""
        self.errors.clear()
        self.lost.clear()
        worker.ask(given(self.key.provides))
        for number, entry in enumerate(self.entries):
            if number in self.skipped or (isinstance(entry, Pending) and entry.done):
                continue
            try:
                self._note(entry, worker.ask(self._request(entry)))
            except Stopped as stopped:
                self._pass_over(number, entry, stopped.reason)
                return False
        for one in self.functions:
            while not one.done:
                try:
                    one.replies.append(worker.ask(one.calling(len(one.replies))))
                except Stopped as stopped:
                    self._stop(one, stopped.reason)
                    return False
        return True

    def _pass_over(self, number: int, entry: Step | Pending, reason: str) -> None:
        if isinstance(entry, Pending):
            self._stop(entry, reason)
            return
        self.skipped[number] = entry.answer, entry.again
        steps = sum(isinstance(one, Step) for one in self.entries[: number + 1])
        where = f"the cell of {entry.answer}" if entry.answer else f"cell {steps} of the run"
        self.stops.append(f"{where} {STOPPED[reason]}")

    def _stop(self, one: Pending, reason: str) -> None:
        one.stopped = reason
        self.stops.append(f"{one.item.id} {STOPPED[reason]}")


def _sharing(sandbox: Sandbox, share: float) -> Sandbox:
    """Give a cell or a call no more than its share of the time, so that endless loops leave some for what follows."""
    limits = sandbox.limits
    limits = replace(limits, cell=min(limits.cell, 2 * share), call=min(limits.call, share))
    return replace(sandbox, limits=limits)


@contextmanager
def _started(sandbox: Sandbox) -> Iterator[Worker]:
    """Start a worker; one that does not start is our fault, not the student's."""
    try:
        worker = Worker(sandbox).__enter__()
    except Stopped as stopped:
        raise SandboxError(f"the sandbox did not start ({stopped.reason})") from None
    try:
        yield worker
    finally:
        worker.close()


# Errors in words


def name_of(reply: Reply) -> str:
    """Name an error by its type and line only: its text may hold a hidden input."""
    kind = reply.error if re.fullmatch(r"[A-Za-z]{1,40}", reply.error) else "Exception"
    return f"{kind} (line {reply.line})" if reply.line is not None and 0 < reply.line < 10_000 else kind


def said(reply: Reply) -> str:
    """Give an error with its text, where no hidden input was around."""
    return f"{name_of(reply)}: {reply.text}" if reply.text else name_of(reply)


_LACKING = re.compile(r"name '(\w{1,100})' is not defined|(?:No module named '|import of )(\w{1,100})")


def lacking(error: str) -> str:
    """Give the name or the module whose absence is an error's whole reason, or "".

    >>> lacking("NameError (line 1): name 'mine' is not defined"), lacking("ZeroDivisionError: division by zero")
    ('mine', '')
    """
    found = _LACKING.search(error)
    return (found[1] or found[2]) if found else ""
