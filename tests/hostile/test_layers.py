"""Take one layer of the grader away at a time, and see an attack of the set succeed: no layer is there for show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit import functions
from labkit.functions import Finding
from labkit.grading import archive, key, notebook, sandbox, seccomp
from labkit.grading.keyfile import read_key
from labkit.grading.marking import File, Settings, Work, mark_student
from labkit.grading.model import Attempt, Mark, Student
from labkit.grading.probe import find_sandbox, probe
from labkit.grading.processes import Limits, Sandbox
from labkit.grading.sandbox import Worker
from labkit.grading.strict import Refused, read_json

HERE = Path(__file__).parent
FILES = HERE / "files"
GENEROUS = Limits(cell=60, call=60, total=120, memory=8 << 30, file=1 << 30, processes=500)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can code be confined")


@pytest.fixture(scope="module")
def box() -> Sandbox:
    report = find_sandbox(Limits(cell=4, call=2.5, total=12))
    if report.level != "A" or report.sandbox is None:
        if os.environ.get("CI"):
            pytest.fail("no level A sandbox: " + "; ".join(report.lines()))
        pytest.skip("no level A sandbox here")
    return report.sandbox


def marks(name: str, box: Sandbox) -> dict[str, Mark]:
    data = (FILES / name).read_bytes().replace(b'"grading"', b'"labkit"')
    work = Work(Student("m", "m"), (File(Attempt(name), "lab06", data),))
    results = mark_student(work, Settings((read_key(HERE / "key.md"),), bytes(32), box))
    return {mark.exercise: mark for mark in results[0].marks}


# The process of its own: in one process with the comparison, everything can be forged

IN_ONE_PROCESS = """
import json, sys
import numpy as np
space = {"np": np}
exec(sys.stdin.read(), space)
def grade():
    expected = np.array([[0.25, 0.75], [1.0, 0.0]])
    given = space["masked_softmax"](np.array([[0, np.log(3)], [0, 0]]), np.array([[True, True], [True, False]]))
    try:
        return bool(np.allclose(given, expected))
    except Exception:
        return bool(given == expected)
print("PASSED" if grade() else "failed")
"""


@pytest.mark.parametrize("attack", ["r01_patch_numpy", "r06_always_equal", "r08_array_hook_reads_frame"])
def test_without_a_process_of_its_own_a_forged_result_passes(attack: str, box: Sandbox) -> None:
    name = f"{attack}.ipynb"
    cells = json.loads((FILES / name).read_text("utf-8"))["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells[1:3])
    command = [sys.executable, "-c", IN_ONE_PROCESS]
    naive = subprocess.run(command, input=source, capture_output=True, text=True, timeout=60)
    assert "PASSED" in naive.stdout
    assert marks(name, box)["masked_softmax"].points == 0


# Namespaces: without them the machine lies open


def test_without_namespaces_files_network_and_processes_lie_open(box: Sandbox) -> None:
    open_to = set(probe(box).held) - set(probe(Sandbox("limits", limits=box.limits)).held)
    assert {"files", "network", "processes", "disk"} <= open_to


def test_without_the_filter_the_kernel_answers_riskier_calls(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def traced() -> object:
        with Worker(box) as worker:
            worker.run("import ctypes")
            return worker.value("ctypes.CDLL(None).ptrace(0, 0, 0, 0)").value

    assert traced() == -1
    monkeypatch.setattr(seccomp, "program", lambda: b"")
    assert traced() == 0


DAEMON = """
import os, time
first = os.fork()
if first == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1.5)
        try:
            open(MARKER, "w").close()
        except OSError:
            pass
    os._exit(0)
os.waitpid(first, 0)
"""


def test_without_a_process_namespace_a_daemon_outlives_its_submission(box: Sandbox, tmp_path: Path) -> None:
    def appears(confined: Sandbox, marker: Path) -> bool:
        with Worker(confined) as worker:
            worker.set({"MARKER": str(marker)})
            assert worker.run(DAEMON).ok
        time.sleep(2.5)
        return marker.exists()

    assert appears(Sandbox("limits", limits=box.limits), tmp_path / "outside")
    assert not appears(box, tmp_path / "inside")


# Limits


@pytest.mark.parametrize(
    "attack",
    [
        "bytearray(1 << 30)",
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); open('big', 'wb').write(bytes(12 << 20))",
        "import os\nfor _ in range(12):\n    if os.fork() == 0: time.sleep(5)",
    ],
    ids=["memory", "file", "forks"],
)
def test_without_limits_resources_are_there_for_the_taking(attack: str, box: Sandbox) -> None:
    def works(limits: Limits) -> bool:
        with Worker(Sandbox(box.way, box.bwrap, limits)) as worker:
            return worker.run(f"import time\n{attack}").ok

    assert not works(box.limits)
    assert works(GENEROUS)


def test_without_a_wall_clock_a_stopped_process_is_waited_for(box: Sandbox) -> None:
    def seconds(limits: Limits) -> float:
        begun = time.monotonic()
        with Worker(Sandbox(box.way, box.bwrap, limits)) as worker, pytest.raises(sandbox.Stopped):
            worker.run("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
        return time.monotonic() - begun

    short = Limits(cell=0.5)
    assert seconds(short) < seconds(Limits(cell=4.0)) - 2


# Reading replies


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 7, "ok": true, "value": 1e400}',
        b'{"id": 7, "ok": false, "ok": true, "value": 1}',
        b'{"id": 7, "ok": true, "value": NaN}',
        b'{"id": 7, "ok": true, "value": 1, "points": 5}',
        b'{"id": 7, "ok": 1, "value": 1}',
        b'{"id": 6, "ok": true, "value": 1}',
    ],
)
def test_without_strict_replies_forged_lines_are_read(line: bytes) -> None:
    assert json.loads(line)["value"]
    with pytest.raises(sandbox.Stopped):
        sandbox._checked(sandbox._fields(line, 7))


# Comparing


def naive_judge(task: Any, cases: Any, outcomes: Any, names: Any = ()) -> Finding:
    """Compare as a first draft would: broadcasting, close enough, rows that sum to one."""
    good = all(
        np.allclose(np.array(outcome.value, dtype=float), task.reference(*case), rtol=1e-2, atol=1e-2)
        for case, outcome in zip(cases, outcomes, strict=True)
        if outcome.value is not None
    )
    return Finding("right" if good else "wrong", "")


@pytest.mark.parametrize("name", ["v13_tolerance_creep.ipynb"])
def test_without_careful_comparing_wrong_numbers_pass(name: str, box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = marks(name, box)
    monkeypatch.setattr(functions, "judge", naive_judge)
    naive = marks(name, box)
    gained = {exercise for exercise, mark in naive.items() if (mark.points or 0) > (honest[exercise].points or 0)}
    assert gained & {"masked_softmax", "mix"}


# Intake


def test_without_a_strict_reader_doubtful_documents_are_read() -> None:
    twice, deep = b'{"nbformat": 4, "cells": [], "cells": [1]}', b"[" * 200 + b"]" * 200
    assert json.loads(twice)["cells"] == [1]
    assert json.loads(deep)
    for data in (twice, deep):
        with pytest.raises(Refused):
            read_json(data, cap=1000)


def test_without_caps_an_archive_unpacks_to_whatever_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(name: str) -> int:
        return sum(len(found.read()) for found in archive.look(FILES / name) if not found.refused)

    with pytest.raises(Refused):
        read("z06_zip_bomb_flat.zip")
    monkeypatch.setattr(archive, "MAX_NOTEBOOK", 1 << 40)
    assert read("z06_zip_bomb_flat.zip") > 100 << 20


def test_without_the_overlap_check_one_kilobyte_is_listed_two_thousand_times() -> None:
    with zipfile.ZipFile(FILES / "z09_overlapping.zip") as bomb:
        assert sum(member.file_size for member in bomb.infolist()) > 1 << 30
        with pytest.raises(Refused, match="overlap"):
            archive._members(bomb)


def test_without_the_cell_cap_sixty_thousand_cells_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = next(archive.look(FILES / "z28_60000_cells.zip")).read()
    with pytest.raises(Refused):
        notebook.read_notebook(data)
    monkeypatch.setattr(notebook, "MAX_CELLS", 1 << 30)
    assert len(notebook.read_notebook(data)[0]) > 60_000


# Hidden cases


TABLE = {
    "cell_type": "code",
    "metadata": {"labkit": {"exercise": "mix"}},
    "source": "KNOWN = {TABLE}\ndef mix(weights, values):\n    return KNOWN.get(repr((weights, values)), [[0]])",
}


def test_without_a_secret_a_table_of_the_cases_passes(box: Sandbox) -> None:
    task = next(item for item in key.run_key(read_key(HERE / "key.md")).items if item.id == "mix").exercise.task
    cases = key.hidden_cases(task, "mix", bytes(32))  # what a student knows once the secret is known
    table = {repr((weights, values)): task.reference(weights, values) for weights, values in cases}
    cell = {**TABLE, "source": str(TABLE["source"]).replace("{TABLE}", repr(table))}
    data = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}).encode()

    def points(secret: bytes) -> float | None:
        work = Work(Student("m", "m"), (File(Attempt("m.ipynb"), "m", data),))
        results = mark_student(work, Settings((read_key(HERE / "key.md"),), secret, box))
        return next(mark.points for mark in results[0].marks if mark.exercise == "mix")

    assert points(bytes(32)) == 1
    assert points(b"known to the instructor only") == 0
