"""Marks of one student: what is read, what is run, what is said, and what is never said."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.answers import in_words
from labkit.grading import marking
from labkit.grading.key import DRAWN, hidden_cases, read_secret, run_key
from labkit.grading.keyfile import KeyCell, KeySource, read_key
from labkit.grading.marking import File, Settings, Work, lesson_of, mark_student
from labkit.grading.model import Attempt, Cell, Mark, Result, Student, Submission, result_from_json, to_json
from labkit.grading.processes import Limits, Sandbox
from labkit.grading.sandbox import Worker
from labkit.steps import TASKS
from labkit.variants import me, variant

Notebook = Callable[..., bytes]
SECRET = b"s" * 32
ADA = Student("ada", "Ada Lovelace")


def work(*files: bytes) -> Work:
    return Work(ADA, tuple(File(Attempt(f"{number}.ipynb", number), "nb", data) for number, data in enumerate(files)))


def marks(data: bytes, key: KeySource, sandbox: Sandbox | None = None) -> dict[str, Mark]:
    (result,) = mark_student(work(data), Settings((key,), SECRET, sandbox))
    return {mark.exercise: mark for mark in result.marks}


def test_typed_answers_need_no_sandbox(small_key: KeySource, notebook: Notebook) -> None:
    (result,) = mark_student(work(notebook()), Settings((small_key,), SECRET))
    assert [(mark.exercise, mark.points, mark.status, mark.via) for mark in result.marks] == [
        ("row-2", 2, "right", "literal"),
        ("shapes", 1, "right", "literal"),
        ("write-mix", None, "unmarked", "none"),
        ("say", None, "recorded", "literal"),
    ]
    assert (result.verdict, result.level, result.points, result.out_of) == ("graded", "", 3, 10)


@pytest.mark.parametrize(
    ("answer", "status", "points"),
    [
        ("row_2 = [0.25, 0.75]", "right", 2),
        ("row_2 = (Fraction(1, 4), np.exp(np.log(3)) / 4)", "right", 2),
        ("row_2 = [0.2500001, 0.7499999]", "right", 2),
        ("row_2 = [0.26, 0.74]", "wrong", 0),
        ("row_2 = [..., 0.75]", "blank", 0),
        ("row_2 = 'three quarters'", "unreadable", 0),
        ("row_2 = [0.25, 0.75, 0]", "unreadable", 0),
        ("row_2 = [np.nan, np.nan]", "unreadable", 0),
        ("row_2 = [False, True]", "unreadable", 0),
        ("", "blank", 0),
        ("# exercise: row-2 (2 points)\nprint(1)", "blank", 0),
    ],
)
def test_statuses_of_a_prediction(
    small_key: KeySource, notebook: Notebook, answer: str, status: str, points: float
) -> None:
    mark = marks(notebook(row_2=answer), small_key)["row-2"]
    assert (mark.status, mark.points) == (status, points)


def test_a_slip_is_named_with_the_section_to_revisit(small_key: KeySource, notebook: Notebook) -> None:
    mark = marks(notebook(row_2="row_2 = [0, np.log(3)]"), small_key)["row-2"]
    assert mark.slip.startswith("weights-")
    assert mark.section
    assert mark.value == [0, pytest.approx(1.0986, abs=1e-4)]


def test_a_renamed_answer_earns_its_marks(small_key: KeySource, notebook: Notebook) -> None:
    mark = marks(notebook(row_2="row2 = [1/4, 3/4]"), small_key)["row-2"]
    assert (mark.status, mark.notes) == ("right", ("`row2` was read as `row_2`",))


@pytest.mark.parametrize(
    "answer",
    [
        "row_2 = np.exp(S[1]) / np.exp(S[1]).sum()",
        "row_2 = [x / 4 for x in (1, 3)]",
        "half = [1/4]\nrow_2 = half + [3/4]",
        "%%time\n!echo hello\nrow_2 = list(np.array([1, 3]) / 4)",
        "row_2 = np.where(allowed[1], [1/4, 3/4], 0)",  # `allowed` needs labkit; its value is sent along
    ],
)
def test_computed_answers_are_run_in_the_sandbox(
    small_key: KeySource, notebook: Notebook, box: Sandbox, answer: str
) -> None:
    mark = marks(notebook(row_2=answer), small_key, box)["row-2"]
    assert (mark.status, mark.via) == ("right", "sandbox")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("row_2 = sorted(", "The cell stops with SyntaxError (line 1): '(' was never closed. So it gives no answer."),
        ("row_2 = sum(row_9)", "The cell stops with NameError (line 1): name 'row_9' is not defined. So it gives"),
        (
            "row_2 = [x / 4 for x in (1, 3)]\ndel row_2",
            "with NumPy alone (NameError: name 'row_2' is not defined): type",
        ),
        ("row_2 = sum", "It is not made of plain numbers, lists or text."),
    ],
)
def test_an_answer_that_cannot_be_computed_says_why(
    small_key: KeySource, notebook: Notebook, box: Sandbox, answer: str, words: str
) -> None:
    mark = marks(notebook(row_2=answer), small_key, box)["row-2"]
    assert (mark.status, mark.points) == ("unreadable", 0)
    assert words in mark.message


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("row_2 = masks.causal(2)[1] / 2", "masks"),
        ("import labkit\nrow_2 = labkit.softmax_over_sources(S[1])", "labkit"),
        ("from labkit.attention import softmax_over_sources as s\nrow_2 = s(S[1])", "labkit"),
        ("row_2 = [from_answer, 1]", "from_answer"),
    ],
)
def test_an_answer_that_lacks_what_the_lesson_gave_waits_for_a_person(
    small_key: KeySource, notebook: Notebook, box: Sandbox, answer: str, name: str
) -> None:
    mark = marks(notebook(row_2=answer), small_key, box)["row-2"]
    assert (mark.status, mark.points) == ("recorded", None), mark.message
    assert mark.message == f"It uses `{name}`, which is not there when a class is graded, so a person looks at it."
    assert mark.right == "Right is [0.25, 0.75]."


def test_a_function_that_uses_labkit_is_told_so(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    borrowed = "import numpy as np\ndef mix(weights, values):\n    return masks.mix(np.array(weights), values)"
    mark = marks(notebook(write_mix=borrowed), small_key, box)["write-mix"]
    assert (mark.status, mark.points) == ("wrong", 0)
    said = "Your function stops with NameError (line 3). It uses `masks`, which is not there when a class is graded."
    assert mark.message == said
    other = marks(notebook(write_mix=borrowed.replace("masks", "mosks")), small_key, box)["write-mix"]
    assert other.message == "Your function stops with NameError (line 3)."


def test_a_choice_without_quotes_is_told_so(tmp_path: Path, notebook: Notebook, box: Sandbox) -> None:
    source = """
```{code-cell} python
:answer: pick
pick = "B"
```

```{code-cell} python
from labkit import check
check.choice("pick", pick, outcome=lambda: "B")
```

```{code-cell} python
B = 2  # a name of the lesson's that comes later
```
"""
    (tmp_path / "pick.md").write_text(source)
    data = json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": "pick = B"}]}).encode()
    mark = marks(data, read_key(tmp_path / "pick.md"), box)["pick"]
    assert mark.status == "unreadable"
    assert mark.message.endswith('Write your choice in quotes: "B".')


def test_functions_are_called_on_shown_and_hidden_cases(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    found = marks(notebook(), small_key, box)["write-mix"]
    cases = hidden_cases(TASKS["mix"], "write-mix", SECRET)
    assert (found.status, found.points) == ("right", 3)
    assert f"all {len(cases)} cases" in found.message


def test_a_wrong_function_is_shown_a_case_of_the_lesson_only(
    small_key: KeySource, notebook: Notebook, box: Sandbox
) -> None:
    transposed = "def mix(weights, values):\n    return (np.array(values).T @ np.array(weights).T).tolist()"
    found = marks(notebook(write_mix=transposed), small_key, box)["write-mix"]
    assert found.status == "wrong"
    shown = [repr(case[0])[:12] for case in TASKS["mix"].visible]
    assert any(start in found.case for start in shown)
    assert found.answer.startswith("def mix(weights, values):  # ")
    assert "mix(\n  weights = " in found.case
    renamed = marks(notebook(write_mix=transposed.replace("values", "V")), small_key, box)["write-mix"]
    assert ",\n  V = " in renamed.case


def test_nothing_of_a_hidden_case_is_said(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    """A function that is right on everything the lesson shows, and raises, prints and returns its input otherwise."""
    spy = f"""def mix(weights, values):
    if [weights, values] in {list(TASKS["mix"].visible)!r}:
        return (np.array(weights) @ np.array(values)).tolist()
    print("INPUT", weights)
    raise ValueError("INPUT" + repr(weights))"""
    found = marks(notebook(write_mix=spy), small_key, box)["write-mix"]
    assert found.status == "wrong"
    assert found.case == ""
    assert "ValueError (line 5)" in found.message
    assert "INPUT" not in repr(replace(found, answer=""))


def test_a_cell_that_ends_the_run_costs_only_itself(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    data = notebook("import os; os._exit(0)", row_2="row_2 = [x / 4 for x in (1, 3)]")
    (result,) = mark_student(work(data), Settings((small_key,), SECRET, box))
    assert result.verdict == "stopped"
    assert "ended the process it ran in" in result.reason
    assert result.points == 6


def test_an_error_is_told_with_its_line(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    found = marks(notebook(write_mix="def mix(weights, values):\n    return ["), small_key, box)["write-mix"]
    assert found.message.startswith("The cell stops with SyntaxError (line 2)")
    assert "There is no function `mix`." in found.message


def test_the_whole_submission_has_one_budget(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    slow = "import time\ndef mix(weights, values):\n    time.sleep(0.7)\n    return 0"
    hurried = replace(box, limits=replace(box.limits, total=1.5))
    (result,) = mark_student(work(notebook(write_mix=slow)), Settings((small_key,), SECRET, hurried))
    assert result.verdict == "stopped"
    assert next(mark.status for mark in result.marks if mark.exercise == "write-mix") == "stopped"


TWO = """
```{code-cell} python
import numpy as np
from labkit import check
```

```{code-cell} python
:answer: loop
:points: 1
def dot(left, right):
    return sum(a * b for a, b in zip(left, right))
```

```{code-cell} python
check.function("loop", dot, task="dot")
```

```{code-cell} python
:answer: fine
:points: 1
def mix(weights, values):
    return np.array(weights) @ np.array(values)
```

```{code-cell} python
check.function("fine", mix, task="mix")
```
"""


def test_an_endless_loop_leaves_time_for_the_other_functions(tmp_path: Path, box: Sandbox) -> None:
    (tmp_path / "two.md").write_text(TWO)
    loop = "# exercise: loop\ndef dot(left, right):\n    while True: pass"
    fine = "# exercise: fine\ndef mix(weights, values):\n    return np.array(weights) @ np.array(values)"
    data = json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": s} for s in (loop, fine)]}).encode()
    hurried = replace(box, limits=replace(box.limits, total=5.0, call=2.0, cell=2.0))
    found = marks(data, read_key(tmp_path / "two.md"), hurried)
    assert (found["loop"].status, found["fine"].status) == ("stopped", "right")


def test_what_was_never_run_is_not_called_endless(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    hurried = replace(box, limits=replace(box.limits, total=1.0, cell=1.0))
    loop = notebook(row_2="row_2 = [1/4, 3/4]\nwhile True: pass")
    found = marks(loop, small_key, hurried)["write-mix"]
    assert (found.status, found.points) == ("stopped", 0)
    assert found.message == "It was not run: what came before it used up the time of the whole file."


@pytest.mark.parametrize(
    "body",
    [
        "return np.array([[Fraction(1, 2)] * 1])  # an array of fractions",
        "return [[Decimal('0.5')]]",
        "return np.ma.masked_array([[0.5]], mask=False)",
        "help(mix)\n    return [[0.5]]",
    ],
)
def test_what_a_notebook_takes_a_grader_takes(box: Sandbox, body: str) -> None:
    with Worker(box) as worker:
        worker.run(f"from fractions import Fraction\nfrom decimal import Decimal\ndef mix():\n    {body}")
        assert worker.call("mix", []).value == [[0.5]]


def test_odd_texts_and_numbers_are_kept_as_plain_data() -> None:
    assert marking.plain("\ud800 hi").encode()
    assert marking.plain([10**4000, -(10**4000)]) == ["inf", "-inf"]


# Faults of ours


def test_a_sandbox_that_does_not_start_is_our_fault(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    (result,) = mark_student(work(notebook()), Settings((small_key,), SECRET, replace(box, bwrap="/bin/false")))
    assert (result.verdict, result.marks) == ("internal", ())


def test_a_fault_in_marking_is_never_a_zero(
    small_key: KeySource, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(marking, "match", broken)
    (result,) = mark_student(work(notebook()), Settings((small_key,), SECRET))
    assert (result.verdict, result.marks) == ("internal", ())
    assert result.reason == "ZeroDivisionError while marking small_key"


# Attempts and lessons


def test_the_latest_readable_attempt_counts_and_all_are_listed(small_key: KeySource, notebook: Notebook) -> None:
    files = notebook(row_2="row_2 = [0, 1]"), notebook(), b"not a notebook"
    (result,) = mark_student(work(*files), Settings((small_key,), SECRET))
    assert [attempt.note for attempt in result.attempts] == [
        "a later file counts",
        "counts",
        "2.ipynb is not valid JSON.",
    ]
    assert result.attempt is not None
    assert result.attempt.source == "1.ipynb"
    assert result.points == 3


def test_a_later_file_without_any_exercise_does_not_count(small_key: KeySource, notebook: Notebook) -> None:
    scratch = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}).encode()
    (result,) = mark_student(work(notebook(), scratch), Settings((small_key,), SECRET))
    assert [attempt.note for attempt in result.attempts] == ["counts", "it holds no exercise"]
    assert result.points == 3


def test_a_refused_only_attempt_is_rejected_with_every_exercise_listed(small_key: KeySource) -> None:
    (result,) = mark_student(work(b"{}"), Settings((small_key,), SECRET))
    assert result.verdict == "rejected"
    assert result.reason == "0.ipynb is JSON, but not a notebook."
    assert [mark.status for mark in result.marks] == ["missing"] * 4
    assert result.unread


def test_a_notebook_of_another_lesson_was_read(small_key: KeySource) -> None:
    other = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"labkit": {"lesson": "09_other"}}, "cells": []}
    (result,) = mark_student(work(json.dumps(other).encode()), Settings((small_key,), SECRET))
    assert (result.verdict, result.unread) == ("rejected", False)


def test_only_some_exercises(small_key: KeySource, notebook: Notebook) -> None:
    (result,) = mark_student(work(notebook()), Settings((small_key,), SECRET, only=("shapes",)))
    assert [mark.exercise for mark in result.marks] == ["shapes"]


@pytest.mark.parametrize(
    ("lesson", "exercise", "stem", "expected"),
    [
        ("02_b", None, "01_a", "02_b"),
        ("", "x-02_b", "01_a", "02_b"),
        ("", None, "my 02_b final", "02_b"),
        ("other", None, "nothing", ""),
    ],
)
def test_which_lesson_a_file_belongs_to(lesson: str, exercise: str | None, stem: str, expected: str) -> None:
    keys = [KeySource(name, (KeyCell("answer", "x = 1", f"x-{name}"),), ".", name) for name in ("01_a", "02_b")]
    cells = (Cell("code", "pass", exercise),)
    assert lesson_of(Submission(ADA, Attempt("f"), stem, cells, "", lesson), keys) == expected


def test_a_notebook_of_another_lesson_is_not_taken_for_the_only_one_graded() -> None:
    keys = [KeySource("01_a", (KeyCell("answer", "x = 1", "x-01_a"),), ".", "01_a")]
    for lesson, exercise, expected in (("02_b", None, ""), ("", "y-02_b", ""), ("", None, "01_a")):
        cells = (Cell("code", "pass", exercise),)
        assert lesson_of(Submission(ADA, Attempt("f"), "mine", cells, "", lesson), keys) == expected


# Learners' own numbers


OWN = 'mine = labkit.variant("mine").weights[2]'
PERSONAL = """
```{code-cell} python
import numpy as np
import labkit
from labkit import check
```

```{code-cell} python
:answer: mine
:points: 1
mine = labkit.variant("mine").weights[2]
```

```{code-cell} python
check.weights("mine", mine, scores=lambda ex: ex.scores[2], allowed=lambda ex: ex.allowed[2])
```
"""


TOLD = {
    "labkit.me('Grace')": "Grace",
    "labkit.me( name = 'Grace', )": "Grace",
    'from labkit import me\nme("Grace")': "Grace",
    "import labkit as lk; lk.me('Grace')": "Grace",
    "some('Grace')": "",
}


@pytest.mark.parametrize("cell", TOLD)
def test_a_name_is_found_however_it_is_told(cell: str) -> None:
    submission = Submission(ADA, Attempt("f"), "nb", (Cell("code", cell),), "")
    assert list(marking.learner_names(submission)) == [name for name in [TOLD[cell]] if name]


def test_an_answer_of_ones_own_that_waits_is_told_for_the_name(tmp_path: Path, box: Sandbox) -> None:
    (tmp_path / "own.md").write_text(PERSONAL)
    cells = [{"cell_type": "code", "source": f"import labkit\n{line}"} for line in ("labkit.me('Grace')", OWN)]
    mark = marks(json.dumps({"nbformat": 4, "cells": cells}).encode(), read_key(tmp_path / "own.md"), box)["mine"]
    row = in_words(variant("mine", "Grace").weights[2])
    assert (mark.status, mark.right) == ("recorded", f"Right is {row} (drawn for Grace).")


@pytest.mark.parametrize(("typed", "used"), [("Grace", "Grace"), ("", "Ada Lovelace"), ("", "ada"), ("", "")])
def test_numbers_of_ones_own_are_judged_as_ones_own(tmp_path: Path, typed: str, used: str) -> None:
    (tmp_path / "own.md").write_text(PERSONAL)
    row = [float(weight) for weight in variant("mine", used).weights[2]]
    sources = [f"import labkit\nlabkit.me('{typed}')"] if typed else []
    cells = [{"cell_type": "code", "source": source} for source in [*sources, f"mine = {row}"]]
    data = json.dumps({"nbformat": 4, "cells": cells}).encode()
    assert marks(data, read_key(tmp_path / "own.md"))["mine"].status == "right"


@pytest.mark.parametrize("as_list", [True, False])
def test_a_name_typed_in_another_lesson_is_found_in_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_list: bool
) -> None:
    monkeypatch.setenv("LABKIT_LEARNER", "Grace  B. Hopper")
    me()
    told = f"1\n{capsys.readouterr().out}"
    (tmp_path / "own.md").write_text(PERSONAL)
    row = [float(weight) for weight in variant("mine", "grace b. hopper").weights[2]]
    output = {"output_type": "stream", "name": "stdout", "text": told.splitlines(keepends=True) if as_list else told}
    cells = [
        {"cell_type": "code", "source": 'print(1); labkit.me("")', "outputs": [{"output_type": "error"}, output]},
        {"cell_type": "code", "source": f"mine = {row}"},
    ]
    (result,) = mark_student(
        work(json.dumps({"nbformat": 4, "cells": cells}).encode()), Settings((read_key(tmp_path / "own.md"),), SECRET)
    )
    assert [mark.status for mark in result.marks] == ["right"]
    assert result.names == ("grace b. hopper",)


@pytest.mark.parametrize("typed", ["Grace", ""])
def test_a_wrong_answer_from_nobodys_numbers_is_noted(tmp_path: Path, typed: str) -> None:
    (tmp_path / "own.md").write_text(PERSONAL)
    sources = [f"import labkit\nlabkit.me('{typed}')"] if typed else []
    cells = [{"cell_type": "code", "source": source} for source in [*sources, "mine = [0.5, 0.2, 0.3]"]]
    mark = marks(json.dumps({"nbformat": 4, "cells": cells}).encode(), read_key(tmp_path / "own.md"))["mine"]
    assert mark.status == "wrong"
    assert (marking.NO_NAME in mark.notes) == (typed == "")


# Pure data


def test_results_are_plain_equal_and_portable(small_key: KeySource, notebook: Notebook, box: Sandbox) -> None:
    settings = Settings((small_key,), SECRET, box)
    job = pickle.loads(pickle.dumps(work(notebook(row_2="row_2 = [np.inf, 0]"))))
    (first,) = mark_student(job, settings)
    (second,) = mark_student(job, pickle.loads(pickle.dumps(settings)))
    text = json.dumps(to_json(first), allow_nan=False)
    assert first == second == result_from_json(json.loads(text))
    assert isinstance(pickle.loads(pickle.dumps(first)), Result)


# Keys and hidden cases


def test_a_key_that_fails_its_own_check_is_refused(tmp_path: Path, small_key: KeySource) -> None:
    text = Path(__file__).with_name("small_key.md").read_text()
    (tmp_path / "bad.md").write_text(text.replace("row_2 = [1/4, 3/4]", "row_2 = [1/2, 1/2]"))
    (tmp_path / "broken.md").write_text(text.replace("import numpy as np", "import nowhere"))
    with pytest.raises(ValueError, match="does not pass its own check 'row-2'"):
        run_key(read_key(tmp_path / "bad.md"))
    with pytest.raises(ValueError, match="fails in code cell 1: ModuleNotFoundError"):
        run_key(read_key(tmp_path / "broken.md"))


def test_the_secret_is_made_once_and_kept_private(tmp_path: Path) -> None:
    first = read_secret(tmp_path / "deep" / "secret.txt")
    assert first == read_secret(tmp_path / "deep" / "secret.txt")
    assert (tmp_path / "deep" / "secret.txt").stat().st_mode & 0o077 == 0
    (tmp_path / "other.txt").write_text("no secret")
    with pytest.raises(ValueError, match="is not a secret"):
        read_secret(tmp_path / "other.txt")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_hidden_cases_depend_on_the_secret_and_keep_the_baits(name: str) -> None:
    task = TASKS[name]
    cases, others = hidden_cases(task, "x", SECRET), hidden_cases(task, "x", b"other")
    assert cases == hidden_cases(task, "x", SECRET)
    assert len(cases) >= 8 + len(task.visible)
    assert len(cases) == len(task.baits()) + DRAWN
    assert all(bait in cases for bait in task.baits())
    if name != "causal":  # its one argument has few values
        assert sum(case not in others for case in cases) >= DRAWN // 2


BAITS: dict[str, Callable[[Any, Any], bool]] = {
    "one source": lambda scores, allowed: len(scores[0]) == 1,
    "equal scores": lambda scores, allowed: all(len(set(row)) == 1 and len(row) > 1 for row in scores),
    "large scores": lambda scores, allowed: max(map(max, scores)) >= 500,
    "first column blocked": lambda scores, allowed: not any(row[0] for row in allowed),
}


@pytest.mark.parametrize("bait", BAITS)
def test_softmax_cases_hold_every_bait(bait: str) -> None:
    for secret in (b"a", b"b", b"c"):
        assert any(BAITS[bait](*case) for case in hidden_cases(TASKS["softmax_over_sources"], "x", secret))


def test_head_cases_hold_different_widths_of_keys_and_values() -> None:
    cases = hidden_cases(TASKS["attend"], "x", SECRET)
    assert any(len(W_K[0]) != len(W_V[0]) for _, _, W_K, W_V, _ in cases)


def test_limits_are_what_they_say() -> None:
    assert Limits().resources()["RLIMIT_AS"] == 768 << 20


def test_the_names_of_one_student_are_bounded(
    small_key: KeySource, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []

    def noting(chosen: object, lesson: str, settings: Settings, names: tuple[str, ...]) -> Result:
        seen.append(names)
        return Result(ADA, lesson, "graded")

    monkeypatch.setattr(marking, "_mark_one", noting)
    mark_student(work(notebook("\n".join(f'labkit.me("n{i}")' for i in range(500)))), Settings((small_key,), SECRET))
    assert seen == [tuple(f"n{i}" for i in range(490, 500))]
