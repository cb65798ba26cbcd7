"""Every reference case: the right value by NumPy and by fractions, and each wrong value by the procedure it names."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit import exact, masks
from labkit.attention import Head, attend, mix, project, scaled_scores, softmax_over_sources
from labkit.errors import EmptyRowError
from labkit.heads import multi_head, residual

CASES = json.loads((Path(__file__).parent / "cases" / "attention_cases.json").read_text(encoding="utf-8"))["cases"]
BY_ID = {case["id"]: case for case in CASES}


def numbers(value: Any) -> np.ndarray:
    """Read a nested list in the cases' encoding; None, an undefined row, becomes NaN."""
    if isinstance(value, list) and any(row is None for row in value):
        width = max([len(row) for row in value if row is not None] or [1])
        value = [["nan"] * width if row is None else row for row in value]
    return np.array(value, dtype=float)


def same(given: Any, expected: Any, tolerance: float) -> bool:
    given, expected = np.asarray(given, dtype=float), numbers(expected)
    if expected.size and np.isnan(expected).all() and expected.ndim == 2:  # one undefined row of unknown width
        return given.shape[0] == expected.shape[0] and bool(np.isnan(given).all())
    return given.shape == expected.shape and np.allclose(given, expected, rtol=0, atol=tolerance, equal_nan=True)


# -------------------------------------------------------------------------------------------- right values


def attention(given: dict[str, Any]) -> dict[str, Any]:
    scores, allowed = (
        numbers(given["scores"]),
        np.array(given.get("allowed", np.full_like(given["scores"], True)), bool),
    )
    weights = softmax_over_sources(scores, allowed, empty_rows="nan")
    found = {"weights": weights, "row_valid": allowed.any(axis=1)}
    if "values" not in given:
        return found
    values = numbers(given["values"])
    zero = mix(softmax_over_sources(scores, allowed, empty_rows="zero"), values)
    with np.errstate(invalid="ignore"):
        plain_product = weights @ values
    return found | {
        "output": mix(weights, values),
        "output_sum_over_allowed_only": mix(weights, values),
        "output_matrix_product": plain_product,
        "output_by_policy": {"zero": zero, "nan": mix(weights, values), "raise": raises_empty(scores, allowed)},
    }


def raises_empty(scores: np.ndarray, allowed: np.ndarray) -> str:
    if allowed.any(axis=1).all():
        return "no error"
    with pytest.raises(EmptyRowError) as caught:
        softmax_over_sources(scores, allowed)
    assert caught.value.rows == [(int(i),) for i in np.flatnonzero(~allowed.any(axis=1))]
    return "error"


def scaled(given: dict[str, Any]) -> dict[str, Any]:
    d_k = given["d_k"]
    # One query along the first axis, keys whose first coordinates are the raw products.
    queries = [[1] + [0] * (d_k - 1)]
    keys = [[raw] + [0] * (d_k - 1) for raw in given["raw_dot_products"][0]]
    divisor = given["raw_dot_products"][0][0] / scaled_scores(queries, keys)[0, 0]
    return {"divisor": divisor, "weights": softmax_over_sources(scaled_scores(queries, keys))}


def built_mask(given: dict[str, Any]) -> dict[str, Any]:
    if "lengths" in given:
        allowed = masks.from_lengths(given["lengths"], given["max_len"])[:, 0, :]
        return {"allowed": allowed, "blocked": masks.to_blocked(allowed), "sequence_valid": allowed.any(axis=1)}
    if "window" in given:
        n = given["n"]
        too_old = np.tri(n, k=-given["window"], dtype=bool)
        allowed = masks.combine(masks.causal(n), masks.from_blocked(too_old))
        return {"allowed": allowed, "max_allowed_per_row": allowed.sum(axis=1).max()}
    if "samples" in given:
        return {"mask_order": [s for _ in range(given["heads"]) for s in range(given["samples"])]}
    if "causal_blocked" in given:
        keep = ~np.array(given["key_padding_blocked"])
        allowed = masks.combine(masks.from_blocked(given["causal_blocked"]), masks.padding(keep))
        return {"blocked": masks.to_blocked(allowed), "row_valid": allowed.any(axis=1)}
    keep = np.array(given["attention_mask_keep"]) == 1
    allowed = masks.combine(masks.causal(given["n"]), masks.padding(keep))
    return {"allowed": allowed, "row_valid": allowed.any(axis=1)}


def several_heads(given: dict[str, Any]) -> dict[str, Any]:
    if "A1" in given:
        outputs = [mix(given["A1"], given["V1"]), mix(given["A2"], given["V2"])]
        return {"concat": np.concatenate(outputs, axis=-1)[:1]}
    W_O = np.vstack([given["W_O_block1"], given["W_O_block2"]])
    # Heads that pass a constant on: one position, zero scores, W_V whose row is z.
    heads = [Head([[0.0]], [[0.0]], given[z]) for z in ("z1", "z2")]
    return {"output": multi_head([[1.0]], heads, W_O).update}


def map_claim(given: dict[str, Any]) -> dict[str, Any]:
    if "scores_row_1" in given:
        return {"weights": softmax_over_sources(given["scores_row_1"], given["allowed_row_1"])}
    if "exp_scores" in given:
        A = np.array([[float(w) for w in row] for row in exact.weights_from_exp(given["exp_scores"])])
        return {"A": A, "A_1_2": A[0, 1], "A_2_1": A[1, 0]}
    A = np.array(given["A"])
    return {
        "true_first_row": A[0],
        "row_sums_still_one": np.allclose(A[::-1].sum(axis=1), 1),
        "upper_triangle_mass_after_flip": np.triu(A[::-1], 1).sum(),
        "source_with_most_weight_for_destination_3": A[2].argmax() + 1,
        "weight_dest3_src1": A[2, 0],
        "upper_triangle_mass": np.triu(A, 1).sum(),
    }


def query_dependence(given: dict[str, Any]) -> dict[str, Any]:
    one = [[1.0]]

    def output(x_1: float) -> float:
        x = [[x_1], *given["x"][1:]]
        return float(attend(x[:1], Head(one, one, one), [given["allowed_row_1"]], sources=x).output[0, 0])

    return {"output_before": output(given["x"][0][0]), "output_after": output(given["change_x1_to"])}


def half_precision(given: dict[str, Any]) -> dict[str, Any]:
    a, b = np.float16(given["a"]), np.float16(given["b"])
    with np.errstate(over="ignore"):
        total = a + b
    return {"sum_float16": total, "where_combined": min(a, b)}


def possible_dropouts(given: dict[str, Any]) -> dict[str, Any]:
    weights, values, kept = np.array(given["weights"]), given["values"], 1 / (1 - given["p"])
    outcomes = [mix(weights * keep * kept, values).tolist()[0] for keep in ([0, 0], [1, 0], [0, 1], [1, 1])]
    return {"eval_output": mix(weights, values), "possible_train_outputs": sorted(outcomes)}


def unnormalised(given: dict[str, Any]) -> dict[str, Any]:
    assert np.exp(given["scores"]).sum() == pytest.approx(np.exp(given["lse"][0]))
    return {"weights": softmax_over_sources(given["scores"])}


def split_heads(given: dict[str, Any]) -> dict[str, Any]:
    x = np.array(given["x_tokens_features"])
    return {"heads_tokens_dims": x.reshape(len(x), given["heads"], -1).swapaxes(0, 1)}


def uniform(given: dict[str, Any]) -> dict[str, Any]:
    x = np.array(given["x_batch_seq_dim"])
    zero, one = [[0.0]], [[1.0]]
    return {"output": attend(x, Head(zero, zero, one)).output}


def head_shapes(given: dict[str, Any]) -> dict[str, Any]:
    n, zero = given["n"], [[0.0]]
    trace = multi_head(np.zeros((n, 1)), [Head(zero, zero, zero)] * given["heads"], np.zeros((given["heads"], 1)))
    return {"per_head_shape": np.stack([head.weights for head in trace.heads]).shape}


def rollout(given: dict[str, Any]) -> dict[str, Any]:
    first, second = np.array(given["A_layer1"]), np.array(given["A_layer2"])
    return {"layer2_row2": second[1], "tokens_reaching_row2": mix(second, first)[1]}


RIGHT: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "masked_attention": attention,
    "masked_softmax": attention,
    "scaled_softmax": scaled,
    "mask_build": built_mask,
    "multihead_output": several_heads,
    "map_claim": map_claim,
    "query_dependence": query_dependence,
    "dtype_float16": half_precision,
    "dropout_weights": possible_dropouts,
    "lse": unnormalised,
    "split_heads": split_heads,
    "uniform_attention_axis": uniform,
    "shape_check": head_shapes,
    "rollout": rollout,
    "scaled_scores": lambda g: {"scores": scaled_scores(g["q"], g["k"])},
    "kv_head_map": lambda g: {"kv_for_q_head": [h * g["kv_heads"] // g["q_heads"] for h in range(g["q_heads"])]},
    "projection": lambda g: {"y": project(g["x"], np.transpose(g["linear_weight_out_in"]))},
    "naive_product": lambda g: {
        "product_has_nan": any(
            math.isnan(float(score) * keep) for score, keep in zip(g["masked_scores"], g["keep_scaled"], strict=True)
        )
    },
    "value_intervention": lambda g: {
        "before": mix(g["weights"], g["values_before"]),
        "after": mix(g["weights"], g["values_after"]),
    },
    "stable_softmax": lambda g: {"weights": softmax_over_sources(g["scores"])},
    "residual": lambda g: {"y": residual(g["x"], g["attn_out"])},
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_right_value_by_numpy(case: dict[str, Any]) -> None:
    found = RIGHT[case["op"]](case["inputs"])
    for name, expected in case["expected"].items():
        if isinstance(expected, dict):
            for policy, value in expected.items():
                given = found[name][policy]
                assert given == value if isinstance(value, str) else same(given, value, case["tolerance"]), policy
        else:
            assert same(found[name], expected, case["tolerance"]), f"{name}: {found[name]}"


@pytest.mark.parametrize("case", [case for case in CASES if "exact" in case], ids=lambda case: case["id"])
def test_right_value_by_fractions(case: dict[str, Any]) -> None:
    given, expected = case["inputs"], case["exact"]
    if "raw_in_units_of_ln2" in given:
        units = given["raw_in_units_of_ln2"]
        weights = [
            exact.weights_from_exp([Fraction(2) ** Fraction(unit, case["expected"]["divisor"]) for unit in units])
        ]
    else:
        allowed = given.get("allowed") or [[True] * len(row) for row in given["exp_scores"]]
        weights = [
            exact.weights_from_exp(row, permitted) if any(permitted) else None
            for row, permitted in zip(given["exp_scores"], allowed, strict=True)
        ]
    assert [row and [str(x) for x in row] for row in weights] == expected["weights"]
    if "output" in expected:
        outputs = [row and exact.mix([row], given["values"])[0] for row in weights]
        assert [row and [str(Fraction(x)) for x in row] for row in outputs] == expected["output"]


# -------------------------------------------------------------------------------------------- wrong values
# Each entry repeats the mistake in plain NumPy, so that it is a second opinion on the catalogue in labkit.slips.


def softmax(scores: Any, axis: int | None = -1) -> np.ndarray:
    scores = np.asarray(scores, dtype=float)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)


def filled(given: dict[str, Any], fill: float, blocked: Any = None) -> np.ndarray:
    blocked = ~np.array(given["allowed"]) if blocked is None else np.asarray(blocked)
    return softmax(np.where(blocked, fill, given["scores"]))


def mixed(weights: np.ndarray, given: dict[str, Any]) -> np.ndarray:
    return weights @ numbers(given["values"])


def as_read(given: dict[str, Any], allowed: Any) -> np.ndarray:
    """Give the output when the mask is read as `allowed`."""
    return mixed(filled(given, -np.inf, ~np.broadcast_to(allowed, np.shape(given["scores"]))), given)


def dropped(given: dict[str, Any]) -> np.ndarray:
    return mixed(softmax(given["scores"]) * np.array(given["allowed"]), given)


def with_blocked_row(given: dict[str, Any], row: int) -> np.ndarray:
    return as_read(given, [ok if i != row else [False] * len(ok) for i, ok in enumerate(given["allowed"])])


def top_left(given: dict[str, Any]) -> np.ndarray:
    return as_read(given, np.tri(given["L"], given["S"], dtype=bool))


def raw(given: dict[str, Any], divisor: float) -> np.ndarray:
    return softmax(np.array(given["raw_dot_products"]) / divisor)


WRONG: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
    ("seed-forbid-source-2", "zeroed_value_instead"): lambda g: (
        softmax(g["scores"]) @ np.array([[2, 0], [0, 0], [2, 4]])
    ),
    ("seed-forbid-source-2", "dropped_without_renormalising"): dropped,
    ("fmr-belief-row-becomes-zero", "zeros"): lambda g: softmax(g["scores"]) * np.array(g["allowed"]),
    ("fmr-belief-row-becomes-zero", "uniform_thirds"): lambda g: filled(g, -1e9),
    ("fmr-bool-row-false", "uniform_row"): lambda g: mixed(filled(g, -1e30), g),
    ("fmr-bool-row-false", "nan_row"): lambda g: mixed(filled(g, -np.inf), g),
    ("fmr-nan-in-masked-value", "claims_mask_protects"): lambda g: numbers(g["values"])[:1],
    ("fmr-finite-fill-uniform", "uniform"): lambda g: mixed(filled(g, -1e6), g),
    ("fmr-safe-softmax-middle-row", "unmasked_row_used"): lambda g: mixed(softmax(g["scores"]), g),
    ("fmr-left-pad-causal", "unmask_unattended_rewrite"): lambda g: [
        row if any(row) else [True] * g["n"] for row in built_mask(g)["allowed"].tolist()
    ],
    ("bool-is-true-true", "inverted"): lambda g: as_read(g, ~np.array(g["allowed"])),
    ("doc-pseudocode-mask-ignored", "mask_ignored"): lambda g: mixed(softmax(g["scores"]), g),
    ("bool-decoder-mask-not-negated", "strict_upper_allowed"): lambda g: as_read(g, ~np.tri(3, dtype=bool)),
    ("fmr-bool-vs-float01", "float_mask_is_added"): lambda g: mixed(softmax(np.add(g["scores"], g["allowed"])), g),
    ("bool-mask-added-eager", "added"): lambda g: mixed(softmax(np.add(g["scores"], g["allowed"])), g),
    ("lens-to-padding-mask-reversed", "reversed"): lambda g: np.arange(g["max_len"]) < np.array(g["lengths"])[:, None],
    ("bool-keras-vs-tutorial", "attends_only_padding"): lambda g: as_read(g, np.array(g["tutorial_padding_mask"]) == 1),
    ("bool-mha-adapted-loss-100x", "future_visible"): lambda g: as_read(g, ~np.tri(2, dtype=bool)),
    ("fill-epsilon", "thirds"): lambda g: mixed(filled(g, 1e-12), g),
    ("fill-minus-1e-9", "almost_half"): lambda g: mixed(filled(g, -1e-9), g),
    ("zero-score-not-masked", "score_set_to_zero"): lambda g: mixed(filled(g, 0), g),
    ("fill-minus-ten-leaks", "leak"): lambda g: mixed(filled(g, -10), g),
    ("multiply-scores-by-mask", "times_mask"): lambda g: softmax(np.multiply(g["scores"], g["allowed"])),
    ("mask-after-softmax", "no_renormalisation"): dropped,
    ("mask-after-softmax-renormalised", "believes_different"): dropped,
    ("axis-queries-instead-of-keys", "column_softmax"): lambda g: mixed(softmax(g["scores"], axis=0), g),
    ("axis-global-softmax", "whole_matrix"): lambda g: softmax(g["scores"], axis=None),
    ("axis-vit-notebook", "column_softmax"): lambda g: softmax(g["scores"], axis=0),
    ("axis-batch-size-one", "all_ones"): lambda g: softmax([g["scores"]], axis=0)[0],
    ("scale-divided-by-inverse", "multiplied"): lambda g: raw(g, g["d_k"] ** -0.5),
    ("scale-full-dim-vit", "sqrt_d_model"): lambda g: raw(g, g["d_model"] ** 0.5),
    ("scale-missing", "unscaled"): lambda g: raw(g, 1),
    ("scale-d-not-sqrt", "sqrt_M"): lambda g: raw(g, g["M"] ** 0.5),
    ("scale-d-not-sqrt", "d_k_no_sqrt"): lambda g: raw(g, g["d_k"]),
    ("scale-query-first-equal", "scale_both_q_and_k"): lambda g: np.array(g["q"]) @ np.transpose(g["k"]) / g["d_k"],
    ("align-two-queries-four-keys", "top_left"): top_left,
    ("align-more-queries-than-keys", "top_left"): top_left,
    ("masking-self-not-independent", "unchanged"): lambda g: query_dependence({**g, "change_x1_to": 0})["output_after"],
    ("diagonal-excluded-empty-first-row", "strict_lower"): lambda g: as_read(g, np.tri(3, k=-1, dtype=bool)),
    ("leak-block-diagonal-to-device", "block_full"): lambda g: as_read(g, np.kron(np.eye(2), np.ones((2, 2))) == 1),
    ("leak-mask-skipped-without-attmask", "unmasked"): lambda g: mixed(softmax(g["scores"]), g),
    ("window-inclusive-off-by-one", "inclusive_of_w_back"): lambda g: (
        np.tri(g["n"], dtype=bool) & ~np.tri(g["n"], k=-g["window"] - 1, dtype=bool)
    ),
    ("cross-attention-source-padding", "row_blocked"): lambda g: with_blocked_row(g, 1),
    ("pad-unsqueeze-wrong-axis", "row_mask"): lambda g: as_read(g, np.transpose(g["allowed"])),
    ("pad-query-row-still-distribution", "pad_row_blocked"): lambda g: with_blocked_row(g, 2),
    ("pad-3d-mask-blocks-rows", "row_and_column"): lambda g: (
        np.array(g["causal_blocked"]) | g["key_padding_blocked"] | np.array(g["key_padding_blocked"])[:, None]
    ),
    ("heads-split-without-transpose", "plain_view"): lambda g: np.reshape(g["x_tokens_features"], (g["heads"], 2, -1)),
    ("heads-batch-first", "over_batch"): lambda g: np.broadcast_to(np.mean(g["x_batch_seq_dim"], axis=0), (2, 2, 1)),
    ("gqa-repeat-vs-tile", "tile"): lambda g: [h % g["kv_heads"] for h in range(g["q_heads"])],
    ("heads-mask-repeat-order", "repeat_elements"): lambda g: np.repeat(range(g["samples"]), g["heads"]),
    ("heads-sum-equals-concat-wo", "average_of_heads"): lambda g: several_heads(g)["output"] / 2,
    ("heads-sum-equals-concat-wo", "sum_without_W_O"): lambda g: np.add(g["z1"], g["z2"]),
    ("average-map-times-values", "averaged_weights"): lambda g: np.concatenate(
        [np.add(g["A1"], g["A2"]) / 2 @ np.array(g[V]) for V in ("V1", "V2")], axis=-1
    ),
    ("linear-weight-transposed", "x_at_W"): lambda g: np.array(g["x"]) @ g["linear_weight_out_in"],
    ("need-head-weights-ignored", "averaged_shape"): lambda g: (g["n"], g["n"]),
    ("map-transposed", "transposed_weight"): lambda g: np.transpose(g["A"])[2, 0],
    ("map-transposed", "transposed_upper_mass"): lambda g: np.triu(np.transpose(g["A"]), 1).sum(),
    ("map-position-not-token", "reads_only_token_2"): lambda g: g["A_layer2"][1],
    ("map-asymmetric", "symmetric"): lambda g: np.full((2, 2), 1 / 2),
    ("map-unnormalised-lse", "exp_only"): lambda g: np.exp(g["scores"]),
    ("stable-sign-flipped", "inverted"): lambda g: softmax(-np.array(g["scores"])),
    ("stable-global-max", "global_max"): lambda g: global_max(np.array(g["scores"], dtype=float)),
    ("residual-adds-normalised", "adds_norm"): lambda g: np.add(g["norm_x"], g["attn_out"]),
    ("proportional-normalisation", "score_over_total"): lambda g: np.array(g["scores"]) / np.sum(g["scores"]),
}


def global_max(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    with np.errstate(invalid="ignore"):
        return powers / powers.sum(axis=1, keepdims=True)


# The file itself slips here: 3/5 * 4 + 1/5 * 8 + 1/5 * 12 is 32/5, not 28/5.
CORRECTED = {("fmr-safe-softmax-middle-row", "unmasked_row_used"): [[9], [6.4], [8]]}
NUMERIC = [
    (case["id"], wrong["label"], wrong["value"])
    for case in CASES
    for wrong in case["wrong"]
    if not isinstance(wrong["value"], str)
]


@pytest.mark.parametrize(("case", "label", "value"), NUMERIC, ids=lambda part: part if isinstance(part, str) else "")
def test_wrong_value_by_the_procedure_it_names(case: str, label: str, value: Any) -> None:
    given = WRONG[case, label](BY_ID[case]["inputs"])
    assert same(given, CORRECTED.get((case, label), value), 1e-9), given


def test_there_is_no_procedure_too_many() -> None:
    assert {(case, label) for case, label, _ in NUMERIC} == set(WRONG)
    assert {case["op"] for case in CASES} == set(RIGHT)
