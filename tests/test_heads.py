"""Several heads: two ways to the same update, and the residual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import exact, masks
from labkit.attention import Head, attend
from labkit.errors import LabkitError, ShapeError
from labkit.heads import multi_head, residual


@given(*[st.integers(1, 4)] * 6, st.integers(0, 2**32))
def test_concatenation_equals_summed_blocks_and_the_exact_route(n, d_model, d_k, d_v, heads, batch, seed):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(batch, n, d_model))
    parts = [Head(*(rng.normal(size=(d_model, d)) for d in (d_k, d_k, d_v))) for _ in range(heads)]
    W_O = rng.normal(size=(heads * d_v, d_model))
    trace = multi_head(inputs, parts, W_O, masks.causal(n))
    outputs = [attend(inputs, part, masks.causal(n)).output for part in parts]
    by_blocks = sum(z @ W_O[h * d_v : (h + 1) * d_v] for h, z in enumerate(outputs))
    np.testing.assert_allclose(trace.update, by_blocks, atol=1e-12)
    assert trace.concatenated.shape == (batch, n, heads * d_v)
    lists = [tuple(W.tolist() for W in (part.W_Q, part.W_K, part.W_V)) for part in parts]
    by_lists = exact.multi_head(inputs[0].tolist(), lists, W_O.tolist(), exact.causal(n))
    np.testing.assert_allclose(trace.update[0], by_lists, atol=1e-12)


def test_cross_attention_has_a_row_for_each_destination_and_a_column_for_each_source():
    rng = np.random.default_rng(0)
    heads = [Head(*(rng.normal(size=(3, d)) for d in (2, 2, 4))) for _ in range(2)]
    trace = multi_head(rng.normal(size=(2, 3)), heads, rng.normal(size=(8, 3)), sources=rng.normal(size=(5, 3)))
    assert [head.weights.shape for head in trace.heads] == [(2, 5), (2, 5)]
    assert trace.update.shape == (2, 3)


def test_update_may_leave_the_hull_of_the_values():
    """W_O amplifies and flips signs, so an update is no average."""
    head = Head([[0]], [[0]], [[1]])
    update = multi_head([[1], [3]], [head], [[-10]]).update
    assert update.tolist() == [[-20], [-20]]


def test_misfits_are_refused():
    head = Head([[0]], [[0]], [[1, 1]])
    with pytest.raises(
        ShapeError, match=r"2 heads give 4 features.*W_O \(2, 1\) expects 2 .first axis.*\(H d_v, d_model\)"
    ):
        multi_head([[1]], [head, head], [[1], [1]])
    with pytest.raises(ShapeError, match="give at least one Head"):
        multi_head([[1]], [], [[1]])
    with pytest.raises(ShapeError, match=r"state has shape \(1, 2\) and update \(1, 1\).*write back d_model"):
        residual([[1, 2]], [[1]])


def test_residual_of_the_worked_example():
    example = exact.worked_example()
    trace = multi_head(example.inputs, [Head(example.W_Q, example.W_K, example.W_V)], np.eye(2), example.allowed)
    np.testing.assert_allclose(residual(example.inputs, trace.update)[2], [5 / 2, 4], atol=1e-12)


def test_float32_stays_float32():
    W = np.ones((2, 2), dtype=np.float32)
    trace = multi_head(W, [Head(W, W, W)], W)
    assert trace.update.dtype == np.float32
    assert residual(W, trace.update).dtype == np.float32


def test_one_head_no_heads_and_heads_of_different_batches_are_refused_in_words():
    one = Head([[1.0]], [[1.0]], [[1.0]])
    three = Head(*[np.ones((3, 1, 1))] * 3)
    with pytest.raises(LabkitError, match=r"write \[head\]"):
        multi_head([[1.0]], one, [[1.0]])  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="heads is empty"):
        multi_head([[1.0]], iter([]), [[1.0]])  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"batch axes \(\), \(3,\)"):
        multi_head([[1.0]], [one, three], [[1.0], [1.0]])
    with pytest.raises(ShapeError, match="batch axes"):
        multi_head([[1.0]], [three], np.ones((2, 1, 1)))
    assert multi_head([[1.0]], np.array([one, one]), [[1.0], [1.0]]).update.tolist() == [[2.0]]  # type: ignore[arg-type]
