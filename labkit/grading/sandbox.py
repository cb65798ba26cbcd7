"""The trusted side of running student code: asks one worker a submission, waits, and leaves nothing behind."""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labkit.grading.archive import whole
from labkit.grading.processes import Sandbox, SandboxError, ready, start
from labkit.grading.strict import Refused, read_json

Request = dict[str, Any]

MAX_REPLY = 512 << 10


class Stopped(Exception):  # noqa: N818  (an outcome of a submission, not a fault of ours)
    """The worker is no longer usable; `reason` is one of time, died, reply."""

    def __init__(self, reason: Literal["time", "died", "reply"]) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Reply:
    """One checked answer of a worker: a value, or an error's type, text and line. All of it untrusted data."""

    ok: bool
    value: Any = None
    changed: bool = False
    error: str = ""
    text: str = ""
    line: int | None = None


class Worker:
    """One confined process; use it as a context manager, and every process it started is gone afterwards."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.limits = sandbox.limits
        self.deadline = math.inf  # end of the whole submission's time, set by whoever marks it
        self.asked = 0
        self.pending = b""
        requests, self.requests = os.pipe()
        self.replies, replies = os.pipe()
        try:
            self.process = start(sandbox, requests, replies)
        except BaseException:
            self._hang_up()
            raise
        finally:
            os.close(requests)
            os.close(replies)
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)

    def __enter__(self) -> Worker:
        try:
            self._receive(self.limits.start)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, source: str) -> Reply:
        """Run one cell."""
        return self.ask(run(source))

    def set(self, values: Mapping[str, Any]) -> Reply:
        """Give names plain values, arrays as `array(…)` makes them."""
        return self.ask({"do": "set", "values": values})

    def value(self, expression: str) -> Reply:
        """Read one expression as plain data."""
        return self.ask(value(expression))

    def call(self, name: str, arguments: Sequence[Any]) -> Reply:
        """Call one function on plain arguments."""
        return self.ask(call(name, arguments))

    def ask(self, request: Request) -> Reply:
        """Do one request."""
        seconds = self.limits.call if request["do"] in ("value", "call") else self.limits.cell
        return _checked(self._exchange(request, seconds))

    def all(self, requests: Sequence[Request]) -> list[Reply]:
        """Do many requests within the time of one cell: one line each way, where nothing goes wrong."""
        replies = self._exchange({"do": "all", "requests": requests}, self.limits.cell).get("all")
        if type(replies) is not list or len(replies) != len(requests):
            raise Stopped("reply")
        return [_checked(fields) for fields in replies]

    def _exchange(self, request: Request, seconds: float) -> dict[str, Any]:
        self.asked += 1
        end = min(time.monotonic() + seconds, self.deadline)
        self._write(json.dumps({"id": self.asked, **request}).encode() + b"\n", end)
        return self._receive(end - time.monotonic())

    def _write(self, data: bytes, end: float) -> None:
        while data:
            if not ready(self.requests, end - time.monotonic(), select.POLLOUT):
                raise Stopped("time")
            try:
                data = data[os.write(self.requests, data) :]
            except BrokenPipeError:
                raise self._ended() from None

    def _receive(self, seconds: float) -> dict[str, Any]:
        """Read one line within the time; bytes nobody asked for, or too many, end it."""
        end = time.monotonic() + seconds
        while b"\n" not in self.pending:
            if not ready(self.replies, end - time.monotonic()):
                raise Stopped("time")
            data = os.read(self.replies, 1 << 16)
            if not data:
                raise self._ended()
            self.pending += data
            if len(self.pending) > MAX_REPLY:
                raise Stopped("reply")
        line, _, self.pending = self.pending.partition(b"\n")
        if self.pending:
            raise Stopped("reply")
        return _fields(line, self.asked)

    def _ended(self) -> Exception:
        return SandboxError("the sandbox itself has ended") if self.process.broken() else Stopped("died")

    def close(self) -> None:
        """Kill everything and wait until it is gone: whatever the worker started, not only the worker."""
        self.process.end()
        self._hang_up()

    def _hang_up(self) -> None:
        os.close(self.requests)
        os.close(self.replies)


def run(source: str, otherwise: Mapping[str, Any] | None = None) -> Request:
    """Ask for a cell to be run; where it fails, names are given the values of `otherwise`."""
    return {"do": "run", "source": source, "otherwise": otherwise or {}}


def value(expression: str) -> Request:
    """Ask for one expression as plain data."""
    return {"do": "value", "expression": expression}


def call(name: str, arguments: Sequence[Any], kept: str = "") -> Request:
    """Ask for one function to be called, as it was kept if it was."""
    return {"do": "call", "name": name, "arguments": list(arguments), "kept": kept}


def keep(expression: str, name: str) -> Request:
    """Ask for a function to be kept as it is now, with all that it uses."""
    return {"do": "keep", "expression": expression, "as": name}


def given(names: Iterable[str]) -> Request:
    """Say which names a cell may lack without ending there: the statements that need them are passed over."""
    return {"do": "given", "names": sorted(names)}


def _fields(line: bytes, number: int) -> dict[str, Any]:
    """Read one line strictly: an object with the right id, which is left out."""
    try:
        fields = read_json(line, cap=MAX_REPLY, depth=16)
    except Refused:
        raise Stopped("reply") from None
    if type(fields) is not dict or fields.pop("id", None) != number:
        raise Stopped("reply")
    return fields


def _checked(fields: Any) -> Reply:
    """Make a reply of known fields of known types with finite numbers, or give the worker up."""
    try:
        made = Reply(**{**fields, "value": _value(fields.get("value")), "text": _value(fields.get("text", ""))})
    except (TypeError, ValueError, AttributeError):
        raise Stopped("reply") from None
    kinds = (type(made.ok), type(made.changed), type(made.error), type(made.text))
    if kinds != (bool, bool, str, str) or type(made.line) not in (int, type(None)) or len(made.text) > 400:
        raise Stopped("reply")
    return made


def _value(made: Any) -> Any:
    """Rebuild plain data: lists, finite numbers, booleans, text, None, `...`, and nan and the infinities by name."""
    if type(made) is list:
        return [_value(part) for part in made]
    if type(made) is dict:
        return _special(made)
    if type(made) is str:
        return whole(made)
    if type(made) is float and made in (float("inf"), float("-inf")):  # 1e400 in JSON
        raise ValueError("not a finite number")
    return made


def _special(value: dict[str, Any]) -> Any:
    if value == {"blank": True}:
        return ...
    if list(value) == ["float"] and value["float"] in ("nan", "inf", "-inf"):
        return float(value["float"])
    raise ValueError("not plain data")


def array(value: Any) -> dict[str, Any]:
    """Write a NumPy array as the worker rebuilds it."""
    kind = {"b": "bool", "i": "int64", "u": "int64"}.get(value.dtype.kind, "float64")
    return {"array": value.tolist(), "dtype": kind, "shape": list(value.shape)}
