"""The process between the grader and the students' code: loads NumPy once, then forks a worker whenever it is asked.

It runs inside bubblewrap and never sees a byte that a student wrote: a worker reads those itself, after it was forked.
Each worker gets namespaces of its own (processes, mounts, network, IPC), an empty folder and a user id of its own, and
gives up every privilege before it reads anything. So no worker finds what another one left, as if each were started
afresh, and starting one takes a few milliseconds instead of loading NumPy again.

An ordinary user has one user id for all workers. There each worker gets a user namespace of its own too, because the
kernel counts processes for each user id and namespace: one worker cannot use up what another one may start.

The system calls are those of setns(2), unshare(2), mount(2), capset(2), prctl(2) and seccomp(2); if one fails, there is
no worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
from itertools import pairwise
from typing import Any, NoReturn

from . import worker

COMMON = ("fractions", "random", "dataclasses", "copy", "numpy.random")  # what lessons and students import most
LONGEST_ORDER = 1 << 16
OWN_PROCESSES = 0x20000000  # CLONE_NEWPID
OWN = 0x00020000 | 0x40000000 | 0x08000000  # CLONE_NEWNS, NEWNET, NEWIPC
OWN_USER = 0x10000000  # CLONE_NEWUSER
PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE, MS_REC
PLAIN = 2 | 4  # MS_NOSUID, MS_NODEV
READ_ONLY_PROC = PLAIN | 1 | 8  # MS_RDONLY, MS_NOEXEC
SET_NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2
CAPABILITIES_V3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def main(path: list[str], control: int) -> None:
    """Load NumPy, say so, and fork a worker for each order until the grader is gone."""
    worker.load(path)
    for module in COMMON:
        importlib.import_module(module)
    gc.freeze()  # a worker's collector leaves alone, and so does not copy, what all of them share
    orders = socket.socket(fileno=os.dup(control))  # the lowest number: workers close everything up to a certain one
    os.close(control)
    ours = os.open("/proc/self/ns/pid", os.O_RDONLY)
    orders.send(b"ready")
    while True:
        order, fds, _, _ = socket.recv_fds(orders, LONGEST_ORDER, 3)
        if not order:
            return
        with contextlib.suppress(OSError):  # a machine that is full for a moment: no handle says so
            start(json.loads(order), ours, *fds)
        for fd in fds:
            os.close(fd)


def start(order: dict[str, Any], ours: int, requests: int, replies: int, answer: int) -> None:
    """Fork the first process of a new namespace of processes, and send a handle on it back."""
    done(libc.setns(ours, OWN_PROCESSES))  # a second namespace can only be asked for from our own
    done(libc.unshare(OWN_PROCESSES))  # concerns what is forked next, not us
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a first one that ends at once still gets its handle
    try:
        first = os.fork()
        if first == 0:
            begin(order, requests, replies)
        handle = os.pidfd_open(first)
        try:
            with socket.socket(fileno=os.dup(answer)) as grader:
                socket.send_fds(grader, [b"begun"], [handle])
        finally:
            os.close(handle)
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # from here on the kernel buries them
        with contextlib.suppress(ChildProcessError):  # but for those who ended meanwhile, this one or earlier ones
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def begin(order: dict[str, Any], requests: int, replies: int) -> NoReturn:
    """As the first process of a namespace, start the worker in it."""
    import numpy

    try:
        for low, high in pairwise(sorted([2, requests, replies, 4096])):
            os.closerange(low + 1, high)
        os.setsid()  # else a signal to its process group reaches the fork server and every other worker
        confine(order)
        second = os.fork()
        if second:
            os.close(replies)  # its end tells the grader that the worker has ended
            while os.wait()[0] != second:
                pass  # an orphan of the worker's
            os._exit(0)  # the kernel ends what is left in the namespace
        numpy.random.seed()  # Python's own generator does so by itself
        worker.listen(requests, replies)
    finally:
        os._exit(1)


def confine(order: dict[str, Any]) -> None:
    """Give the process its own empty folder and view of processes, then take every privilege from it for good."""
    home = order["home"]
    done(libc.unshare(OWN))
    done(libc.mount(None, b"/", None, PRIVATE, None))
    most = f"mode=1777,size={order['size']},nr_inodes={order['files']}"
    done(libc.mount(b"tmpfs", home.encode(), b"tmpfs", PLAIN, most.encode()))
    done(libc.mount(b"proc", b"/proc", b"proc", READ_ONLY_PROC, None))
    os.chdir(home)
    if not order["uid"]:
        done(libc.unshare(OWN_USER))  # before its limits, which would count all workers if they held out here too
    worker.limit(order["limits"])
    worker.become(order["uid"])
    done(libc.capset((ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()))
    done(libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if order["filter"]:
        lines = bytes.fromhex(order["filter"])
        done(libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(Filter(len(lines) // 8, lines))))


class Filter(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("lines", ctypes.c_ushort), ("first", ctypes.c_char_p))


def done(result: int) -> None:
    """Raise what a system call says went wrong."""
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
