"""The trusted side of running student code: starts one worker a submission, asks, waits, and leaves nothing behind.

Ways to confine a worker, best first. A way is used only after a probe has seen it hold, never because it is installed.
- bubblewrap as root: no user namespace (containers often forbid it), own user id given up to inside.
- bubblewrap as an ordinary user: through a user namespace.
- own user id only (root without bubblewrap), or resource limits only: say what they do not promise.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from labkit.errors import LabkitError
from labkit.grading import seccomp
from labkit.grading.archive import whole
from labkit.grading.model import Level
from labkit.grading.strict import Refused, read_json

Way = Literal["bubblewrap-root", "bubblewrap-user", "own-uid", "limits"]
WAYS: dict[Way, Level] = {"bubblewrap-root": "A", "bubblewrap-user": "A", "own-uid": "B", "limits": "C"}

Request = dict[str, Any]

MAX_REPLY = 512 << 10
TMPFS = 16 << 20
SCRATCH = "/scratch"  # where a worker may write; never a folder that Python or NumPy may be installed under
WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Limits:
    """What one submission may use; seconds are wall clock, sizes bytes."""

    start: float = 20.0
    cell: float = 8.0
    call: float = 4.0
    total: float = 30.0
    cpu: int = 30
    memory: int = 768 << 20
    file: int = 8 << 20
    processes: int = 4

    def resources(self) -> dict[str, int]:
        """Name them as `resource.setrlimit` does."""
        return {
            "RLIMIT_AS": self.memory,
            "RLIMIT_FSIZE": self.file,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_CPU": self.cpu,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_CORE": 0,
        }


@dataclass(frozen=True)
class Sandbox:
    """A way to confine workers, with everything a process elsewhere needs to start one."""

    way: Way
    bwrap: str = ""
    limits: Limits = field(default_factory=Limits)

    @property
    def level(self) -> Level:
        """A, B or C."""
        return WAYS[self.way]


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
        self.folder = tempfile.TemporaryDirectory(prefix="labkit-") if sandbox.level != "A" else None
        self.uid = 61_000 + secrets.randbelow(4_000) if sandbox.way in ("bubblewrap-root", "own-uid") else 0
        requests, self.requests = os.pipe()
        self.replies, replies = os.pipe()
        self.gone, alive = os.pipe()
        filtered = _filter()
        inherited = (requests, replies, alive, filtered)
        try:
            self.process = subprocess.Popen(
                [*_command(sandbox, alive, filtered), *self._program(sandbox, requests, replies)],
                env=_environment(self.folder.name if self.folder else SCRATCH),
                cwd=self._home(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # nothing printed is ever read, so nothing printed can matter
                stderr=subprocess.DEVNULL,
                pass_fds=inherited,
                start_new_session=True,
            )
        finally:
            for fd in inherited:
                os.close(fd)
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)

    def _home(self) -> str:
        if self.folder is None:
            return "/"
        if self.uid:
            os.chown(self.folder.name, self.uid, self.uid)
        return self.folder.name

    def _program(self, sandbox: Sandbox, requests: int, replies: int) -> list[str]:
        site = _numpy_site()
        stage = {"limits": self.limits.resources(), "uid": self.uid, "path": [site], "forbidden": ["labkit"]}
        script = "/worker.py" if sandbox.level == "A" else str(WORKER)
        return [_interpreter(), "-s", "-S", "-P", "-B", "-u", script, json.dumps(stage), str(requests), str(replies)]

    def __enter__(self) -> Worker:
        try:
            self._receive(self.limits.start)
        except Stopped:
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
            if not select.select([], [self.requests], [], max(0.0, end - time.monotonic()))[1]:
                raise Stopped("time")
            try:
                data = data[os.write(self.requests, data) :]
            except BrokenPipeError:
                raise Stopped("died") from None

    def _receive(self, seconds: float) -> dict[str, Any]:
        """Read one line within the time; bytes nobody asked for, or too many, end it."""
        end = time.monotonic() + seconds
        while b"\n" not in self.pending:
            if not select.select([self.replies], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Stopped("time")
            data = os.read(self.replies, 1 << 16)
            if not data:
                raise Stopped("died")
            self.pending += data
            if len(self.pending) > MAX_REPLY:
                raise Stopped("reply")
        line, _, self.pending = self.pending.partition(b"\n")
        if self.pending:
            raise Stopped("reply")
        return _fields(line, self.asked)

    def close(self) -> None:
        """Kill everything and wait until it is gone: the whole process namespace, not only the first process."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.folder is not None:
            _kill_user(self.uid)
        select.select([self.gone], [], [], 5.0)  # end of file: the last process that could hold it has ended
        for fd in (self.requests, self.replies, self.gone):
            os.close(fd)
        if self.folder is not None:
            self.folder.cleanup()


def _kill_user(uid: int) -> None:
    """End every process of a user id that exists for one worker only."""
    if uid == 0:
        return
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == uid:
                os.kill(int(entry.name), signal.SIGKILL)


def run(source: str, otherwise: Mapping[str, Any] | None = None) -> Request:
    """Ask for a cell to be run; where it fails, names are given the values of `otherwise`."""
    return {"do": "run", "source": source, "otherwise": otherwise or {}}


def value(expression: str) -> Request:
    """Ask for one expression as plain data."""
    return {"do": "value", "expression": expression}


def call(name: str, arguments: Sequence[Any]) -> Request:
    """Ask for one function to be called."""
    return {"do": "call", "name": name, "arguments": list(arguments)}


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


# What a worker sees


def _filter() -> int:
    """Give a pipe that holds the filter of system calls; it is far smaller than a pipe's buffer."""
    read, write = os.pipe()
    os.write(write, seccomp.program())
    os.close(write)
    return read


def _command(sandbox: Sandbox, alive: int, filtered: int) -> list[str]:
    """Give the words before the program: bubblewrap with nothing of the host but an interpreter and NumPy."""
    if sandbox.level != "A":
        return []
    paths = visible_paths()
    parents = sorted({str(parent) for path in paths for parent in Path(path).parents} - {"/"})
    folders = [word for parent in parents for word in ("--perms", "0755", "--dir", parent)]
    mounts = [word for path in paths for word in ("--ro-bind", path, path)]
    links = [word for path in ("/lib", "/lib64", "/lib32", "/bin") for word in _link(path)]
    return [
        sandbox.bwrap,
        *("--sync-fd", str(alive)),
        *_identity(sandbox.way),
        *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *("--die-with-parent", "--new-session"),
        *("--perms", "1777", "--size", str(TMPFS), "--tmpfs", SCRATCH),
        *folders,  # made by hand, because bubblewrap makes them unreadable for everybody but root
        *mounts,
        *_hidden(paths),
        *links,
        *("--ro-bind", str(WORKER), "/worker.py"),
        *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--remount-ro", "/", "--chdir", SCRATCH),
        *(("--seccomp", str(filtered)) if seccomp.program() else ()),
    ]


def _identity(way: Way) -> Iterator[str]:
    if way == "bubblewrap-root":  # the worker itself changes to its own user id, which needs these two
        yield from ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    else:
        yield from ("--unshare-user", "--uid", "61000", "--gid", "61000")


def _hidden(paths: Sequence[str]) -> Iterator[str]:
    """Lay an empty folder over labkit where it is installed next to NumPy."""
    package = Path(__file__).parents[1]
    if any(package.is_relative_to(path) for path in paths):
        yield from ("--tmpfs", str(package), "--remount-ro", str(package))


def _link(path: str) -> Iterator[str]:
    if os.path.islink(path):
        yield from ("--symlink", os.readlink(path), path)
    elif path != "/bin" and os.path.isdir(path):
        yield from ("--ro-bind", path, path)


def visible_paths() -> list[str]:
    """List what a level A worker can read of this machine: system libraries, the interpreter, NumPy's packages."""
    paths = [path for path in ("/usr/lib", "/usr/lib64", "/usr/lib32") if os.path.isdir(path)]
    here = sysconfig.get_paths()
    paths += [_interpreter(), here["stdlib"], os.path.join(sys.base_prefix, "lib"), _numpy_site()]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


@cache
def _interpreter() -> str:
    return os.path.realpath(sys.executable)


@cache
def _numpy_site() -> str:
    spec = importlib.util.find_spec("numpy")
    if spec is None or spec.origin is None:
        raise LabkitError("NumPy is not installed here: labkit needs it, also to grade.")
    return str(Path(spec.origin).parents[1])


def _environment(home: str) -> dict[str, str]:
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    fixed = {"HOME": home, "TMPDIR": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
    return {**fixed, **threads, "MPLBACKEND": "Agg", "MPLCONFIGDIR": home}
