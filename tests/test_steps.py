"""Steps whose truth no other test computes by another route."""

from __future__ import annotations

from typing import Any

import pytest

from labkit import steps
from labkit.errors import LabkitError


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


REFUSED = [
    ("shapes", {"of": "scores"}, "there is no array 'scores'; there are X, sources, W_Q, "),
    ("shapes", {"of": "S", "m": 2}, "the shape of 'S' needs the size n: add n=…"),
    ("shapes", {"of": "concat", "n": 2}, "the shape of 'concat' needs the size d_v: add d_v=…"),
    ("shapes", {}, "shapes cannot be computed without of; given: "),
    ("weights", {"score": [0]}, "scores cannot be computed without queries and keys; given: score"),
    ("scores", {"queries": [1], "keys": None}, "scores cannot be computed without keys; given: queries, keys"),
    (
        "mask",
        {"rule": "casual"},
        "there is no rule of a mask 'casual'; there are causal, padding, causal+padding, allowed",
    ),
    ("mask", {"rule": "causal"}, "a causal mask cannot be computed without n; given: rule"),
    ("mask", {"rule": "padding"}, "a padding mask cannot be computed without is_real; given: rule"),
    ("mask", {"rule": "allowed"}, "this mask cannot be computed without allowed; given: rule"),
    (
        "mask",
        {"rule": "causal", "n": 2, "form": "x"},
        "there is no form of a mask 'x'; there are allowed, blocked, additive",
    ),
    ("number", {"by": 1}, "`by` is 1; it must be a function that computes it, by=lambda: …"),
    ("choice", {"outcome": "A"}, "`outcome` is 'A'; it must be a function that computes it, outcome=lambda: …"),
    ("number", {"by": lambda: None}, "`by` computes None: it must return the right answer"),
    ("ordering", {"by": [1, 2]}, "`by` is [1, 2]; it must be a function that computes it, by=lambda: …"),
]


@pytest.mark.parametrize(("step", "given", "complaint"), REFUSED)
def test_what_cannot_be_computed_says_what_is_missing(step: str, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LabkitError) as refused:
        steps.truth(step, given)
    assert str(refused.value).startswith(complaint)


def test_a_task_is_found_by_its_name_or_answered_with_all_names() -> None:
    assert steps.task_named("dot") is steps.TASKS["dot"]
    with pytest.raises(LabkitError, match="there is no task 'nope'; there are dot, matmul, "):
        steps.task_named("nope")
