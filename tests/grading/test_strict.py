"""The strict JSON reader and the notebook reader: what they refuse, and that nothing else comes out of them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labkit.grading.model import Cell
from labkit.grading.notebook import read_notebook
from labkit.grading.strict import Refused, nesting, read_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def notebook(*cells: Any, **extra: Any) -> bytes:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells), **extra}).encode()


def code(source: Any, **metadata: Any) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}


@given(JSON)
def test_what_json_writes_is_read_back(value: Any) -> None:
    assert read_json(json.dumps(value).encode(), cap=10**6) == value


@given(JSON)
def test_nesting_counts_as_a_walk_does(value: Any) -> None:
    def depth(part: Any) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    assert nesting(json.dumps(value)) == depth(value)


@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b'{"a": 1e400}')
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(Refused):
        read_json(data, cap=200)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b'{"a": 1, "a": 1}', "twice"),
        (b"[NaN]", "not JSON"),
        (b"[1, ]", "not valid JSON"),
        (b"1" * 5000, "not valid JSON"),  # more digits than Python converts
        (b'"\xff"', "UTF-8 text at byte 1"),
        ('"a"'.encode("utf-32"), "not UTF-"),
        (b" " * 10_001, "larger than"),
    ],
)
def test_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read_json(data, cap=10_000)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_give_the_same_notebook(encoding: str) -> None:
    text = notebook(code("x = 'é → ∞'")).decode()
    assert read_notebook(text.encode(encoding)) == ((Cell("code", "x = 'é → ∞'"),), "")


def test_line_ends_and_lists_of_lines_are_one_text() -> None:
    cells, _ = read_notebook(notebook(code(["a = 1\r\n", "b = 2\r\n"])))
    assert cells[0].source == "a = 1\nb = 2\n"


def test_half_a_character_becomes_a_replacement() -> None:
    cells, _ = read_notebook(notebook(code("x = '\ud800'")))
    assert cells[0].source == "x = '\N{REPLACEMENT CHARACTER}'"


@pytest.mark.parametrize(
    ("metadata", "exercise", "locked"),
    [
        ({"labkit": {"exercise": "a", "role": "answer"}}, "a", False),
        ({"labkit": {"exercise": "a", "role": "check"}}, "a", True),
        ({"nbgrader": {"grade_id": "answer-a", "locked": False}}, "answer-a", False),
        ({"nbgrader": {"grade_id": "check-a", "locked": True}}, "check-a", True),
        ({"labkit": {"exercise": 7}}, None, False),
        ({"labkit": None, "nbgrader": []}, None, False),
        ({}, None, False),
    ],
)
def test_ids_and_locks_come_from_metadata(metadata: dict[str, Any], exercise: str | None, locked: bool) -> None:
    (cell,), _ = read_notebook(notebook(code("", **metadata)))
    assert (cell.exercise, cell.locked) == (exercise, locked)


def test_the_lesson_is_read_from_the_notebook() -> None:
    assert read_notebook(notebook(metadata={"labkit": {"lesson": "03_masks"}}))[1] == "03_masks"


def test_format_3_keeps_its_sources() -> None:
    sheet = {"cells": [{"cell_type": "code", "input": "x = 1"}, {"cell_type": "heading", "source": "T"}]}
    data = json.dumps({"nbformat": 3, "worksheets": [sheet]}).encode()
    assert read_notebook(data)[0] == (Cell("code", "x = 1"), Cell("markdown", "T"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"[]", "not a notebook"),
        (b'{"nbformat": true, "cells": []}', "claims notebook format True"),
        (b'{"nbformat": 5, "cells": []}', "claims notebook format 5"),
        (b'{"nbformat": 4}', "no list of cells"),
        (notebook(*[code("")] * 2001), "2001 cells"),
        (notebook(code("x" * 200_001)), "200001 characters in cell 1"),
        (notebook(*[code("x" * 199_999)] * 11), "characters in its cells"),
        (notebook(code(None)), "no text in cell 1"),
        (notebook({"cell_type": "sql", "source": ""}), "no known type in cell 1"),
        (notebook(7), "no known type in cell 1"),
    ],
)
def test_notebooks_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read_notebook(data)


DOCUMENT = st.fixed_dictionaries(
    {"nbformat": st.sampled_from([3, 4, 4, 4]) | JSON},
    optional={
        "cells": st.lists(
            JSON
            | st.fixed_dictionaries(
                {"cell_type": st.sampled_from(["code", "markdown", "raw"]) | JSON, "source": st.text() | JSON},
                optional={"metadata": JSON},
            ),
            max_size=4,
        )
        | JSON,
        "worksheets": JSON,
        "metadata": JSON,
    },
)


@settings(max_examples=200)
@given(DOCUMENT)
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    with contextlib.suppress(Refused):
        cells, lesson = read_notebook(json.dumps(document).encode())
        assert all(isinstance(cell.source, str) for cell in cells)
        assert isinstance(lesson, str)
