"""Measure grading beside nbgrader: milliseconds a submission, gain from a second job, memory for 100 and 5,000.

python benchmarks/grading.py            a table
python benchmarks/grading.py --json     one line
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.grading.probe import Report, find_sandbox
from labkit.grading.reports import write_reports
from labkit.grading.run import Options, grade

STUDENTS = 200
TURNS = 5  # of one job and two
PREDICTIONS = 14
ANSWERS = ("[1/4, 3/4]", "[0.25, 0.75]", "[Fraction(1, 4), 0.75]", "[0, np.log(3)]", "[{}/9999, 2/3]")  # three right
SOFTMAX = '''def softmax(scores, allowed):
    """Weights over the allowed sources."""
    shown = np.where(np.array(allowed), np.array(scores, dtype=float), -np.inf)
    powers = np.exp(shown - shown.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).tolist()'''
MIX = '''def mix(weights, values):
    """Mix the values."""
    return (np.array(weights) @ np.array(values)).tolist()'''
CODE = {"write-softmax": SOFTMAX, "write-mix": MIX}
CHECKS = {
    "write-softmax": 'check.function("write-softmax", softmax, task="softmax_over_sources")',
    "write-mix": 'check.function("write-mix", mix, task="mix")',
}
SETUP = "import numpy as np\nfrom fractions import Fraction"


def key(code: bool) -> str:
    """Write a key of typed predictions, with two functions or without."""
    cells = [f"{SETUP}\nfrom labkit import check\nS = np.log([1.0, 3.0])"]
    for number in range(PREDICTIONS):
        cells.append(f":answer: p{number}\n:points: 1\np{number} = [1/4, 3/4]")
        cells.append(f'check.weights("p{number}", p{number}, scores=S)')
    for name, source in CODE.items() if code else ():
        cells += [f":answer: {name}\n:points: 2\n{source}", CHECKS[name]]
    return "\n\n".join(f"```{{code-cell}} python\n{cell}\n```" for cell in cells) + "\n"


def notebook(student: int, code: bool) -> bytes:
    """Write one student's notebook: like a real one, with text between the cells and outputs below them."""
    cells: list[dict[str, Any]] = [cell(SETUP)]
    for number in range(PREDICTIONS):
        cells.append({"cell_type": "markdown", "metadata": {}, "source": "Predict the weights of row 2. " * 20})
        answer = ANSWERS[(student + number) % len(ANSWERS)].format(student)  # the last one nobody else has
        cells.append(cell(f"p{number} = {answer}", f"p{number}"))
        cells.append(cell(f'check.weights("p{number}", p{number}, scores=S)'))
    if code:
        cells += [cell(source, name) for name, source in CODE.items()]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).encode()


def cell(source: str, exercise: str = "") -> dict[str, Any]:
    """Write one code cell with an output of ordinary size."""
    output = {"output_type": "stream", "name": "stdout", "text": ["correct\n"] * 40}
    metadata = {"labkit": {"exercise": exercise}} if exercise else {}
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [output], "execution_count": 1}


def classroom(folder: Path, students: int, code: bool) -> tuple[Path, Path]:
    """Write a class as a zip, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "class.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for student in range(students):
            archive.writestr(f"s{student:05}/lesson.ipynb", notebook(student, code))
    (folder / "lesson.md").write_text(key(code), encoding="utf-8")
    return folder / "class.zip", folder / "lesson.md"


def timed(folder: Path, students: int, code: bool, report: Report, jobs: int = 1) -> tuple[float, float]:
    """Grade a class; give the median of a submission and the whole, both in seconds."""
    submissions, lesson = classroom(folder, students, code)
    stamps = [time.perf_counter()]
    begun = time.perf_counter()
    summary = grade(
        submissions,
        lesson,
        folder / f"graded-{jobs}",
        Options(jobs=jobs),
        report=report,
        progress=lambda *_: stamps.append(time.perf_counter()),
    )
    whole = time.perf_counter() - begun
    assert summary.marked == students, summary
    assert summary.exit_status == 0, summary
    steps = [after - before for before, after in pairwise(stamps[1:])]
    return statistics.median(steps), whole


def peak_mib(students: int) -> float:
    """Grade a class of predictions and write its reports, in a process of its own; give its largest resident size."""
    command = [sys.executable, __file__, "--peak", str(students)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(students: int) -> None:
    """Do that, and print the number."""
    with tempfile.TemporaryDirectory() as folder:
        timed(Path(folder), students, False, Report((), None))
        write_reports(Path(folder, "graded-1"))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def nbgrader_ms(folder: Path, students: int = 3) -> float:
    """Give nbgrader's milliseconds for the same two functions: its own kernel, its own tests."""
    import nbformat
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    def grader_cell(name: str, source: str, **more: Any) -> Any:
        made = nbformat.v4.new_code_cell(source)
        fixed = {"schema_version": 3, "task": False, "grade": False, "solution": False, "locked": True}
        made.metadata["nbgrader"] = {**fixed, "grade_id": name, **more}
        return made

    tests = {
        "write-softmax": "assert np.allclose(softmax([[0, np.log(3)]], [[True, True]]), [[0.25, 0.75]])",
        "write-mix": "assert np.allclose(mix([[0.25, 0.75]], [[4], [8]]), [[7]])",
    }
    cells = [nbformat.v4.new_code_cell(SETUP)]
    for name, source in CODE.items():
        cells.append(grader_cell(name, source, solution=True, locked=False))
        cells.append(grader_cell(f"test-{name}", tests[name], grade=True, points=2))
    document = nbformat.v4.new_notebook(cells=cells)
    places = [folder / "source/hw", *(folder / f"submitted/s{student}/hw" for student in range(students))]
    for place in places:
        place.mkdir(parents=True)
        nbformat.write(document, place / "lesson.ipynb")
    settings = Config()
    settings.CourseDirectory.root = str(folder)
    settings.ClearSolutions.enforce_metadata = False
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # it calls alembic
    api = NbGraderAPI(config=settings)
    assert api.generate_assignment("hw")["success"]
    times = []
    for student in range(students):
        begun = time.perf_counter()
        outcome = api.autograde("hw", f"s{student}", create=True)
        times.append(time.perf_counter() - begun)
        assert outcome["success"], outcome
    return 1000 * statistics.median(times)


def measure() -> dict[str, float]:
    """Run everything once, one thing at a time."""
    report = find_sandbox()
    if report.level != "A":
        sys.exit("\n".join(report.lines()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        predictions, _ = timed(folder / "predictions", STUDENTS, False, report)
        one, two = [], []
        for turn in range(TURNS):  # in turn: a machine that changes its speed meanwhile does so for both
            one.append(timed(folder / f"code-{turn}", STUDENTS, True, report))
            two.append(timed(folder / f"code-{turn}", STUDENTS, True, report, jobs=2))
        nbgrader = nbgrader_ms(folder / "nbgrader")
    return {
        "predictions_ms": round(1000 * predictions, 2),
        "code_ms": round(1000 * statistics.median(each for each, _ in one), 1),
        "two_jobs_speedup": round(sum(whole for _, whole in one) / sum(whole for _, whole in two), 2),
        "nbgrader_ms": round(nbgrader, 1),
        "peak_mib_100": round(peak_mib(100), 1),
        "peak_mib_5000": round(peak_mib(5000), 1),
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.peak:
        print_peak(words.peak)
        return
    found = measure()
    print(json.dumps(found) if words.json else "\n".join(f"{name:18} {value:10,.2f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
