"""Start and end the processes that student code runs in.

Ways to confine a worker, best first. A way is used only after a probe has seen it hold, never because it is installed.
- bubblewrap as root: no user namespace (containers often forbid it), own user id given up to inside.
- bubblewrap as an ordinary user: through a user namespace.
- a bubblewrap for each worker, as root or as an ordinary user: slower, for systems that let nobody inside one make
  namespaces (AppArmor on some of them).
- own user id only (root without bubblewrap), or resource limits only: say what they do not promise.

In the first two one process stays inside bubblewrap for a whole class. It has loaded NumPy, which takes longer than
everything a worker does, and forks a worker into namespaces of its own for each submission.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

from labkit.errors import LabkitError
from labkit.grading import seccomp
from labkit.grading.model import Level

Way = Literal["bubblewrap-root", "bubblewrap-user", "bubblewrap-each-root", "bubblewrap-each-user", "own-uid", "limits"]
WAYS: dict[Way, Level] = {
    **{"bubblewrap-root": "A", "bubblewrap-user": "A", "bubblewrap-each-root": "A", "bubblewrap-each-user": "A"},
    **{"own-uid": "B", "limits": "C"},
}

TMPFS = 16 << 20
FILES = 4096  # an empty file costs memory too
SCRATCH = "/scratch"  # where a worker may write; never a folder that Python or NumPy may be installed under
INSIDE = Path(__file__).with_name("inside")
PROGRAM = "/program"  # where the sandbox has that folder
FORKSERVER = f"import sys; sys.path.append({PROGRAM!r}); from inside.forkserver import main; sys.path.pop()"
ALONE = ("-s", "-S", "-P", "-B")  # no user's or site's packages, no folder by chance, no byte code written
DEVICES = ("null", "zero", "full", "random", "urandom")


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

    def resources(self, beside: int = 0) -> dict[str, int]:
        """Name them as `resource.setrlimit` does; `beside` processes of ours count as the same user's."""
        return {
            "RLIMIT_AS": self.memory,
            "RLIMIT_FSIZE": self.file,
            "RLIMIT_NPROC": self.processes + beside,
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

    @property
    def forks(self) -> bool:
        """Whether workers are forked inside one bubblewrap."""
        return self.way in ("bubblewrap-root", "bubblewrap-user")


class SandboxError(Exception):
    """The sandbox itself does not work: never the fault of a submission."""


class Process(Protocol):
    """A worker's process, and all that it may start."""

    def end(self) -> None:
        """Kill all of it and wait until it is gone."""

    def broken(self) -> bool:
        """Whether what the worker ran in does not work any more, which no worker can bring about."""


def ready(fd: int, seconds: float, event: int | None = None) -> bool:
    """Wait until a descriptor, whatever its number, can be read (or what is asked for), or has ended."""
    waiting = select.poll()
    waiting.register(fd, select.POLLIN if event is None else event)
    return bool(waiting.poll(max(0.0, 1000 * seconds)))


def start(sandbox: Sandbox, requests: int, replies: int) -> Process:
    """Start a worker that reads requests and writes replies at these pipe ends; the caller closes its own copies."""
    if sandbox.forks:
        return Forked(_server(sandbox), sandbox, requests, replies)
    return Alone(sandbox, requests, replies)


def _begin(command: Sequence[str], home: str, folder: str, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, with these descriptors and nothing else of ours."""
    return subprocess.Popen(
        command,
        env=_environment(home),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # nothing printed is ever read, so nothing printed can matter
        stderr=subprocess.DEVNULL,
        pass_fds=fds,
        start_new_session=True,
    )


# Forked inside one bubblewrap


class ForkServer:
    """The process inside bubblewrap that forks workers; those who are forked from this process may ask it as well."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.owner = os.getpid()
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = f"{FORKSERVER}; main([{_numpy_site()!r}], {control.fileno()})"
        try:
            with control:
                self.process = _kept([*_command(sandbox), _interpreter(), *ALONE, "-c", program], control.fileno())
        except OSError:
            self.control.close()
            raise
        self.control.settimeout(sandbox.limits.start)
        try:
            greeting = self.control.recv(16)
        except TimeoutError:
            greeting = b""
        if not greeting:
            self.end()
            raise SandboxError("bubblewrap does not start")

    def gone(self, seconds: float = 0) -> bool:
        """Whether it ends within some seconds: it says nothing unasked, so only its end can be read."""
        return self.control.fileno() < 0 or ready(self.control.fileno(), seconds)

    def end(self) -> None:
        """End it, and every worker with it; others than who started it only let go of it."""
        if self.owner == os.getpid() and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.gone(5.0)  # bubblewrap ends first, what is inside it a moment later
        self.control.close()


def _kept(command: Sequence[str], control: int) -> subprocess.Popen[bytes]:
    """Start bubblewrap in a thread that lasts as long as it does, because it dies with the thread that started it."""
    started: Future[subprocess.Popen[bytes]] = Future()

    def keep() -> None:
        try:
            process = _begin(command, SCRATCH, "/", [control])
        except OSError as error:
            started.set_exception(error)
        else:
            started.set_result(process)
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # who ends it also buries it

    threading.Thread(target=keep, daemon=True).start()
    return started.result()


class Forked:
    """A worker in namespaces of its own; known by a handle on the first process of them, with which all others end."""

    def __init__(self, server: ForkServer, sandbox: Sandbox, requests: int, replies: int) -> None:
        self.server, self.sandbox = server, sandbox
        order = {
            "home": SCRATCH,
            "size": TMPFS,
            "files": FILES,
            "uid": _some_uid() if sandbox.way == "bubblewrap-root" else 0,
            "limits": sandbox.limits.resources(beside=1),  # beside the worker: the first process of its namespace
            "filter": seccomp.program().hex(),
        }
        ours, theirs = socket.socketpair()
        with ours, theirs:
            handles: list[int] = []
            with contextlib.suppress(OSError):
                socket.send_fds(server.control, [json.dumps(order).encode()], [requests, replies, theirs.fileno()])
                theirs.close()
                if ready(ours.fileno(), sandbox.limits.start):
                    _, handles, _, _ = socket.recv_fds(ours, 16, 1)
                else:
                    server.end()  # it hangs: the next worker gets another one
        if not handles:
            raise SandboxError("no namespaces can be made inside bubblewrap")
        self.first = handles[0]

    def end(self) -> None:
        """Kill the first process; its handle can be read once it and all others of its namespace are gone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.first, signal.SIGKILL)
        ready(self.first, 5.0)
        os.close(self.first)

    def broken(self) -> bool:
        """Whether the fork server starts no other worker: a worker that ends with it may do so a moment before."""
        try:
            with open(os.devnull) as nothing:
                Forked(self.server, self.sandbox, nothing.fileno(), nothing.fileno()).end()
        except SandboxError:
            return True
        return False


_servers: dict[tuple[Way, str], ForkServer] = {}
_one_at_a_time = threading.Lock()
if hasattr(os, "register_at_fork"):  # a process forked meanwhile would wait for ever
    os.register_at_fork(
        before=_one_at_a_time.acquire,
        after_in_parent=_one_at_a_time.release,
        after_in_child=_one_at_a_time.release,
    )


def _server(sandbox: Sandbox) -> ForkServer:
    """Give the fork server of this process, a new one where there is none or the last one has ended."""
    with _one_at_a_time:
        server = _servers.pop((sandbox.way, sandbox.bwrap), None)
        if server is not None and server.gone():
            server.end()
            server = None
        _servers[sandbox.way, sandbox.bwrap] = server = server or ForkServer(sandbox)
        return server


@atexit.register
def end_servers() -> None:
    """End the fork servers that this process started."""
    while _servers:
        _servers.popitem()[1].end()


# A program of its own


class Alone:
    """A worker in a bubblewrap of its own, or without walls: its folder, its limits and, for root, its user id."""

    def __init__(self, sandbox: Sandbox, requests: int, replies: int) -> None:
        walled = sandbox.level == "A"
        self.uid = _some_uid() if sandbox.way in ("bubblewrap-each-root", "own-uid") else 0
        self.folder = None if walled else tempfile.TemporaryDirectory(prefix="labkit-")
        if self.folder and self.uid:
            os.chown(self.folder.name, self.uid, self.uid)
        limits = sandbox.limits.resources(beside=sandbox.way == "bubblewrap-each-user")  # bubblewrap's own process
        stage = {"limits": limits, "uid": self.uid, "path": [_numpy_site()]}
        script = f"{PROGRAM}/inside/worker.py" if walled else str(INSIDE / "worker.py")
        home = self.folder.name if self.folder else "/"
        filtered = _filter()
        self.gone, alive = os.pipe()
        walls = [*_command(sandbox), "--sync-fd", str(alive)] if walled else []
        if walled and seccomp.program():
            walls += ["--seccomp", str(filtered)]
        program = [_interpreter(), *ALONE, script, json.dumps(stage), str(requests), str(replies)]
        try:
            fds = [requests, replies, alive, filtered]
            self.process = _begin([*walls, *program], SCRATCH if walled else home, home, fds)
        finally:
            os.close(alive)
            os.close(filtered)

    def end(self) -> None:
        """Kill its process group and, where nothing surrounds it, every process of its user id."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.folder:
            _kill_user(self.uid)
        ready(self.gone, 5.0)  # end of file: the last process that could hold it has ended
        os.close(self.gone)
        if self.folder:
            self.folder.cleanup()

    def broken(self) -> bool:
        """Nothing is around it that others share."""
        return False


def _some_uid() -> int:
    """Give a user id that nobody has, for one worker only."""
    first, count = _free_uids()
    return first + secrets.randbelow(count)


@cache
def _free_uids() -> tuple[int, int]:
    """Give the first of the user ids that no account, service or container has, and how many there are.

    They lie far above all others, where this system has such numbers; a container may end at 65,535, which leaves a
    gap below those that systemd gives to services.
    """
    first, count = 1_900_000_000, 200_000_000
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/uid_map").read_text("ascii").splitlines():
            inside, _, length = map(int, line.split())
            if inside <= first and first + count <= inside + length:
                return first, count
    return 60_600, 580


def _kill_user(uid: int) -> None:
    """End every process of a user id that exists for one worker only."""
    if uid == 0:
        return
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == uid:
                os.kill(int(entry.name), signal.SIGKILL)


def _filter() -> int:
    """Give a pipe that holds the filter of system calls; it is far smaller than a pipe's buffer."""
    read, write = os.pipe()
    os.write(write, seccomp.program())
    os.close(write)
    return read


# What a worker sees


def _command(sandbox: Sandbox) -> list[str]:
    """Give the words before the program: bubblewrap with nothing of the host but an interpreter and NumPy."""
    paths = visible_paths()
    parents = sorted({str(parent) for path in paths for parent in Path(path).parents} - {"/"})
    folders = [word for parent in (*parents, SCRATCH) for word in ("--perms", "0755", "--dir", parent)]
    scratch = () if sandbox.forks else ("--perms", "1777", "--size", str(TMPFS), "--tmpfs", SCRATCH)
    mounts = [word for path in paths for word in ("--ro-bind", path, path)]
    links = [word for path in ("/lib", "/lib64", "/lib32", "/bin") for word in _link(path)]
    devices = [word for name in DEVICES for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    return [
        sandbox.bwrap,
        *_identity(sandbox),
        *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *("--die-with-parent", "--new-session"),
        *folders,  # made by hand, because bubblewrap makes them unreadable for everybody but root
        *mounts,
        *_hidden(paths),
        *links,
        *("--ro-bind", str(INSIDE), f"{PROGRAM}/inside"),
        *("--proc", "/proc", *devices, *scratch),
        *("--remount-ro", "/", "--chdir", SCRATCH),
    ]


def _identity(sandbox: Sandbox) -> Iterator[str]:
    """Leave no privilege but what a fork server needs for namespaces and mounts, and root to change its user id."""
    yield from ("--cap-drop", "ALL")
    if sandbox.forks:
        yield from ("--cap-add", "CAP_SYS_ADMIN")
    if sandbox.way in ("bubblewrap-root", "bubblewrap-each-root"):
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
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
