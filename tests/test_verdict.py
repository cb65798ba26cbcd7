"""Cards: the same words in HTML and in plain text, nothing lost to a sanitizer, nothing said by colour alone."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from typing import Any, get_args

import pytest

from labkit import feedback
from labkit.feedback import Feedback
from labkit.slips import CATALOGUE
from labkit.verdict import _LOOKS, Status, Verdict

FULL = Verdict(
    "masks-row-2",
    "wrong",
    "This is not it: use `allowed`, as <before>.",
    CATALOGUE["weights-columns"],
    "C5",
    possible=2,
    hints=("First hint.", "Second hint."),
    hints_left=1,
    case="dot(\n  a = [1]\n)",
    first="[1, 0]",
)


class Reader(HTMLParser):
    """Collect text, tags and attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags, self.styles, self.open = "", [], [], []  # type: ignore[var-annotated]
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.styles += [value for name, value in attrs if name == "style"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


@pytest.mark.parametrize("status", get_args(Status))
def test_both_forms_say_the_same(status: Status) -> None:
    verdict = replace(FULL, status=status)
    html = Reader(verdict._repr_html_())
    assert sorted(words(html.text)) == sorted(words(str(verdict).replace("`", "")))
    for part in (
        verdict.title,
        "This is not it: use",
        "as <before>.",
        "Look again at",
        'lesson 02, "Turn a row into shares"',
        "First hint.",
        "Second hint.",
        "[1, 0]",
        "dot(",
    ):
        assert part in html.text
        assert part in str(verdict)


@pytest.mark.parametrize("status", get_args(Status))
def test_only_what_a_sanitizer_keeps(status: Status) -> None:
    html = Reader(replace(FULL, status=status)._repr_html_())
    assert set(html.tags) <= {"div", "span", "strong", "pre", "code", "a"}
    assert html.open == []
    for style in html.styles:
        for rule in style.split(";"):
            name, value = rule.split(":")
            assert name in {"border-left", "padding", "margin", "margin-top", "max-width", "opacity", "color",
                            "white-space"}  # fmt: skip
            assert re.fullmatch(r"4px solid #\w{6}|#\w{6}|pre-wrap|0\.7|0|\d+px|\d+px (0|\d+px)", value), rule


def test_no_colour_is_the_only_carrier_and_each_reads_on_light_and_dark() -> None:
    signs, titles, colours = zip(*_LOOKS.values(), strict=True)
    assert len(set(signs)) == len(set(titles)) == len(set(colours)) == len(get_args(Status))
    for colour, paper in product(colours, ("#ffffff", "#111111")):
        assert contrast(colour, paper) >= 3, (colour, paper)  # WCAG 1.4.11, graphical objects


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_colour_is_left_to_the_theme() -> None:
    html = FULL._repr_html_()
    assert "background" not in html
    assert html.count("color:") == 1  # the sign's


def test_everything_a_learner_wrote_is_escaped() -> None:
    nasty = "<script>alert(1)</script>"
    html = replace(FULL, message=nasty, first=nasty, case=nasty, hints=(nasty,), exercise_id=nasty)._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 5


def test_backticks_become_code() -> None:
    assert "use <code>allowed</code>, as &lt;before&gt;." in FULL._repr_html_()
    assert "use `allowed`, as <before>." in str(FULL)


def test_the_place_to_look_at_is_a_link_within_its_lesson_and_from_others() -> None:
    def target(exercise_id: str) -> str:
        with feedback.using({"here": Feedback(lesson="02_scores_and_softmax"), "there": Feedback(lesson="03_masks")}):
            html = replace(FULL, exercise_id=exercise_id)._repr_html_()
        [(target, words)] = re.findall(r'at <a href="(.*?)">(.*?)</a>[.]', html)
        assert words == "lesson 02, &quot;Turn a row into shares&quot;"
        return str(target)

    assert target("here") == "#cell-id=turn-a-row-into-shares-1"
    assert target("there") == target("practice") == "02_scores_and_softmax.ipynb#cell-id=turn-a-row-into-shares-1"
    assert "<a" not in replace(FULL, section="Z9")._repr_html_()


def test_a_short_card_has_no_empty_rows() -> None:
    verdict = Verdict("x", "right", "Yes.")
    assert str(verdict) == "✓ Right · x\nYes."
    assert repr(verdict) == str(verdict)
    assert verdict._repr_html_().count("<div") == 3
    assert (verdict.slip_id, verdict.hint, verdict.look) == ("", "", "")


def test_what_is_said_in_passing_is_faint() -> None:
    faint = re.findall(r'opacity:0.7">([^<]*)', FULL._repr_html_())
    assert faint == ["· masks-row-2", "Another try earns the next hint.", "Your first prediction was [1, 0]."]


def test_the_newest_hint_is_the_last() -> None:
    assert replace(FULL, hints=("one",)).hint == "one"
    assert replace(FULL, hints=("one", "two", "three")).hint == "three"


def test_the_last_hint_promises_no_other() -> None:
    assert "Another try" in str(FULL)
    assert "Another try" not in str(replace(FULL, hints_left=0))
    assert "Another try" not in str(replace(FULL, hints=()))


@pytest.mark.parametrize(("status", "fraction"), [("right", 1), ("wrong", 0), ("blank", 0), ("recorded", 0)])
def test_points(status: Status, fraction: float) -> None:
    verdict = replace(FULL, status=status)
    assert (verdict.fraction, verdict.points) == (fraction, 2 * fraction)
