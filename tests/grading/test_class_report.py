"""What the class report says: numbers computed by hand, shared answers, and nothing that acts."""

from __future__ import annotations

import base64
import hashlib
import re
import tracemalloc
from array import array
from collections import Counter
from dataclasses import replace
from html import unescape

import pytest

from labkit import feedback
from labkit.feedback import Feedback
from labkit.grading.class_report import SCRIPT, Report, Written, class_report
from labkit.grading.feedback_page import feedback_page
from labkit.grading.model import Attempt, Mark, Result, Student
from labkit.grading.page import page
from labkit.grading.statistics import ClassStatistics, correlation
from labkit.grading.tables import Row
from labkit.sections import in_words
from labkit.slips import CATALOGUE


def mark(exercise: str, points: float | None, status: str = "", **more: object) -> Mark:
    status = status or ("right" if points else "wrong")
    return Mark(exercise, "weights", points, 2.0, status, **more)  # type: ignore[arg-type]


def row(name: str, *marks: Mark, when: str = "", late: bool | None = None) -> Row:
    student = Student(name.lower(), name)
    result = Result(student, "03_masks", "graded", marks=marks, attempt=Attempt("f", 0, when, late), names=(name,))
    return Row(student, (result,))


def counted(*rows: Row, personal: tuple[str, ...] = ()) -> ClassStatistics:
    made = ClassStatistics(frozenset(personal))
    for one in rows:
        made.add(one)
    return made


def shown(statistics: ClassStatistics, **more: object) -> str:
    return class_report(Report(statistics, **more))  # type: ignore[arg-type]


def words(html: str) -> str:
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]+>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(text).split())


# Numbers


def test_difficulty_and_discrimination_by_hand() -> None:
    made = counted(
        row("Ada", mark("a", 2), mark("b", 2), mark("c", 2)),
        row("Bob", mark("a", 2), mark("b", 1), mark("c", 0)),
        row("Cy", mark("a", 0), mark("b", 0), mark("c", 1)),
        row("Dee", mark("a", 0), mark("b", 0), mark("c", 1)),
    )
    item = made.items["a"]
    assert item.difficulty == 0.5
    assert list(item.rest) == [1, 0.25, 0.25, 0.25]
    # scores 1 1 0 0, rest 1 1/4 1/4 1/4: r = 3/8 / sqrt(1 * 27/64) = 1/sqrt(3)
    assert item.discrimination == pytest.approx(3**-0.5, abs=1e-6)
    assert made.items["b"].difficulty == 3 / 8
    assert list(made.shares) == [1, 0.5, 1 / 6, 1 / 6]
    assert [(student.name, share) for student, share, _ in made.struggling] == [("Cy", 1 / 6), ("Dee", 1 / 6)]


@pytest.mark.parametrize("xs", [[], [0.0, 1.0], [1.0, 1.0, 1.0]])
def test_no_correlation_of_too_little(xs: list[float]) -> None:
    assert correlation(array("d", xs), array("d", range(len(xs)))) is None


def test_correlation_has_a_sign() -> None:
    assert correlation(array("d", [0, 1, 2]), array("d", [4, 2, 0])) == -1


def test_what_is_not_marked_yet_counts_for_nothing() -> None:
    made = counted(row("Ada", mark("a", 2), mark("say", None, "recorded")))
    assert list(made.shares) == [1]
    assert made.items["say"].difficulty is None
    assert made.waiting == 1


@pytest.mark.parametrize("verdict", ["internal", "rejected"])
def test_what_could_not_be_read_says_nothing_about_the_class(verdict: str) -> None:
    student = Student("ada", "Ada")
    made = counted(Row(student, (Result(student, "03_masks", verdict, "why", (mark("a", 0),)),)))  # type: ignore[arg-type]
    assert list(made.shares) == []
    assert made.items["a"].statuses == Counter()
    assert made.struggling == []
    assert [one[:2] for one in made.trouble] == [("Ada", "03_masks")]


def test_a_wrong_choice_is_told_in_its_own_words() -> None:
    chose = row("Ada", mark("masks-route", 0, slip="masks-route:A", section="M1"), mark("other", 0, slip="other:A"))
    html = shown(counted(chose), choices={"masks-route": {"A": "Only `x` & y", "B": "Both"}})
    assert "chose A: Only <code>x</code> &amp; y" in html
    assert "Both" not in html
    assert re.search(r"<td[^>]*>chose A</td>", html)  # a key without such a list


def test_slips_are_counted_over_all_exercises() -> None:
    slip = {"slip": "weights-mask-ignored", "section": "M1"}
    html = words(
        shown(
            counted(
                row("Ada", mark("a", 0, **slip), mark("b", 0, **slip)),
                row("Bob", mark("a", 0, **slip), mark("b", 0, slip="b:C", section="M2")),
            )
        )
    )
    known = CATALOGUE["weights-mask-ignored"]
    assert f"{known.label} 3 a (2), b (1) {in_words(known.section)} chose C 1 b (1) {in_words('M2')}" in html


def test_a_slip_of_one_lesson_is_told_with_the_lessons_reason() -> None:
    slip, rounded = mark("a", 0, slip="left-out", section="M1"), mark("b", 0, slip="rounded")
    with feedback.using({"a": Feedback(why={"left-out": "Every source counts."})}):
        html = words(shown(counted(row("Ada", slip, rounded), row("Bob", mark("c", 0, slip="left-out")))))
    assert f"left out: Every source counts. 1 a (1) {in_words('M1')}" in html
    assert "left out 1 c (1)" in html
    assert "the right numbers, rounded 1 b (1)" in html


def test_an_answer_without_a_rubric_can_be_marked_by_hand_too() -> None:
    borrowed = Written("ada", "Ada", "row-2", "row_2 = mine.weights[1]", 2, "Right is [0.25, 0.75].")
    waiting = [borrowed, Written("bob", "Bob", "say", "Words.", 4)]
    html = shown(counted(), written=waiting, rubrics={"say": "Say more."})
    assert words(html).count("Rubric") == 1
    assert words(html).index("row-2 Ada row_2 = mine.weights[1] Right is [0.25, 0.75].") < words(html).index(
        "say Rubric Say more. Bob"
    )


def test_rarer_slips_unfold() -> None:
    made = counted(row("Ada", *(mark(f"e{n}", 0, slip=f"e{n}:A") for n in range(20))))
    assert "8 rarer slips" in words(shown(made))


def test_the_summary_and_the_days() -> None:
    made = counted(
        row("Ada", mark("a", 2), when="2026-03-02 10:00:00"),
        row("Bob", mark("a", 1), when="2026-03-02 11:00", late=True),
        row("Cy", mark("a", 0), when="2026-03-04T09:00"),
        Row(Student("dee", "Dee"), ()),
    )
    html = shown(made)
    assert "3 of 4 students handed something in, 1 file late." in words(html)
    assert "Files by day. 2026-03-02: 2, 2026-03-04: 1." in html
    assert "up: 1, 0, 0, 0, 0, 1, 0, 0, 0, 1." in html
    assert "Nothing handed in, 1: Dee" in words(html)
    assert '<a href="feedback/cy.html">Cy</a>' in html


def test_what_needs_the_lecturer_stands_at_the_top() -> None:
    made = counted(row("Ada", mark("say", None, "recorded"), mark("f", None, "unmarked")))
    text = words(shown(made, refused=("x.docx is not a notebook.",)))
    for words_ in (
        "for a mark by hand: 1",
        "strong enough to run them: 1",
        "Other files not graded, or not to the end: 1",
    ):
        assert words_ in text[:400]
    assert "wait for a mark" not in words(shown(counted(row("Ada", mark("a", 2)))))


def test_a_file_that_could_not_be_read_is_asked_for_again() -> None:
    student = Student("ada", "Ada")
    unread = Result(
        student,
        "03_masks",
        "rejected",
        "z.zip!ada.ipynb is empty.",
        (mark("a", None, "missing"),),
        Attempt("z.zip!ada.ipynb"),
    )
    one = Row(student, (unread,))
    text = words(shown(counted(one)))
    assert "Files to ask for again, because they could not be read and are not graded: 1" in text
    assert "Other files" not in text
    assert "Ada 03 masks could not be read, not graded z.zip!ada.ipynb is empty." in text
    page = words(feedback_page(one, {}))
    assert "03 masks · not graded ada.ipynb is empty. Nothing in it was judged. Please hand it in again" in page
    assert "0 of" not in page


def test_who_is_not_on_the_class_list_is_named_where_there_is_one() -> None:
    listed, stranger = Student("u1", "Ada", {"name": "Ada"}), Student("7", "eve")
    text = words(shown(counted(Row(listed, ()), Row(stranger, ()))))
    assert "Handed in, but not on the class list: 1" in text
    assert "Handed in, but not on the class list, 1: eve (7)" in text
    assert "class list" not in words(shown(counted(Row(stranger, ()))))


def test_an_exercise_is_not_called_unsolved_while_its_answers_wait() -> None:
    blank, waits = mark("say", 0, "blank"), mark("say", None, "recorded")
    assert counted(row("Ada", blank), row("Bob", waits)).items["say"].difficulty is None
    assert counted(row("Ada", blank), row("Bob", mark("say", 2, "recorded"))).items["say"].difficulty == 0.5


def test_a_weaker_sandbox_is_said() -> None:
    assert "below level A" in shown(counted(), warning="ran in a sandbox below level A (level C)")


# Shared answers


def test_a_shared_answer_that_does_not_fit_is_listed() -> None:
    given = {"value": [0.125, 0.875]}
    made = counted(
        row("Ada", mark("mine", 2, **given)),
        row("Bob", mark("mine", 0, **given)),  # Ada's right answer, wrong for Bob's numbers
        row("Cy", mark("mine", 0, value=[0.5, 0.5])),
        personal=("mine",),
    )
    assert list(made.alike()) == [("mine", "[0.125, 0.875]", ["Ada (it fits)", "Bob"])]
    assert "mine [0.125, 0.875] Ada (it fits); Bob" in words(shown(made))


def test_whoever_told_no_name_is_not_suspected() -> None:
    """Their numbers are those of a name nobody knows, so nothing says that the answer does not fit."""
    ada, bob = (row(name, mark("mine", points, value=[0.5])) for name, points in (("Ada", 2), ("Bob", 0)))
    nameless = Row(bob.student, (replace(bob.results[0], names=()),))
    assert list(counted(ada, bob, personal=("mine",)).alike()) != []
    assert list(counted(ada, nameless, personal=("mine",)).alike()) == []


def test_the_same_slip_or_the_same_right_answer_is_no_sign() -> None:
    same, slip = {"value": [0, 0, 1]}, {"slip": "weights-mask-inverted"}
    made = counted(
        row("Ada", mark("mine", 0, **same, **slip), mark("other", 2, value=1)),
        row("Bob", mark("mine", 0, **same, **slip), mark("other", 2, value=1)),
        row("Cy", mark("given", 0, value=3)),
        row("Dee", mark("given", 0, value=3)),
        personal=("mine", "other"),
    )
    assert list(made.alike()) == []
    assert "Same answer, different numbers" not in shown(made)


# Shared names


def named(student: Student, *names: str) -> Row:
    return Row(
        student, (Result(student, "03_masks", "graded", names=names), Result(student, "04", "graded", names=names))
    )


def test_a_name_that_two_students_go_by_is_pointed_out() -> None:
    ada, bob, cy = Student("u1", "Lovelace, Ada"), Student("u2", "Bob B"), Student("u3", "Cy C")
    made = counted(named(ada), named(bob, "ada  LOVELACE", "B"), named(cy, "Cy C", "Cy"))
    assert list(made.same_names()) == [("Lovelace, Ada", ["Lovelace, Ada (u1)", "Bob B (u2)"])]
    text = words(shown(made))
    assert "Names shared by several students: 1" in text
    assert "name students Lovelace, Ada Lovelace, Ada (u1); Bob B (u2)" in text


def test_names_of_ones_own_are_no_sign() -> None:
    made = counted(
        named(Student("u1", "Ada"), "Ada", "A"), named(Student("u2", "Bob"), "...", ""), named(Student("u3", "Cy"), "!")
    )
    assert list(made.same_names()) == []
    assert "Same name" not in shown(made)


# Nothing acts


EVIL = "</pre><script>document.title='PWNED'</script><img src=x onerror=alert(1)>\u202e\x1b[2J"


def test_everything_from_outside_is_escaped() -> None:
    given = {"answer": EVIL, "message": EVIL, "case": EVIL, "section": EVIL, "notes": (EVIL,), "slip": EVIL}
    student = Student(EVIL, EVIL, {EVIL: EVIL})
    evil = Row(student, (Result(student, EVIL, "stopped", EVIL, (mark(EVIL, 0, **given),), Attempt(EVIL, when=EVIL)),))
    report = Report(
        counted(evil, row("Bob", mark(EVIL, 0, **given)), personal=(EVIL,)),
        (Written(EVIL, EVIL, EVIL, EVIL, 4.0),),
        {EVIL: EVIL},
        (EVIL,),
        EVIL,
        EVIL,
        {EVIL: EVIL},
    )
    for html in (class_report(report), feedback_page(evil, {EVIL: EVIL}, EVIL)):
        assert "PWNED" in html
        assert re.findall(r"<(script|img)(?! src=\"data:)", html) in ([], ["script"])  # ours alone
        assert "<img src=x" not in html
        assert "\u202e" not in html
        assert "\x1b" not in html


def test_the_policy_allows_one_script_by_its_hash_and_nothing_else() -> None:
    plain, acting = page("t", []), page("t", [], SCRIPT)
    assert "default-src &#x27;none&#x27;" in plain
    assert "script-src" not in plain
    digest = base64.b64encode(hashlib.sha256(acting.split("<script>")[1].split("</script>")[0].encode()).digest())
    assert f"script-src &#x27;sha256-{digest.decode()}&#x27;" in acting


def test_pages_load_nothing() -> None:
    made = counted(row("Ada", mark("a", 0, slip="weights-mask-ignored", value=[0.5, 0.6])))
    html = shown(made) + feedback_page(row("Ada", mark("a", 0, value=[0.5, 0.6])), {})
    assert not re.search(r"(src|href)=\"(?!data:|#|feedback/)", html)
    assert "@import" not in html
    assert "url(" not in html


# What a student reads


def test_a_feedback_page_names_the_slip_and_the_place_to_look() -> None:
    one = mark("a", 0, message="Not `allowed`.", section="M2", answer="# exercise: a (2 points)\nx = 1")
    html = feedback_page(row("Ada", one, mark("b", 2)), {"a": "Predict a row"})
    text = words(html)
    assert "Predict a row a" in text
    assert "✗ not yet · 0 of 2" in text
    assert "x = 1" in text
    assert "# exercise" not in text
    assert "Not <code>allowed</code>." in html
    assert 'Look again at lesson 03, "Try to mask with a zero".' in text
    assert "1 not yet, 1 correct" in text


def test_a_blank_is_not_told_to_run_cells() -> None:
    blank = mark("a", 0, "blank", message="Fill in the cell above and run it.", via="literal")
    text = words(feedback_page(row("Ada", blank), {}))
    assert "not attempted" in text
    assert "run it" not in text


def test_where_another_look_helps_most_is_counted() -> None:
    sections = ["M2", "M2", "M1"]
    text = words(feedback_page(row("Ada", *(mark(f"e{n}", 0, section=one) for n, one in enumerate(sections))), {}))
    assert 'lesson 03, "Try to mask with a zero": 2 exercises lesson 03, "Build the causal mask": 1 exercise' in text


def test_a_sum_that_is_not_1_is_drawn_and_said() -> None:
    assert "reach 1.25; a full row reaches 1" in feedback_page(row("Ada", mark("a", 0, value=[0.5, 0.75])), {})
    assert "<svg" not in feedback_page(row("Ada", mark("a", 0, value=[0.5, 0.5])), {})
    assert "<svg" not in feedback_page(row("Ada", mark("a", 2, value=[0.5, 0.75])), {})


def test_the_file_that_counts_is_named_without_its_archive() -> None:
    student = Student("ada", "Ada")
    attempts = (
        Attempt("z.zip!ada_1_2_old.ipynb", note="a later file counts"),
        Attempt("z.zip!ada_1_3_new.ipynb", when="2026-03-02 10:00:00", note="counts"),
        Attempt("z.zip!ada_1_4_cut.ipynb", note="z.zip!ada_1_4_cut.ipynb is cut off."),
    )
    one = Row(student, (Result(student, "03_masks", "graded", attempt=attempts[1], attempts=attempts),))
    text = words(feedback_page(one, {}))
    assert "This is about the file ada_1_3_new.ipynb, handed in 2026-03-02 10:00." in text
    assert "ada_1_2_old.ipynb does not count: a later file counts." in text
    assert "ada_1_4_cut.ipynb does not count: it is cut off." in text


def test_the_points_are_those_of_all_lessons() -> None:
    one, lessons = row("Ada", mark("a", 2), mark("b", 0)), {"03_masks": 4.0, "05_perturb": 29.0}
    text = words(feedback_page(one, {}, lessons=lessons))
    assert text.startswith("Feedback for Ada Ada 2 of 33 points 03 masks")
    assert "05 perturb · 0 of 29 points Nothing was handed in." in text
    waits = row("Ada", mark("a", 2), mark("b", None, "recorded"))
    assert "2 of 4 points so far" in words(feedback_page(waits, {}))
    lost = Result(one.student, "", "rejected", "ada.pdf is no notebook.", attempt=Attempt("ada.pdf"))
    unsure = Row(one.student, (lost, *one.results))  # the file may be the other lesson
    assert "2 of 4 points" in words(feedback_page(unsure, {}, lessons=lessons))


def test_memory_does_not_grow_with_answers() -> None:
    def peak(students: int) -> int:
        made = ClassStatistics()
        tracemalloc.start()
        for number in range(students):
            made.add(row(f"S{number}", *(mark(f"e{n}", 2, answer="x" * 2_000) for n in range(10))))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(2_000) < peak(200) + 1_000_000  # 2,000 students typed 40 MB
