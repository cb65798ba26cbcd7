"""The training program: its backward pass against finite differences, its files, and the model card's numbers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from labkit import transformer
from labkit.transformer import load_model, next_accuracy, repeated_sequences

TOOLS = Path(__file__).parent.parent / "tools"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    sys.path.insert(0, str(TOOLS))
    try:
        import train_model
    finally:
        sys.path.remove(str(TOOLS))
    return train_model


@pytest.fixture(scope="module")
def card_tool(tool: ModuleType) -> ModuleType:
    sys.path.insert(0, str(TOOLS))
    try:
        import model_card
    finally:
        sys.path.remove(str(TOOLS))
    return model_card


def small(tool: ModuleType, **changes):
    """A setting in which no two sizes are equal, so that a transposed formula cannot pass."""
    sizes = {"d_model": 10, "d_k": 4, "d_v": 3, "heads": 2, "layers": 2, "length": 8, "batch": 16, "steps": 5}
    return tool.Setting("small", seed=1, weight_decay=0.1, spread=2.0, **{**sizes, **changes})


def test_every_gradient_equals_finite_differences(tool: ModuleType) -> None:
    arrays = {name: array.astype(float) for name, array in tool.start(small(tool)).items()}
    sequences = repeated_sequences(3, seed=0, length=9, shortest=3)
    tokens, targets = sequences[:, :-1], sequences[:, 1:]

    def loss() -> float:
        return tool.loss_and_gradients(arrays, tokens, targets, np.float64)[0]

    _, gradients = tool.loss_and_gradients(arrays, tokens, targets, np.float64)
    assert gradients.keys() == arrays.keys()
    rng, step = np.random.default_rng(0), 1e-5
    for name, array in arrays.items():
        used = np.argwhere(np.abs(gradients[name]) > 1e-8)
        assert len(used) >= array.size / 2 or name == "embedding"  # letters that do not occur have no gradient
        for place in map(tuple, rng.permutation(used)[:12]):
            before = array[place]
            array[place] = before + step
            above = loss()
            array[place] = before - step
            below = loss()
            array[place] = before
            assert (above - below) / (2 * step) == pytest.approx(gradients[name][place], rel=1e-5, abs=1e-9), name


def test_parameters_without_influence_have_no_gradient(tool: ModuleType) -> None:
    arrays = tool.start(small(tool))
    sequences = repeated_sequences(3, seed=0, length=6, shortest=3)
    _, gradients = tool.loss_and_gradients(arrays, sequences[:, :-1], sequences[:, 1:])
    assert not gradients["positions"][5:].any()
    absent = np.setdiff1d(np.arange(26), sequences[:, :-1])
    assert not gradients["embedding"][absent].any()


def test_training_lowers_the_loss_and_repeats_with_the_seed(tool: ModuleType) -> None:
    lines: list[str] = []
    setting = small(tool, steps=150, heads=1, layers=1, d_model=24, batch=32, length=16, learning_rate=2e-2)
    one = tool.train(setting, lines.append)
    first, last = (float(re.search(r"loss (\S+)", line)[1]) for line in (lines[0], lines[-1]))  # type: ignore[index]
    assert last < first - 0.08
    again = tool.train(setting, lines.append)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    other = tool.train(small(tool, steps=3), lines.append)
    assert {array.dtype for array in other.values()} == {np.dtype(np.float32)}


def test_the_learning_rate_warms_up_and_goes_down(tool: ModuleType) -> None:
    setting = tool.SETTINGS[0]
    rates = [setting.rate(step) for step in range(setting.steps)]
    assert rates[0] < rates[50] < rates[99]
    assert max(rates) <= setting.learning_rate
    assert rates[-1] == pytest.approx(setting.learning_rate / 20, rel=0.01)


def test_saved_models_load_again(tool: ModuleType, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tool, "MODELS", tmp_path)
    monkeypatch.setattr(transformer, "MODELS", tmp_path)
    arrays = tool.start(small(tool))
    tool.save("small", arrays)
    tool.save("other", arrays)
    assert transformer.model_names() == ["other", "small"]
    loaded = load_model("small")
    np.testing.assert_allclose(loaded.embedding, arrays["embedding"], atol=1e-3)
    np.testing.assert_allclose(loaded.layers[1].heads[1].W_V, arrays["W_V.1"][1], atol=1e-3)


def test_every_shipped_model_has_its_setting_and_shape(tool: ModuleType) -> None:
    assert sorted(setting.name for setting in tool.SETTINGS) == transformer.model_names()
    for setting in tool.SETTINGS:
        model = load_model(setting.name)
        assert len(model.layers) == setting.layers
        assert {len(layer.heads) for layer in model.layers} == {setting.heads}
        assert model.layers[0].W_O.shape == (setting.heads * setting.d_v, setting.d_model)
        assert next_accuracy(model.run(repeated_sequences(100, seed=77))).mean() > 0.99


# ── the card ─────────────────────────────────────────────────────────────────────────────────────────────────────────

NUMBER = re.compile(r"[+-]?\d+\.\d+|\d+")


@pytest.mark.slow
def test_the_card_is_what_the_program_measures(card_tool: ModuleType) -> None:
    """Words exactly; decimals to 0.02, because another processor may round the last digit otherwise."""
    written, measured = card_tool.CARD.read_text(encoding="utf-8"), card_tool.card()
    assert NUMBER.sub("#", written) == NUMBER.sub("#", measured)
    pairs = list(zip(NUMBER.findall(written), NUMBER.findall(measured), strict=True))
    assert len(pairs) > 300
    for one, other in pairs:
        assert float(one) == pytest.approx(float(other), abs=0.02), (one, other)


@pytest.mark.slow
def test_the_findings_of_the_card_hold(card_tool: ModuleType) -> None:
    """A head with a bright map and no effect; a head where zeroing and the mean disagree in sign."""
    model = load_model("surplus")
    trace = model.run(repeated_sequences(60, seed=5))
    control = model.run(transformer.distinct_sequences(60, seed=5))
    rows = {row.name: row for row in card_tool.measure_heads(model, trace, control)}
    assert rows["L1H5"].bright > 0.55
    assert card_tool.idle(rows["L1H5"])
    loss = rows["L0H1"].control_loss
    assert loss["zero"].low > 1
    assert loss["mean"].high < 0
    assert not card_tool.idle(rows["L0H3"])
