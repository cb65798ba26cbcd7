"""The journal keeps first predictions through every accident, and never raises into a lesson."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from labkit import journal


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path / "kept"))
    monkeypatch.setattr(journal, "_unsaved", {})
    return tmp_path / "kept"


def lines(place: Path) -> list[str]:
    return (place / "journal.jsonl").read_text("utf-8").splitlines()


def test_first_prediction_stays_first():
    journal.record("row", [1, 0], "wrong")
    journal.record("row", [0, 1], "right")
    kept = journal.first("row")
    assert (kept.answer, kept.status) == ([1, 0], "wrong")
    assert journal.statuses() == {"row": "right"}
    assert journal.firsts() == {"row": kept}


def test_right_once_is_right_for_good_and_otherwise_the_latest_counts():
    for status in ("wrong", "right", "wrong"):
        journal.record("a", 1, status)
    for status in ("recorded", "wrong"):
        journal.record("b", 1, status)
    assert journal.statuses() == {"a": "right", "b": "wrong"}


@pytest.mark.parametrize("status", ["blank", "unreadable"])
def test_no_answer_is_no_prediction(status):
    journal.record("row", ..., status)
    assert journal.first("row") is None
    assert not journal.answered("row")


def test_another_kernel_reads_what_this_one_wrote(place):
    journal.record("row", 2, "right")
    code = "from labkit import journal; print(journal.first('row').answer, journal.first('other'))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "2 None\n"


def test_two_kernels_writing_at_once_lose_nothing(place):
    code = (
        "import sys; from labkit import journal\n"
        "for i in range(300): journal.record(f'{sys.argv[1]}-{i}', 'x' * 200, 'right')"
    )
    kernels = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "ab"]
    assert [kernel.wait() for kernel in kernels] == [0, 0]
    found = [json.loads(line)["exercise"] for line in lines(place)]
    assert sorted(found) == sorted(f"{name}-{i}" for name in "ab" for i in range(300))
    assert [name for name in found if name[0] == "a"] == [f"a-{i}" for i in range(300)]


def test_a_killed_kernel_leaves_a_readable_journal(place):
    code = "from labkit import journal\nwhile True: journal.record('row', list(range(300)), 'right')"
    kernel = subprocess.Popen([sys.executable, "-c", code])
    while not journal.answered("row"):
        time.sleep(0.01)
    kernel.kill()
    kernel.wait()
    journal.record("after", 1, "right")
    assert journal.answered("row")
    assert journal.answered("after")


@pytest.mark.skipif(sys.platform == "win32", reason="only on POSIX: needs signals")
def test_a_frozen_kernel_holding_the_lock_delays_but_does_not_stop_the_others(place):
    place.mkdir()
    code = (
        "import os, sys; from labkit import journal\n"
        f"fd = os.open({str(place / 'journal.jsonl')!r}, os.O_RDWR | os.O_CREAT)\n"
        "assert journal._try_lock(fd); print('held', flush=True); sys.stdin.read()"
    )
    kernel = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert kernel.stdout.readline() == b"held\n"
    kernel.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    journal.record("row", 1, "right")
    assert 0.4 < time.monotonic() - start < 3
    assert journal.unsaved() == 0
    assert len(lines(place)) == 1
    kernel.kill()
    kernel.communicate()


def test_full_disk_keeps_the_answer_in_memory_and_writes_it_later(place, monkeypatch):
    journal.record("before", 1, "right")

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        journal.record("row", "first", "wrong")
    assert journal.unsaved() == 1
    assert journal.first("row").answer == "first"
    journal.record("row", "second", "right")
    assert journal.unsaved() == 0
    assert [json.loads(line)["answer"] for line in lines(place)] == [1, "first", "second"]


def test_a_line_cut_by_a_full_disk_spoils_only_itself(place, monkeypatch):
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[: len(data) // 2]))
        journal.record("row", "first", "wrong")
    assert journal.unsaved() == 1
    journal.record("row", "second", "right")
    assert [entry["answer"] for entry in journal.entries("answer")] == ["first", "second"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only on Linux: needs /dev/full")
def test_a_real_full_device(place):
    place.mkdir()
    (place / "journal.jsonl").symlink_to("/dev/full")
    journal.record("row", 1, "wrong")
    assert journal.unsaved() == 1


@pytest.mark.parametrize(
    "torn", ['{"kind": "answer", "exer', '{"kind": "answer"}', "[1]", "\x00\x00", "[" * 5000, "\udcff"], ids=range(6)
)
def test_a_damaged_last_line_is_passed_over(place, torn):
    journal.record("one", 1, "right")
    with open(place / "journal.jsonl", "a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(torn)
    journal.record("two", 2, "right")
    assert set(journal.statuses()) == {"one", "two"}


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path / "file" / "journal"))
    journal.record("row", 1, "right")
    assert journal.answered("row")
    assert journal.unsaved() == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_place_of_the_journal_is_not_waited_for(place):
    place.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place / "journal.jsonl")
    journal.record("masks-row-2", 1, "right")
    assert journal.answered("masks-row-2")
    assert journal.unsaved() == 1


def test_a_file_system_that_refuses(place, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    journal.record("row", 1, "right")
    assert journal.answered("row")
    assert journal.unsaved() == 1


def test_off_writes_nothing_and_still_remembers_in_this_kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_JOURNAL", "off")
    journal.record("row", 1, "right")
    assert journal.answered("row")
    monkeypatch.setenv("LABKIT_JOURNAL", "")
    assert not journal.answered("row")
    assert list(tmp_path.iterdir()) == []
    journal.record("row", 2, "right")
    assert (tmp_path / ".labkit" / "journal.jsonl").exists()
    assert journal.first("row").answer == 2


@pytest.mark.parametrize("now", [-1.0, 0.0, 4e9])
def test_a_clock_that_jumps_does_not_reorder(monkeypatch, now):
    journal.record("row", "first", "wrong")
    real = time.gmtime
    monkeypatch.setattr(time, "gmtime", lambda: real(now))
    journal.record("row", "second", "right")
    assert journal.first("row").answer == "first"


class Explosive:
    def __repr__(self):
        raise RuntimeError("no")


def knot():
    """A list that contains itself."""
    itself: list = []
    itself.append(itself)
    return itself


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ([1 / 4, True, None], [0.25, True, None]),
        ((Fraction(1, 3), 2), ["1/3", 2]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.float32(0.5), 0.5),
        ([np.float64(0.5), float("nan"), float("inf")], [0.5, "nan", "inf"]),
        ("Grüße \ud800", "Grüße ?"),
        ({1: 2}, "{1: 2}"),
        (knot, "knot"),
        (knot(), "unreadable (RecursionError)"),
        (Explosive(), "unreadable (RuntimeError)"),
        (10**5000, "unreadable (ValueError)"),
    ],
    ids=range(11),
)
def test_any_answer_is_kept_as_plain_json(answer, kept):
    journal.record("row", answer, "wrong")
    assert journal.first("row").answer == kept


def test_a_huge_answer_is_cut():
    journal.record("row", "x" * 100_000, "wrong")
    assert len(journal.first("row").answer) < journal.LONGEST + 10


def test_reveal_waits_for_the_prediction_and_then_shows():
    def show(a, b=0):
        return a + b

    locked = journal.reveal("row<1>", show, 1, b=2)
    assert "row<1>" in repr(locked)
    assert "row&lt;1&gt;" in locked._repr_html_()
    journal.record("row<1>", ..., "blank")
    assert isinstance(journal.reveal("row<1>", show, 1), journal.Locked)
    journal.record("row<1>", 7, "wrong")
    assert journal.reveal("row<1>", show, 1, b=2) == 3


def test_listeners_hear_of_answers_and_cannot_stop_a_lesson(monkeypatch):
    heard = []

    def broken(exercise_id):
        raise RuntimeError(exercise_id)

    monkeypatch.setattr(journal, "listeners", [broken, heard.append])
    journal.record("row", ..., "blank")
    journal.record("row", 1, "wrong")
    assert heard == ["row"]


def test_details_travel_with_an_answer():
    journal.record("row", 1, "wrong", slip="mask-zero-score")
    assert next(journal.entries("answer"))["slip"] == "mask-zero-score"
    assert list(journal.entries("practice")) == []
