"""The same attention in PyTorch and in ONNX's reference evaluator: independent authors, one number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import masks
from labkit.attention import Head, attend, mix, softmax_over_sources
from labkit.heads import multi_head
from tests.conftest import require

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]
try:
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator
except ImportError:
    onnx = None  # type: ignore[assignment]


@st.composite
def problems(draw: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    batch, n, m, d_k, d_v = (draw(st.integers(1, 5)) for _ in range(5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    allowed = rng.random((batch, n, m)) < 0.6
    allowed[..., 0] |= ~allowed.any(axis=-1)
    return (*(rng.normal(size=(batch, k, d)) for k, d in ((n, d_k), (m, d_k), (m, d_v))), allowed)


def by_labkit(queries: Any, keys: Any, values: Any, allowed: Any) -> np.ndarray:
    scores = queries @ keys.swapaxes(-1, -2) / queries.shape[-1] ** 0.5
    return mix(softmax_over_sources(scores, allowed), values)


@given(problems())
@settings(max_examples=50)
def test_pytorch_scaled_dot_product_attention(problem: Any) -> None:
    require("PyTorch", torch)
    *arrays, allowed = problem
    sdpa = torch.nn.functional.scaled_dot_product_attention
    tensors = [torch.from_numpy(array) for array in arrays]
    mask = torch.from_numpy(masks.CONVENTIONS["torch.sdpa"].from_allowed(allowed).copy())
    expected = by_labkit(*arrays, allowed)
    np.testing.assert_allclose(sdpa(*tensors, attn_mask=mask), expected, atol=1e-12)
    additive = torch.from_numpy(masks.to_additive(allowed))
    np.testing.assert_allclose(sdpa(*tensors, attn_mask=additive), expected, atol=1e-12)


def test_pytorch_is_causal_is_aligned_top_left() -> None:
    require("PyTorch", torch)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(1, k, 3)) for k in (2, 4, 4)]
    given = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, arrays), is_causal=True)
    np.testing.assert_allclose(given, by_labkit(*arrays, masks.causal(2, 4, "top-left")), atol=1e-12)
    assert not np.allclose(given, by_labkit(*arrays, masks.causal(2, 4, "bottom-right")))


def test_pytorch_rows_with_nothing_allowed_are_as_the_table_says() -> None:
    require("PyTorch", torch)
    q = torch.ones(1, 2, 2, dtype=torch.float64)
    allowed = np.array([[True, True], [False, False]])
    given = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=torch.from_numpy(allowed))
    assert masks.CONVENTIONS["torch.sdpa"].empty_row == "zeros"
    assert given[0, 1].tolist() == [0, 0]
    mha = torch.nn.MultiheadAttention(2, 1, bias=False, batch_first=True, dtype=torch.float64)
    blocked = torch.from_numpy(masks.CONVENTIONS["torch.mha"].from_allowed(allowed))
    assert masks.CONVENTIONS["torch.mha"].empty_row == "NaN"
    assert mha(q, q, q, attn_mask=blocked)[0][0, 1].isnan().all()


@pytest.mark.parametrize("H", [1, 2, 4])
def test_pytorch_multihead_attention(H: int) -> None:
    require("PyTorch", torch)
    n, d_model = 5, 8
    rng = np.random.default_rng(H)
    inputs, allowed = rng.normal(size=(3, n, d_model)), masks.causal(n)
    mha = torch.nn.MultiheadAttention(d_model, H, bias=False, batch_first=True, dtype=torch.float64)
    in_proj, out_proj = (w.detach().numpy() for w in (mha.in_proj_weight, mha.out_proj.weight))  # stored (out, in)
    W_Q, W_K, W_V = (np.split(W.T, H, axis=1) for W in np.split(in_proj, 3))
    heads = [Head(*parts) for parts in zip(W_Q, W_K, W_V, strict=True)]
    trace = multi_head(inputs, heads, out_proj.T, allowed)
    x = torch.from_numpy(inputs)
    blocked = torch.from_numpy(masks.CONVENTIONS["torch.mha"].from_allowed(allowed))
    update, maps = mha(x, x, x, attn_mask=blocked, average_attn_weights=False)
    np.testing.assert_allclose(update.detach(), trace.update, atol=1e-12)
    np.testing.assert_allclose(maps.detach().swapaxes(0, 1), [head.weights for head in trace.heads], atol=1e-12)


def test_pytorch_key_padding_mask() -> None:
    require("PyTorch", torch)
    rng = np.random.default_rng(4)
    inputs, lengths = rng.normal(size=(3, 4, 2)), [4, 1, 3]
    mha = torch.nn.MultiheadAttention(2, 1, bias=False, batch_first=True, dtype=torch.float64)
    W_Q, W_K, W_V = np.split(mha.in_proj_weight.detach().numpy(), 3)
    allowed = masks.from_lengths(lengths, 4)
    output = attend(inputs, Head(W_Q.T, W_K.T, W_V.T), allowed).output
    x = torch.from_numpy(inputs)
    padding = torch.from_numpy(masks.CONVENTIONS["torch.mha"].from_allowed(allowed)[:, 0, :].copy())
    update, _ = mha(x, x, x, key_padding_mask=padding)
    np.testing.assert_allclose(update.detach(), output @ mha.out_proj.weight.detach().numpy().T, atol=1e-12)


def test_pytorch_float32_agrees_in_float32() -> None:
    require("PyTorch", torch)
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=(4, 64, 16)).astype(np.float32) for _ in range(3)]
    given = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, arrays), is_causal=True).numpy()
    ours = by_labkit(*arrays, masks.causal(64))
    assert given.dtype == ours.dtype == np.float32
    np.testing.assert_allclose(given, ours, atol=2e-6)


def onnx_attention(queries: Any, keys: Any, values: Any, allowed: Any, **attributes: Any) -> np.ndarray:
    """Run ONNX's Attention operator (opset 23) on one head: axes are batch, head, position, feature."""
    names = ["Q", "K", "V", *([] if allowed is None else ["M"])]
    node = helper.make_node("Attention", names, ["Y"], **attributes)
    kinds = {name: onnx.TensorProto.BOOL if name == "M" else onnx.TensorProto.DOUBLE for name in [*names, "Y"]}
    infos = {name: helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()}
    graph = helper.make_graph([node], "attention", [infos[name] for name in names], [infos["Y"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    feeds = {name: array[:, None] for name, array in zip(names, (queries, keys, values, allowed), strict=False)}
    return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])[:, 0]


@given(problems())
@settings(max_examples=25)
def test_onnx_reference_attention(problem: Any) -> None:
    require("ONNX", onnx)
    *arrays, allowed = problem
    np.testing.assert_allclose(onnx_attention(*arrays, allowed), by_labkit(*arrays, allowed), atol=1e-12)


def test_onnx_causal() -> None:
    require("ONNX", onnx)
    rng = np.random.default_rng(6)
    arrays = [rng.normal(size=(2, 4, 3)) for _ in range(3)]
    given = onnx_attention(*arrays, None, is_causal=1)
    np.testing.assert_allclose(given, by_labkit(*arrays, masks.causal(4)), atol=1e-12)
