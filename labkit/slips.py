"""Wrong procedures that people really follow, each able to compute the number it would have given.

An entry that a slip leaves undefined (0/0) is NaN, and matches whatever a learner made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit import steps
from labkit.attention import Array
from labkit.errors import NonFiniteError
from labkit.steps import Inputs


@dataclass(frozen=True)
class Slip:
    """One named slip: what it computes, why that is not it, and where the lessons explain it."""

    id: str
    step: str
    label: str  # ends the sentence "These are the numbers of ..."
    refutation: str
    section: str  # the topic of the syllabus (`labkit/authoring/ids.toml`) that explains it, or ""
    compute: Callable[[Inputs], Any]  # None where the slip does not apply to these inputs


def of_step(step: str) -> list[Slip]:
    """List the slips of one step, the most common first."""
    return [slip for slip in CATALOGUE.values() if slip.step == step]


def values(step: str, given: Inputs) -> Iterator[tuple[Slip, Any]]:
    """Give every slip of a step, and of the earlier steps it had to redo, with the number it leads to.

    >>> dict((slip.id, value.tolist()) for slip, value in values("weights", {"scores": [1, 3]}))["weights-raw-scores"]
    [0.25, 0.75]
    """
    step, given = steps.as_last_step(step, given)
    earlier = steps.MADE_BY.get(step)
    if earlier and earlier not in given:
        for slip, wrong in values(earlier, given):
            with np.errstate(all="ignore"):
                yield slip, _carried_on(step, given, earlier, wrong)
    for slip in of_step(step):
        with np.errstate(all="ignore"):
            wrong = slip.compute(steps.with_earlier_step(step, given))
        if wrong is not None:
            yield slip, wrong


def _carried_on(step: str, given: Inputs, earlier: str, wrong: Array) -> Any:
    """Finish the step correctly from an earlier result that is wrong; where that cannot be done, nothing matches."""
    if np.shape(wrong) != np.shape(steps.truth(earlier, given)):
        return np.full(np.shape(wrong), np.nan)
    try:
        return steps.TRUTHS[step]({**given, earlier: wrong})
    except NonFiniteError:  # the slip itself divided 0 by 0
        return np.full(np.shape(wrong), np.nan)


# Arrays as the formulas below want them ------------------------------------------------------------------------


def _floats(given: Inputs, name: str) -> Array:
    return np.asarray(given[name], dtype=float)


def _allowed(given: Inputs) -> Array:
    scores = _floats(given, "scores")
    allowed = given.get("allowed")
    return np.ones(scores.shape, bool) if allowed is None else np.broadcast_to(np.asarray(allowed, bool), scores.shape)


def _masks_something(given: Inputs) -> bool:
    return not bool(_allowed(given).all())


def _shares(parts: Array, axis: int | tuple[int, ...] = -1) -> Array:
    return np.asarray(parts / parts.sum(axis=axis, keepdims=True))


def _softmax(scores: Array) -> Array:
    return _shares(np.exp(scores - scores.max(axis=-1, keepdims=True)))


# Shapes --------------------------------------------------------------------------------------------------------


def _shape_with(**swapped: str) -> Callable[[Inputs], Any]:
    """Read one size in the place of another."""

    def compute(given: Inputs) -> tuple[int, ...] | None:
        axes = steps.AXES[given["of"]]
        if not any(axis in swapped and _known(given, swapped[axis]) for axis in axes):
            return None
        right = steps.shapes(given)
        return tuple(
            steps.axis_size(swapped[axis], given) if axis in swapped and _known(given, swapped[axis]) else size
            for axis, size in zip(axes, right, strict=True)
        )

    return compute


def _known(given: Inputs, axis: str) -> bool:
    return given.get("d_v" if axis == "H d_v" else axis) is not None


def _shape_stacked(given: Inputs) -> tuple[int, ...] | None:
    if given["of"] != "concat":
        return None
    return (int(given.get("H") or 1) * int(given["n"]), int(given["d_v"]))


def _shape_averaged(given: Inputs) -> tuple[int, ...] | None:
    return steps.shapes({**given, "of": "A"}) if given["of"] == "maps" else None


SHAPES = [
    Slip(
        "shapes-reversed",
        "shapes",
        "rows and columns in the other order",
        "Vectors are rows here: the first number counts the rows, the second says how wide each row is.",
        "P6",
        lambda given: steps.shapes(given)[::-1],
    ),
    Slip(
        "shapes-full-width",
        "shapes",
        "a head as wide as the whole model",
        "A head works in its own width: W_Q and W_K lead from d_model to d_k, W_V from d_model to d_v.",
        "P6",
        _shape_with(d_k="d_model", d_v="d_model"),
    ),
    Slip(
        "shapes-dk-for-dv",
        "shapes",
        "d_k where d_v belongs",
        "d_v is free: only queries and keys have to agree in width, because only they are compared.",
        "P6",
        _shape_with(d_v="d_k", **{"H d_v": "d_k"}),
    ),
    Slip(
        "shapes-dv-for-dk",
        "shapes",
        "d_v where d_k belongs",
        "Queries and keys are d_k wide; d_v is the width of the values and of what is mixed from them.",
        "P6",
        _shape_with(d_k="d_v"),
    ),
    Slip(
        "shapes-sources-as-destinations",
        "shapes",
        "as many sources as destinations",
        "Keys and values come from the sources, and there are m of them: K and V have m rows, S and A have m columns.",
        "H8",
        lambda given: _shape_with(m="n")(given) if given.get("m") else None,
    ),
    Slip(
        "shapes-destinations-as-sources",
        "shapes",
        "as many destinations as sources",
        "Every destination asks one query and gets one row: Q, S, A and Z have n rows, however many sources there are.",
        "H8",
        _shape_with(n="m"),
    ),
    Slip(
        "shapes-map-as-wide-as-keys",
        "shapes",
        "a map as wide as the keys",
        "The coordinates of query and key are summed up in the dot product: a map has one column for every source.",
        "P6",
        lambda given: _shape_with(m="d_k")(given) if given["of"] in ("S", "A", "maps") else None,
    ),
    Slip(
        "shapes-one-head",
        "shapes",
        "one head only",
        "The heads lie side by side along the features, so their widths add up to H d_v.",
        "H3",
        _shape_with(**{"H d_v": "d_v"}),
    ),
    Slip(
        "shapes-heads-along-positions",
        "shapes",
        "heads put below each other",
        "Concatenation runs along the features: every position keeps its one row, and that row grows wider.",
        "H3",
        _shape_stacked,
    ),
    Slip(
        "shapes-maps-averaged",
        "shapes",
        "one averaged map",
        "Every head has a map of its own, so the head axis comes first and nothing is averaged.",
        "A3",
        _shape_averaged,
    ),
]


# Projection ----------------------------------------------------------------------------------------------------


def _product_if_it_fits(a: Array, b: Array) -> Array | None:
    return a @ b if a.ndim and b.ndim and a.shape[-1] == b.shape[max(b.ndim - 2, 0)] else None


def _elementwise(given: Inputs) -> Array | None:
    inputs, matrix = _floats(given, "inputs"), _floats(given, "weights")
    return inputs * matrix if inputs.shape == matrix.shape else None


PROJECTION = [
    Slip(
        "projection-transposed-matrix",
        "projection",
        "the matrix read along its rows instead of its columns",
        "Row vectors stand on the left: output coordinate j is the row times column j of the matrix, not row j.",
        "S3",
        lambda given: _product_if_it_fits(_floats(given, "inputs"), _floats(given, "weights").T),
    ),
    Slip(
        "projection-matrix-first",
        "projection",
        "the product in the other order",
        "The positions are rows, so the learned matrix stands on the right: X W, not W X.",
        "S3",
        lambda given: _product_if_it_fits(_floats(given, "weights"), _floats(given, "inputs")),
    ),
    Slip(
        "projection-elementwise",
        "projection",
        "multiplying entry by entry",
        "A matrix product adds up a whole row against a whole column; `*` in Python does not, `@` does.",
        "S2",
        _elementwise,
    ),
    Slip(
        "projection-result-transposed",
        "projection",
        "the right product turned over",
        "Row i of the result belongs to position i: positions stay rows.",
        "P1",
        lambda given: steps.projection(given).T if np.ndim(given["inputs"]) > 1 else None,
    ),
    Slip(
        "projection-skipped",
        "projection",
        "the input itself, not projected",
        "Queries, keys and values are never the input itself: each is the input times its own learned matrix.",
        "P3",
        lambda given: _floats(given, "inputs"),
    ),
]


# Scores --------------------------------------------------------------------------------------------------------


def _dots(given: Inputs) -> Array:
    return np.asarray(steps.scores(given) * _width(given) ** 0.5)


def _width(given: Inputs) -> int:
    return int(np.shape(given["queries"])[-1])


def _divided_by_root_of(name: str) -> Callable[[Inputs], Array | None]:
    return lambda given: _dots(given) / float(given[name]) ** 0.5 if given.get(name) else None


def _divided_by_sources(given: Inputs) -> Array | None:
    sources = int(np.atleast_2d(given["keys"]).shape[-2])
    return _dots(given) / float(sources) ** 0.5 if sources > 1 else None  # by the root of 1 is no mistake of its own


def _cosine(given: Inputs) -> Array:
    queries, keys = _floats(given, "queries"), _floats(given, "keys")
    lengths = np.linalg.norm(queries, axis=-1)
    lengths = lengths[..., None] * np.linalg.norm(keys, axis=-1) if keys.ndim > 1 else lengths * np.linalg.norm(keys)
    return np.asarray(_dots(given) / lengths)


def _scores_transposed(given: Inputs) -> Array | None:
    scores = steps.scores(given)
    return scores.swapaxes(-1, -2) if scores.ndim > 1 else None


SCORES = [
    Slip(
        "scores-unscaled",
        "scores",
        "the plain dot products, not divided",
        "Divide by sqrt(d_k): longer vectors would otherwise give larger scores for no other reason than their width.",
        "C3",
        _dots,
    ),
    Slip(
        "scores-width-without-root",
        "scores",
        "dividing by d_k itself, or by its root twice",
        "The divisor is the square root of d_k, once: scale the queries or the scores, not queries and keys both.",
        "C3",
        lambda given: _dots(given) / _width(given),
    ),
    Slip(
        "scores-multiplied",
        "scores",
        "multiplying by sqrt(d_k)",
        "The root makes scores smaller: a factor d_k ** -0.5 is multiplied, a divisor sqrt(d_k) is divided by.",
        "C3",
        lambda given: _dots(given) * _width(given) ** 0.5,
    ),
    Slip(
        "scores-model-width",
        "scores",
        "dividing by sqrt(d_model)",
        "The divisor follows the vectors that are compared, and those are d_k wide, not d_model.",
        "C3",
        _divided_by_root_of("d_model"),
    ),
    Slip(
        "scores-number-of-sources",
        "scores",
        "dividing by the root of the number of positions",
        "How many sources there are has nothing to do with one dot product: divide by sqrt(d_k).",
        "C3",
        _divided_by_sources,
    ),
    Slip(
        "scores-number-of-heads",
        "scores",
        "dividing by the root of the number of heads",
        "Each head scales by its own width sqrt(d_k), whatever the number of heads.",
        "C3",
        _divided_by_root_of("H"),
    ),
    Slip(
        "scores-value-width",
        "scores",
        "dividing by sqrt(d_v)",
        "Values play no part in the scores: the divisor is the root of the query and key width d_k.",
        "C3",
        _divided_by_root_of("d_v"),
    ),
    Slip(
        "scores-transposed",
        "scores",
        "keys against queries",
        "Destinations are rows: entry (i, j) is query i times key j. The transpose swaps who reads and who is read.",
        "C1",
        _scores_transposed,
    ),
    Slip(
        "scores-cosine",
        "scores",
        "the cosine of the angle",
        "A score is no cosine: the lengths of query and key count, and only sqrt(d_k) is divided out.",
        "C2",
        _cosine,
    ),
]


# Weights -------------------------------------------------------------------------------------------------------


def _down_the_columns(given: Inputs) -> Array:
    scores = _floats(given, "scores")
    parts = np.where(_allowed(given), np.exp(scores - scores.max()), 0)
    if parts.ndim == 1:  # one row is a matrix of one row: every column has one entry
        return np.where(_allowed(given), 1.0, 0.0)
    return _shares(parts, axis=-2)


def _whole_matrix(given: Inputs) -> Array | None:
    scores = _floats(given, "scores")
    if scores.ndim < 2:
        return None
    return _shares(np.where(_allowed(given), np.exp(scores - scores.max()), 0), axis=(-2, -1))


def _raw_shares(given: Inputs) -> Array:
    return _shares(np.where(_allowed(given), _floats(given, "scores"), 0))


def _mask_transposed(given: Inputs) -> Array | None:
    allowed = _allowed(given)
    if allowed.ndim < 2 or allowed.shape[-1] != allowed.shape[-2]:
        return None
    return _masked(_floats(given, "scores"), allowed.swapaxes(-1, -2))


def _masked(scores: Array, allowed: Array) -> Array:
    """Softmax under another mask; rows with nothing to read become NaN."""
    parts = np.where(allowed, np.exp(scores - np.max(scores, axis=-1, keepdims=True, where=allowed, initial=-1e300)), 0)
    return _shares(parts)


def _own_position_blocked(given: Inputs) -> Array | None:
    scores = _floats(given, "scores")
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2]:
        return None
    return _masked(scores, _allowed(given) & ~np.eye(scores.shape[-1], dtype=bool))


def _largest_takes_all(given: Inputs) -> Array:
    scores = np.where(_allowed(given), _floats(given, "scores"), -np.inf)
    return _shares((scores == scores.max(axis=-1, keepdims=True)).astype(float))


def _shifted_by(shift: Callable[[Array, Array], Any]) -> Callable[[Inputs], Array | None]:
    """Subtract something else than each row's largest allowed score: the same weights, where exp can still do it."""

    def compute(given: Inputs) -> Array | None:
        scores, allowed = _floats(given, "scores"), _allowed(given)
        shares = _shares(np.where(allowed, np.exp(scores - shift(scores, allowed)), 0))
        return shares if np.isnan(shares).any() else None

    return compute


def _first_allowed(scores: Array, allowed: Array) -> Array:
    return np.asarray(np.take_along_axis(scores, allowed.argmax(axis=-1, keepdims=True), axis=-1))


def _map_transposed(given: Inputs) -> Array | None:
    right = steps.weights(given)
    return right.swapaxes(-1, -2) if right.ndim > 1 else None


def _only_if_matrix(compute: Callable[[Inputs], Array | None]) -> Callable[[Inputs], Array | None]:
    return lambda given: compute(given) if np.ndim(given["scores"]) > 1 else None


def _only_if_masked(compute: Callable[[Inputs], Array | None]) -> Callable[[Inputs], Array | None]:
    return lambda given: compute(given) if _masks_something(given) else None


WEIGHTS = [
    Slip(
        "weights-blocked-score-zero",
        "weights",
        "a blocked score set to 0",
        "A score of 0 does not silence a source, because exp(0) = 1: block it with -inf, whose exponential is 0.",
        "M2",
        _only_if_masked(lambda given: _softmax(np.where(_allowed(given), _floats(given, "scores"), 0))),
    ),
    Slip(
        "weights-zeroed-afterwards",
        "weights",
        "weights struck out after the softmax, with the row left as it was",
        "The blocked source has already taken its share of the row: what is left no longer sums to 1.",
        "M3",
        _only_if_masked(lambda given: np.where(_allowed(given), _softmax(_floats(given, "scores")), 0)),
    ),
    Slip(
        "weights-mask-ignored",
        "weights",
        "a softmax over all sources, blocked ones too",
        "The mask comes before the softmax: a blocked source has weight exactly 0 and takes no share.",
        "M1",
        _only_if_masked(lambda given: _softmax(_floats(given, "scores"))),
    ),
    Slip(
        "weights-mask-inverted",
        "weights",
        "the mask read the other way round",
        "True in `allowed` means: this source may be read. Other libraries mean the opposite, so say which you have.",
        "M6",
        _only_if_masked(lambda given: _masked(_floats(given, "scores"), ~_allowed(given))),
    ),
    Slip(
        "weights-mask-added",
        "weights",
        "a 0/1 mask added to the scores",
        "Adding 1 to the allowed scores only shifts the odds a little: blocked sources need -inf, allowed ones 0.",
        "M6",
        _only_if_masked(lambda given: _softmax(_floats(given, "scores") + _allowed(given))),
    ),
    Slip(
        "weights-mask-transposed",
        "weights",
        "rows and columns of the mask exchanged",
        "Rows of the mask are destinations and columns sources: blocking a column is not blocking a row.",
        "M5",
        _only_if_masked(_mask_transposed),
    ),
    Slip(
        "weights-small-fill",
        "weights",
        "blocked scores filled with -10",
        "exp(-10) is small but not 0, so the blocked source still leaks in: fill with -inf.",
        "M7",
        _only_if_masked(lambda given: _softmax(np.where(_allowed(given), _floats(given, "scores"), -10))),
    ),
    Slip(
        "weights-columns",
        "weights",
        "normalising down the columns",
        "Each destination shares out its own attention: the weights of one row sum to 1, those of a column need not.",
        "C5",
        _down_the_columns,
    ),
    Slip(
        "weights-whole-matrix",
        "weights",
        "one softmax over the whole matrix",
        "Every row has a softmax of its own: each row sums to 1, not the matrix.",
        "C5",
        _whole_matrix,
    ),
    Slip(
        "weights-raw-scores",
        "weights",
        "each score divided by the sum of the scores",
        "Softmax divides exponentials, not scores: scores may be 0 or negative, and adding 5 to all changes nothing.",
        "C5",
        _raw_shares,
    ),
    Slip(
        "weights-not-normalised",
        "weights",
        "exponentials that were never divided by their sum",
        "The exponentials are the first half of softmax: divide each by the sum of its row.",
        "C5",
        lambda given: np.where(_allowed(given), np.exp(_floats(given, "scores")), 0),
    ),
    Slip(
        "weights-are-scores",
        "weights",
        "the scores themselves",
        "A score is no weight yet: exponentiate, then divide by the sum over the allowed sources.",
        "C2",
        lambda given: np.where(_allowed(given), _floats(given, "scores"), 0),
    ),
    Slip(
        "weights-sign-flipped",
        "weights",
        "a softmax with the sign turned round",
        "Subtract the maximum from the scores, not the scores from the maximum: a higher score gets more weight.",
        "C8",
        lambda given: _masked(-_floats(given, "scores"), _allowed(given)),
    ),
    Slip(
        "weights-largest-takes-all",
        "weights",
        "the best source taking everything",
        "Softmax is a soft choice: every allowed source with a finite score keeps some weight.",
        "H3",
        _largest_takes_all,
    ),
    Slip(
        "weights-uniform",
        "weights",
        "equal weights for all allowed sources",
        "The mask says who may be read, the scores say how much: only equal scores give equal weights.",
        "C6",
        lambda given: _shares(_allowed(given).astype(float)),
    ),
    Slip(
        "weights-transposed",
        "weights",
        "the right map turned over",
        "Rows are destinations, columns are sources: the row of a destination sums to 1.",
        "A1",
        _map_transposed,
    ),
    Slip(
        "weights-own-position-blocked",
        "weights",
        "a position that may not read itself",
        "The diagonal is allowed: a position may read itself, since what it has to predict comes after it.",
        "M8",
        _own_position_blocked,
    ),
    Slip(
        "weights-no-maximum",
        "weights",
        "exponentials of the plain scores, without subtracting the maximum",
        "The formula is right, but exp(1000) overflows: subtract the row's largest allowed score first.",
        "C8",
        _shifted_by(lambda scores, allowed: 0),
    ),
    Slip(
        "weights-first-subtracted",
        "weights",
        "subtracting the first score of a row instead of the largest",
        "Any number cancels in the division, but where a later score is far higher its exponential overflows.",
        "C8",
        _shifted_by(_first_allowed),
    ),
    Slip(
        "weights-smallest-subtracted",
        "weights",
        "subtracting the smallest score of a row instead of the largest",
        "Any number cancels in the division, but only the largest leaves no score above 0 for exp to overflow on.",
        "C8",
        _shifted_by(lambda scores, allowed: scores.min(axis=-1, keepdims=True, where=allowed, initial=np.inf)),
    ),
    Slip(
        "weights-mean-subtracted",
        "weights",
        "subtracting the average score of a row instead of the largest",
        "Any number cancels in the division, but a score far above the average still makes exp overflow.",
        "C8",
        _shifted_by(lambda scores, allowed: scores.mean(axis=-1, keepdims=True, where=allowed)),
    ),
    Slip(
        "weights-array-maximum",
        "weights",
        "subtracting the maximum of the whole array",
        "Subtract each row's own maximum over its allowed scores, or a far lower row underflows to 0/0.",
        "C8",
        _only_if_matrix(_shifted_by(lambda scores, allowed: scores.max())),
    ),
    Slip(
        "weights-blocked-maximum",
        "weights",
        "subtracting a maximum that only a blocked score reaches",
        "Take the maximum over the allowed scores only, or the whole row may underflow to 0/0.",
        "C8",
        _only_if_masked(_shifted_by(lambda scores, allowed: scores.max(axis=-1, keepdims=True))),
    ),
    Slip(
        "weights-percent",
        "weights",
        "percentages",
        "Weights are shares of 1, not of 100.",
        "C7",
        lambda given: 100 * steps.weights(given),
    ),
]


# Mixture -------------------------------------------------------------------------------------------------------


def _mixed_from(name: str) -> Callable[[Inputs], Array | None]:
    return lambda given: _floats(given, "weights") @ _floats(given, name) if given.get(name) is not None else None


def _mixed_by_columns(given: Inputs) -> Array | None:
    weights = _floats(given, "weights")
    return _product_if_it_fits(weights.T, _floats(given, "values")) if weights.ndim == 2 else None


def _top_value(given: Inputs) -> Array:
    weights = _floats(given, "weights")
    return np.asarray(_floats(given, "values")[weights.argmax(axis=-1)])


MIXTURE = [
    Slip(
        "mixture-largest-only",
        "mixture",
        "the value of the strongest source alone",
        "Attention returns a mixture, not one record: every source counts in proportion to its weight.",
        "P2",
        _top_value,
    ),
    Slip(
        "mixture-plain-sum",
        "mixture",
        "the values added up without weights",
        "Each value is multiplied by its weight before the sum: a source that is hardly read hardly counts.",
        "W3",
        lambda given: (_floats(given, "weights") != 0).astype(float) @ _floats(given, "values"),
    ),
    Slip(
        "mixture-plain-mean",
        "mixture",
        "the plain average of all values",
        "A plain average would give every source the same weight: use the weights of this destination's row.",
        "W3",
        lambda given: (
            np.full_like(_floats(given, "weights"), 1 / np.shape(given["weights"])[-1]) @ _floats(given, "values")
        ),
    ),
    Slip(
        "mixture-columns",
        "mixture",
        "the weights read down a column",
        "A destination mixes with the weights of its own row; a column tells who reads one source.",
        "C1",
        _mixed_by_columns,
    ),
    Slip(
        "mixture-scores-as-weights",
        "mixture",
        "values mixed with the scores",
        "Scores are not shares: take the softmax first, then mix.",
        "C2",
        lambda given: (
            np.where(_allowed(given), _floats(given, "scores"), 0) @ _floats(given, "values")
            if given.get("scores") is not None
            else None
        ),
    ),
    Slip(
        "mixture-of-inputs",
        "mixture",
        "a mixture of the inputs",
        "What is mixed are the values, the inputs times W_V: score and content travel by different matrices.",
        "P5",
        _mixed_from("inputs"),
    ),
    Slip(
        "mixture-of-keys",
        "mixture",
        "a mixture of the keys",
        "Keys are only compared; what is passed on are the values.",
        "P2",
        _mixed_from("keys"),
    ),
]


# Update --------------------------------------------------------------------------------------------------------


def _outputs(given: Inputs) -> list[Array]:
    return [np.asarray(output, dtype=float) for output in given["outputs"]]


def _state(given: Inputs) -> Any:
    return 0 if given.get("state") is None else _floats(given, "state")


def _written_back(given: Inputs, concatenated: Array) -> Array:
    return np.asarray(concatenated @ _floats(given, "W_O") + _state(given))


def _several(given: Inputs) -> bool:
    return len(given["outputs"]) > 1


def _alike(given: Inputs) -> bool:
    return len({output.shape for output in _outputs(given)}) == 1


def _heads_averaged(given: Inputs) -> Array | None:
    concatenated = np.concatenate(_outputs(given), axis=-1)
    return _written_back(given, concatenated / len(given["outputs"])) if _several(given) else None


def _summed_without_matrix(given: Inputs) -> Array | None:
    outputs = _outputs(given)
    width = np.shape(given["W_O"])[-1]
    return sum(outputs) + _state(given) if _several(given) and _alike(given) and outputs[0].shape[-1] == width else None


def _concatenated_only(given: Inputs) -> Array | None:
    concatenated = np.concatenate(_outputs(given), axis=-1)
    return concatenated + _state(given) if concatenated.shape[-1] == np.shape(given["W_O"])[-1] else None


def _heads_swapped(given: Inputs) -> Array | None:
    return _written_back(given, np.concatenate(_outputs(given)[::-1], axis=-1)) if _several(given) else None


def _first_head_only(given: Inputs) -> Array | None:
    outputs = _outputs(given)
    silenced = [outputs[0], *(np.zeros_like(output) for output in outputs[1:])]
    return _written_back(given, np.concatenate(silenced, axis=-1)) if _several(given) else None


def _interleaved(given: Inputs) -> Array | None:
    if not (_several(given) and _alike(given)):
        return None
    return _written_back(given, np.stack(_outputs(given), axis=-1).reshape(*_outputs(given)[0].shape[:-1], -1))


def _matrix_turned(given: Inputs) -> Array | None:
    made = _product_if_it_fits(np.concatenate(_outputs(given), axis=-1), _floats(given, "W_O").T)
    return None if made is None else made + _state(given)


def _added_to_the_copy(given: Inputs) -> Array | None:
    if given.get("state") is None or given.get("normalised") is None:
        return None
    return np.asarray(steps.update(given) - _floats(given, "state") + _floats(given, "normalised"))


UPDATE = [
    Slip(
        "update-heads-averaged",
        "update",
        "the heads averaged",
        "Heads are not averaged: each writes through its own rows of W_O, and the results are summed.",
        "H2",
        _heads_averaged,
    ),
    Slip(
        "update-without-matrix",
        "update",
        "the heads added up without W_O",
        "Each head is first multiplied by its own rows of W_O, which may mix, stretch or flip it; then all are added.",
        "H2",
        _summed_without_matrix,
    ),
    Slip(
        "update-concatenated-only",
        "update",
        "the heads laid side by side, without W_O",
        "Concatenation only stacks features side by side: it is W_O that mixes the heads and writes them back.",
        "H4",
        _concatenated_only,
    ),
    Slip(
        "update-heads-swapped",
        "update",
        "the heads in the other order",
        "The order matters: the first rows of W_O belong to the first head.",
        "H2",
        _heads_swapped,
    ),
    Slip(
        "update-heads-interleaved",
        "update",
        "the heads' features dealt out in turn",
        "Concatenation keeps each head's features together: first all of head 1, then all of head 2.",
        "H6",
        _interleaved,
    ),
    Slip(
        "update-first-head-only",
        "update",
        "the first head alone",
        "All heads write to the same update: add what the others write through their rows of W_O.",
        "H2",
        _first_head_only,
    ),
    Slip(
        "update-matrix-transposed",
        "update",
        "W_O turned over",
        "Rows stand on the left of W_O: output coordinate j is the row times column j of W_O.",
        "H2",
        _matrix_turned,
    ),
    Slip(
        "update-residual-missing",
        "update",
        "the update alone",
        "The update does not replace the state: it is added to it.",
        "H5",
        lambda given: steps.update({**given, "state": None}) if given.get("state") is not None else None,
    ),
    Slip(
        "update-added-to-normalised",
        "update",
        "adding the update to the normalised copy",
        "The normalised copy is only what the head reads: the update goes to the original residual state.",
        "H5",
        _added_to_the_copy,
    ),
]


# Masks ---------------------------------------------------------------------------------------------------------


def _mask_by(change: Callable[[Inputs, Array], Array | None]) -> Callable[[Inputs], Array | None]:
    """Change `allowed`, then say it in the form asked for."""

    def compute(given: Inputs) -> Array | None:
        wrong = change(given, steps.allowed_by(given["rule"], given))
        return None if wrong is None else steps.in_form(wrong, given.get("form", "allowed"))

    return compute


def _rule_without(part: str) -> Callable[[Inputs, Array], Array | None]:
    def change(given: Inputs, allowed: Array) -> Array | None:
        other = given["rule"].replace(part, "").strip("+")
        return np.broadcast_to(steps.allowed_by(other, given), allowed.shape) if "+" in given["rule"] else None

    return change


def _either(given: Inputs, allowed: Array) -> Array | None:
    if given["rule"] != "causal+padding":
        return None
    return np.asarray(steps.allowed_by("causal", given) | steps.allowed_by("padding", given))


def _diagonal_blocked(given: Inputs, allowed: Array) -> Array | None:
    if "causal" not in given["rule"] or allowed.shape[-1] != allowed.shape[-2]:
        return None
    return np.asarray(allowed & ~np.eye(allowed.shape[-1], dtype=bool))


def _future_allowed(given: Inputs, allowed: Array) -> Array | None:
    if "causal" not in given["rule"] or allowed.shape[-1] != allowed.shape[-2]:
        return None
    order = steps.allowed_by("causal", given).T
    return np.asarray(order & steps.allowed_by("padding", given) if "padding" in given["rule"] else order)


def _rows_for_columns(given: Inputs, allowed: Array) -> Array | None:
    if "padding" not in given["rule"]:
        return None
    real = np.asarray(given["is_real"], bool)
    rows = np.broadcast_to(real[..., None], allowed.shape) if real.shape[-1] == allowed.shape[-2] else None
    if rows is None or "causal" not in given["rule"]:
        return rows
    return np.asarray(rows & steps.allowed_by("causal", given))


def _rows_and_columns(given: Inputs, allowed: Array) -> Array | None:
    rows = _rows_for_columns(given, allowed)
    return None if rows is None else np.asarray(rows & allowed)


def _other_alignment(given: Inputs, allowed: Array) -> Array | None:
    if not given.get("align") or "causal" not in given["rule"]:
        return None
    other = {"top-left": "bottom-right", "bottom-right": "top-left"}[given["align"]]
    return steps.allowed_by(given["rule"], {**given, "align": other})


def _additive(blocked: float, permitted: float) -> Callable[[Inputs], Array | None]:
    def compute(given: Inputs) -> Array | None:
        if given.get("form") != "additive":
            return None
        return np.where(steps.allowed_by(given["rule"], given), permitted, blocked)

    return compute


MASK = [
    Slip(
        "mask-inverted",
        "mask",
        "the mask said the other way round",
        "Read the question's form again: in `allowed` True means may be read, in `blocked` it means must not be read.",
        "M6",
        _mask_by(lambda given, allowed: ~allowed),
    ),
    Slip(
        "mask-diagonal-blocked",
        "mask",
        "a position that may not read itself",
        "j <= i includes j = i: position i is trained to predict the next token, so reading itself gives nothing away.",
        "M8",
        _mask_by(_diagonal_blocked),
    ),
    Slip(
        "mask-future-allowed",
        "mask",
        "a mask that reads the future",
        "Rows are destinations: in row i the sources up to i are allowed, which is the lower left triangle.",
        "M1",
        _mask_by(_future_allowed),
    ),
    Slip(
        "mask-rows-for-columns",
        "mask",
        "padding blocked as rows",
        "Filler positions are no sources: block their columns. Their own rows may read on, the loss leaves them out.",
        "M5",
        _mask_by(_rows_for_columns),
    ),
    Slip(
        "mask-rows-too",
        "mask",
        "padding blocked as rows and as columns",
        "Blocking a filler's row leaves it nothing to read, 0/0: block its column only.",
        "M5",
        _mask_by(_rows_and_columns),
    ),
    Slip(
        "mask-or",
        "mask",
        "masks combined with OR",
        "A source must be permitted by every mask: combine `allowed` with AND.",
        "M5",
        _mask_by(_either),
    ),
    Slip(
        "mask-padding-forgotten",
        "mask",
        "the causal mask alone",
        "The causal rule knows nothing of filler: combine both masks with AND.",
        "M5",
        _mask_by(_rule_without("padding")),
    ),
    Slip(
        "mask-order-forgotten",
        "mask",
        "the padding mask alone",
        "The padding mask still lets positions read the future: combine both masks with AND.",
        "M5",
        _mask_by(_rule_without("causal")),
    ),
    Slip(
        "mask-alignment",
        "mask",
        "the other corner alignment",
        "With more keys than queries say which corners coincide: with a cache the last query sees every key.",
        "M10",
        _mask_by(_other_alignment),
    ),
    Slip(
        "mask-everything-allowed",
        "mask",
        "nothing blocked at all",
        "Without a mask every destination reads every source, later ones and filler included.",
        "M1",
        _mask_by(lambda given, allowed: np.ones_like(allowed)),
    ),
    Slip(
        "mask-zero-one-added",
        "mask",
        "a 0/1 mask where one to be added was asked for",
        "What is added must be 0 where reading is allowed and -inf where it is blocked: adding 1 blocks nothing.",
        "M6",
        _additive(0.0, 1.0),
    ),
    Slip(
        "mask-finite-fill",
        "mask",
        "a large finite number where -inf belongs",
        "A finite fill works until a real score is lower still, or a row has nothing allowed: -inf is exact.",
        "M7",
        _additive(-1e9, 0.0),
    ),
    Slip(
        "mask-minus-one",
        "mask",
        "-1 where -inf belongs",
        "Adding -1 only lowers a source: its exponential shrinks by e and stays in the sum. -inf removes it.",
        "M7",
        _additive(-1.0, 0.0),
    ),
]


# The steps around attention ------------------------------------------------------------------------------------


def _poured(given: Inputs) -> Array:
    rows = _floats(given, "rows")
    return rows.reshape(given["H"], rows.shape[0], -1)


def _vectors(given: Inputs) -> tuple[Array, Array]:
    return _floats(given, "a"), _floats(given, "b")


AROUND = [
    Slip(
        "dot-products-not-summed",
        "dot",
        "the products, not added up",
        "A dot product is one number: multiply coordinate by coordinate, then add.",
        "S2",
        lambda given: np.multiply(*_vectors(given)),
    ),
    Slip(
        "dot-cosine",
        "dot",
        "the cosine of the angle",
        "A dot product depends on direction and length: do not divide by the lengths.",
        "S2",
        lambda given: np.dot(*_vectors(given)) / (np.linalg.norm(given["a"]) * np.linalg.norm(given["b"])),
    ),
    Slip(
        "dot-sum-of-both",
        "dot",
        "sums where products belong",
        "Coordinates are multiplied pairwise before they are added.",
        "S2",
        lambda given: np.add(*_vectors(given)).sum(),
    ),
    Slip(
        "matmul-transposed",
        "matmul",
        "rows against rows",
        "Entry (i, j) is row i of the first matrix times column j of the second.",
        "S2",
        lambda given: _product_if_it_fits(_floats(given, "A"), _floats(given, "B").T),
    ),
    Slip(
        "matmul-other-order",
        "matmul",
        "the product in the other order",
        "The order matters: A B is not B A.",
        "S2",
        lambda given: _product_if_it_fits(_floats(given, "B"), _floats(given, "A")),
    ),
    Slip(
        "matmul-elementwise",
        "matmul",
        "multiplying entry by entry",
        "A matrix product adds up a whole row against a whole column.",
        "S2",
        lambda given: (
            _floats(given, "A") * _floats(given, "B") if np.shape(given["A"]) == np.shape(given["B"]) else None
        ),
    ),
    Slip(
        "transpose-unchanged",
        "transpose",
        "the matrix as it was",
        "The transpose turns rows into columns: entry (i, j) moves to (j, i).",
        "S2",
        lambda given: _floats(given, "A"),
    ),
    Slip(
        "transpose-rows-reversed",
        "transpose",
        "the rows in reverse order",
        "The transpose turns rows into columns; it reverses nothing.",
        "S2",
        lambda given: _floats(given, "A")[::-1],
    ),
    Slip(
        "transpose-reshaped",
        "transpose",
        "the same numbers poured into the other shape",
        "Reshaping keeps the reading order; the transpose moves entry (i, j) to (j, i).",
        "H6",
        lambda given: _floats(given, "A").reshape(np.shape(given["A"])[::-1]),
    ),
    Slip(
        "split-positions",
        "split_heads",
        "a plain reshape, which deals out positions",
        "Reshape to (n, H, d), then bring H to the front: every head keeps all positions and its own features.",
        "H6",
        _poured,
    ),
    Slip(
        "split-interleaved",
        "split_heads",
        "features dealt out in turn",
        "Head 1 takes the first d features, head 2 the next d: features that stand together stay together.",
        "H6",
        lambda given: np.stack([_floats(given, "rows")[:, h :: given["H"]] for h in range(given["H"])]),
    ),
    Slip(
        "normalise-by-maximum",
        "normalise",
        "dividing by the largest entry",
        "Divide by the sum, so that the parts add up to 1.",
        "S2",
        lambda given: _floats(given, "row") / _floats(given, "row").max(),
    ),
    Slip(
        "normalise-by-length",
        "normalise",
        "dividing by the vector's length",
        "Shares are parts of the sum, not of the length: they must add up to 1.",
        "S2",
        lambda given: _floats(given, "row") / np.linalg.norm(given["row"]),
    ),
    Slip(
        "normalise-by-count",
        "normalise",
        "dividing by the number of entries",
        "Divide by the sum of the entries, not by how many there are.",
        "S2",
        lambda given: _floats(given, "row") / len(given["row"]),
    ),
]

# Reading maps --------------------------------------------------------------------------------------------------


def _columns_sound(given: Inputs) -> Array | None:
    rows, allowed = _floats(given, "weights"), np.asarray(given["allowed"], dtype=bool)
    if rows.shape[0] != rows.shape[1]:
        return None
    return steps.sound_rows({"weights": rows.T, "allowed": allowed.T})


def _targets(given: Inputs, choose: Callable[[list[int], int], int], beyond: int = 1) -> list[int]:
    """Where a wrong rule would look: `choose` picks among the copies of the token, `beyond` is how far behind it."""
    tokens, found = given["tokens"], []
    for i, token in enumerate(tokens):
        copies = [j for j in range(len(tokens)) if tokens[j] == token and j != i]
        earlier = [j for j in copies if j < i]
        found.append(choose(earlier, i) + beyond if earlier else -1)
    return found


READING: list[Slip] = [
    Slip(
        "sound-columns",
        "sound_rows",
        "looking at columns instead of rows",
        "Softmax runs over the sources of one destination, so it is each row that must sum to 1.",
        "A1",
        _columns_sound,
    ),
    Slip(
        "sound-sums-only",
        "sound_rows",
        "checking the sums and not the mask",
        "A row can sum to 1 with part of its weight on a source it may not read.",
        "A1",
        lambda given: steps.sound_rows({**given, "allowed": np.ones_like(given["allowed"], dtype=bool)}),
    ),
    Slip(
        "sound-mask-only",
        "sound_rows",
        "checking the mask and not the sums",
        "A row can obey its mask and still sum to less than 1, when weights were struck out afterwards.",
        "A1",
        lambda given: (np.where(given["allowed"], 0, _floats(given, "weights")) == 0).all(axis=1),
    ),
    Slip(
        "norm-left-out",
        "by_norm",
        "the weights as they are",
        "Multiply each weight by the length of that source's value: a short value moves little.",
        "A5",
        lambda given: _floats(given, "weights"),
    ),
    Slip(
        "norm-squared",
        "by_norm",
        "the squared lengths",
        "A length is the root of the sum of squares.",
        "A5",
        lambda given: _floats(given, "weights") * (_floats(given, "values") ** 2).sum(axis=1),
    ),
    Slip(
        "norm-summed",
        "by_norm",
        "adding up the coordinates",
        "Square, add, take the root: coordinates of opposite sign do not make a vector shorter.",
        "A5",
        lambda given: _floats(given, "weights") * _floats(given, "values").sum(axis=1),
    ),
    Slip(
        "previous-above",
        "previous_token_score",
        "the weights just above the diagonal",
        "Row i, column i − 1 is below the diagonal. Above it a row would read its future.",
        "I2",
        lambda given: np.diagonal(_floats(given, "weights"), offset=1).mean(),
    ),
    Slip(
        "previous-diagonal",
        "previous_token_score",
        "the weights on the diagonal",
        "The diagonal is each position reading itself; the position before it stands one column further left.",
        "I2",
        lambda given: np.diagonal(_floats(given, "weights")).mean(),
    ),
    Slip(
        "previous-counted-first",
        "previous_token_score",
        "dividing by the number of rows",
        "The first row has no position before it: n rows give n − 1 weights to average.",
        "I2",
        lambda given: np.diagonal(_floats(given, "weights"), offset=-1).sum() / len(given["weights"]),
    ),
    Slip(
        "induction-copy-itself",
        "induction_targets",
        "pointing at the earlier copy itself",
        "What is worth copying is what came after the earlier copy, one position further on.",
        "I2",
        lambda given: _targets(given, lambda earlier, i: earlier[-1], beyond=0),
    ),
    Slip(
        "induction-first-copy",
        "induction_targets",
        "taking the first copy",
        "Asked for is the last earlier copy; the first one may be long out of date.",
        "I2",
        lambda given: _targets(given, lambda earlier, i: earlier[0]),
    ),
    Slip(
        "induction-previous-position",
        "induction_targets",
        "pointing one position back",
        "Look for the same token further back first; its successor is the target.",
        "I2",
        lambda given: _targets(given, lambda earlier, i: i - 1, beyond=0),
    ),
]

CATALOGUE: dict[str, Slip] = {
    slip.id: slip for slip in [*READING, *SHAPES, *PROJECTION, *SCORES, *WEIGHTS, *MIXTURE, *UPDATE, *MASK, *AROUND]
}
