"""Answers are found again after other editors: stripped ids, split, renamed, doubled, deleted and retyped cells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labkit.grading.key import Key, run_key
from labkit.grading.keyfile import read_key
from labkit.grading.matching import ELSEWHERE, Match, match
from labkit.grading.model import Cell

KEY = Path(__file__).with_name("small_key.md").read_text("utf-8")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    path = tmp_path_factory.mktemp("keys") / "small.md"
    path.write_text(KEY, encoding="utf-8")
    return run_key(read_key(path))


def cell(source: str, exercise: str | None = None, locked: bool = False, kind: str = "code") -> Cell:
    return Cell(kind, source, exercise, locked)  # type: ignore[arg-type]


def row(key: Key, *cells: Cell) -> tuple[str, str, tuple[str, ...]]:
    answer = match(key, cells).answers["row-2"]
    return answer.source, answer.found, answer.notes


def test_the_key_is_understood(key: Key) -> None:
    assert {item.id: (item.points, item.expression, item.names) for item in key.items} == {
        "row-2": (2, "row_2", ("row_2",)),
        "shapes": (1, "(n, d_k)", ("n", "d_k")),
        "write-mix": (3, "mix", ("mix",)),
        "say": (4, "words", ("words",)),
    }
    assert key.out_of == 10
    assert key.items[-1].rubric == 'words = "A mixture stays between its values."\n'


def test_given_values_leave_out_what_an_answer_went_into(key: Key) -> None:
    assert set(key.stages[0].values) == {"S", "allowed"}
    assert all(not stage.values for stage in key.stages[1:])


def test_metadata_comes_first(key: Key) -> None:
    assert row(key, cell("row_2 = 0"), cell("row_2 = 1", "row-2")) == ("row_2 = 1", "metadata", ())


def test_nbgraders_ids_are_understood(key: Key) -> None:
    assert row(key, cell("row_2 = 1", "answer-row-2"))[:2] == ("row_2 = 1", "metadata")


def test_then_the_marker_line(key: Key) -> None:
    source = "# exercise: row-2 (2 points)\nrow_2 = 1"
    assert row(key, cell("row_2 = 0"), cell(source)) == (source, "marker", ())


def test_then_the_name(key: Key) -> None:
    assert row(key, cell("x = 1"), cell("row_2 = 1"))[:2] == ("row_2 = 1", "name")


def test_a_deleted_cell_is_missing(key: Key) -> None:
    assert row(key, cell("x = 1")) == ("", "missing", ())


def test_of_two_cells_the_last_filled_one_counts(key: Key) -> None:
    cells = [cell("row_2 = 0", "row-2"), cell("row_2 = 1", "row-2"), cell("row_2 = [..., ...]", "row-2")]
    source, _, notes = row(key, *cells)
    assert source == "row_2 = 1"
    assert notes == ("3 cells carry its id; the last one that is filled in counts",)
    steps = [step.source for step in match(key, cells).program if step.stage is None]
    assert steps == ["row_2 = 1"]  # the others are not run either


AGAIN = ("a cell right below it was read with it",)
CHECK = 'check.weights("row-2", row_2, scores=S[1], allowed=allowed[1])\nfrom_answer = row_2[0] + 1\n'


def test_an_answer_given_again_right_below_counts(key: Key) -> None:
    cells = [cell("row_2 = 0", "row-2"), cell("half = 1/2"), cell("row_2 = [half, half]"), cell("row_2 = [1/4, 3/4]")]
    source, found, notes = row(key, *cells)
    assert source == "row_2 = 0\nrow_2 = [half, half]\nrow_2 = [1/4, 3/4]"
    assert (found, notes) == ("metadata", AGAIN)


@pytest.mark.parametrize(
    "between",
    [
        cell("figures.heat_map(A)", locked=True),
        cell("Something to read.", kind="markdown"),
        cell("n = 2", "shapes"),
    ],
    ids=["figure", "text", "answer"],
)
def test_an_answer_given_again_elsewhere_is_noted(key: Key, between: Cell) -> None:
    cells = [cell("row_2 = 0"), cell("row_2 = 1", "row-2"), between, cell("row_2 = 2")]
    assert row(key, *cells) == ("row_2 = 1", "metadata", (ELSEWHERE,))


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("between", [CHECK, CHECK.replace("1", "0")], ids=["as it was", "edited"])
def test_an_answer_given_again_below_its_check_is_a_second_one(key: Key, between: str, locked: bool) -> None:
    cells = [cell("row_2 = 0", "row-2"), cell(between, locked=locked), cell("row_2 = [1/4, 3/4]"), cell(CHECK)]
    answer = match(key, cells).answers["row-2"]
    assert (answer.source, answer.again, answer.notes) == ("row_2 = 0", (("row_2 = [1/4, 3/4]",),), ())
    _, again = answer.tries()
    assert again.source == "row_2 = 0\nrow_2 = [1/4, 3/4]"
    assert again.notes == ("it was given again below its check",)


@pytest.mark.parametrize(
    ("source", "read"), [("row_2[0] = 1/4", True), ("row_2.append(3/4)", True), ("print(row_2[0])", False)]
)
def test_what_changes_an_answer_right_below_is_read_with_it(key: Key, source: str, read: bool) -> None:
    assert row(key, cell("row_2 = [0]", "row-2"), cell(source))[0].endswith(source) == read


MERGED = "# exercise: row-2 (2 points)\nrow_2 = [1/4, 3/4]\n\n# exercise: shapes (1 point)\nn = 2\nd_k = 3"


@pytest.mark.parametrize("merged", [cell(MERGED, "row-2"), cell(MERGED), cell(f"x = 1\n{MERGED}", "row-2")])
def test_merged_answers_are_taken_apart(key: Key, merged: Cell) -> None:
    answers = match(key, [merged]).answers
    assert answers["row-2"].source.endswith("# exercise: row-2 (2 points)\nrow_2 = [1/4, 3/4]")
    assert answers["shapes"].source == "# exercise: shapes (1 point)\nn = 2\nd_k = 3"
    assert answers["row-2"].notes == answers["shapes"].notes == ()


def test_a_marker_inside_a_text_begins_nothing(key: Key) -> None:
    text = 'words = """A note:\n# exercise: shapes (1 point)\nand so on."""'
    answers = match(key, [cell(f"# exercise: say (4 points)\n{text}"), cell("n, d_k = 2, 3", "shapes")]).answers
    assert (answers["say"].source, answers["shapes"].source) == (f"# exercise: say (4 points)\n{text}", "n, d_k = 2, 3")


def test_merged_answers_without_markers_are_found_by_name(key: Key) -> None:
    matched = match(key, [cell("row_2 = [1/4, 3/4]\nn = 2\nd_k = 3", "row-2"), cell("words = 'Mix.'", "say")])
    assert (matched.answers["shapes"].found, matched.answers["shapes"].source[-7:]) == ("name", "d_k = 3")
    assert [step.answer for step in matched.program if step.stage is None] == ["row-2", "say"]


def test_each_check_below_an_answer_ends_a_try(key: Key) -> None:
    cells = [cell("row_2 = 0", "row-2"), cell(CHECK), cell("row_2 = 1"), cell(CHECK), cell("row_2 = 2  # what if")]
    answer = match(key, cells).answers["row-2"]
    assert answer.again == (("row_2 = 1",), ("row_2 = 2  # what if",))
    assert [one.sources[-1] for one in answer.tries()] == ["row_2 = 0", "row_2 = 1", "row_2 = 2  # what if"]


@pytest.mark.parametrize("id", ["row-2", None], ids=["a copy of the cell", "found by name"])
def test_what_stands_above_the_check_comes_first(key: Key, id: str | None) -> None:
    text = cell("An experiment.", kind="markdown")
    cells = [cell("row_2 = 1", id), cell(CHECK), text, cell("row_2 = 2", id)]
    assert row(key, *cells)[0] == "row_2 = 1"
    assert row(key, cell("row_2 = ...", id and "row-2"), *cells[1:])[0] == ("row_2 = 2" if id else "row_2 = ...")


def test_a_split_cell_is_read_together(key: Key) -> None:
    answer = match(key, [cell("# exercise: shapes (1 point)\nn = 2"), cell("d_k = 3")]).answers["shapes"]
    assert answer.source == "# exercise: shapes (1 point)\nn = 2\nd_k = 3"
    assert answer.notes == ("its cell was split; the parts were read together",)


def test_a_split_that_kept_its_id_twice_is_read_together(key: Key) -> None:
    answer = match(key, [cell("n = 2", "shapes"), cell("d_k = 3", "shapes")]).answers["shapes"]
    assert answer.sources == ("n = 2", "d_k = 3")


def test_a_renamed_answer_is_read_and_noted(key: Key) -> None:
    answer = match(key, [cell("row2 = 1", "row-2")]).answers["row-2"]
    assert answer.renamed == (("row_2", "row2"),)
    assert answer.notes == ("`row2` was read as `row_2`",)


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_a_cell_of_another_kind_is_read_as_code(key: Key, kind: str) -> None:
    source, _, notes = row(key, cell("row_2 = 1", "row-2", kind=kind))
    assert source == "row_2 = 1"
    assert notes == (f"its cell had become a {kind} cell and was read as code",)


def program(matched: Match, key: Key) -> list[str]:
    return [
        (step.source or "" if step.stage is None else key.stages[step.stage].cell.source).strip().splitlines()[0]
        for step in matched.program
    ]


def test_locked_cells_come_from_the_key(key: Key) -> None:
    setup = key.stages[0].cell.source
    cells = [cell("np = None", "setup", locked=True), cell(setup), cell("row_2 = 1", "row-2"), cell("scratch = 2")]
    assert program(match(key, cells), key)[:3] == ["import numpy as np", "row_2 = 1", "scratch = 2"]


def test_lesson_cells_run_before_what_stands_below_them(key: Key) -> None:
    setup, scratch = key.stages[0].cell.source, cell("scratch = S[1]")
    assert program(match(key, [cell(setup), scratch]), key)[:2] == ["import numpy as np", "scratch = S[1]"]
    assert program(match(key, [scratch, cell(setup)]), key)[:2] == ["scratch = S[1]", "import numpy as np"]


def test_deleted_given_cells_are_run_all_the_same(key: Key) -> None:
    assert program(match(key, [cell("scratch = 2")]), key)[:2] == ["scratch = 2", "import numpy as np"]


def test_unknown_ids_are_noted(key: Key) -> None:
    assert match(key, [cell("# exercise: other (1 point)\nx = 1")]).notes == (
        "a cell carries the unknown exercise id 'other'",
    )


def test_keys_of_a_folder_prefer_the_source(tmp_path: Path) -> None:
    from labkit.grading.keyfile import find_keys

    for name in ("a.md", "a.ipynb", "b.ipynb", "README.md"):
        (tmp_path / name).write_text(KEY if name == "a.md" else "# text\n")
    assert [path.name for path in find_keys(tmp_path)] == ["a.md", "b.ipynb"]


@pytest.mark.parametrize(
    "lesson", sorted((Path(__file__).parents[2] / "answer_keys").glob("*.md")), ids=lambda p: p.stem
)
def test_source_and_notebook_of_a_lesson_say_the_same_of_its_answers(lesson: Path) -> None:
    source, built = (
        [(cell.id, cell.points, cell.heading, cell.choices) for cell in read_key(path).cells if cell.role == "answer"]
        for path in (lesson, lesson.with_suffix(".ipynb"))
    )
    assert source == built
    assert any(choices for *_, choices in source)
    listed = {letter + words for *_, choices in source for letter, words in choices}
    assert listed == {
        "".join(one) for one in re.findall(r"^- \*\*(.)\*\* (.+)$", lesson.read_text("utf-8"), re.MULTILINE)
    }
