"""Feedback files: what the builder writes is what checks read, and no answer is read by accident."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import feedback
from labkit.feedback import Feedback, decode, encode, seal

ENTRY = Feedback(
    points=2.5,
    covers=("M1", "M2"),
    hints=("Look at the mask.", "exp 0 = 1"),
    why={"A": "No: the 0 stays.", "B": "Yes."},
    sealed=seal("x", "B"),
    kind="choice",
)
text = st.text(max_size=20)
entries = st.builds(
    Feedback,
    points=st.floats(0, 100),
    covers=st.lists(text).map(tuple),
    hints=st.lists(text).map(tuple),
    why=st.dictionaries(text, text),
    sealed=text,
    kind=text,
    lesson=text,
)


@given(st.dictionaries(text, entries, max_size=4))
def test_round_trip(stored: dict[str, Feedback]) -> None:
    assert decode(encode(stored)) == stored


def test_files_are_the_same_however_they_were_made() -> None:
    one, two = encode({"a": ENTRY, "b": Feedback()}), encode({"b": Feedback(), "a": ENTRY})
    assert one == two
    assert one.endswith("}\n")
    assert list(json.loads(one)) == ["a", "b"]


def test_nobody_reads_it_by_accident() -> None:
    written = encode({"x": ENTRY})
    for word in ("mask", "exp 0", "Yes", "choice"):
        assert word not in written


def test_seals() -> None:
    assert seal("x", "B") == seal("x", " b ") == seal("x", "B\n")
    assert len({seal(id, answer) for id in ("x", "y") for answer in ("A", "B", "A B")}) == 6
    assert "B" not in seal("x", "B")


def test_folder_of_json_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "03_masks.json").write_text(encode({"x": ENTRY}), encoding="utf-8")
    (tmp_path / "04_worked.json").write_text(encode({"y": Feedback(points=3)}), encoding="utf-8")
    monkeypatch.setattr(feedback, "FOLDER", tmp_path)
    assert feedback.of("x") == ENTRY
    assert feedback.of("y").points == 3
    assert feedback.of("z") == Feedback()


def test_borrowed_entries_come_first_and_nest() -> None:
    with feedback.using({"x": Feedback(points=7), "y": ENTRY}):
        with feedback.using({"x": Feedback(points=8)}):
            assert feedback.of("x").points == 8
            assert feedback.of("y") == ENTRY
        assert feedback.of("x").points == 7
    assert feedback.of("x") == Feedback()
