"""Panels as state: every control over its whole range, locks, resets, still pictures, pages without a kernel."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from labkit import exact, journal, panels
from labkit.attention import AttentionTrace, Head, attend
from labkit.errors import LabkitError, ShapeError
from labkit.heads import multi_head
from labkit.panels.panel import Panel
from labkit.panels.still import number
from labkit.transformer import load_model, mean_head, repeated_sequences, resample_head, zero_head

EX = exact.worked_example()
CAUSAL3 = np.tri(3, dtype=bool)


def trace(n: int = 3, d_v: int = 2, seed: int = 0) -> AttentionTrace:
    rng = np.random.default_rng(seed)
    head = Head(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), rng.normal(size=(4, d_v)))
    return attend(rng.normal(size=(n, 4)), head, np.tri(n, dtype=bool))


MAKERS = {
    "softmax_row": lambda **k: panels.softmax_row([0.0, math.log(2), math.log(4)], **k),
    "scores_and_values": lambda **k: panels.scores_and_values(EX, **k),
    "mask_builder": lambda **k: panels.mask_builder(3, **k),
    "two_heads": lambda **k: panels.two_heads(scores=[EX.scores] * 2, values=EX.values, inputs=EX.inputs, **k),
    "scale": lambda **k: panels.scale(**k),
    "trained_model": lambda **k: panels.trained_model(**k),
    "map_gallery": lambda **k: panels.map_gallery({"a": EX, "b": exact.fresh_example(1)}, **k),
}
each_panel = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


# ── sweeps: every control over its whole range, against plain Python ─────────────────────────────────────────────────


def shares(scores: list[float], allowed: list[bool]) -> list[float]:
    return exact.softmax_over_sources(scores, allowed)


def test_each_score_of_a_row_over_its_whole_range() -> None:
    panel = panels.softmax_row([0.0, math.log(2), math.log(4)])
    low, high = panel.score_range
    for j in range(3):
        for x in np.linspace(low, high, 41):
            scores = [float(x) if k == j else s for k, s in enumerate([0.0, math.log(2), math.log(4)])]
            panel.scores = scores
            np.testing.assert_allclose(panel.weights, shares(scores, [True] * 3), atol=1e-12)
            assert panel.weights.sum() == pytest.approx(1, abs=1e-12)


def test_every_mask_of_a_row() -> None:
    panel = panels.softmax_row(EX.scores[2])
    for code in range(1, 8):
        allowed = [bool(code >> j & 1) for j in range(3)]
        panel.allowed = allowed
        np.testing.assert_allclose(panel.weights, shares(EX.scores[2], allowed), atol=1e-12)
    panel.allowed = [False] * 3
    assert np.isnan(panel.weights).all()


def test_scores_move_weights_and_mixture_of_their_row_only() -> None:
    panel = panels.scores_and_values(EX)
    weights, output = panel.weights, panel.output
    low, high = panel.score_range
    for i, j in np.ndindex(3, 3):
        for x in np.linspace(low, high, 9):
            scores = np.array(EX.scores)
            scores[i, j] = x
            panel.scores = scores
            A = exact.softmax_over_sources(scores.tolist(), EX.allowed)
            np.testing.assert_allclose(panel.weights, A, atol=1e-12)
            np.testing.assert_allclose(panel.output, exact.mix(A, EX.values), atol=1e-12)
            others = np.arange(3) != i
            np.testing.assert_array_equal(panel.weights[others], weights[others])
            np.testing.assert_array_equal(panel.output[others], output[others])


def test_values_move_mixtures_and_never_the_map() -> None:
    panel = panels.scores_and_values(EX)
    weights = panel.weights
    for j, c in np.ndindex(3, 2):
        for x in np.linspace(*panel.value_range, 9):
            values = np.array(EX.values, dtype=float)
            values[j, c] = x
            panel.values = values
            assert panel.weights is weights
            np.testing.assert_allclose(panel.output, exact.mix(weights.tolist(), values.tolist()), atol=1e-12)


def test_forbidding_a_source_is_not_zeroing_its_value() -> None:
    panel = panels.scores_and_values(EX)
    panel.allowed = [[True, False, False], [True, True, False], [True, False, True]]
    np.testing.assert_allclose(panel.weights[2], [1 / 3, 0, 2 / 3], atol=1e-12)
    np.testing.assert_allclose(panel.output[2], [2, 8 / 3], atol=1e-12)
    panel.reset()
    panel.values = [[2, 0], [0, 0], [2, 4]]
    np.testing.assert_allclose(panel.weights[2], [1 / 4, 1 / 4, 1 / 2], atol=1e-12)
    np.testing.assert_allclose(panel.output[2], [3 / 2, 2], atol=1e-12)


def test_every_combination_of_mask_rules() -> None:
    panel = panels.mask_builder(3)
    for causal in (True, False):
        for code in range(8):
            real = [bool(code >> j & 1) for j in range(3)]
            panel.causal, panel.is_real = causal, real
            expected = [[real[j] and (not causal or j <= i) for j in range(3)] for i in range(3)]
            assert panel.allowed.tolist() == expected
            for row, weights in zip(expected, panel.weights, strict=True):
                if any(row):
                    np.testing.assert_allclose(weights, [ok / sum(row) for ok in row], atol=1e-12)
                else:
                    assert np.isnan(weights).all()


@pytest.mark.parametrize(("align", "last"), [("top-left", [1, 1, 0, 0]), ("bottom-right", [1, 1, 1, 1])])
def test_alignment_with_more_keys_than_queries(align: Any, last: list[int]) -> None:
    assert panels.mask_builder(2, 4, align=align).allowed[1].tolist() == [bool(x) for x in last]


def test_blocking_a_cell_by_hand() -> None:
    panel = panels.mask_builder(2, causal=False)
    panel.by_hand = [[True, False], [True, True]]
    assert panel.weights.tolist() == [[1, 0], [0.5, 0.5]]


def test_heads_start_with_the_numbers_of_the_trace() -> None:
    rng = np.random.default_rng(2)
    several = [Head(*(rng.normal(size=(2, 2)) for _ in range(3))) for _ in range(2)]
    W_O, X = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    made = multi_head(X, several, W_O, CAUSAL3)
    panel = panels.two_heads(made, W_O)
    np.testing.assert_allclose(panel.weights, [head.weights for head in made.heads], atol=1e-12)
    np.testing.assert_allclose(panel.update, made.update, atol=1e-12)
    np.testing.assert_allclose(panel.result, X + made.update, atol=1e-12)


def test_every_entry_of_w_o_over_its_whole_range() -> None:
    panel = panels.two_heads(scores=[EX.scores] * 2, values=EX.values, allowed=EX.allowed, inputs=EX.inputs)
    concatenated = np.concatenate(list(panel.output), axis=1)
    weights = panel.weights
    for r, c in np.ndindex(4, 2):
        for x in np.linspace(-2, 2, 9):
            W_O = np.tile(np.eye(2), (2, 1))
            W_O[r, c] = x
            panel.W_O = W_O
            expected = exact.matmul(concatenated.tolist(), W_O.tolist())
            np.testing.assert_allclose(panel.update, expected, atol=1e-12)
            np.testing.assert_allclose(panel.result, np.add(EX.inputs, expected), atol=1e-12)
            assert panel.weights is weights


def test_residual_of_the_worked_example() -> None:
    panel = panels.two_heads(scores=[EX.scores], values=EX.values, allowed=EX.allowed, inputs=EX.inputs)
    np.testing.assert_allclose(panel.result[2], [5 / 2, 4], atol=1e-12)


def test_scale_over_every_width_and_divisor() -> None:
    panel = panels.scale(seed=3)
    for step, width in enumerate(panel.widths):
        for divisor, size in (("none", 1), ("root", math.sqrt(width)), ("full", width)):
            panel.step, panel.divisor = step, divisor
            scores = [dot / size for dot in panel.dots[step]]
            np.testing.assert_allclose(panel.scores, scores, atol=1e-12)
            np.testing.assert_allclose(panel.weights, shares(scores, [True] * 6), atol=1e-12)


def test_scale_shows_the_growth_it_claims() -> None:
    panel = panels.scale(seed=5)
    np.testing.assert_allclose(panel.spread, np.sqrt(panel.widths), rtol=0.12)
    assert panel.peaks["none"][-1] > 0.9
    assert panel.peaks["full"][-1] < 0.2
    assert np.ptp(panel.peaks["root"][2:]) < 0.1


def test_gallery_follows_the_map_shown() -> None:
    first, second = trace(3, seed=1), trace(4, seed=2)
    panel = panels.map_gallery({"first": first, "second": second})
    np.testing.assert_allclose(panel.weights, first.weights, atol=1e-12)
    panel.shown = 1
    np.testing.assert_allclose(panel.weights, second.weights, atol=1e-12)


# ── state: any arrays, validation, reset ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("n", "d_v"), [(1, 1), (2, 3), (5, 2), (12, 2)])
def test_other_shapes_than_the_lesson_has(n: int, d_v: int) -> None:
    made = trace(n, d_v)
    panel = panels.scores_and_values(made)
    np.testing.assert_allclose(panel.output, made.output, atol=1e-12)
    assert panel.still().text()


def test_reset_restores_every_trait() -> None:
    panel = panels.scores_and_values(EX)
    panel.scores, panel.allowed, panel.values = np.ones((3, 3)), np.ones((3, 3), dtype=bool), np.ones((3, 2))
    panel.reset()
    assert panel.scores.tolist() == EX.scores
    assert panel.allowed.tolist() == EX.allowed
    assert panel.values.tolist() == EX.values


def test_traits_can_be_observed_and_are_read_only() -> None:
    panel = panels.softmax_row([0.0, 0.0])
    seen: list[Any] = []
    panel.observe(lambda change: seen.append(change["new"].tolist()), "weights")
    panel.scores = [0.0, 0.0]  # nothing new
    panel.allowed = [True, False]
    assert seen == [[1.0, 0.0]]
    with pytest.raises(ValueError, match="read-only"):
        panel.weights[0] = 2


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: panels.softmax_row([[0.0]]), ShapeError, "scores"),
        (lambda: panels.softmax_row([0.0, -np.inf]), LabkitError, "to block a source"),
        (lambda: panels.scores_and_values(), LabkitError, "needs a trace"),
        (lambda: panels.scores_and_values(scores=[[0.0]], values=[[1.0], [2.0]]), ShapeError, "1 sources"),
        (lambda: panels.scores_and_values(EX, row=3), ShapeError, "row 3 of 3"),
        (lambda: panels.scores_and_values(EX, labels=["a"]), ShapeError, "1 labels for 3"),
        (lambda: panels.two_heads(), LabkitError, "needs a MultiHeadTrace"),
        (lambda: panels.two_heads(scores=[EX.scores], values=EX.values, W_O=[[1.0]]), ShapeError, "d_v 2"),
        (lambda: panels.two_heads(scores=[EX.scores], values=EX.values, inputs=[[1.0]]), ShapeError, "d_model"),
        (lambda: panels.two_heads(scores=[EX.scores], values=[EX.values] * 2), ShapeError, "equal H"),
        (lambda: panels.scale(start=3), LabkitError, "not one of the widths"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        make()


def test_setting_another_shape_or_a_number_mask_is_refused() -> None:
    panel = panels.softmax_row([0.0, 0.0])
    with pytest.raises(ShapeError, match="make a new panel"):
        panel.scores = [0.0]
    with pytest.raises(LabkitError, match="boolean"):
        panel.allowed = [1, 0]
    with pytest.raises(LabkitError, match="NaN or infinity"):
        panel.scores = [0.0, np.inf]
    assert panel.weights.tolist() == [0.5, 0.5]


def test_a_trained_model_over_every_choice() -> None:
    model = load_model()
    panel = panels.trained_model(model, ["QZBTMKQZBTMK"])
    tokens, others = model.encode("QZBTMKQZBTMK"), repeated_sequences(64, seed=0, length=12)
    made = {
        "none": lambda layer, head: [],
        "zero": lambda layer, head: [zero_head(layer, head)],
        "mean": lambda layer, head: [mean_head(layer, head, others)],
        "resample": lambda layer, head: [resample_head(layer, head, others[0])],
    }
    for layer, head in np.ndindex(2, 4):
        for name, changes in made.items():
            panel.layer, panel.head, panel.intervention = layer, head, name
            run = model.run(tokens, *changes(layer, head))
            true = [run.logits[i, tokens[i + 1]] for i in range(11)]
            np.testing.assert_allclose(panel.logits, true, atol=6e-5)
            np.testing.assert_allclose(panel.weights, model.run(tokens).weights[layer, head], atol=6e-5)
            drawn = panel.texts[0]["base"] if name == "none" else panel.texts[0]["changed"][name][layer][head]
            assert drawn["logits"] == panel.logits.tolist()
            assert drawn["top"][-1][0][0] == model.decode(run.logits[-1].argmax())


def test_inputs_the_trained_model_panel_cannot_show() -> None:
    with pytest.raises(ShapeError, match="2 to 12"):
        panels.trained_model(texts=["ABCDEFGHIJKLM"])
    with pytest.raises(ShapeError, match="row 2 of 2"):
        panels.trained_model(texts=["ABAB"]).layer = 2


def test_a_move_of_the_front_end_is_confirmed_with_labkits_numbers() -> None:
    panel = panels.scores_and_values(EX)
    panel.set_state({"scores": [[0.0] * 3] * 3, "revision": 7})
    assert panel.confirmed == 7
    np.testing.assert_allclose(panel.weights[2], [1 / 3] * 3, atol=1e-12)


# ── lock ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABKIT_JOURNAL", str(tmp_path))
    return tmp_path


@each_panel
def test_a_panel_opens_when_its_prediction_is_recorded(make: Any, own_journal: Path) -> None:
    panel: Panel = make(locked_by="p-1")
    assert panel.locked
    journal.record("p-2", 1, "wrong")
    journal.record("p-1", None, "blank")
    assert panel.locked
    journal.record("p-1", 1, "wrong")
    assert not panel.locked
    assert not make(locked_by="p-1").locked


def test_what_the_learner_noticed_goes_into_the_journal(own_journal: Path) -> None:
    panel = panels.softmax_row([0.0, 0.0], locked_by="p-1")
    panel.set_state({"noticed": {"said": ["A"], "moved": ["A", "Z"]}})
    (entry,) = journal.entries("noticed")
    assert (entry["exercise"], entry["said"], entry["moved"]) == ("p-1", ["A"], ["A", "Z"])


def texts(numbers: Any) -> set[str]:
    try:
        return {text for x in np.asarray(numbers, dtype=float).ravel() for text in (number(x), f"{x:.3f}")}
    except (TypeError, ValueError):
        return set()  # words, names, records


@each_panel
def test_a_locked_panel_gives_nothing_away(make: Any, own_journal: Path) -> None:
    locked, opened = make(locked_by="p-1"), make()
    data = locked._repr_mimebundle_()[0]
    assert "Predict first" in data["text/plain"]
    assert not set(state_in(data["text/html"])) & set(locked.derive())
    computed, given = set(locked.derive()), set(locked.keys) - set(locked.derive())
    secret = {text for name in computed for text in texts(getattr(locked, name))}
    secret -= {text for name in given for text in texts(getattr(locked, name))}
    assert secret & set(re.findall(r"-?\d\.\d{3}|\d/\d", opened.still().text()))
    assert not secret & set(re.findall(r"-?\d\.\d{3}|\d/\d", locked.still().text()))
    assert "?" in data["text/plain"]


# ── still pictures and pages ─────────────────────────────────────────────────────────────────────────────────────────


def state_in(page: str) -> dict[str, Any]:
    found = re.search(r"data-labkit='([^']*)'", page)
    assert found
    state: dict[str, Any] = json.loads(html.unescape(found[1]))
    return state


@each_panel
def test_stored_output_shows_the_state_without_a_widget(make: Any) -> None:
    data = make()._repr_mimebundle_()[0]
    assert "application/vnd.jupyter.widget-view+json" in data
    picture = re.search(r'<img alt="([^"]+)" src="data:image/svg\+xml;base64,([^"]+)"', data["text/html"])
    assert picture
    drawn = "".join(ElementTree.fromstring(base64.b64decode(picture[2])).itertext())
    for text in re.findall(r"\d\.\d{3}|\d/\d", data["text/plain"].rpartition("\n")[0]):
        assert text in drawn
        assert text in data["text/html"]
    assert data["text/html"] == make()._repr_mimebundle_()[0]["text/html"]  # no model ids, nothing random


def test_still_of_the_worked_example_holds_its_fractions() -> None:
    text = panels.scores_and_values(EX).still().text()
    assert "3  1/4      1/4      1/2" in text
    assert "z3 = (3/2, 3)" in text


def test_an_empty_row_is_named_in_the_still() -> None:
    assert "destination 1 may read no source" in panels.mask_builder(2, is_real=[False, True]).still().text()


@each_panel
def test_an_exported_page_needs_nothing_from_elsewhere(make: Any, tmp_path: Path) -> None:
    page = panels.export_html(make(), tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("data-labkit=") >= 1
    outside = [url for url in re.findall(r"https?://[^\s\"'\\)]+", page) if "www.w3.org" not in url]
    assert outside == []
    assert "</script" not in page.split('<script type="module">')[1].rpartition("</script>")[0]


def test_enliven_keeps_the_page_and_adds_one_script() -> None:
    page = "<html><body><p>text</p></body></html>"
    assert panels.enliven(page).startswith("<html><body><p>text</p><style>")
    assert panels.enliven(page).endswith("</script></body></html>")
    assert panels.enliven("<p>no body</p>").startswith("<p>no body</p><style>")


@pytest.mark.parametrize("nonsense", ["a", ["a", "b"], [1, [2]], object(), [1 + 1j, 2], {}, [10**400, 1], [1, 2, 3]])
def test_numbers_set_to_nonsense_are_refused_in_words(nonsense: Any) -> None:
    panel = panels.softmax_row([0.0, 1.0])
    with pytest.raises(LabkitError, match="scores"):
        panel.scores = nonsense
    assert panel.scores.tolist() == [0, 1]


@pytest.mark.parametrize("nonsense", [[3, -3], [], [1], [float("nan"), 1], [0, float("inf")]])
def test_a_range_goes_from_low_to_high(nonsense: list[float]) -> None:
    panel = panels.softmax_row([0.0, 1.0])
    with pytest.raises(LabkitError, match="the lower one first"):
        panel.score_range = nonsense


def test_a_panel_is_not_made_with_a_range_upside_down() -> None:
    with pytest.raises(LabkitError, match="the lower one first"):
        panels.softmax_row([0.0, 1.0], score_range=(3, -3))


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(ShapeError, match="nothing to draw"):
        panels.softmax_row([])


def test_the_stored_state_does_not_hang_on_last_digits() -> None:
    one, other = (panels.softmax_row([x, 1.0]) for x in (0.1 + 0.2, 0.3))
    assert one.scores[0] != other.scores[0]
    assert one._repr_mimebundle_()[0]["text/html"] == other._repr_mimebundle_()[0]["text/html"]
