"""The exact route: fractions by hand, fresh examples fit for paper, and the same refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import exact
from labkit.attention import Head, attend
from labkit.errors import EmptyRowError, LabkitError, MaskError, NonFiniteError, ShapeError

SETTINGS = [
    {},
    {"positions": 2},
    {"positions": 4},
    {"positions": 5, "largest_denominator": 20},
    {"causal": False},
    {"d_v": 1},
    {"d_v": 3, "d_k": 3},
]


def test_worked_example_has_every_number_of_the_calculation_by_hand():
    example = exact.worked_example()
    assert example.dots == [[1, 0, 1], [0, 1, 1], [1, 1, 2]]
    assert (np.array(example.exp_scores) * np.array(example.allowed)).tolist() == [[2, 0, 0], [1, 2, 0], [2, 2, 4]]
    thirds, quarters = Fraction(1, 3), Fraction(1, 4)
    assert example.weights == [[1, 0, 0], [thirds, 2 * thirds, 0], [quarters, quarters, 2 * quarters]]
    assert example.output == [[2, 0], [Fraction(2, 3), Fraction(8, 3)], [Fraction(3, 2), 3]]
    assert example.keys[0] == [math.sqrt(2) * math.log(2), 0]
    assert exact.residual(example.inputs, example.output)[2] == [Fraction(5, 2), 4]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_a_fresh_example_is_exact_small_and_worth_solving(options, seed):
    example = exact.fresh_example(seed, **options)
    limit = options.get("largest_denominator", 12)
    weights = [weight for row in example.weights for weight in row]
    assert all(isinstance(weight, Fraction) and weight.denominator <= limit for weight in weights)
    assert all(sum(row) == 1 for row in example.weights)
    for matrix in (example.queries, example.key_units, example.values, example.dots):
        assert all(isinstance(x, int) for row in matrix for x in row)
    assert all(abs(x) <= 6 for row in example.values for x in row)
    for row, permitted in zip(example.dots, example.allowed, strict=True):
        choice = [d for d, ok in zip(row, permitted, strict=True) if ok]
        assert all(0 <= d <= 3 for d in choice)
        assert len(choice) == 1 or len(set(choice)) > 1, "a row of equal weights teaches nothing"


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_fresh_example_agrees_with_numpy_in_every_array(options, seed):
    example = exact.fresh_example(seed, **options)
    trace = attend(example.inputs, Head(example.W_Q, example.W_K, example.W_V), example.allowed)
    for name in ("queries", "keys", "values", "scores", "weights", "output"):
        expected = np.array(getattr(example, name), dtype=float)
        np.testing.assert_allclose(getattr(trace, name), expected, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(np.exp(example.scores), np.array(example.exp_scores, dtype=float), rtol=1e-12)


@pytest.mark.parametrize("options", SETTINGS[:5], ids=str)
def test_no_well_known_slip_gives_the_right_number(options):
    """Repeat the slips in floating point, so that the generator's own check is checked."""
    for seed in range(25):
        example = exact.fresh_example(seed, **options)
        scores, allowed = np.array(example.scores), np.array(example.allowed)
        weights, values = np.array(example.weights, dtype=float), np.array(example.values)
        powers = np.exp(scores)
        for wrong in (
            np.exp(scores.T) * allowed / (np.exp(scores.T) * allowed).sum(axis=1, keepdims=True),
            powers * allowed / (powers * allowed).sum(axis=0),
            np.exp(scores * 2**0.5) * allowed / (np.exp(scores * 2**0.5) * allowed).sum(axis=1, keepdims=True),
            weights.T,
        ):
            for i in np.flatnonzero(allowed.sum(axis=1) > 1):
                assert not np.allclose(wrong[i], weights[i])
                assert not np.allclose(values.mean(axis=0), weights[i] @ values)


def test_the_same_seed_gives_the_same_example_and_another_seed_another():
    assert exact.fresh_example("ada/masks-1") == exact.fresh_example("ada/masks-1")
    drawn = [str(exact.fresh_example(seed)) for seed in range(200)]
    assert len(set(drawn)) == 200


def test_a_known_seed_gives_the_known_example():
    """Numbers must not drift, or stored notebooks would change."""
    example = exact.fresh_example(7)
    assert example.dots == [[1, 0, -1], [3, 2, 3], [0, 1, 3]]
    assert example.values == [[2, -2], [-1, 6], [4, 6]]
    assert example.inputs == [[0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0]]
    assert example.W_Q == [[2, 1], [-1, 0], [2, 0], [0, -1]]
    assert example.W_K_units == [[2, 1], [0, 0], [0, 1], [1, -1]]
    assert example.W_V == [[3, 5], [1, 1], [-3, 8], [2, -2]]


def test_the_smallest_denominator_that_can_be_asked_for():
    assert exact.fresh_example(1, positions=2, largest_denominator=3).weights[1][0].denominator == 3


@pytest.mark.parametrize("options", [{"positions": 1}, {"d_v": 0}, {"d_k": 0}, {"largest_denominator": 3}])
def test_impossible_sizes_are_refused(options):
    with pytest.raises(LabkitError, match=r"give at least 2 positions|above the number of positions"):
        exact.fresh_example(1, **options)


NUMBERS = st.one_of(st.integers(-9, 9), st.fractions(-9, 9, max_denominator=9))


def matrices(rows, columns):
    return st.lists(st.lists(NUMBERS, min_size=columns, max_size=columns), min_size=rows, max_size=rows)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.data())
def test_products_agree_with_numpy_and_stay_exact(n, d, m, data):
    A, B = data.draw(matrices(n, d)), data.draw(matrices(d, m))
    product = exact.matmul(A, B)
    assert product == (np.array(A, dtype=object) @ np.array(B, dtype=object)).tolist()
    assert exact.matmul(exact.transpose(B), exact.transpose(A)) == exact.transpose(product)
    assert all(not isinstance(x, float) for row in product for x in row)


@given(st.lists(st.fractions(Fraction(1, 8), 8, max_denominator=8), min_size=1, max_size=6), st.data())
def test_exponentials_as_fractions_agree_with_floats(powers, data):
    allowed = data.draw(st.lists(st.booleans(), min_size=len(powers), max_size=len(powers)).filter(any))
    weights = exact.weights_from_exp(powers, allowed)
    assert sum(weights) == 1
    by_scores = exact.softmax_over_sources([math.log(p) for p in powers], allowed)
    assert by_scores == pytest.approx([float(w) for w in weights], abs=1e-12)


def test_without_a_mask_everything_is_read():
    trace = exact.attend([[0], [0]], [[1]], [[1]], [[1]])
    assert trace.allowed == [[True, True], [True, True]]
    assert trace.weights == [[0.5, 0.5], [0.5, 0.5]]


def test_refusals():
    with pytest.raises(ValueError, match="zip"):
        exact.residual([[1, 2]], [[1]])
    with pytest.raises(ShapeError, match="2 and 1 coordinates"):
        exact.dot([1, 2], [1])
    with pytest.raises(ShapeError, match="A has 1 columns and B has 2 rows"):
        exact.matmul([[1]], [[1], [2]])
    with pytest.raises(ShapeError, match="weights over 1 sources and 2 value vectors"):
        exact.mix([[1]], [[1], [2]])
    with pytest.raises(MaskError, match=r"True .reading permitted. and False only"):
        exact.softmax_over_sources([0.0, 1.0], [1, 0])
    with pytest.raises(MaskError, match=r"allowed has rows of \[1\], the scores \[2\] sources"):
        exact.softmax_over_sources([[0.0, 1.0]], [[True]])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity(bad):
    assert exact.softmax_over_sources([0.0, bad], [True, False]) == [1, 0]
    assert exact.mix([[1, 0]], [[3], [bad]]) == [[3]]
    with pytest.raises(NonFiniteError, match="row 0, source 1"):
        exact.softmax_over_sources([0.0, bad])


def test_empty_rows_are_named():
    with pytest.raises(EmptyRowError) as caught:
        exact.weights_from_exp([[1, 1], [1, 1]], [[True, False], [False, False]])
    assert caught.value.rows == [(1,)]
    with pytest.raises(EmptyRowError) as caught:
        exact.softmax_over_sources([[0.0], [-math.inf]])
    assert caught.value.rows == [(1,)]
