"""Whole notebooks as students leave them: what counts is what stood where the check was, whatever came later."""

from __future__ import annotations

import json
import time

import pytest

from labkit.grading.keyfile import KeySource
from labkit.grading.marking import File, Settings, Work, mark_student
from labkit.grading.model import Attempt, Mark, Student
from labkit.grading.processes import Sandbox

CHECK = 'check.weights("row-2", row_2, scores=S[1], allowed=allowed[1])\nfrom_answer = row_2[0] + 1'
MIX_CHECK = 'check.function("write-mix", mix, task="mix")'
DEF = "def mix(weights, values):\n    "
LOOP = DEF + "return [[sum(w * v[k] for w, v in zip(r, values)) for k in range(len(values[0]))] for r in weights]"
DOTS = DEF + "return [[dot(r, column) for column in zip(*values)] for r in weights]"
RIGHT, WRONG = "row_2 = [1/4, 3/4]", "row_2 = [0, 1]"
Cells = list[tuple[str, str]]  # (exercise or "", source)


def mark(key: KeySource, sandbox: Sandbox | None, exercise: str, cells: Cells, first: str = "") -> Mark:
    """Mark one exercise of a notebook that begins with the lesson's first cell."""
    setup = key.cells[0].source + first
    raw = [
        {"cell_type": "code", "source": source, "metadata": {"labkit": {"exercise": id}} if id else {}}
        for id, source in [("", setup), *cells]
    ]
    data = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": raw}).encode()
    work = Work(Student("ada", "Ada"), (File(Attempt("a.ipynb"), "nb", data),))
    (result,) = mark_student(work, Settings((key,), b"s" * 32, sandbox))
    return {one.exercise: one for one in result.marks}[exercise]


@pytest.mark.parametrize(
    "cells",
    [
        [("row-2", "row_2 = [..., ...]\nrow_2 = masks.x(S[1])")],
        [("row-2", "row_2 = np.zeros(2)\nfor i in range(2):\n    row_2[i] = masks.x(S[1])[i]")],
        [("row-2", "row_2 = []\nrow_2.append(masks.x(S[1]))")],
        [("", "t = masks.x(S[1])"), ("row-2", "row_2 = t / 4")],
        [("", "import labkit as lk"), ("row-2", "row_2 = lk.softmax_over_sources(S[1])")],
        [("", "from labkit import softmax_over_sources as soft"), ("row-2", "row_2 = soft(S[1])")],
        [("row-2", WRONG), ("", "row_2 = masks.x(S[1])")],
        [("row-2", WRONG), ("", CHECK), ("", "row_2 = masks.x(S[1])")],
        [("row-2", "import scipy.special\nrow_2 = scipy.special.softmax(S[1])")],
        [("", "B = np.zeros((2, 2))"), ("", "for i in range(2):\n    B[i] = masks.x(S[i])"), ("row-2", "row_2 = B[1]")],
        [("", "t = None"), ("", "t = masks.x(S[1])"), ("row-2", "row_2 = t")],
    ],
)
def test_an_answer_that_lacks_something_waits(small_key: KeySource, box: Sandbox, cells: Cells) -> None:
    found = mark(small_key, box, "row-2", cells)
    assert (found.status, found.points) == ("recorded", None), found.message


@pytest.mark.parametrize(
    ("exercise", "cells"),
    [
        # a scratch cell uses what the lesson gave above it
        ("row-2", [("", "e_ = np.exp(S[1])"), ("row-2", "row_2 = e_ / e_.sum()")]),
        # the name is used again further down
        ("write-mix", [("write-mix", LOOP), ("say", "words = 'x'"), ("", "mix = mix([[1]], [[2]])")]),
        ("row-2", [("row-2", "row_2 = np.exp(S[1]) / 4"), ("say", "words = 'x'"), ("", "row_2 = 1")]),
        # something is tried below the check
        ("row-2", [("row-2", RIGHT), ("", CHECK), ("", f"{WRONG}  # what if")]),
        ("write-mix", [("write-mix", LOOP), ("", MIX_CHECK), ("", "mix = mix([[1]], [[2]])")]),
        # what was wrong is mended below the check, or below the answer
        ("row-2", [("row-2", WRONG), ("", CHECK), ("", RIGHT), ("", CHECK)]),
        ("row-2", [("row-2", WRONG), ("", CHECK), ("", f"{RIGHT}\n{CHECK}")]),
        ("row-2", [("row-2", "row_2 = [1/4, 0]"), ("", "row_2[1] = 3/4"), ("", CHECK)]),
        ("write-mix", [("write-mix", DEF + "return weights"), ("", MIX_CHECK), ("", LOOP), ("", MIX_CHECK)]),
        ("row-2", [("row-2", WRONG), ("", CHECK), ("", RIGHT), ("", CHECK), ("", WRONG)]),
        # what a function uses is used again for something else
        ("write-mix", [("", "def dot(a, b): return sum(np.multiply(a, b))"), ("write-mix", DOTS), ("", "dot = 12")]),
        ("write-mix", [("write-mix", LOOP), ("say", "words = 'x'"), ("", "sum = 3")]),
        # IPython's own syntax, beside labkit and elsewhere
        ("row-2", [("", "%matplotlib inline\nimport labkit\nq = 1/4"), ("row-2", "row_2 = [q, 3 * q]")]),
        ("row-2", [("", "t = %timeit -o 1\nq = 1/4"), ("row-2", "%time row_2 = [q, 3 * q]")]),
        ("row-2", [("", "import labkit; q = 1/4"), ("row-2", "row_2 = [q, 3 * q]")]),
        ("row-2", [("", '# labkit.me("")'), ("row-2", "row_2 = np.array([1, 3]) / 4")]),
        # a copy of the cell, or another cell with the name, far below
        ("row-2", [("row-2", RIGHT), ("", CHECK), ("say", "words = 'x'"), ("row-2", WRONG)]),
        ("row-2", [("", RIGHT), ("", CHECK), ("say", "words = 'x'"), ("", WRONG)]),
        # a name of labkit's that is the student's own here
        ("row-2", [("row-2", "check = []\ncheck.append(1/4)\ncheck.append(3/4)\nrow_2 = check")]),
        # names that are read as typed mean something else here
        ("row-2", [("row-2", "from math import log2 as log\nrow_2 = [log(2) / 4, 3/4]")]),
        ("row-2", [("", "e = 4"), ("row-2", "row_2 = [1/e, 3/e]")]),
        ("row-2", [("row-2", "row_2 = np.array([1/4, 3/4], dtype=float)")]),
        # the check was edited
        ("row-2", [("row-2", RIGHT), ("", CHECK.replace("S[1]", "S[0]"))]),
    ],
)
def test_a_right_answer_stays_right(small_key: KeySource, box: Sandbox, exercise: str, cells: Cells) -> None:
    found = mark(small_key, box, exercise, cells)
    assert found.status == "right", found


def test_what_a_student_adds_to_the_lessons_first_cell_is_there(small_key: KeySource, box: Sandbox) -> None:
    cells = [("write-mix", LOOP.replace("sum(", "math.fsum("))]
    assert mark(small_key, box, "write-mix", cells, first="\nimport math").status == "right"


@pytest.mark.parametrize(
    ("exercise", "cells"),
    [
        ("write-mix", [("write-mix", DEF + "return weights"), ("say", "words = 'x'"), ("", LOOP)]),
        ("row-2", [("row-2", "row_2 = np.exp(S[1])"), ("say", "words = 'x'"), ("", RIGHT)]),
        ("row-2", [("row-2", RIGHT), ("", WRONG), ("", CHECK)]),
        ("row-2", [("row-2", RIGHT), ("", "row_2[1] = 0"), ("", CHECK)]),
        ("row-2", [("row-2", f"{WRONG}\n{CHECK}")]),
        ("row-2", [("row-2", "row_2 = np.array([1/4, 3/4], dtype=int)")]),
    ],
)
def test_a_wrong_answer_stays_wrong(small_key: KeySource, box: Sandbox, exercise: str, cells: Cells) -> None:
    found = mark(small_key, box, exercise, cells)
    assert (found.status, found.points) == ("wrong", 0), found


def test_typed_answers_are_read_without_a_sandbox_whatever_stands_around_them(small_key: KeySource) -> None:
    cells = [("row-2", RIGHT), ("", "row_2[0], len(row_2)"), ("", CHECK.replace("1", "0")), ("", "scratch = S @ S")]
    assert mark(small_key, None, "row-2", cells).status == "right"


HEAVY = {
    "markers": "# exercise: row-2 (2 points)\n" * 400 + "a = 1\n" * 2_000,
    "more markers": "# exercise: row-2 (2 points)\n" * 6_000,
    "blanks in a call": 'labkit.me("a"' + " " * 19_000,
    "empty lines": "labkit\n" + "\n" * 19_000,
}


@pytest.mark.parametrize("source", HEAVY.values(), ids=HEAVY)
def test_a_heavy_cell_costs_little(small_key: KeySource, source: str) -> None:
    begun = time.process_time()
    mark(small_key, None, "row-2", [("", source), ("row-2", RIGHT)])
    assert time.process_time() - begun < 1
