"""Figures of models and of maps to judge: described, with their true numbers in the picture, the text and the table."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest

from labkit import maps, model_figures
from labkit.errors import LabkitError
from labkit.transformer import (
    Effect,
    attribution,
    brightness,
    every_head,
    load_model,
    previous_token_score,
    repeated_sequences,
    two_layer_paths,
    zero_head,
)

MODEL = load_model("copy")
TRACE = MODEL.run("CATFISHCAT")
FIRST, SECOND = TRACE.weights[0, 2], TRACE.weights[1, 3]


class Picture:
    """One displayed figure, taken apart."""

    def __init__(self, bundle: dict[str, str]) -> None:
        self.plain = bundle["text/plain"]
        match = re.fullmatch(
            r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)"[^>]*>(.*)', bundle["text/html"]
        )
        assert match
        self.alt, self.table = html.unescape(match[1]), match[3]
        self.root = ElementTree.fromstring(base64.b64decode(match[2]))

    def texts(self) -> list[str]:
        return ["".join(node.itertext()) for node in self.root.iter("{http://www.w3.org/2000/svg}text")]

    def cells(self) -> list[str]:
        return [html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", self.table)]


@pytest.fixture
def draw(monkeypatch) -> Callable[..., Picture]:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))

    def run(figure: Callable[..., None], *arguments, **options) -> Picture:
        shown.clear()
        assert figure(*arguments, **options) is None
        (bundle,) = shown
        return Picture(bundle)

    return run


def test_effects_have_their_numbers_and_intervals(draw) -> None:
    measured = every_head(MODEL, repeated_sequences(10, seed=1), zero_head)
    picture = draw(model_figures.effects, measured, title="Zeroed", unit="logit")
    assert set(measured) <= set(picture.texts())
    for k, (name, effect) in enumerate(measured.items()):
        row = [name, f"{effect.baseline:.3f}", f"{effect.changed:.3f}", f"{effect.effect:+.3f}"]
        assert picture.cells()[5 * k : 5 * k + 4] == row
        assert all(number in picture.plain and number in picture.alt for number in row)


def test_bars_and_whiskers_stand_where_the_numbers_are(draw) -> None:
    measured = {"down": Effect(3, 1, -2, -3, -1, np.zeros(2)), "up": Effect(1, 5, 4, 3, 5, np.zeros(2))}
    picture = draw(model_figures.effects, measured, title="Both ways", unit="x")
    bars = [r for r in picture.root.iter("{http://www.w3.org/2000/svg}rect") if r.get("height") == "22"]
    down, up = (float(bar.get("width")) for bar in bars)
    assert up == pytest.approx(2 * down, rel=0.01)
    assert float(bars[0].get("x")) + down == pytest.approx(float(bars[1].get("x")), abs=0.1)


def test_an_infinite_interval_can_be_drawn(draw) -> None:
    alone = {"one": Effect(1, 2, 1, -np.inf, np.inf, np.ones(1))}
    assert "-inf to +inf" in draw(model_figures.effects, alone, title="One sequence", unit="x").plain


def test_all_maps_are_named_by_layer_and_head(draw) -> None:
    picture = draw(model_figures.all_maps, TRACE)
    assert {f"L{layer}H{head}" for layer in range(2) for head in range(4)} <= set(picture.texts())
    assert "CATFISHCAT" in picture.alt
    assert {"across: source (key)", "down: destination (query)"} <= set(picture.texts())
    assert picture.cells()[8:11] == ["L0H2", f"{brightness(FIRST):.2f}", f"{previous_token_score(FIRST):.2f}"]


def test_a_batch_shows_the_sequence_that_was_asked_for(draw) -> None:
    tokens = repeated_sequences(3, seed=2)
    one = draw(model_figures.one_map, MODEL.run(tokens), 1, 3, 2)
    other = draw(model_figures.one_map, MODEL.run(tokens[2]), 1, 3)
    assert one.plain == other.plain
    assert one.plain != draw(model_figures.one_map, MODEL.run(tokens), 1, 3, 0).plain


def test_parts_of_a_logit_add_up_in_the_picture(draw) -> None:
    F = int(MODEL.encode("F")[0])
    picture = draw(model_figures.logit_parts, TRACE, F)
    assert "Logit of F after CATFISHCAT" in picture.alt
    assert {"embedding", "L0H2", "L1H3", "sum"} <= set(picture.texts())
    assert f"{TRACE.logits[-1, F]:.2f}" in picture.texts()
    assert f"{attribution(TRACE, F)['L1H3']:.2f}".lstrip("+") in picture.plain
    assert picture.cells()[-2:] == ["sum", f"{TRACE.logits[-1, F]:+.3f}"]
    assert "after CATF" in draw(model_figures.logit_parts, TRACE, F, 3).alt


def test_routes_are_the_strongest_products_of_weights(draw) -> None:
    picture = draw(model_figures.routes, FIRST, SECOND, 9, list("CATFISHCAT"))
    paths = two_layer_paths(FIRST, SECOND, 9, residual=False)
    j, k = np.unravel_index(paths.argmax(), paths.shape)
    assert picture.cells()[:3] == [f"T (position {k + 1})", f"F (position {j + 1})", f"{paths.max():.3f}"]
    shares = [float(cell) for cell in picture.cells()[2::3]]
    assert shares == sorted(shares, reverse=True)
    assert min(shares) >= 0.005
    with pytest.raises(LabkitError, match="3 names"):
        model_figures.routes(FIRST, SECOND, 9, list("CAT"))


def test_routes_with_the_residual_count_staying(draw) -> None:
    stay = draw(model_figures.routes, FIRST, SECOND, 9, list("CATFISHCAT"), residual=True)
    assert "T (position 10)" in stay.cells()


def test_the_gallery_shows_fractions_and_no_sums(draw) -> None:
    picture = draw(model_figures.gallery, maps.fault_gallery())
    assert [text for text in picture.texts() if text.startswith("map")] == [f"map {k}" for k in range(1, 8)]
    assert "map 5: [[1, 0, 0, 0], [1/3, 2/3, 0, 0], [1/4, 1/4, 1/2, 0], [1/8, 1/8, 1/2, 1/4]]" in picture.plain
    assert "sum" not in " ".join(picture.texts())
    single = draw(model_figures.gallery, maps.fault_gallery(), only=6)
    assert [text for text in single.texts() if text.startswith("map")] == ["map 6"]


def test_the_same_numbers_give_the_same_bytes(draw) -> None:
    one, two = (draw(model_figures.routes, FIRST, SECOND, 9, list("CATFISHCAT")) for _ in range(2))
    assert ElementTree.tostring(one.root) == ElementTree.tostring(two.root)
