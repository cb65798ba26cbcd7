"""What every step of attention gives, computed from its inputs, and the functions a learner can be asked to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from labkit import masks
from labkit.attention import Array, project, scaled_scores, softmax_over_sources
from labkit.attention import mix as mix_values
from labkit.heads import residual

Inputs = Mapping[str, Any]

AXES: dict[str, tuple[str, ...]] = {
    "X": ("n", "d_model"),
    "sources": ("m", "d_model"),
    "W_Q": ("d_model", "d_k"),
    "W_K": ("d_model", "d_k"),
    "W_V": ("d_model", "d_v"),
    "Q": ("n", "d_k"),
    "K": ("m", "d_k"),
    "V": ("m", "d_v"),
    "S": ("n", "m"),
    "A": ("n", "m"),
    "maps": ("H", "n", "m"),
    "Z": ("n", "d_v"),
    "concat": ("n", "H d_v"),
    "W_O": ("H d_v", "d_model"),
    "Y": ("n", "d_model"),
}

# A step named here can make do without the input of that name: the earlier step computes it.
MADE_BY = {"weights": "scores", "mixture": "weights"}


def axis_size(axis: str, sizes: Inputs) -> int:
    """Look one axis up: `m` is `n` unless given, `H d_v` is the width of all heads side by side."""
    if axis == "H d_v":
        return int(sizes.get("H") or 1) * int(sizes["d_v"])
    if axis == "m":
        return int(sizes.get("m") or sizes["n"])
    return int(sizes[axis])


def shapes(given: Inputs) -> tuple[int, ...]:
    """Give the shape of the array named by `of`.

    >>> shapes({"of": "W_Q", "d_model": 12, "d_k": 3})
    (12, 3)
    """
    return tuple(axis_size(axis, given) for axis in AXES[given["of"]])


def projection(given: Inputs) -> Array:
    """Multiply every row by the matrix."""
    return project(given["inputs"], given["weights"])


def scores(given: Inputs) -> Array:
    """Score queries against keys; one query and one key give one number."""
    keys = np.asarray(given["keys"])
    all_scores = scaled_scores(given["queries"], np.atleast_2d(keys))
    return all_scores if keys.ndim > 1 else np.asarray(all_scores[..., 0])


def weights(given: Inputs) -> Array:
    """Turn scores into weights."""
    return softmax_over_sources(given["scores"], given.get("allowed"))


def mixture(given: Inputs) -> Array:
    """Mix the values."""
    return mix_values(given["weights"], given["values"])


def update(given: Inputs) -> Array:
    """Lay the heads side by side, write them back through W_O and, with a state, add the result to it."""
    made = project(np.concatenate([np.asarray(z, dtype=float) for z in given["outputs"]], axis=-1), given["W_O"])
    return made if given.get("state") is None else residual(given["state"], made)


def mask(given: Inputs) -> Array:
    """Build the mask of a rule in the form asked for."""
    return in_form(allowed_by(given["rule"], given), given.get("form", "allowed"))


def allowed_by(rule: str, given: Inputs) -> Array:
    """Give `allowed` for "causal", "padding", "causal+padding", or "allowed" (the array itself)."""
    if rule == "allowed":
        return np.asarray(given["allowed"], dtype=bool)
    parts = []
    if "padding" in rule:
        real = masks.padding(given["is_real"])
        n = given.get("n") or real.shape[-1]
        parts.append(np.broadcast_to(real, (*real.shape[:-2], n, real.shape[-1])))
    if "causal" in rule:
        parts.append(masks.causal(given["n"], given.get("m"), given.get("align")))
    return masks.combine(*parts)


def in_form(allowed: Array, form: str) -> Array:
    """Say the same mask as "allowed", "blocked" or "additive" (0 and -inf)."""
    if form == "additive":
        return np.where(allowed, 0.0, -np.inf)
    return ~allowed if form == "blocked" else allowed


TRUTHS: dict[str, Callable[[Inputs], Any]] = {
    "shapes": shapes,
    "projection": projection,
    "scores": scores,
    "weights": weights,
    "mixture": mixture,
    "update": update,
    "mask": mask,
    "number": lambda given: given["by"](),
    "ordering": lambda given: list(given["by"]()),
    "choice": lambda given: given["outcome"](),
    "dot": lambda given: np.dot(given["a"], given["b"]),
    "matmul": lambda given: project(given["A"], given["B"]),
    "transpose": lambda given: np.transpose(given["A"]),
    "normalise": lambda given: np.divide(given["row"], np.sum(given["row"])),
}


def truth(step: str, given: Inputs) -> Any:
    """Compute what a step gives.

    >>> truth("weights", {"scores": [0, np.log(3)]}).tolist()
    [0.25, 0.75]
    """
    step, given = expand(step, given)
    return TRUTHS[step](complete(step, given))


def complete(step: str, given: Inputs) -> Inputs:
    """Add the input an earlier step makes, where it was not given."""
    earlier = MADE_BY.get(step)
    if earlier is None or earlier in given:
        return given
    return {**given, earlier: truth(earlier, given)}


def expand(step: str, given: Inputs) -> tuple[str, Inputs]:
    """Rewrite a whole head, or several, as its last step."""
    if step == "attend":
        return "mixture", _head_inputs(given)
    if step == "multi_head":
        outputs = [truth("attend", {**given, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}) for W_Q, W_K, W_V in given["heads"]]
        return "update", {"outputs": outputs, "W_O": given["W_O"]}
    return step, given


def _head_inputs(given: Inputs) -> Inputs:
    inputs = given["inputs"]
    made = {name: project(inputs, given[W]) for name, W in (("queries", "W_Q"), ("keys", "W_K"), ("values", "W_V"))}
    return {**made, "allowed": given.get("allowed"), "d_model": np.shape(inputs)[-1]}
