"""The numeric core: three routes to one number, and what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import attention as core
from labkit import exact, masks
from labkit.attention import Head, attend, mix, project, scaled_scores, softmax_over_sources
from labkit.errors import EmptyRowError, LabkitError, MaskError, NonFiniteError, ShapeError
from labkit.heads import multi_head


def random_head(rng: np.random.Generator, d_model: int, d_k: int, d_v: int, dtype: type = np.float64) -> Head:
    return Head(*(rng.normal(size=(d_model, d)).astype(dtype) for d in (d_k, d_k, d_v)))


def plain_loops(inputs, head, allowed, sources):
    """The definition, one number at a time, without sharing a line with labkit."""
    output = []
    for i, x in enumerate(inputs):
        query = [sum(x[a] * head.W_Q[a][c] for a in range(len(x))) for c in range(len(head.W_Q[0]))]
        powers, values = [], []
        for j, y in enumerate(sources):
            key = [sum(y[a] * head.W_K[a][c] for a in range(len(y))) for c in range(len(query))]
            score = sum(q * k for q, k in zip(query, key, strict=True)) / math.sqrt(len(query))
            powers.append(math.exp(score) if allowed[i][j] else 0.0)
            values.append([sum(y[a] * head.W_V[a][c] for a in range(len(y))) for c in range(len(head.W_V[0]))])
        total = sum(powers)
        output.append(
            [sum(p / total * v[c] for p, v in zip(powers, values, strict=True)) for c in range(len(values[0]))]
        )
    return np.array(output)


@st.composite
def settings_of_a_head(draw):
    n, m, d_model, d_k, d_v = (draw(st.integers(1, 5)) for _ in range(5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    allowed = rng.random((n, m)) < 0.6
    allowed[np.arange(n), rng.integers(0, m, n)] = True
    return rng.normal(size=(n, d_model)), random_head(rng, d_model, d_k, d_v), allowed, rng.normal(size=(m, d_model))


@given(settings_of_a_head())
def test_numpy_exact_and_plain_loops_agree(setting):
    inputs, head, allowed, sources = setting
    trace = attend(inputs, head, allowed, sources)
    lists = [array.tolist() for array in (inputs, head.W_Q, head.W_K, head.W_V, allowed, sources)]
    by_lists = exact.attend(*lists)
    np.testing.assert_allclose(trace.output, plain_loops(inputs, head, allowed, sources), atol=1e-12)
    for name in ("queries", "keys", "values", "scores", "allowed", "weights", "output"):
        np.testing.assert_allclose(getattr(trace, name), np.array(getattr(by_lists, name)), atol=1e-12, err_msg=name)


@given(settings_of_a_head(), st.integers(1, 3))
def test_batches_are_the_single_runs_stacked(setting, size):
    inputs, head, allowed, sources = setting
    shift = np.arange(size)[:, None, None]
    stacked = attend(inputs + shift, head, allowed, sources + shift)
    for k in range(size):
        alone = attend(inputs + k, head, allowed, sources + k)
        np.testing.assert_allclose(stacked.weights[k], alone.weights, atol=1e-12)
        np.testing.assert_allclose(stacked.output[k], alone.output, atol=1e-12)


@given(settings_of_a_head(), st.integers(1, 40), st.integers(1, 4), st.booleans())
def test_blocks_do_not_change_the_weights(setting, block, batch, own_masks):
    inputs, head, allowed, sources = setting
    scores = attend(inputs + np.arange(batch)[:, None, None], head, allowed, sources).scores
    if own_masks:
        allowed = np.stack([np.roll(allowed, k, axis=1) for k in range(batch)])
    alone = [
        softmax_over_sources(s, mask) for s, mask in zip(scores, np.broadcast_to(allowed, scores.shape), strict=True)
    ]
    before = core.BLOCK
    try:
        core.BLOCK = block
        np.testing.assert_allclose(softmax_over_sources(scores, allowed), alone, atol=1e-15)
    finally:
        core.BLOCK = before


@pytest.mark.parametrize("allowed", [True, [[True], [True]], [[[[True]]]], [[True, True]], np.ones((2, 1, 1, 1), bool)])
def test_a_mask_of_one_entry_for_many_scores_allows_them_all(allowed):
    scores = np.zeros((2, 2, 2, 3))[..., :2]
    np.testing.assert_array_equal(softmax_over_sources(scores, allowed), np.full(scores.shape, 0.5))
    eye = np.eye(2)
    if np.ndim(allowed) < 3:
        np.testing.assert_array_equal(attend(eye, Head(eye, eye, eye), allowed).weights > 0, np.ones((2, 2), bool))


def test_a_mask_of_one_column_blocks_whole_rows():
    weights = softmax_over_sources(np.zeros((3, 2)), [[True], [False], [True]], empty_rows="zero")
    np.testing.assert_array_equal(weights, [[0.5, 0.5], [0, 0], [0.5, 0.5]])


def test_warnings_that_are_errors_elsewhere_are_none_here():
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(softmax_over_sources([0.0, -900.0]), [1, 0])


def test_a_small_weight_that_float32_can_hold_is_kept():
    weights = softmax_over_sources(np.array([-30, -104], np.float32))
    assert weights[1] == pytest.approx(np.exp(-74), rel=1e-3)


def test_blocks_hold_about_so_many_scores(monkeypatch):
    monkeypatch.setattr(core, "BLOCK", 24)
    assert list(core._blocks((5, 12))) == [(slice(0, 2),), (slice(2, 4),), (slice(4, 6),)]
    assert list(core._blocks((2, 4, 3))) == [(slice(0, 2),)]
    assert list(core._blocks((2, 5, 4, 2))) == [
        (slice(i, i + 1), run) for i in range(2) for run in (slice(0, 3), slice(3, 6))
    ]
    assert list(core._blocks((3, 100))) == [(slice(i, i + 1),) for i in range(3)]
    assert list(core._blocks((0, 3))) == []


def test_the_first_unusable_score_is_the_one_named_although_threads_share_the_blocks(monkeypatch):
    monkeypatch.setattr(core, "BLOCK", 4)
    scores = np.zeros((50, 2))
    scores[7, 1] = scores[31, 0] = np.nan
    for _ in range(20):
        with pytest.raises(NonFiniteError, match=r"\(7, 1\)"):
            softmax_over_sources(scores)


@given(st.lists(st.floats(-900, 900), min_size=1, max_size=5), st.lists(st.floats(-900, 900), min_size=1, max_size=5))
def test_a_row_is_bit_for_bit_the_same_beside_any_other_row(row, other):
    size = min(len(row), len(other))
    np.testing.assert_array_equal(softmax_over_sources([row[:size], other[:size]])[0], softmax_over_sources(row[:size]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [-1e4, -88.0, -30.5, -30, -29.5, 0, 29.5, 30, 30.5, 88.0, 1e4])
def test_weights_are_right_on_both_sides_of_the_safe_exponent(dtype, largest):
    scores = np.array([largest, largest, largest - 2], dtype)
    tail = np.exp(-2)
    np.testing.assert_allclose(softmax_over_sources(scores), np.array([1, 1, tail]) / (2 + tail), rtol=1e-6)


def test_only_the_columns_on_which_rows_differ_are_masked():
    assert core._free_and_end(np.ones((2, 3), dtype=bool)) == (3, 3)
    assert core._free_and_end(np.zeros((2, 3), dtype=bool)) == (0, 0)
    assert core._free_and_end(masks.causal(5)[2:4]) == (3, 4)


def test_floats_are_not_copied():
    for dtype in (np.float32, np.float64):
        array = np.zeros(3, dtype)
        assert np.shares_memory(core.as_floats(array, "array"), array)


def test_worked_example():
    example = exact.worked_example()
    trace = attend(example.inputs, Head(example.W_Q, example.W_K, example.W_V), example.allowed)
    np.testing.assert_allclose(trace.scores, np.log(2) * np.array([[1, 0, 1], [0, 1, 1], [1, 1, 2]]), atol=1e-12)
    np.testing.assert_allclose(trace.weights, [[1, 0, 0], [1 / 3, 2 / 3, 0], [1 / 4, 1 / 4, 1 / 2]], atol=1e-12)
    np.testing.assert_allclose(trace.output, [[2, 0], [2 / 3, 8 / 3], [3 / 2, 3]], atol=1e-12)


# ------------------------------------------------------------------------------------------ softmax


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=8), st.floats(-300, 300))
def test_rows_sum_to_one_and_ignore_a_constant(row, constant):
    weights = softmax_over_sources(row)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(softmax_over_sources(np.add(row, constant)), weights, atol=1e-10)


def test_row_maximum_is_taken_over_the_allowed_scores_of_the_row_only():
    scores = [[1000.0, 1000.0], [0.0, 0.0], [0.0, 5000.0]]
    allowed = [[True, True], [True, True], [True, False]]
    assert softmax_over_sources(scores, allowed).tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 0]]


@pytest.mark.parametrize("blocked", [np.nan, np.inf, -np.inf, 1e308, -1e308])
def test_a_blocked_score_may_hold_anything(blocked):
    scores = [[-1e308, blocked, -1e308], [0, blocked, np.log(3)]]
    allowed = [[True, False, True], [True, False, True]]
    np.testing.assert_allclose(softmax_over_sources(scores, allowed), [[0.5, 0, 0.5], [0.25, 0, 0.75]], atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("allowed", [None, [[True, True], [False, True]], [[True, True], [True, True]]])
def test_an_allowed_nan_or_infinity_is_refused_with_its_position(bad, allowed):
    with pytest.raises(NonFiniteError, match=r"\(1, 1\) \(destination 1, source 1\) is NaN or infinity and allowed"):
        softmax_over_sources([[0, 0], [0, bad]], allowed)


@pytest.mark.parametrize("block", [1, 6, 15, 1000])
def test_the_position_is_right_in_later_blocks_and_batches(monkeypatch, block):
    monkeypatch.setattr(core, "BLOCK", block)
    scores = np.zeros((2, 5, 3))
    scores[1, 3, 2] = np.nan
    with pytest.raises(NonFiniteError, match=r"\(1, 3, 2\) \(destination 3, source 2\)"):
        softmax_over_sources(scores)


def test_minus_infinity_is_fine_beside_a_finite_score():
    assert softmax_over_sources([[-np.inf, 0, -np.inf]]).tolist() == [[0, 1, 0]]


EMPTY = ([[0.0, 1.0], [0.0, 1.0], [-np.inf, 0.0]], [[True, True], [False, False], [True, False]])


def test_empty_rows_are_named():
    with pytest.raises(EmptyRowError, match="destination row 1, 2 may read no source") as caught:
        softmax_over_sources(*EMPTY)
    assert caught.value.rows == [(1,), (2,)]


def test_empty_rows_in_batches_are_named_by_all_their_indices():
    with pytest.raises(EmptyRowError) as caught:
        softmax_over_sources(np.zeros((2, 2, 1)), [[[True], [True]], [[True], [False]]])
    assert caught.value.rows == [(1, 1)]


def test_empty_rows_by_policy():
    kept = 1 / (1 + math.e)
    zero = softmax_over_sources(*EMPTY, empty_rows="zero")
    nan = softmax_over_sources(*EMPTY, empty_rows="nan")
    np.testing.assert_allclose(zero, [[kept, 1 - kept], [0, 0], [0, 0]], atol=1e-12)
    np.testing.assert_allclose(nan, [[kept, 1 - kept], [np.nan] * 2, [np.nan] * 2], atol=1e-12)
    assert np.isnan(mix(nan, [[1], [2]])).tolist() == [[False], [True], [True]]


def test_no_sources_at_all_is_an_empty_row():
    with pytest.raises(EmptyRowError):
        softmax_over_sources(np.zeros((2, 0)))
    assert softmax_over_sources(np.zeros((0, 2))).shape == (0, 2)


def test_inputs_are_left_alone():
    scores, allowed = np.array([[1.0, 2.0]]), np.array([[True, False]])
    softmax_over_sources(scores, allowed)
    assert scores.tolist() == [[1, 2]]
    assert allowed.tolist() == [[True, False]]


@pytest.mark.parametrize("mask", [[[1, 0]], [[1.0, 0.0]], [[0.0, -np.inf]]])
def test_a_mask_that_is_not_boolean_is_refused(mask):
    with pytest.raises(MaskError, match=r"must be boolean, True where reading is permitted.*from_blocked"):
        softmax_over_sources([[0, 0]], mask)


def test_a_mask_of_the_wrong_shape_is_refused():
    with pytest.raises(MaskError, match=r"allowed has shape \(3, 2\), the scores \(2, 2\): rows are destinations"):
        softmax_over_sources(np.zeros((2, 2)), np.ones((3, 2), dtype=bool))


# ------------------------------------------------------------------------------------------ NaN and infinity in sources


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("matrix", ["W_K", "W_V"])
def test_a_blocked_source_never_reaches_the_output(bad, matrix):
    rng = np.random.default_rng(1)
    head = random_head(rng, 3, 2, 2)
    inputs, sources = rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    allowed = np.array([[True, True, False, True]])
    expected = attend(inputs, head, allowed, sources)
    spoiled = sources.copy()
    spoiled[2] = bad  # reaches its key and its value
    given = attend(inputs, head, allowed, spoiled)
    assert (given.weights == expected.weights).all()
    assert (given.output == expected.output).all()


def test_an_allowed_source_with_nan_is_refused_with_its_position():
    one, zero = [[1.0]], [[0.0]]
    sources = np.array([[1.0], [2.0]])
    head = Head(one, zero, [[np.inf]])
    with pytest.raises(NonFiniteError, match="value of source 0 holds NaN or infinity"):
        attend([[1.0]], head, sources=sources)
    with pytest.raises(NonFiniteError, match=r"\(0, 1\) \(destination 0, source 1\)"):
        attend([[1.0]], Head(one, one, one), sources=[[1.0], [np.nan]])


def test_mix_leaves_out_a_broken_value_of_weight_zero_and_refuses_any_other():
    values = np.array([[[1.0], [np.inf]], [[1.0], [2.0]]])
    assert mix([[1.0, 0.0]], values).tolist() == [[[1.0]], [[1.0]]]
    with pytest.raises(NonFiniteError, match=r"value of source \(0, 1\)"):
        mix([[0.5, 0.5]], values)


@given(settings_of_a_head(), st.integers(0, 4), st.integers(1, 7))
def test_later_inputs_leave_earlier_rows_bit_identical(setting, position, block):
    inputs, head, _, _ = setting
    position = min(position, len(inputs) - 1)
    changed = inputs.copy()
    changed[position] = 1e3 * changed[position] - 7
    before = core.BLOCK
    try:
        core.BLOCK = block
        one, two = (attend(x, head, masks.causal(len(x))) for x in (inputs, changed))
    finally:
        core.BLOCK = before
    assert (one.weights[:position] == two.weights[:position]).all()
    assert (one.output[:position] == two.output[:position]).all()
    assert not np.array_equal(one.inputs, two.inputs)


def test_later_inputs_leave_earlier_rows_bit_identical_through_two_large_layers():
    rng = np.random.default_rng(2)
    heads = [[random_head(rng, 24, 6, 6) for _ in range(4)] for _ in range(2)]
    W_O = rng.normal(size=(2, 24, 24)) / 5
    inputs, changed = rng.normal(size=(150, 24)), rng.normal(size=(150, 24))
    changed[:100] = inputs[:100]
    states = []
    for state in (inputs, changed):
        for layer in range(2):
            state = state + multi_head(state, heads[layer], W_O[layer], masks.causal(150)).update
        states.append(state)
    assert (states[0][:100] == states[1][:100]).all()
    assert (states[0][100:] != states[1][100:]).any(axis=1).all()


# ------------------------------------------------------------------------------------------ number types


@pytest.mark.parametrize("masked", [False, True])
def test_float32_stays_float32(masked):
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(4, 3)).astype(np.float32)
    trace = attend(inputs, random_head(rng, 3, 2, 2, np.float32), masks.causal(4) if masked else None)
    for name in ("inputs", "queries", "keys", "values", "scores", "weights", "output"):
        assert getattr(trace, name).dtype == np.float32, name
    assert mix([[1.0, 0.0]], np.array([[1], [np.nan]], np.float32)).dtype == np.float64
    assert mix(np.array([[1, 0]], np.float32), np.array([[1], [np.nan]], np.float32)).dtype == np.float32
    double = attend(inputs.astype(float), Head(*(np.eye(3, 2) for _ in range(3))))
    assert double.weights.dtype == np.float64


@pytest.mark.parametrize(
    "given", [np.array([[1, 2]]), np.array([[1, 2]], dtype=np.uint8), [[Fraction(1), Fraction(2)]]]
)
def test_integers_and_fractions_become_float64(given):
    assert project(given, [[1], [1]]).dtype == np.float64
    assert project(given, [[1], [1]]).tolist() == [[3]]


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(half):
    if half == "bfloat16":
        half = pytest.importorskip("ml_dtypes").bfloat16
    scores = np.array([[20, 20, -20]], dtype=half)  # exp(20) overflows float16
    weights = softmax_over_sources(scores)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0]], atol=1e-6)


@pytest.mark.parametrize("given", [[[True, False]], [[1j, 0]], [["a", "b"]], [[None, 1]], [[1, 2], [3]]])
def test_what_is_no_number_is_refused(given):
    with pytest.raises(LabkitError, match="scores cannot be read as an array of real numbers"):
        softmax_over_sources(given)


# ------------------------------------------------------------------------------------------ shapes


def test_shape_errors_name_given_expected_axis_and_remedy():
    with pytest.raises(
        ShapeError, match=r"inputs \(2, 3\) have 3 features .last axis.*expect 2 .first axis.*transpose"
    ):
        project(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ShapeError, match=r"width 2 and keys .* have width 3 .last axis.: both must be d_k wide"):
        scaled_scores(np.zeros((1, 2)), np.zeros((1, 3)))
    with pytest.raises(ShapeError, match=r"cover 2 sources .last axis.*hold 3 .axis -2.*one value vector per source"):
        mix(np.zeros((1, 2)), np.zeros((3, 1)))
    with pytest.raises(ShapeError, match="W_K reads 2 features and W_V 1"):
        Head(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((1, 1)))
    with pytest.raises(ShapeError, match="W_Q has d_k = 2 and W_K has d_k = 3"):
        Head(np.zeros((2, 1, 2)), np.zeros((2, 1, 3)), np.zeros((2, 1, 1)))
    with pytest.raises(ShapeError, match=r"keys has shape \(2,\): give a matrix"):
        scaled_scores([1, 2], [1, 2])
    with pytest.raises(ShapeError, match=r"batch axes \(2,\) and \(3,\) .leading axes"):
        mix(np.ones((2, 1, 1)), np.ones((3, 1, 1)))


def test_a_single_row_works_alone():
    assert softmax_over_sources([0.0, math.log(3)]) == pytest.approx([1 / 4, 3 / 4])
    assert mix([0.25, 0.75], [[4], [8]]).tolist() == [7]
    assert project([1, 2], [[1], [1]]).tolist() == [3]


def test_scores_are_computed_again_and_not_kept():
    trace = attend(np.eye(2), Head(np.eye(2), np.eye(2), np.eye(2)))
    assert "scores" not in vars(trace)
    assert (trace.scores == scaled_scores(trace.queries, trace.keys)).all()


def test_without_a_mask_none_is_stored():
    trace = attend(np.zeros((300, 1)), Head([[1]], [[1]], [[1]]))
    assert trace.allowed.all()
    assert trace.allowed.shape == (300, 300)
    assert trace.allowed.strides == (0, 0)


def test_a_misspelt_empty_rows_is_no_permission_for_zeros():
    with pytest.raises(LabkitError, match="empty_rows is 'rais'"):
        softmax_over_sources([[0, 0]], [[False, False]], empty_rows="rais")  # type: ignore[arg-type]


@pytest.mark.parametrize("huge", [10**400, Fraction(10**400)])
def test_a_number_beyond_every_float_is_refused_in_words(huge):
    with pytest.raises(LabkitError, match="scores cannot be read"):
        softmax_over_sources([[huge, 0]])


def test_a_ragged_mask_and_something_that_is_no_head():
    with pytest.raises(MaskError, match="no table of booleans"):
        softmax_over_sources([[1, 2]], [[True], [True, False]])
    with pytest.raises(LabkitError, match="head is a tuple"):
        attend([[1.0]], ([[1]], [[1]], [[1]]))  # type: ignore[arg-type]
