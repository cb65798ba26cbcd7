"""The still figures: described, legible, with their true numbers, and the same bytes every time."""

from __future__ import annotations

import base64
import html
import re
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest

from labkit import exact, figures, masks
from labkit.attention import Head, attend
from labkit.errors import ShapeError
from labkit.figures import canvas as drawing
from labkit.figures.canvas import KEY, NEGATIVE, QUERY, VALUE, WEIGHT, Canvas, ink_on, plain, shade

EXAMPLE = exact.worked_example()
TRACE = attend(EXAMPLE.inputs, Head(EXAMPLE.W_Q, EXAMPLE.W_K, EXAMPLE.W_V), EXAMPLE.allowed)
NOISE = 1e-14 * np.arange(9).reshape(3, 3)
ALL = {
    "heat_map": lambda: figures.heat_map(EXAMPLE.weights, EXAMPLE.allowed, highlight_row=2, note="A note."),
    "heat_map_floats": lambda: figures.heat_map(TRACE.weights, TRACE.allowed, fractions=True),
    "heat_map_scores": lambda: figures.heat_map([[1.5, -2], [0, 0.25]], title="Scores", kind="scores"),
    "heat_map_large": lambda: figures.heat_map(np.eye(14), row_labels=["because"] * 14, column_labels=["because"] * 14),
    "heat_maps": lambda: figures.heat_maps([np.eye(2), np.eye(2)[::-1]], ["one", "two"], title="Both", columns=1),
    "heat_map_one_row": lambda: figures.heat_map([0.5, 0.5]),
    "mask": lambda: figures.mask(masks.causal(3), form="additive"),
    "matrices": lambda: figures.matrices("Three", Q=EXAMPLE.queries, K=EXAMPLE.keys, V=EXAMPLE.values),
    "projection": lambda: figures.projection(EXAMPLE.inputs, EXAMPLE.W_V, name="V"),
    "shapes": lambda: figures.shapes(5, 12, 3, 4, m=7),
    "row_softmax": lambda: figures.row_softmax([0, 0.5, 1], [True, False, True]),
    "data_flow": lambda: figures.data_flow(EXAMPLE),
    "data_flow_trace": lambda: figures.data_flow(TRACE, 1),
    "arrow_mixture": lambda: figures.arrow_mixture(EXAMPLE.weights[2], EXAMPLE.values),
    "compare": lambda: figures.compare([1, 2], [2, -1], ["one", "two"], title="Compared", y_label="weight"),
    "line": lambda: figures.line([0, 1, 2], {"up": [0, 1, 4], "down": [4, 1, 0]}, x_label="x", y_label="y"),
    "head_grid": lambda: figures.head_grid([np.eye(4)] * 3, title="Heads", columns=2),
    "waterfall": lambda: figures.waterfall(["a", "b"], [2, -3], start=1, title="Sum", y_label="logit"),
}


class Picture:
    """One displayed figure, taken apart."""

    def __init__(self, bundle: dict[str, str]) -> None:
        self.html, self.plain = bundle["text/html"], bundle["text/plain"]
        match = re.fullmatch(
            r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)" style="[^"]*">(.*)', self.html
        )
        assert match
        self.alt, self.below = html.unescape(match[1]), match[3]
        self.svg = base64.b64decode(match[2]).decode()
        self.root = ElementTree.fromstring(self.svg)

    def all(self, tag: str) -> list[ElementTree.Element]:
        return list(self.root.iter(f"{{http://www.w3.org/2000/svg}}{tag}"))

    def texts(self, fill: str | None = None) -> list[str]:
        chosen = [text for text in self.all("text") if fill in (None, text.get("fill"))]
        return ["".join(text.itertext()).replace("\u200b", "") for text in chosen]


@pytest.fixture
def draw(monkeypatch):
    def one(function) -> Picture:
        shown = []
        monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
        assert function() is None, "a figure as a cell's last line must print nothing"
        assert len(shown) == 1
        return Picture(shown[0])

    return one


@pytest.mark.parametrize("name", ALL)
def test_every_figure_is_described_and_drawn_inside_its_paper(draw, name):
    picture = draw(ALL[name])
    assert len(picture.alt) > 30
    assert "\n" not in picture.alt
    assert picture.plain.strip()
    width, height = float(picture.root.get("width")), float(picture.root.get("height"))
    for text in picture.all("text"):
        size, wide = (
            float(text.get("font-size")),
            drawing.text_width("".join(text.itertext()), float(text.get("font-size"))),
        )
        x, y = float(text.get("x")), float(text.get("y"))
        if text.get("transform"):
            assert wide / 2 <= y <= height - wide / 2 or text.get("text-anchor") == "start", text.text
        else:
            start = {"start": 0, "middle": -wide / 2, "end": -wide}[text.get("text-anchor")]
            assert x + start >= 0, text.text
            assert x + start + wide <= width, text.text
        assert size <= y <= height
    for box in picture.all("rect")[2:]:
        assert float(box.get("x")) + float(box.get("width")) <= width
        assert float(box.get("y")) + float(box.get("height")) <= height
        assert float(box.get("width")) >= 0


@pytest.mark.parametrize("name", ALL)
def test_the_same_numbers_give_the_same_bytes(draw, name):
    assert draw(ALL[name]).html == draw(ALL[name]).html


def test_rounding_noise_changes_no_byte(draw):
    for function in (
        lambda noise: figures.heat_map(TRACE.weights + noise, TRACE.allowed),
        lambda noise: figures.heat_map(TRACE.weights + noise, TRACE.allowed, fractions=True),
        lambda noise: figures.row_softmax(np.log([2, 2, 4]) + noise[0]),
        lambda noise: figures.compare([1 / 3, 2 / 3, 0] + noise[1], [0.25, 0.25, 0.5] + noise[2], "abc"),
    ):
        assert draw(lambda f=function: f(0 * NOISE)).html == draw(lambda f=function: f(NOISE)).html


def test_other_numbers_give_other_text(draw):
    """What a strict comparison of outputs reads must move when the numbers move."""
    one, two = (draw(lambda w=w: figures.heat_map(w)).plain for w in (np.eye(3), np.full((3, 3), 1 / 3)))
    assert one.splitlines()[1:] == ["1: 1 0 0", "2: 0 1 0", "3: 0 0 1"]
    assert two.splitlines()[1:] == [f"{i}: 0.33 0.33 0.33" for i in (1, 2, 3)]


def test_map_names_its_axes_counts_from_one_and_hatches_what_is_blocked(draw):
    picture = draw(ALL["heat_map"])
    assert picture.texts(KEY) == ["source (key)", "1", "2", "3"]
    assert picture.texts(QUERY) == ["destination (query)", "1", "2", "3"]
    hatched = [box for box in picture.all("rect") if box.get("fill") == drawing.BLOCKED]
    assert len(hatched) == 3 + 1, "three cells and the legend"
    assert "blocked by the mask" in picture.texts()
    assert picture.plain.splitlines()[1:] == ["1: 1 · ·", "2: 1/3 2/3 ·", "3: 1/4 1/4 1/2"]
    assert "row 2: 1/3 2/3 blocked" in picture.alt


def test_fractions_stand_with_their_decimal(draw):
    for figure in ("heat_map", "heat_map_floats"):
        texts = draw(ALL[figure]).texts()
        runs = [texts[k : k + 3] for k in range(len(texts))]
        assert ["1", "3", "0.333"] in runs
        assert ["2", "3", "0.667"] in runs


def test_a_row_that_does_not_sum_to_one_shows_it(draw):
    assert draw(lambda: figures.heat_map([[0.5, 0.7], [0.5, 0.5]])).texts().count("1.2") == 1


def test_large_maps_leave_their_numbers_to_the_text(draw):
    picture = draw(ALL["heat_map_large"])
    assert "because reads because" in picture.alt
    turned = [text for text in picture.all("text") if text.get("transform")]
    assert len(turned) == 14 + 1, "labels too wide for their column stand upright, beside the name of the rows"


def test_maps_side_by_side_share_one_scale(draw):
    picture = draw(lambda: figures.heat_maps([[[4.0]], [[2.0]]], ["one", "two"], kind="scores"))
    fills = [box.get("fill") for box in picture.all("rect")[2:]]
    assert fills == [shade(1.0), shade(0.5)]


@pytest.mark.parametrize(("form", "row"), [("allowed", "True False"), ("blocked", "False True"), ("additive", "0 −∞")])
def test_mask_in_its_three_forms(draw, form, row):
    assert draw(lambda: figures.mask(masks.causal(2), form=form)).plain.splitlines()[1] == f"1: {row}"


def test_letters_have_their_colours(draw):
    picture = draw(ALL["matrices"])
    assert [picture.texts(colour) for colour in (QUERY, KEY, VALUE)] == [["Q  (3×2)"], ["K  (3×2)"], ["V  (3×2)"]]
    assert picture.plain.splitlines()[1] == "Q = [[1, 0], [0, 1], [1, 1]]"


def test_projection_computes_its_product(draw):
    assert draw(ALL["projection"]).plain.endswith("gives V = [[2, 0], [0, 4], [2, 4]]")


def test_shapes_of_the_drill(draw):
    lines = draw(lambda: figures.shapes(5, 12, 3, 4)).plain.splitlines()
    assert lines[0] == "X 5×12 · W_Q 12×3 = Q 5×3"
    assert lines[3:] == ["Q 5×3 · Kᵀ 3×5 = S 5×5", "A 5×5 · V 5×4 = Z 5×4"]


def test_row_softmax_is_exact_when_it_can_be(draw):
    picture = draw(lambda: figures.row_softmax(np.log([2, 2, 4]), [True, False, True], exp_scores=[2, 2, 4]))
    assert picture.plain.splitlines()[2:] == [
        "source 1: 0.69 → 2 → 1/3",
        "source 2: blocked",
        "source 3: 1.39 → 4 → 2/3",
    ]
    big = draw(lambda: figures.row_softmax([1000, 1000]))
    assert "exp(score − largest)" in big.texts()
    assert big.plain.splitlines()[2] == "source 1: 1000 → 1 → 0.5"


def test_data_flow_follows_one_destination_to_its_mixture(draw):
    picture = draw(lambda: figures.data_flow(EXAMPLE, 1))
    assert picture.plain.splitlines() == [
        "query: [0, 1]",
        "scores: 0, ln 2, ln 2",
        "exponentials: 1, 2, ·",
        "weights: 1/3, 2/3, ·",
        "mixture: 1/3 [2, 0] + 2/3 [0, 4] = [2/3, 8/3]",
    ]
    texts = picture.texts()
    for text in ("W_Q", "W_K", "W_V"):
        assert text.replace("_", "") in texts
    assert texts.count("allowed") == 2
    assert texts.count("blocked") == 1
    assert "[2/3, 8/3]" in texts
    assert draw(lambda: figures.data_flow(TRACE, 1)).svg == picture.svg, "floats show the fractions they are"


def test_data_flow_of_numbers_that_are_no_fractions(draw):
    W = [[1.0, 0.0], [2.0, 1.0]]
    lines = draw(lambda: figures.data_flow(attend([[1, 0], [0, 1]], Head(W, W, W)), 1)).plain.splitlines()
    assert lines[1:] == [
        "scores: 1.41, 3.54",
        "exponentials: 4.11, 34.31",
        "weights: 0.11, 0.89",
        "mixture: 0.11 [1, 0] + 0.89 [2, 1] = [1.89, 0.89]",
    ]


def test_data_flow_of_cross_attention(draw):
    trace = attend([[1.0, 0.0]], Head(np.eye(2), np.eye(2), np.eye(2)), sources=np.ones((3, 2)))
    assert draw(lambda: figures.data_flow(trace, 0)).plain.splitlines()[3] == "weights: 1/3, 1/3, 1/3"


def test_mixture_lies_where_it_is_computed(draw):
    picture = draw(ALL["arrow_mixture"])
    assert picture.plain.endswith("1/4 [2, 0] + 1/4 [0, 4] + 1/2 [2, 4] = [3/2, 3]")
    (point,) = picture.all("circle")
    arrows = [path.get("d") for path in picture.all("path") if path.get("stroke") == VALUE]  # not the pale hull
    tips = [[float(x) for x in re.findall(r"-?[\d.]+", d)][-2:] for d in arrows]
    mixed = 0.25 * np.array(tips[0]) + 0.25 * np.array(tips[1]) + 0.5 * np.array(tips[2])
    np.testing.assert_allclose([float(point.get("cx")), float(point.get("cy"))], mixed, atol=0.02)
    with pytest.raises(ShapeError, match="d_v = 3"):
        figures.arrow_mixture([1.0], [[1, 2, 3]])


def test_charts_say_their_numbers(draw):
    assert draw(ALL["compare"]).plain.splitlines() == ["Compared (before → after)", "one: 1 → 2", "two: 2 → −1"]
    assert draw(ALL["waterfall"]).plain.splitlines() == ["Sum", "start: 1", "a: 2", "b: −3", "sum: 0"]
    assert "up from 0 to 4, least 0, most 4" in draw(ALL["line"]).plain
    assert draw(ALL["head_grid"]).plain.splitlines()[1] == "head 0: strongest source of each row 1 2 3 4"


def test_bars_are_as_high_as_their_numbers(draw):
    heights = {}
    for box in draw(ALL["compare"]).all("rect")[2:]:
        if box.get("width") == "14":  # the legend
            continue
        heights.setdefault(box.get("fill"), []).append(float(box.get("height")))
    before, after = heights.values()
    assert before[1] == pytest.approx(2 * before[0], abs=0.02)
    assert after[0] == pytest.approx(2 * after[1], abs=0.02)


def test_description_is_escaped(draw):
    picture = draw(lambda: figures.heat_map([[1.0]], title='<b>"Q" & K</b>'))
    assert picture.alt.startswith('<b>"Q" & K</b>')
    assert "<b>" not in picture.html
    assert '<b>"Q" & K</b>' in picture.texts()


def test_a_table_stands_under_the_picture(draw):
    assert draw(lambda: figures.show(Canvas(), "d" * 40, "1", table="<table></table>")).below == "<table></table>"


def contrast(one: str, two: str) -> float:
    dark, light = sorted((drawing.luminance(one), drawing.luminance(two)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", [WEIGHT, NEGATIVE])
def test_numbers_in_cells_are_legible_at_every_shade(colour):
    for share in np.linspace(0, 1, 101):
        assert contrast(ink_on(share, colour), shade(share, colour)) >= 4.5, share


@pytest.mark.parametrize("colour", [QUERY, KEY, VALUE, WEIGHT, NEGATIVE, drawing.MUTED, drawing.INK])
def test_writing_is_legible_on_the_paper_and_on_tinted_ground(colour):
    for ground in (drawing.PAPER, shade(0.06), shade(0.06, VALUE)):
        assert contrast(colour, ground) >= 4.5
    assert contrast(drawing.deeper(colour), drawing.QUIET_PAPER) >= 4.5


def test_every_colour_of_writing_has_its_deeper_tone(draw):
    style = draw(ALL["heat_map"]).all("style")[0].text
    fills = {text.get("fill") for name in ALL for text in draw(ALL[name]).all("text")}
    for colour in fills - {drawing.INK, drawing.PAPER, "#000000"}:
        assert f'text[fill="{colour}"]{{fill:{drawing.deeper(colour)}}}' in style


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.125, "0.12"),
        (-0.5, "−0.5"),
        (3.0, "3"),
        (-0.0, "0"),
        (np.nan, "NaN"),
        (-np.inf, "−∞"),
        (Fraction(-1, 2), "−1/2"),
    ],
)
def test_numbers_as_people_write_them(number, text):
    assert plain(number) == text


def test_paper_is_white_and_rounded_and_quieter_in_dark_surroundings():
    svg = Canvas().svg()
    assert 'rx="10" fill="#ffffff"' in svg
    assert "@media (prefers-color-scheme:dark){.paper{fill:#dfe2e8}" in svg
