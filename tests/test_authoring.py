"""The builder: what it refuses (with file and line), and that what it makes is complete and reproducible."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import nbformat
import pytest

from labkit import feedback
from labkit.authoring import build, coverage, main, notebooks, sections
from labkit.authoring.feedback_file import collect
from labkit.authoring.problems import BuildError
from labkit.authoring.source import read_lesson
from labkit.authoring.truth import prove

FRONT = "---\ntitle: Small\nminutes: 5\noutcome: see one row of weights\n---\n"
SETUP = "```{code-cell} python\nimport numpy as np\nimport labkit\nfrom labkit import check\n```\n"
EXERCISE = """
```{code-cell} python
---
answer: small-row
points: 2
covers: [M1]
hints:
  - Which sources may it read?
slips: [weights-mask-ignored]
---
# three shares
row = [1/3, 2/3, 0]
```

```{code-cell} python
check.weights("small-row", row, scores=[0, np.log(2), 5], allowed=[True, True, False])
```
"""
CHOICE = """
```{code-cell} python
---
answer: small-choice
points: 1
why: {A: The mask forbids it., B: It is the largest., C: They are equal.}
---
pick = "A"
```

```{code-cell} python
check.choice("small-choice", pick, options="ABC")
```
"""
# What slips of the catalogue point to in lesson 03.
PLACES = '+++ {"covers": ["M2", "M3", "M5", "M6", "M7", "M8", "M10"]}\n'
LESSON = f"{FRONT}\n## Look at one row\n\nHello.\n\n{SETUP}{EXERCISE}{CHOICE}\n{PLACES}\n## Go on\n\nThe end.\n"


def lesson(root: Path, text: str, name: str = "03_small") -> Path:
    path = root / "answer_keys" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built")
    lesson(root, LESSON)
    assert main(["--root", str(root)]) == 0
    return root


def notebook(root: Path, folder: str) -> nbformat.NotebookNode:
    return nbformat.read(root / folder / "03_small.ipynb", as_version=4)


def test_build_writes_every_file(built: Path) -> None:
    made = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert made == {
        "answer_keys/03_small.md",
        "answer_keys/03_small.ipynb",
        "notebooks/03_small.ipynb",
        "labkit/feedback/03_small.json",
        "labkit/feedback/sections.json",
        "docs/coverage.md",
    }
    assert all(b"\r" not in (built / path).read_bytes() for path in made)


def test_blank_and_key_differ_only_in_answers_and_outputs(built: Path) -> None:
    blank, key = notebook(built, "notebooks"), notebook(built, "answer_keys")
    assert [cell.id for cell in blank.cells] == [cell.id for cell in key.cells]
    assert [cell.metadata for cell in blank.cells] == [cell.metadata for cell in key.cells]
    changed = {a.id: (a.source, b.source) for a, b in zip(blank.cells, key.cells, strict=True) if a.source != b.source}
    assert changed == {
        "answer-small-row": (
            "# exercise: small-row (2 points)\n# three shares\nrow = [..., ..., ...]",
            "# exercise: small-row (2 points)\n# three shares\nrow = [1/3, 2/3, 0]",
        ),
        "answer-small-choice": (
            "# exercise: small-choice (1 point)\npick = ...",
            '# exercise: small-choice (1 point)\npick = "A"',
        ),
    }


def test_notebooks_are_executed_and_say_so(built: Path) -> None:
    blank, key = notebook(built, "notebooks"), notebook(built, "answer_keys")
    for made in (blank, key):
        counts = [cell.execution_count for cell in made.cells if cell.cell_type == "code"]
        assert counts == list(range(1, len(counts) + 1))
    texts = {cell.id: cell.outputs[0].data["text/plain"] for cell in blank.cells if cell.id.startswith("check")}
    assert all("Not answered yet" in text for text in texts.values())
    texts = {cell.id: cell.outputs[0].data["text/plain"] for cell in key.cells if cell.id.startswith("check")}
    assert all("Right" in text for text in texts.values())
    assert "The mask forbids it." in texts["check-small-choice"]  # the feedback of this very build


def test_first_cell_comes_from_the_front_matter(built: Path) -> None:
    opening = notebook(built, "notebooks").cells[0].source
    assert opening.splitlines() == [
        "# Small",
        "",
        "*About 5 minutes.* Afterwards you can",
        "",
        "- see one row of weights",
    ]


def test_ids_name_section_and_exercise(built: Path) -> None:
    assert [cell.id for cell in notebook(built, "notebooks").cells] == [
        "opening",
        "look-at-one-row-1",
        "look-at-one-row-2",
        "answer-small-row",
        "check-small-row",
        "answer-small-choice",
        "check-small-choice",
        "go-on-1",
    ]


def test_nbgrader_metadata(built: Path) -> None:
    cells = {cell.id: cell.metadata.get("nbgrader") for cell in notebook(built, "notebooks").cells}
    assert cells["answer-small-row"] == {
        "schema_version": 3,
        "grade_id": "answer-small-row",
        "solution": True,
        "grade": False,
        "locked": False,
        "task": False,
    }
    assert cells["check-small-row"] == {
        "schema_version": 3,
        "grade_id": "check-small-row",
        "solution": False,
        "grade": True,
        "locked": True,
        "task": False,
        "points": 2.0,
    }
    assert cells["go-on-1"] is None


def test_feedback_holds_what_the_notebook_hides(built: Path) -> None:
    stored = feedback.decode((built / "labkit/feedback/03_small.json").read_text())
    assert stored["small-row"] == feedback.Feedback(
        points=2, covers=("M1",), hints=("Which sources may it read?",), kind="weights", lesson="03_small"
    )
    assert stored["small-choice"].sealed == feedback.seal("small-choice", "A")
    blank = (built / "notebooks/03_small.ipynb").read_text()
    assert "Which sources" not in blank
    assert "It is the largest" not in blank


def test_building_again_changes_nothing(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(built), "--check"]) == 0
    assert capsys.readouterr().out == "5 files are what the builder makes.\n"


@pytest.mark.parametrize("stale", ["notebooks/03_small.ipynb", "docs/coverage.md", "labkit/feedback/03_small.json"])
def test_check_lists_what_is_stale_and_writes_nothing(
    built: Path, stale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = built / stale
    before = path.read_bytes()
    try:
        path.write_bytes(before + b" ")
        assert main(["--root", str(built), "--check"]) == 1
        assert capsys.readouterr().out == f"stale: {stale}\n"
        assert path.read_bytes() == before + b" "
    finally:
        path.write_bytes(before)


def test_a_build_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lesson(tmp_path, LESSON + '\n```{code-cell} python\nlabkit.variant("small-row").dots\n```\n')
    first = build.make(tmp_path, [])
    monkeypatch.setenv("LABKIT_LEARNER", "Ada")
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert build.make(tmp_path, []) == first
    assert not (tmp_path / "journal").exists()


def test_coverage_table_names_the_exercise(built: Path) -> None:
    table = (built / "docs/coverage.md").read_text()
    assert "| [`small-row`](../notebooks/03_small.ipynb) |" in next(x for x in table.splitlines() if "| M1 |" in x)
    assert next(x for x in table.splitlines() if "| M4 |" in x).endswith("| — |")


def test_the_sections_of_topics_and_exercises_come_from_the_headings(built: Path, tmp_path: Path) -> None:
    made = json.loads((built / "labkit/feedback/sections.json").read_text())
    look = {"lesson": "03_small", "cell": "look-at-one-row-1", "heading": "Look at one row"}
    assert made["M1"] == made["small-row"] == made["small-choice"] == look
    assert made["M10"] == {"lesson": "03_small", "cell": "go-on-1", "heading": "Go on"}
    for folder in ("notebooks", "answer_keys"):
        cells = {cell.id: cell.source for cell in notebook(built, folder).cells}
        assert all(cells[place["cell"]].startswith(f"## {place['heading']}\n") for place in made.values())
    for covers, heading in (("[M4, M1]", "Go on"), ("[M4]", "Go on"), ("[M1]", "Look at one row")):
        text = LESSON.replace("covers: [M1]", f"covers: {covers}") + EXERCISE.replace("small-row", "late")
        places = sections.table([read_lesson(lesson(tmp_path, text))])
        assert (places["M1"].heading, places["small-row"].heading) == (heading, "Look at one row")


def test_a_slip_that_would_send_a_learner_nowhere_is_refused_with_its_line(tmp_path: Path) -> None:
    lesson(tmp_path, LESSON.replace('"M8", ', ""))
    with pytest.raises(BuildError) as caught:
        build.make(tmp_path, ["03"])
    catalogue = build.ROOT / "labkit/slips.py"
    lines = catalogue.read_text(encoding="utf-8").splitlines()
    found = {str(one).removeprefix(f"{catalogue}:") for one in caught.value.problems}
    assert found == {
        f"{lines.index(f'        {chr(34)}{id}{chr(34)},') + 1}: {id}: no lesson covers 'M8', so a learner would be "
        "sent nowhere"
        for id in ("weights-own-position-blocked", "mask-diagonal-blocked")
    }


def refused(root: Path, text: str) -> list[str]:
    """Build and return the complaints, as `line: text`."""
    path = lesson(root, text)
    with pytest.raises(BuildError) as caught:
        build.make(root, [])
    return [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]


def line_of(text: str, needle: str) -> int:
    return text[: text.index(needle)].count("\n") + 1


ANSWER_LINE = "# three shares"
STRUCTURE = [
    ("points: 2\n", "", "no points"),
    ("points: 2", "points: many", "points are 'many', not a number"),
    ("hints:\n  - Which sources may it read?\n", "", "no hints"),
    ("Which sources may it read?", "Think: which sources?", "not as text: put it in quotes"),
    ("hints:\n  - Which", "hints: Which", "'hints' is 'Which sources may it read?'; it must be a list"),
    ("points: 2", "points: 2\nwhy: [right]", "it must be one sentence for each name"),
    ("covers: [M1]", "covers: [M99]", "covers 'M99', which labkit/authoring/ids.toml does not know"),
    ("covers: [M1]", "cover: [M1]", "unknown cell option 'cover'"),
    ('check.weights("small-row"', 'check.weights("other"', "the check that follows is for 'other'"),
    ("check.weights(", "print(", "the next code cell holds no check"),
    ("answer: small-row", "answer: Small_Row", "use at most 48 small letters"),
    ("[1/3, 2/3, 0]", "[1/3, 2/3, 1]", "the answer written here and the computed truth disagree"),
    ("[1/3, 2/3, 0]", "[1/3, ..., 0]", "the answer written here and the computed truth disagree"),
    ("np.log(2), 5]", "np.log(2), -2000]", "would accept the slip 'weights-mask-ignored'"),
    ("check.weights(", "row = 0\ncheck.weights(", "assigns row, the answer's own name"),
    ("row = [", "rwo = [", "its check judges row; the answer cell assigns rwo"),
    ("points: 2", "points: 2\nwhy: {typo: No.}", "`why` explains 'typo', which is no slip of its check"),
    ("True, False])", "True, False], slips={'x': lambda: [0, 1, 0]})", "says nothing about the slip 'x'"),
    ("points: 2", "points: 2\ngiven: ['1/7']", "small-row: `given` keeps 1 / 7, but no part"),
    ("covers: [M1]", "covers: M1", "the option 'covers' is 'M1'; it must be a list"),
    ("[weights-mask-ignored]", "[weights-typo]", "lists the slip 'weights-typo'"),
    ("row = [1/3, 2/3, 0]", "for row in [[1/3, 2/3, 0]]: pass", "an answer cell holds assignments and functions"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), STRUCTURE)
def test_refusals_name_the_answers_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    text = LESSON.replace(old, new, 1)
    assert text != LESSON
    found = refused(tmp_path, text)
    line = line_of(text, ANSWER_LINE) + ("for row" in new)
    assert any(entry.startswith(f"{line}: ") and complaint in entry for entry in found), found


ELSEWHERE = [
    ("title: Small\n", "", 1, "front matter has no 'title'"),
    ("minutes: 5", "minutes: about 5", 1, "front matter says minutes: 'about 5'; it must be a number"),
    ("outcome: see one row of weights", "outcome: 5", 1, "front matter says outcome: 5; it must be text"),
    ("minutes: 5", "mintues: 5", 1, "front matter has an unknown entry 'mintues'"),
    ("import labkit", "import labkit as", 13, "not Python"),
    ("import labkit", "1 / 0", 13, "ZeroDivisionError"),
    ("import labkit", "%matplotlib inline", 13, "magics"),
    ("import labkit", "x = 1  # " + "long" * 30, 13, "a code line of 129 characters"),
    ("import labkit", "x = 1\n" * 20 + "import labkit", 12, "a code cell of 23 lines"),
    ("answer: small-row\n", "", 25, "unknown cell option 'hints'; a cell without `answer` knows: covers, tags"),
    ("points: 2", "points: 2\ntags: hide-input", 21, "tags are a list"),
    ("## Look", "# Look", 7, "title comes from the front matter"),
    ("Hello.", "Hello.\n\n### Look *again*", 7, "two headings in one cell; .* in a line above 'Look again'"),
    ("## Look at one row\n", "", 25, "this stands above the first heading"),
]


@pytest.mark.parametrize(("old", "new", "line", "complaint"), ELSEWHERE)
def test_refusals_elsewhere(tmp_path: Path, old: str, new: str, line: int, complaint: str) -> None:
    found = refused(tmp_path, LESSON.replace(old, new, 1))
    assert any(re.match(rf"{line}: .*{complaint}", entry) for entry in found), found


CALLS = [  # instead of `check.weights("small-row", row, …)`; only the line of the whole call is asked for
    ('check.shapes("small-row", row, of="scores", n=2)', "there is no array 'scores'; there are X, "),
    ('check.shapes("small-row", row, of="S")', "the shape of 'S' needs the size n"),
    ('check.shapes("small-row", row)', "argument: 'of'; everything after the answer is written name=value"),
    ('check.weights("small-row", row, [0, 0])', "too many positional arguments; everything after the answer"),
    ('check.weigths("small-row", row)', "there is no check.weigths; there are choice, "),
    ('check.weights("small-row", row, score=[0])', "scores cannot be computed without queries and keys; given: score"),
    ('check.mask("small-row", row, rule="casual", n=3)', "there is no rule of a mask 'casual'; there are causal, "),
    ('check.mask("small-row", row, rule="causal")', "a causal mask cannot be computed without n; given: rule"),
    ('check.mask("small-row", row, rule="causal", n=3, form="x")', "there is no form of a mask 'x'; there are allowed"),
    ('check.number("small-row", row, by=1)', "`by` is 1; it must be a function that computes it, by=lambda: "),
]


@pytest.mark.parametrize(("call", "complaint"), CALLS)
def test_a_check_that_cannot_be_computed_says_what_it_needs(tmp_path: Path, call: str, complaint: str) -> None:
    text = re.sub(r"check\.weights\(.*\)", lambda found: call, LESSON).replace("slips: [weights-mask-ignored]\n", "")
    [found] = [entry for entry in refused(tmp_path, text) if "small-row" in entry]
    lines = {line_of(text, ANSWER_LINE), line_of(text, call)}
    assert int(found.split(":")[0]) in lines
    assert complaint in found
    assert "\n" not in found


def test_a_task_that_does_not_exist_is_answered_with_those_that_do(tmp_path: Path) -> None:
    text = LESSON.replace("row = [1/3, 2/3, 0]", 'def row(n):\n    """Rows."""\n    return n').replace(
        "check.weights(", 'check.function("small-row", row, task="rows")\nprint('
    )
    line = line_of(text, "check.function")
    assert refused(tmp_path, text)[0].startswith(f"{line}: small-row: there is no task 'rows'; there are dot, ")


def test_what_is_written_and_what_is_computed_are_both_shown(tmp_path: Path) -> None:
    [found] = refused(tmp_path, LESSON.replace("[1/3, 2/3, 0]", "[1/3, 1/3, 0]"))
    both = "[0.3333, 0.3333, 0] is written, [0.3333, 0.6667, 0] is computed."
    assert f"disagree: {both} Entry 2 is not right yet." in found


YAML = [
    ("covers: [M1]", "covers: [M1", "covers: ["),
    ("points: 2", "\tpoints: 2", "\tpoints: 2"),
    ("title: Small", "title: Small: masks", "title: Small"),
    ("---\nanswer: small-row\n", ":answer: small-row\n:hints: [Which?]\n\n", ":hints: [Which?]"),
]


@pytest.mark.parametrize(("old", "new", "place"), YAML)
def test_unreadable_options_are_refused_in_one_line_at_their_own(
    tmp_path: Path, old: str, new: str, place: str
) -> None:
    text = LESSON.replace(old, new, 1)
    [found] = refused(tmp_path, text)
    assert found.startswith(f"{line_of(text, place)}: this YAML cannot be read: "), found
    assert "\n" not in found
    assert "unicode string" not in found


def test_a_slip_that_cannot_be_computed_is_refused(tmp_path: Path) -> None:
    for slips, error in (
        ("{'x': lambda: 1 / 0}", "ZeroDivisionError: division by zero"),
        ("['x']", "AttributeError: "),
    ):
        [found] = refused(tmp_path, LESSON.replace("False])", f"False],\n  slips={slips})"))
        assert f"{line_of(LESSON, ANSWER_LINE)}: small-row: its slips cannot be computed ({error}" in found


def test_a_slip_of_the_call_that_points_to_no_topic_is_refused(tmp_path: Path) -> None:
    slip = "slips={'x': (lambda: [0, 1, 0], 'No.', 'M99')}"
    [found] = refused(tmp_path, LESSON.replace("False])", f"False],\n  {slip})"))
    assert found.startswith(f"{line_of(LESSON, ANSWER_LINE)}: small-row: its slip 'x' points to 'M99', which labkit/")


def test_options_of_a_choice_are_written_out(tmp_path: Path) -> None:
    [found] = refused(tmp_path, LESSON.replace('options="ABC"', "options=letters"))
    assert found == f'{line_of(LESSON, "pick =")}: small-choice: `options` is letters; write them out, options="ABC"'


def test_two_cells_with_one_id_are_refused(tmp_path: Path) -> None:
    text = LESSON.replace("small-row", "row-1").replace("## Go on", "## Check row")
    assert refused(tmp_path, text) == [
        f"{line_of(text, '## Check row')}: this cell's id 'check-row-1' is taken: give the heading above it other words"
    ]


def test_why_must_explain_every_option(tmp_path: Path) -> None:
    found = refused(tmp_path, LESSON.replace(", C: They are equal.", ""))
    assert "`why` explains A, B; it must explain each of A, B, C" in found[0]


def test_an_id_used_twice_is_refused_within_and_across_lessons(tmp_path: Path) -> None:
    first = line_of(LESSON, ANSWER_LINE)
    assert f"exercise id 'small-row' is already used in line {first}" in refused(tmp_path, LESSON + EXERCISE)[0]
    lesson(tmp_path, LESSON, "02_other")
    found = refused(tmp_path, LESSON)
    assert f"{first}: exercise id 'small-row' is already used in 02_other.md:{first}: choose another" in found
    for chosen in ("02", "03"):
        with pytest.raises(BuildError, match="is already used in 0"):
            build.make(tmp_path, [chosen])


def test_a_check_must_not_depend_on_names_that_change_later(tmp_path: Path) -> None:
    late = LESSON.replace('options="ABC")', 'options="ABC", outcome=lambda: letter)').replace(
        '"A"\n', '"A"\nletter = "A"\n'
    )
    lesson(tmp_path, late)
    assert build.make(tmp_path, ["03"])
    for change in ('letter = "B"', "del letter"):
        found = refused(tmp_path, f"{late}\n```{{code-cell}} python\n{change}\n```\n")
        assert "small-choice: its check gives another result after the lesson's end" in found[0]


LEAKS = [
    ("Hello.", "The answer is `row = [1/3,2/3, 0]`.", "the answer `row = [1 / 3, 2 / 3, 0]` stands"),
    ("Hello.", "Weights 0.33, 0.67 and 0.", "the answer's numbers are shown"),
    ("Hello.", "It is the  largest.", "the feedback 'It is the largest.' stands"),
    ("from labkit import check", "from labkit import check\nprint(1/3, 2/3, 0.0)", "the answer's numbers are shown"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), LEAKS)
def test_an_answer_that_leaks_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    found = refused(tmp_path, LESSON.replace(old, new, 1))
    assert any(complaint in entry for entry in found), found


def test_numbers_shown_on_purpose_are_allowed(tmp_path: Path) -> None:
    lesson(
        tmp_path, LESSON.replace("Hello.", "Weights 0.33, 0.67 and 0.").replace("points: 2", "points: 2\nshown: true")
    )
    assert build.make(tmp_path, ["03"])


RUNS = [
    ("print(undefined)", "NameError"),
    ("import sys; sys.stderr.write('oh\\n')", "written to stderr"),
    ("import matplotlib.pyplot as plt; plt.plot([1]); plt.show()", "not one word"),
    ("from IPython.display import Image; display(Image(b'\\x89PNG\\r\\n\\x1a\\n', format='png'))", "not one word"),
    ("print(object())", "an object's address"),
]


@pytest.mark.parametrize(("code", "complaint"), RUNS)
def test_cells_that_cannot_be_stored_are_refused(tmp_path: Path, code: str, complaint: str) -> None:
    text = LESSON.replace("import labkit\n", f"import labkit\n{code}\n")
    found = refused(tmp_path, text)
    assert any(complaint in entry for entry in found), found
    assert {int(entry.split(":")[0]) for entry in found} <= {line_of(text, code), line_of(text, "import numpy")}


def test_a_blank_that_does_not_run_is_refused(tmp_path: Path) -> None:
    text = LESSON + "\n```{code-cell} python\nsum(row)\n```\n"
    assert re.match(rf"{line_of(text, 'sum(row)')}: this cell does not run to its end", refused(tmp_path, text)[0])


def test_widgets_leave_their_fallback_and_no_state(tmp_path: Path) -> None:
    cell = "\n```{code-cell} python\nimport ipywidgets\nipywidgets.FloatSlider(1.0)\n```\n"
    lesson(tmp_path, LESSON + cell)
    made = json.loads(build.make(tmp_path, ["03"])[Path("notebooks/03_small.ipynb")])
    assert made["cells"][-1]["outputs"][0]["data"] == {"text/plain": ["FloatSlider(value=1.0)"]}
    assert "widgets" not in made["metadata"]


def test_the_guides_examples_build_where_it_says(tmp_path: Path) -> None:
    guide = (build.ROOT / "docs/authoring.md").read_text(encoding="utf-8")
    cells = re.findall(r"^````markdown\n(.*?)^````$", guide, re.MULTILINE | re.DOTALL)
    [place] = re.findall(r"above the line that starts with `(.*?)`", guide)
    source = (build.ROOT / "answer_keys/03_masks.md").read_text(encoding="utf-8")
    assert (len(cells), source.count(f"\n{place}")) == (4, 1)
    text = source.replace(f"\n{place}", "\n".join(["", *cells, place]))
    made = read_lesson(lesson(tmp_path, text, "03_masks"))
    with feedback.using(collect(made)):
        records = prove(made, dict(os.environ))
        row = records["masks-third-row"].exercise
        named = row.judge([0.09003, 0.24473, 0.66524])
        assert named.message == "These are powers of e. The scores are the units times ln 2, so take powers of 2."
    draft = notebooks.draft(made, solved=False).notebook
    sources = {cell.id: cell.source for cell in draft.cells}
    assert sources["answer-masks-third-row"].endswith("third_row = [..., ..., ...]")
    assert sources["answer-masks-write-sound"].endswith('"""\n    ...')


def test_main_reports_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lesson(tmp_path, LESSON.replace("points: 2\n", ""))
    assert main(["--root", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"{path}:{line_of(LESSON, ANSWER_LINE) - 1}: small-row: no points")
    assert main(["--root", str(tmp_path), "07"]) == 1


def test_a_broken_lesson_stops_only_those_who_chose_it(tmp_path: Path) -> None:
    lesson(tmp_path, "no front matter", "02_broken")
    lesson(tmp_path, LESSON)
    made = build.make(tmp_path, ["03"])
    assert Path("notebooks/03_small.ipynb") in made
    assert Path("docs/coverage.md") not in made
    for chosen in ([], ["02"]):
        with pytest.raises(BuildError, match="02_broken"):
            build.make(tmp_path, chosen)


def test_lines_survive_the_parser(tmp_path: Path) -> None:
    path = lesson(tmp_path, LESSON)
    lines = LESSON.splitlines()
    for cell in read_lesson(path).cells:
        assert lines[cell.line - 1] == cell.source.splitlines()[0]


def test_syllabus_of_every_existing_lesson_is_covered() -> None:
    lessons = [read_lesson(path) for path in sorted((build.ROOT / "answer_keys").glob("[0-9]*.md"))]
    assert not coverage.uncovered(lessons)


def test_uncovered_topics_are_found(tmp_path: Path) -> None:
    missing = {topic.id for topic in coverage.uncovered([read_lesson(lesson(tmp_path, LESSON))])}
    assert "M1" not in missing
    assert {"M2", "M11"} <= missing
