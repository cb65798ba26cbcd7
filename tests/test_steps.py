"""Steps whose truth no other test computes by another route."""

from __future__ import annotations

import pytest

from labkit import steps


def test_forbidding_a_source_shares_its_weight_among_the_others() -> None:
    weights = steps.truth("forbid", {"exponentials": [1, 2, 3], "source": 1})
    assert weights == pytest.approx([1 / 4, 0, 3 / 4])


@pytest.mark.parametrize(
    ("axis", "sizes", "expected"),
    [
        ("H d_v", {"d_v": 4}, 4),
        ("H d_v", {"H": 3, "d_v": 4}, 12),
        ("m", {"n": 5}, 5),
        ("m", {"n": 5, "m": 7}, 7),
        ("d_k", {"d_k": 2, "n": 5}, 2),
    ],
)
def test_axes_have_the_sizes_their_names_say(axis: str, sizes: dict[str, int], expected: int) -> None:
    assert steps.axis_size(axis, sizes) == expected
