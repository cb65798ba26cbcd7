"""Hold every `must_happen` of the manifest: no unearned mark, no damage, honest work keeps its marks."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from labkit.grading.model import Result, to_json
from labkit.grading.probe import Report, find_sandbox
from labkit.grading.processes import Limits
from labkit.grading.run import Options, Summary, grade
from labkit.grading.sandbox import Worker
from labkit.grading.store import Store

HERE = Path(__file__).parent
FILES = HERE / "files"
KEY = HERE / "key.md"
MANIFEST = {entry["file"]: entry for entry in json.loads((HERE / "manifest.json").read_text("utf-8"))}
NOTEBOOKS = sorted(name for name in MANIFEST if name.endswith(".ipynb"))
ARCHIVES = sorted(name for name in MANIFEST if name.endswith(".zip"))
LIMITS = Limits(cell=4.0, call=2.5, total=12.0)
LEAKS = ("CANARY", "HIDDEN-INPUT", "REACHED HOST", "Traceback (most recent")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can code be confined")


@dataclass(frozen=True)
class Graded:
    """One run over one set of files."""

    summary: Summary
    results: dict[str, Result]
    folder: Path

    def text(self) -> str:
        """Give everything the run wrote, as one text."""
        stored = json.dumps([to_json(result) for result in self.results.values()], ensure_ascii=False)
        pages = [file.read_text("utf-8", "replace") for file in self.folder.rglob("*.*ml")]
        return "\n".join([stored, *self.summary.refused, *pages])


@pytest.fixture(scope="module")
def sandbox() -> Report:
    report = find_sandbox(LIMITS)
    if report.level != "A":  # a fact about the machine that must not pass silently in CI
        if os.environ.get("CI"):
            pytest.fail("no level A sandbox: " + "; ".join(report.lines()))
        pytest.skip("no level A sandbox here")
    return report


def run(submissions: Path, out: Path, report: Report, jobs: int = 1) -> Graded:
    summary = grade(submissions, KEY, out, Options(jobs=jobs), report=report)
    with Store(out) as store:
        return Graded(summary, {result.student.id: result for result in store.results()}, out)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory, sandbox: Report) -> Graded:
    """Grade all notebooks as one class: whatever one of them does, the others must not notice."""
    folder = tmp_path_factory.mktemp("class")
    for name in NOTEBOOKS:
        place = folder / Path(name).stem
        place.mkdir()
        (place / "lab06.ipynb").write_bytes(adapted((FILES / name).read_bytes()))
    return run(folder, tmp_path_factory.mktemp("graded"), sandbox, jobs=2)


def adapted(data: bytes) -> bytes:
    """Call the marking of the set by this project's name, whatever encoding or damage the file has."""
    for encoding in ("utf-8", "utf-16-le"):
        data = data.replace('"grading"'.encode(encoding), '"labkit"'.encode(encoding))
    return data


def test_the_manifest_and_the_files_agree() -> None:
    assert {path.name for path in FILES.iterdir()} == set(MANIFEST)
    assert len(MANIFEST) == 118


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(graded: Graded, name: str) -> None:
    entry, result = MANIFEST[name], graded.results[Path(name).stem]
    share = result.points / 5
    assert entry["min_score"] - 1e-9 <= share <= entry["max_score"] + 1e-9, result.marks
    assert entry["verdict"] in ("any", result.verdict), result.reason
    assert result.verdict != "internal"
    if result.verdict == "rejected":
        assert result.reason.startswith(Path(name).stem)
        assert result.reason.count("\n") == 0


@pytest.mark.parametrize(
    ("name", "exercise", "status", "words"),
    [
        ("c02_honest_wrong", "masked_softmax", "wrong", ""),
        ("c15_untouched_template", "masked_softmax", "blank", ""),
        ("c15_untouched_template", "q1", "blank", ""),
        ("c16_one_syntax_error", "mix", "wrong", "SyntaxError (line"),
        ("n22_deleted_cells", "masked_softmax", "missing", ""),
        ("r09_os_exit_module", "masked_softmax", "stopped", "passed over"),
        ("r19_infinite_loop", "masked_softmax", "stopped", "still running"),
        ("r59_async_and_generators", "masked_softmax", "wrong", "not made of plain numbers"),
        ("v10_masked_and_matrix", "masked_softmax", "wrong", "masked array"),
        ("v14_tiny_leak_through_mask", "masked_softmax", "wrong", ""),
        ("v18_answers_not_a_dict", "q1", "unreadable", ""),
    ],
)
def test_feedback_says_what_happened(graded: Graded, name: str, exercise: str, status: str, words: str) -> None:
    mark = next(mark for mark in graded.results[name].marks if mark.exercise == exercise)
    assert mark.status == status
    assert words in mark.message


@pytest.mark.parametrize(
    ("name", "exercise", "note"),
    [
        ("n23_duplicate_grading_ids", "masked_softmax", "2 cells carry its id"),
        ("n26_cell_types_changed", "mix", "had become a markdown cell"),
    ],
)
def test_rules_that_were_applied_are_noted(graded: Graded, name: str, exercise: str, note: str) -> None:
    mark = next(mark for mark in graded.results[name].marks if mark.exercise == exercise)
    assert any(note in words for words in mark.notes)


def test_nothing_leaks_and_nothing_is_a_traceback(graded: Graded) -> None:
    text = graded.text()
    assert [leak for leak in LEAKS if leak in text] == []


def test_honest_controls_keep_their_marks(graded: Graded) -> None:
    controls = [name for name in NOTEBOOKS if MANIFEST[name]["layer"] == "control"]
    assert len(controls) == 16
    for name in controls:
        assert graded.results[Path(name).stem].points >= 5 * MANIFEST[name]["min_score"] - 1e-9


def test_the_run_itself_is_unharmed(graded: Graded) -> None:
    assert graded.summary.exit_status == 0
    assert graded.summary.marked == len(NOTEBOOKS)
    assert graded.summary.level == "A"


def test_no_marker_file_and_no_process_is_left(graded: Graded) -> None:
    assert left_behind(graded.folder) == []


def left_behind(folder: Path) -> list[str]:
    """Look for marker files of the set where they may be, and for workers that still run."""
    names = {name for entry in MANIFEST.values() for name in entry.get("marker_files", ())}
    places = (Path(), folder, Path.home(), HERE, Path("/tmp"))
    found = [str(place / name) for name in names for place in places if (place / name).exists()]
    return found + [f"process {pid}" for pid in workers()]


def workers() -> list[int]:
    """List what descends from this process and lives two process namespaces down: bubblewrap's, then a worker's."""
    parents, deep = {}, []
    for entry in Path("/proc").glob("[0-9]*/status"):
        try:
            status = dict(line.split(":", 1) for line in entry.read_text().splitlines())
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(status["PPid"])
        if len(status["NSpid"].split()) > 2 and "Z" not in status["State"]:  # a dead one may wait to be buried
            deep.append(int(entry.parent.name))
    return [pid for pid in deep if os.getpid() in ancestors(pid, parents)]


def ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def test_a_worker_that_still_runs_would_be_found(sandbox: Report) -> None:
    assert sandbox.sandbox is not None
    with Worker(sandbox.sandbox) as worker:
        assert worker.run("import os\nif os.fork() == 0: os.setsid(); __import__('time').sleep(60)").ok
        assert len(workers()) == 3  # the first of its namespace, the worker, the daemon
    assert workers() == []


def test_a_daemon_does_not_outlive_its_submission(graded: Graded) -> None:
    time.sleep(1)
    assert not Path("/tmp/hostile_daemon_was_here").exists()


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive(name: str, tmp_path: Path, sandbox: Report) -> None:
    entry = MANIFEST[name]
    made = run(FILES / name, tmp_path, sandbox)
    assert made.summary.exit_status == 0
    assert [leak for leak in LEAKS if leak in made.text()] == []
    assert left_behind(tmp_path) == []
    for result in made.results.values():
        assert entry["min_score"] * 5 <= result.points <= entry["max_score"] * 5
    if entry["verdict"] == "rejected":
        assert made.summary.refused
        assert not any(result.points for result in made.results.values())
    assert all(reason.count("\n") == 0 and name in reason for reason in made.summary.refused)
    CASES.get(name, lambda _: None)(made)


def full(made: Graded, *students: str) -> None:
    assert {student for student, result in made.results.items() if result.points == 5} == set(students)


def twins(made: Graded) -> None:
    assert list(made.results) == ["jos\xe9"]
    assert len(made.results["jos\xe9"].attempts) == 2


def two_attempts(made: Graded) -> None:
    alice = made.results["alice"]
    assert [attempt.note for attempt in alice.attempts] == ["a later file counts", "counts"]
    assert alice.points == 0  # the second is wrong, and the latest counts


def mixed(made: Graded) -> None:
    assert list(made.results) == [f"s{number:02}" for number in range(10)]
    full(made, "s00", "s09")
    verdicts = [result.verdict for result in made.results.values()]
    assert verdicts[4] == verdicts[5] == "rejected"


def refused_in_one_line(made: Graded) -> None:
    assert len(made.summary.refused) == 1


CASES: dict[str, Any] = {
    "z00_control.zip": lambda made: full(made, "alice", "bob"),
    "z01_zip_slip.zip": lambda made: full(made, "alice"),
    "z02_absolute_path.zip": lambda made: full(made, "alice"),
    "z03_backslash_and_drive.zip": lambda made: full(made, "alice"),
    "z09_overlapping.zip": refused_in_one_line,
    "z13_unicode_twins.zip": twins,
    "z15_two_submissions.zip": two_attempts,
    "z28_60000_cells.zip": refused_in_one_line,
    "z29_mixed_batch.zip": mixed,
}
