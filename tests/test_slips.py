"""Every slip computes what it says, is refuted in a sentence, and points to a section of the lessons."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit import answers, sections, slips, steps
from labkit.slips import CATALOGUE

LN2 = math.log(2)
CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "cases/attention_cases.json").read_text(encoding="utf-8"))["cases"]
}

Q = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]])
K = np.array([[2.0, 1.0, 1.0], [1.0, 0.0, -1.0], [4.0, 2.0, 0.5], [0.0, 1.0, 1.0]])
S = np.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.5], [1.0, 1.5, 4.0]])
CAUSAL = np.tri(3, dtype=bool)
V = np.array([[1.0, 5.0], [-2.0, 0.5], [3.0, 7.0]])
EXTREME = np.array([[1000.0, 1000.0], [0.0, 0.0]])
OUTPUTS = [np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([[0.5, 4.0], [2.0, 2.0]])]
W_O = np.array([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 3.0, 1.0], [2.0, 1.0, 1.0, 0.0], [1.0, -1.0, 0.0, 2.0]])
STATE = np.array([[1.0, 1.0, 2.0, 0.0], [0.0, 3.0, 1.0, 1.0]])

# For each step inputs that together show every one of its slips.
SHOWN: dict[str, list[dict[str, Any]]] = {
    "shapes": [{"of": of, "n": 5, "m": 7, "d_model": 12, "d_k": 3, "d_v": 4, "H": 2} for of in steps.AXES],
    "projection": [
        {"inputs": [[1, 2], [3, 4]], "weights": [[1, 0], [2, 5]]},
        {"inputs": [[1, 2, 3]], "weights": [[1], [0], [2]]},
    ],
    "scores": [{"queries": Q, "keys": K, "d_model": 8, "d_v": 5, "H": 6}],
    "weights": [
        {"scores": S, "allowed": CAUSAL},
        {"scores": EXTREME},
        {"scores": [[0.0, 0.0, 1200.0]]},
        {"scores": [[1000.0, 0.0]], "allowed": [[False, True]]},
    ],
    "mixture": [{"scores": S, "allowed": CAUSAL, "values": V, "inputs": V + 1, "keys": V * 2}],
    "update": [
        {"outputs": OUTPUTS, "W_O": W_O, "state": STATE, "normalised": STATE / 2},
        {"outputs": OUTPUTS, "W_O": W_O[:, :2]},
    ],
    "mask": [
        {"rule": "causal+padding", "n": 4, "is_real": [True, False, True, False], "form": "additive"},
        {"rule": "causal", "n": 2, "m": 4, "align": "bottom-right"},
    ],
    "dot": [{"a": [1, 2], "b": [3, 5]}],
    "matmul": [{"A": [[1, 2], [3, 4]], "B": [[0, 1], [2, 5]]}],
    "transpose": [{"A": [[1, 2], [3, 4], [5, 6]]}],
    "split_heads": [{"rows": [[1, 2, 3, 4], [5, 6, 7, 8]], "H": 2}],
    "normalise": [{"row": [1, 3, 4]}],
    "sound_rows": [{"weights": [[0.5, 0.5], [0.5, 0.25]], "allowed": [[True, False], [True, True]]}],
    "by_norm": [{"weights": [[0.75, 0.25]], "values": [[-3, 4], [0, 20]]}],
    "previous_token_score": [{"weights": [[1, 0], [0.75, 0.25]]}],
    "induction_targets": [{"tokens": ["A", "B", "A", "C", "A"]}, {"tokens": ["A", "B", "C", "A"]}],
}


def test_there_are_at_least_thirty_with_different_ids_labels_and_refutations() -> None:
    catalogue = list(CATALOGUE.values())
    assert len(catalogue) >= 30
    assert len({(slip.step, slip.label) for slip in catalogue}) == len(catalogue)
    assert len({slip.id for slip in catalogue}) == len(catalogue)
    assert {"shapes", "projection", "scores", "weights", "mixture", "update", "mask"} <= {s.step for s in catalogue}


@pytest.mark.parametrize("slip", CATALOGUE.values(), ids=lambda slip: slip.id)
def test_words(slip: slips.Slip) -> None:
    assert slip.label
    assert slip.label[0].islower() or slip.label[0] in "01-WV"
    assert not slip.label.endswith(".")
    assert re.fullmatch(r"\S.{20,125}[.]", slip.refutation), slip.refutation
    assert sections.in_words(slip.section)


@pytest.mark.parametrize("slip", CATALOGUE.values(), ids=lambda slip: slip.id)
def test_every_slip_can_be_seen(slip: slips.Slip) -> None:
    assert any(_shows(slip, given) for given in SHOWN[slip.step])


def _shows(slip: slips.Slip, given: dict[str, Any]) -> bool:
    found = {one.id: value for one, value in slips.values(slip.step, given)}
    return slip.id in found and not _equal(found[slip.id], steps.truth(slip.step, given))


def _equal(one: Any, other: Any) -> bool:
    return answers.same(np.asarray(one, dtype=float), np.asarray(other, dtype=float))


# Numbers by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "given", "by_hand"),
    [
        ("shapes-reversed", {"of": "W_Q", "d_model": 12, "d_k": 3}, (3, 12)),
        ("shapes-full-width", {"of": "Q", "n": 5, "d_model": 12, "d_k": 3}, (5, 12)),
        ("shapes-dk-for-dv", {"of": "Z", "n": 5, "d_k": 3, "d_v": 4}, (5, 3)),
        ("shapes-dv-for-dk", {"of": "K", "n": 5, "d_k": 3, "d_v": 4}, (5, 4)),
        ("shapes-sources-as-destinations", {"of": "K", "n": 5, "m": 7, "d_k": 3}, (5, 3)),
        ("shapes-destinations-as-sources", {"of": "Q", "n": 5, "m": 7, "d_k": 3}, (7, 3)),
        ("shapes-map-as-wide-as-keys", {"of": "S", "n": 5, "d_k": 3}, (5, 3)),
        ("shapes-one-head", {"of": "W_O", "d_model": 12, "d_v": 4, "H": 3}, (4, 12)),
        ("shapes-heads-along-positions", {"of": "concat", "n": 5, "d_v": 4, "H": 3}, (15, 4)),
        ("shapes-maps-averaged", {"of": "maps", "n": 4, "H": 2}, (4, 4)),
        ("projection-transposed-matrix", {"inputs": [1, 2], "weights": [[1, 0], [2, 5]]}, [1, 12]),
        ("projection-matrix-first", {"inputs": [[1, 2], [3, 4]], "weights": [[1, 0], [2, 5]]}, [[1, 2], [17, 24]]),
        ("projection-elementwise", {"inputs": [[1, 2], [3, 4]], "weights": [[1, 0], [2, 5]]}, [[1, 0], [6, 20]]),
        ("projection-result-transposed", {"inputs": [[1, 2]], "weights": [[1, 0], [2, 5]]}, [[5], [10]]),
        ("projection-skipped", {"inputs": [1, 2], "weights": [[1, 0], [2, 5]]}, [1, 2]),
        ("scores-unscaled", {"queries": [[2, 4, 0, 0]], "keys": [[1, 1, 5, 5]]}, [[6]]),
        ("scores-width-without-root", {"queries": [[2, 4, 0, 0]], "keys": [[1, 1, 5, 5]]}, [[1.5]]),
        ("scores-multiplied", {"queries": [[2, 4, 0, 0]], "keys": [[1, 1, 5, 5]]}, [[12]]),
        ("scores-model-width", {"queries": [[2, 4, 0, 0]], "keys": [[1, 1, 5, 5]], "d_model": 36}, [[1]]),
        ("scores-number-of-sources", {"queries": [[4]], "keys": [[1], [2], [3], [4]]}, [[2, 4, 6, 8]]),
        ("scores-number-of-heads", {"queries": [[4]], "keys": [[1]], "H": 16}, [[1]]),
        ("scores-value-width", {"queries": [[4]], "keys": [[1]], "d_v": 4}, [[2]]),
        ("scores-transposed", {"queries": [[2]], "keys": [[1], [3]]}, [[2], [6]]),
        ("scores-cosine", {"queries": [[3, 4]], "keys": [[30, 40], [-4, 3]]}, [[1, 0]]),
        ("weights-columns", {"scores": [[0, 0], [LN2, 0]]}, [[1 / 3, 1 / 2], [2 / 3, 1 / 2]]),
        ("weights-columns", {"scores": [0, 5, 3], "allowed": [True, True, False]}, [1, 1, 0]),
        ("weights-whole-matrix", {"scores": [[0, 0], [LN2, 0]]}, [[1 / 5, 1 / 5], [2 / 5, 1 / 5]]),
        ("weights-raw-scores", {"scores": [1, 3, 9], "allowed": [True, True, False]}, [1 / 4, 3 / 4, 0]),
        ("weights-not-normalised", {"scores": [0, LN2]}, [1, 2]),
        ("weights-are-scores", {"scores": [0, LN2]}, [0, LN2]),
        ("weights-sign-flipped", {"scores": [0, LN2, 2 * LN2]}, [4 / 7, 2 / 7, 1 / 7]),
        ("weights-largest-takes-all", {"scores": [0, 1, 1]}, [0, 1 / 2, 1 / 2]),
        ("weights-uniform", {"scores": [0, 1, 1], "allowed": [True, False, True]}, [1 / 2, 0, 1 / 2]),
        ("weights-transposed", {"scores": [[0, 0], [LN2, 0]]}, [[1 / 2, 2 / 3], [1 / 2, 1 / 3]]),
        ("weights-own-position-blocked", {"scores": np.zeros((2, 2))}, [[0, 1], [1, 0]]),
        ("weights-array-maximum", {"scores": EXTREME}, [[0.5, 0.5], [math.nan, math.nan]]),
        ("weights-blocked-maximum", {"scores": [1000, 0], "allowed": [False, True]}, [math.nan, math.nan]),
        ("weights-no-maximum", {"scores": EXTREME}, [[math.nan, math.nan], [0.5, 0.5]]),
        ("weights-first-subtracted", {"scores": [[0, 1000], [1000, 0]]}, [[0, math.nan], [1, 0]]),
        ("weights-smallest-subtracted", {"scores": [[0, 1000], [1000, 0]]}, [[0, math.nan], [math.nan, 0]]),
        ("weights-mean-subtracted", {"scores": [[0, 1000, 0], [0, 3000, 3000]]},
         [[0, 1, 0], [0, math.nan, math.nan]]),
        ("weights-percent", {"scores": [0, math.log(3)]}, [25, 75]),
        ("weights-blocked-score-zero", {"scores": [LN2, 2 * LN2], "allowed": [True, False]}, [2 / 3, 1 / 3]),
        ("weights-zeroed-afterwards", {"scores": [0, 0, LN2], "allowed": [True, True, False]}, [1 / 4, 1 / 4, 0]),
        ("weights-mask-ignored", {"scores": [0, LN2], "allowed": [True, False]}, [1 / 3, 2 / 3]),
        ("weights-mask-inverted", {"scores": [0, LN2], "allowed": [True, False]}, [0, 1]),
        ("weights-mask-added", {"scores": [0, 1], "allowed": [True, False]}, [1 / 2, 1 / 2]),
        ("weights-mask-transposed", {"scores": np.zeros((2, 2)), "allowed": [[True, False], [True, True]]},
         [[1 / 2, 1 / 2], [0, 1]]),
        ("weights-small-fill", {"scores": [-10, 3], "allowed": [True, False]}, [1 / 2, 1 / 2]),
        ("mixture-largest-only", {"weights": [1 / 4, 3 / 4], "values": V[:2]}, [-2, 0.5]),
        ("mixture-plain-sum", {"weights": [1 / 4, 3 / 4, 0], "values": V}, [-1, 5.5]),
        ("mixture-plain-mean", {"weights": [1 / 4, 3 / 4], "values": [[4, 0], [0, 8]]}, [2, 4]),
        ("mixture-columns", {"weights": [[1, 0], [1 / 2, 1 / 2]], "values": [[4], [8]]}, [[8], [4]]),
        ("mixture-scores-as-weights", {"scores": [1, 2], "values": [[4], [8]]}, [20]),
        ("mixture-of-inputs", {"weights": [1 / 2, 1 / 2], "values": [[4], [8]], "inputs": [[0], [2]]}, [1]),
        ("mixture-of-keys", {"weights": [1 / 2, 1 / 2], "values": [[4], [8]], "keys": [[2], [4]]}, [3]),
        ("update-heads-averaged", {"outputs": [[1, 0], [0, 3]], "W_O": np.eye(4)}, [0.5, 0, 0, 1.5]),
        ("update-without-matrix", {"outputs": [[1, 0], [0, 3]], "W_O": np.ones((4, 2))}, [1, 3]),
        ("update-concatenated-only", {"outputs": [[1, 0], [0, 3]], "W_O": np.ones((4, 4))}, [1, 0, 0, 3]),
        ("update-heads-swapped", {"outputs": [[1, 0], [0, 3]], "W_O": np.eye(4)}, [0, 3, 1, 0]),
        ("update-heads-interleaved", {"outputs": [[1, 2], [3, 4]], "W_O": np.eye(4)}, [1, 3, 2, 4]),
        ("update-first-head-only", {"outputs": [[1, 2], [3, 4]], "W_O": np.eye(4)}, [1, 2, 0, 0]),
        ("update-matrix-transposed", {"outputs": [[1, 2]], "W_O": [[1, 0], [2, 5]]}, [1, 12]),
        ("update-residual-missing", {"outputs": [[1, 2]], "W_O": np.eye(2), "state": [5, 5]}, [1, 2]),
        ("update-added-to-normalised",
         {"outputs": [[10, 20]], "W_O": np.eye(2), "state": [3, 1], "normalised": [1, -1]}, [11, 19]),
        ("mask-inverted", {"rule": "causal", "n": 2}, [[0, 1], [0, 0]]),
        ("mask-diagonal-blocked", {"rule": "causal", "n": 2}, [[0, 0], [1, 0]]),
        ("mask-future-allowed", {"rule": "causal", "n": 2}, [[1, 1], [0, 1]]),
        ("mask-rows-for-columns", {"rule": "padding", "is_real": [True, False]}, [[1, 1], [0, 0]]),
        ("mask-rows-too", {"rule": "padding", "is_real": [True, False]}, [[1, 0], [0, 0]]),
        ("mask-or", {"rule": "causal+padding", "n": 2, "is_real": [False, True]}, [[1, 1], [1, 1]]),
        ("mask-padding-forgotten", {"rule": "causal+padding", "n": 2, "is_real": [False, True]}, [[1, 0], [1, 1]]),
        ("mask-order-forgotten", {"rule": "causal+padding", "n": 2, "is_real": [False, True]}, [[0, 1], [0, 1]]),
        ("mask-alignment", {"rule": "causal", "n": 1, "m": 3, "align": "bottom-right"}, [[1, 0, 0]]),
        ("mask-everything-allowed", {"rule": "causal", "n": 2}, [[1, 1], [1, 1]]),
        ("mask-zero-one-added", {"rule": "causal", "n": 2, "form": "additive"}, [[1, 0], [1, 1]]),
        ("mask-finite-fill", {"rule": "causal", "n": 2, "form": "additive"}, [[0, -1e9], [0, 0]]),
        ("mask-minus-one", {"rule": "causal", "n": 2, "form": "additive"}, [[0, -1], [0, 0]]),
        ("dot-products-not-summed", {"a": [1, 2], "b": [3, 5]}, [3, 10]),
        ("dot-cosine", {"a": [3, 4], "b": [6, 8]}, 1),
        ("dot-sum-of-both", {"a": [1, 2], "b": [3, 5]}, 11),
        ("matmul-transposed", {"A": [[1, 2]], "B": [[3, 4], [5, 6]]}, [[11, 17]]),
        ("matmul-other-order", {"A": [[1, 2], [3, 4]], "B": [[0, 1], [1, 0]]}, [[3, 4], [1, 2]]),
        ("matmul-elementwise", {"A": [[1, 2]], "B": [[3, 4]]}, [[3, 8]]),
        ("transpose-unchanged", {"A": [[1, 2]]}, [[1, 2]]),
        ("transpose-rows-reversed", {"A": [[1], [2]]}, [[2], [1]]),
        ("transpose-reshaped", {"A": [[1, 2, 3], [4, 5, 6]]}, [[1, 2], [3, 4], [5, 6]]),
        ("split-positions", {"rows": [[1, 2, 3, 4], [5, 6, 7, 8]], "H": 2}, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
        ("split-interleaved", {"rows": [[1, 2, 3, 4]], "H": 2}, [[[1, 3]], [[2, 4]]]),
        ("normalise-by-maximum", {"row": [1, 4]}, [1 / 4, 1]),
        ("normalise-by-length", {"row": [3, 4]}, [3 / 5, 4 / 5]),
        ("normalise-by-count", {"row": [3, 4]}, [3 / 2, 2]),
    ],
)  # fmt: skip
def test_numbers_by_hand(id: str, given: dict[str, Any], by_hand: Any) -> None:
    slip = CATALOGUE[id]
    with np.errstate(all="ignore"):
        value = slip.compute(steps.with_earlier_step(slip.step, given))
    assert _equal(value, by_hand), value


# The reference cases ------------------------------------------------------------------------------------------


def as_numbers(value: Any) -> Any:
    """Read the cases' encoding of NaN and infinities."""
    return [as_numbers(part) for part in value] if isinstance(value, list) else float(value)


@pytest.mark.parametrize(
    ("case", "label", "id"),
    [
        ("seed-forbid-source-2", "dropped_without_renormalising", "weights-zeroed-afterwards"),
        ("bool-is-true-true", "inverted", "weights-mask-inverted"),
        ("doc-pseudocode-mask-ignored", "mask_ignored", "weights-mask-ignored"),
        ("bool-decoder-mask-not-negated", "strict_upper_allowed", "weights-mask-inverted"),
        ("bool-mask-added-eager", "added", "weights-mask-added"),
        ("bool-keras-vs-tutorial", "attends_only_padding", "weights-mask-inverted"),
        ("bool-mha-adapted-loss-100x", "future_visible", "weights-mask-inverted"),
        ("fill-epsilon", "thirds", "weights-blocked-score-zero"),
        ("fill-minus-1e-9", "almost_half", "weights-blocked-score-zero"),
        ("zero-score-not-masked", "score_set_to_zero", "weights-blocked-score-zero"),
        ("fill-minus-ten-leaks", "leak", "weights-small-fill"),
        ("multiply-scores-by-mask", "times_mask", "weights-blocked-score-zero"),
        ("mask-after-softmax", "no_renormalisation", "weights-zeroed-afterwards"),
        ("mask-after-softmax-renormalised", "believes_different", "weights-zeroed-afterwards"),
        ("axis-queries-instead-of-keys", "column_softmax", "weights-columns"),
        ("axis-global-softmax", "whole_matrix", "weights-whole-matrix"),
        ("axis-vit-notebook", "column_softmax", "weights-columns"),
        ("axis-batch-size-one", "all_ones", "weights-columns"),
        ("diagonal-excluded-empty-first-row", "strict_lower", "weights-own-position-blocked"),
        ("leak-mask-skipped-without-attmask", "unmasked", "weights-mask-ignored"),
        ("pad-unsqueeze-wrong-axis", "row_mask", "weights-mask-transposed"),
        ("stable-sign-flipped", "inverted", "weights-sign-flipped"),
        ("stable-global-max", "global_max", "weights-array-maximum"),
        ("proportional-normalisation", "score_over_total", "weights-raw-scores"),
        ("map-asymmetric", "symmetric", "weights-uniform"),
    ],
)
def test_reference_cases_by_the_slip_they_name(case: str, label: str, id: str) -> None:
    inputs, wrong = CASES[case]["inputs"], _wrong(case, label)
    given = {name: inputs[name] for name in ("scores", "allowed", "values") if name in inputs}
    given.setdefault("scores", np.log(inputs["exp_scores"]) if "exp_scores" in inputs else None)
    found = dict_of(slips.values("mixture" if "values" in given else "weights", given))
    assert _equal(found[id], wrong)


@pytest.mark.parametrize(
    ("case", "label", "id"),
    [
        ("scale-divided-by-inverse", "multiplied", "scores-multiplied"),
        ("scale-full-dim-vit", "sqrt_d_model", "scores-model-width"),
        ("scale-missing", "unscaled", "scores-unscaled"),
        ("scale-d-not-sqrt", "sqrt_M", "scores-model-width"),
        ("scale-d-not-sqrt", "d_k_no_sqrt", "scores-width-without-root"),
    ],
)
def test_scale_cases_reach_the_weights(case: str, label: str, id: str) -> None:
    inputs = CASES[case]["inputs"]
    d_k = inputs["d_k"]
    given = {  # one query of d_k ones against keys whose first coordinate holds the dot product
        "queries": np.ones((1, d_k)),
        "keys": [[product] + [0] * (d_k - 1) for product in inputs["raw_dot_products"][0]],
        "d_model": inputs.get("d_model", inputs.get("M")),
    }
    assert _equal(steps.truth("weights", given), CASES[case]["expected"]["weights"])
    assert _equal(dict_of(slips.values("weights", given))[id], _wrong(case, label))


@pytest.mark.parametrize(
    ("case", "label", "id", "step", "names"),
    [
        ("scale-query-first-equal", "scale_both_q_and_k", "scores-width-without-root", "scores",
         {"queries": "q", "keys": "k"}),
        ("heads-split-without-transpose", "plain_view", "split-positions", "split_heads",
         {"rows": "x_tokens_features", "H": "heads"}),
        ("need-head-weights-ignored", "averaged_shape", "shapes-maps-averaged", "shapes", {"n": "n", "H": "heads"}),
    ],
)  # fmt: skip
def test_other_cases(case: str, label: str, id: str, step: str, names: dict[str, str]) -> None:
    given = {name: CASES[case]["inputs"][key] for name, key in names.items()} | {"of": "maps"}
    assert _equal(dict_of(slips.values(step, given))[id], _wrong(case, label))


def test_cases_about_several_heads_residual_and_projection() -> None:
    heads = CASES["heads-sum-equals-concat-wo"]["inputs"]
    given = {"outputs": [heads["z1"], heads["z2"]], "W_O": [*heads["W_O_block1"], *heads["W_O_block2"]]}
    assert _equal(steps.truth("update", given), [[7, -2]])
    found = dict_of(slips.values("update", given))
    assert _equal(found["update-heads-averaged"], _wrong("heads-sum-equals-concat-wo", "average_of_heads"))
    assert _equal(found["update-without-matrix"], _wrong("heads-sum-equals-concat-wo", "sum_without_W_O"))

    added = CASES["residual-adds-normalised"]["inputs"]
    given = {"outputs": [added["attn_out"]], "W_O": np.eye(2), "state": added["x"], "normalised": added["norm_x"]}
    assert _equal(steps.truth("update", given), CASES["residual-adds-normalised"]["expected"]["y"])
    found = dict_of(slips.values("update", given))
    assert _equal(found["update-added-to-normalised"], _wrong("residual-adds-normalised", "adds_norm"))

    linear = CASES["linear-weight-transposed"]["inputs"]
    given = {"inputs": linear["x"], "weights": np.transpose(linear["linear_weight_out_in"])}
    found = dict_of(slips.values("projection", given))
    assert _equal(found["projection-transposed-matrix"], _wrong("linear-weight-transposed", "x_at_W"))

    padded = CASES["pad-3d-mask-blocks-rows"]["inputs"]
    given = {"rule": "causal+padding", "n": 3, "is_real": ~np.array(padded["key_padding_blocked"]), "form": "blocked"}
    found = dict_of(slips.values("mask", given))
    assert _equal(found["mask-rows-too"], _wrong("pad-3d-mask-blocks-rows", "row_and_column"))


def dict_of(pairs: Any) -> dict[str, Any]:
    return {slip.id: value for slip, value in pairs}


def _wrong(case: str, label: str) -> Any:
    (value,) = (as_numbers(wrong["value"]) for wrong in CASES[case]["wrong"] if wrong["label"] == label)
    return value


def test_a_slip_of_an_earlier_step_is_carried_to_the_end() -> None:
    given = {"queries": Q, "keys": K[:3], "values": V, "allowed": np.tri(2, 3, dtype=bool)}
    found = dict_of(slips.values("mixture", given))
    unscaled = steps.truth("weights", {"scores": Q @ K[:3].T, "allowed": given["allowed"]})
    assert _equal(found["scores-unscaled"], unscaled @ V)
    assert {"weights-mask-ignored", "mixture-largest-only"} <= set(found)


def test_a_slip_of_the_wrong_shape_is_not_carried_on() -> None:
    found = dict_of(slips.values("mixture", {"queries": Q, "keys": K[:3], "values": V}))
    assert np.isnan(found["scores-transposed"]).all()


def test_a_slip_that_divides_zero_by_zero_is_undefined_further_on() -> None:
    found = dict_of(slips.values("weights", {"queries": [[1.0]], "keys": [[0.0], [1.0]]}))
    assert np.isnan(found["scores-cosine"]).all()


def test_scores_of_one_destination_have_no_transpose() -> None:
    found = dict_of(slips.values("scores", {"queries": [1.0, 0.0], "keys": [[1.0, 2.0], [3.0, 4.0]]}))
    assert "scores-unscaled" in found
    assert "scores-transposed" not in found


def test_a_batch_of_maps_is_transposed_map_by_map() -> None:
    batch = np.log(np.arange(1.0, 19).reshape(2, 3, 3))
    together = dict_of(slips.values("weights", {"scores": batch}))["weights-transposed"]
    for scores, transposed in zip(batch, together, strict=True):
        assert _equal(transposed, dict_of(slips.values("weights", {"scores": scores}))["weights-transposed"])
