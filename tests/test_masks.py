"""Masks: what each one permits, and every translation there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from labkit import masks
from labkit.errors import MaskError

ANY_MASK = arrays.arrays(bool, arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5))


@given(st.integers(1, 6), st.integers(1, 6))
def test_causal_by_its_definition(n, m):
    for align, shift in (("top-left", 0), ("bottom-right", m - n)):
        expected = [[j <= i + shift for j in range(m)] for i in range(n)]
        assert masks.causal(n, m, align).tolist() == expected


def test_alignment_has_no_silent_default():
    assert masks.causal(2, 2).tolist() == [[True, False], [True, True]]
    with pytest.raises(MaskError, match=r"n = 2 destinations and m = 3 sources: say which corners coincide"):
        masks.causal(2, 3)
    with pytest.raises(MaskError, match="align is 'left'; expected"):
        masks.causal(2, 3, align="left")  # type: ignore[arg-type]


def test_padding_blocks_columns_and_not_rows():
    allowed = masks.combine(masks.padding([True, True, False]), np.ones((3, 3), dtype=bool))
    assert allowed.tolist() == [[True, True, False]] * 3
    assert masks.padding(np.ones((4, 5), dtype=bool)).shape == (4, 1, 5)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_lengths_there_and_back(lengths):
    allowed = masks.from_lengths(lengths, 5)
    assert allowed.shape == (len(lengths), 1, 5)
    assert [int(row.sum()) for row in allowed] == lengths
    assert masks.to_lengths(allowed).tolist() == lengths
    assert not (allowed[..., 1:] & ~allowed[..., :-1]).any()


def test_one_mask_without_batch_axes_has_one_length():
    assert masks.to_lengths([[True, True, False]]).tolist() == 2


@pytest.mark.parametrize("lengths", [[-1], [6], [2.0], [True]])
def test_impossible_lengths_are_refused(lengths):
    with pytest.raises(MaskError, match="expected whole numbers from 0 to m = 5"):
        masks.from_lengths(lengths, 5)


@pytest.mark.parametrize("allowed", [[[False, True]], [[True, False, True]], masks.causal(2), [True, False]])
def test_a_mask_without_lengths_is_refused(allowed):
    with pytest.raises(MaskError, match="only such a mask has lengths"):
        masks.to_lengths(allowed)


@given(ANY_MASK)
def test_round_trips(allowed):
    assert (masks.from_blocked(masks.to_blocked(allowed)) == allowed).all()
    assert (masks.to_blocked(allowed) != allowed).all()
    for dtype in (np.float32, np.float64):
        additive = masks.to_additive(allowed, dtype)
        assert additive.dtype == dtype
        assert (np.isneginf(additive) == ~allowed).all()
        assert (masks.from_additive(additive) == allowed).all()
    for convention in masks.CONVENTIONS.values():
        assert (convention.to_allowed(convention.from_allowed(allowed)) == allowed).all()


@pytest.mark.parametrize("additive", [[[1.0, 0.0]], [[0.0, -1e9]], [[0, 1]], [[0.0, np.nan]], [[0.0, np.inf]]])
def test_what_is_not_additive_is_refused(additive):
    with pytest.raises(MaskError, match="0 where allowed and -inf where blocked"):
        masks.from_additive(additive)


@pytest.mark.parametrize(
    "function", [masks.padding, masks.to_blocked, masks.from_blocked, masks.to_additive, masks.combine]
)
def test_a_zero_one_mask_is_refused_because_it_is_ambiguous(function):
    with pytest.raises(MaskError, match="does not say whether 1 means allowed or blocked"):
        function([[0, 1]])


def test_combine_is_and_and_names_misfits():
    assert masks.combine([[True, True, False, False]], [[True, False, True, False]]).tolist() == [
        [True, False, False, False]
    ]
    with pytest.raises(MaskError, match=r"\(2, 2\), \(1, 3\) do not combine"):
        masks.combine(masks.causal(2), masks.padding([True] * 3))


def test_conventions_disagree_where_the_table_says_so():
    allowed = masks.causal(2)
    blocked = masks.CONVENTIONS["torch.mha"].from_allowed(allowed)
    assert (blocked == ~masks.CONVENTIONS["torch.sdpa"].from_allowed(allowed)).all()
    assert (blocked == ~masks.CONVENTIONS["keras"].from_allowed(allowed)).all()
    table = masks.conventions().splitlines()
    assert len(table) == 2 + len(masks.CONVENTIONS)
    assert len({line.count("|") for line in table}) == 1


@pytest.mark.parametrize("size", [-1, 2.5, "3", True, None])
def test_causal_wants_whole_sizes(size):
    with pytest.raises(MaskError, match="whole number"):
        masks.causal(size)


@pytest.mark.parametrize(
    "convert",
    [masks.padding, masks.combine, masks.to_additive, masks.from_additive, masks.to_blocked, masks.to_lengths],
)
def test_ragged_rows_are_refused_in_words(convert):
    with pytest.raises(MaskError, match="is no table"):
        convert([[True], [True, False]])


def test_other_refusals_are_mask_errors_too():
    with pytest.raises(MaskError, match="cannot hold -inf"):
        masks.to_additive([[True, False]], dtype=int)
    with pytest.raises(MaskError, match="one for each source"):
        masks.padding(True)
    with pytest.raises(MaskError, match="m is '3'"):
        masks.from_lengths([1], "3")  # type: ignore[arg-type]
    with pytest.raises(MaskError, match="holds"):
        masks.from_additive(np.array(["a", None], dtype=object))
