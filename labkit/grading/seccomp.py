"""A filter of system calls for workers, as the kernel reads it: no namespaces, mounts, tracing, keys or io_uring.

Nor memory that belongs to no process, so that no limit counts it (System V, memfd, message queues), nor sockets of
families that network namespaces do not confine (vsock reaches the host of a virtual machine). The format is classic BPF
(`struct sock_filter`), numbers are those of the kernel's tables for x86-64 and of the generic table for 64-bit ARM; on
other machines there is no filter.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _NOT_PERMITTED, _NO_SUCH_CALL = 0x7FFF0000, 0x00050001, 0x00050026  # errno EPERM, ENOSYS
_NEW_NAMESPACE = 0x7E020000  # all CLONE_NEW… flags
_X32 = 0x40000000  # calls of the x32 interface carry this bit
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: confined by a network namespace, so that asking does no harm

_MACHINES: dict[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            **{"clone": 56, "clone3": 435, "socket": 41},
            **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438},
            **{"unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161},
            **{"open_tree": 428, "move_mount": 429, "fsopen": 430, "mount_setattr": 442},
            **{"fsconfig": 431, "fsmount": 432, "fspick": 433, "open_tree_attr": 467},
            **{"shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "memfd_create": 319, "memfd_secret": 447},
            **{"inotify_init": 253, "inotify_init1": 294, "fanotify_init": 300},  # few, and counted for a user's all
            **{"add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298},
            **{"userfaultfd": 323, "io_uring_setup": 425, "open_by_handle_at": 304, "kexec_load": 246},
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            **{"clone": 220, "clone3": 435, "socket": 198},
            **{"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "pidfd_getfd": 438},
            **{"unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51},
            **{"open_tree": 428, "move_mount": 429, "fsopen": 430, "mount_setattr": 442},
            **{"fsconfig": 431, "fsmount": 432, "fspick": 433, "open_tree_attr": 467},
            **{"shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "memfd_create": 279, "memfd_secret": 447},
            **{"inotify_init1": 26, "fanotify_init": 262},
            **{"add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241},
            **{"userfaultfd": 282, "io_uring_setup": 425, "open_by_handle_at": 265, "kexec_load": 104},
        },
    ),
}


def program(machine: str | None = None) -> bytes:
    """Give the filter for this machine, or nothing where none is known.

    >>> len(program("x86_64")) % 8, program("riscv64")
    (0, b'')
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    architecture, numbers = known
    denied = [number for name, number in numbers.items() if name not in ("clone", "clone3", "socket")]
    # Each test is (code, operand, where to go if it holds); what holds nowhere falls through to "allow".
    tests = [
        (_AT_LEAST, _X32, "deny"),
        (_EQUAL, numbers["clone3"], "unknown"),  # its flags lie in memory; the C library then uses clone
        *((_EQUAL, number, "deny") for number in denied),
        (_EQUAL, numbers["clone"], "flags"),
        (_EQUAL, numbers["socket"], "family"),
    ]
    some = len(_FAMILIES)
    tail = {"allow": 0, "flags": 1, "family": 3, "deny": 4 + some, "unknown": 6 + some}
    lines = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _NOT_PERMITTED)]
    lines.append((_LOAD, 0, 0, _NUMBER))
    for place, (code, operand, where) in enumerate(tests):
        lines.append((code, len(tests) - place - 1 + tail[where], 0, operand))
    lines += [
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),  # "flags"
        (_ANY_BIT, 1 + some, 2 + some, _NEW_NAMESPACE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),  # "family"
        *((_EQUAL, some - place, 0, family) for place, family in enumerate(_FAMILIES)),
        (_RETURN, 0, 0, _NOT_PERMITTED),  # "deny"
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NO_SUCH_CALL),  # "unknown"
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
