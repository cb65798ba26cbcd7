"""The front-end's arithmetic, run under Node, against labkit: on the shared cases and on random arrays."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit.attention import mix, softmax_over_sources
from labkit.masks import causal, combine, padding
from labkit.panels.one_head import hull
from tests.conftest import require

NODE = shutil.which("node")
CASES = json.loads((Path(__file__).parents[1] / "cases" / "attention_cases.json").read_text(encoding="utf-8"))["cases"]


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    """One Node process that has loaded the front-end."""
    require("node", NODE)
    assert NODE
    module = str(resources.files("labkit.panels") / "panel.mjs")
    command = [NODE, str(Path(__file__).with_name("run.mjs")), module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture
def front_end(node: Any) -> Callable[..., Any]:
    """Call exported functions of the front-end, each given as [name, *arguments], and return what each gave."""

    def call(*calls: Any) -> Any:
        node.stdin.write(json.dumps(calls) + "\n")
        node.stdin.flush()
        return json.loads(node.stdout.readline())

    return call


def plain(values: Any) -> Any:
    """Make numbers fit for JSON: NaN as null, infinities as the largest finite numbers of their sign."""
    if isinstance(values, list):
        return [plain(value) for value in values]
    x = float(values)
    return None if math.isnan(x) else max(-1e308, min(1e308, x))


def filled(rows: Any, width: int) -> Any:
    """Write undefined rows (null) as rows of NaN."""
    return np.array([[math.nan] * width if row is None else row for row in rows], dtype=float)


def of(*ops: str) -> Any:
    """Run a test on every case of these kinds."""
    cases = [case for case in CASES if case["op"] in ops]
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


def weights_call(scores: Any, allowed: Any = None) -> list[Any]:
    mask = np.ones(np.shape(scores), dtype=bool).tolist() if allowed is None else allowed
    return ["softmaxOverSources", plain(scores), mask]


@of("masked_attention", "masked_softmax", "stable_softmax")
def test_weights_and_outputs_of_the_cases(front_end: Any, case: dict[str, Any]) -> None:
    given, expected = case["inputs"], case["expected"]
    (weights,) = front_end(weights_call(given["scores"], given.get("allowed")))
    m = len(given["scores"][0])
    own = softmax_over_sources(plain(given["scores"]), given.get("allowed"), empty_rows="nan")
    np.testing.assert_allclose(filled(weights, m), own, rtol=0, atol=1e-12)
    np.testing.assert_allclose(filled(weights, m), filled(expected["weights"], m), rtol=0, atol=1e-12)
    if "output" in expected:
        (output,) = front_end(["mix", weights, plain(given["values"])])
        d_v = len(given["values"][0])
        np.testing.assert_allclose(filled(output, d_v), filled(expected["output"], d_v), rtol=0, atol=1e-12)


@of("scaled_softmax")
def test_weights_of_scaled_cases(front_end: Any, case: dict[str, Any]) -> None:
    scores = np.array(case["inputs"]["raw_dot_products"]) / math.sqrt(case["inputs"]["d_k"])
    (weights,) = front_end(weights_call(scores.tolist()))
    np.testing.assert_allclose(weights, case["expected"]["weights"], rtol=0, atol=1e-12)


def test_case_of_a_broken_value_that_nobody_reads(front_end: Any) -> None:
    (case,) = (case for case in CASES if case["id"] == "fmr-nan-in-masked-value")
    (weights,) = front_end(weights_call(case["inputs"]["scores"], case["inputs"]["allowed"]))
    (output,) = front_end(["mix", weights, plain(case["inputs"]["values"])])
    np.testing.assert_allclose(np.ravel(output), np.ravel(case["expected"]["output_sum_over_allowed_only"]), atol=1e-12)


def test_case_of_a_value_set_to_zero(front_end: Any) -> None:
    (case,) = (case for case in CASES if case["op"] == "value_intervention")
    given, expected = case["inputs"], case["expected"]
    before, after = (
        front_end(["mixRow", given["weights"], given[f"values_{when}"]])[0] for when in ("before", "after")
    )
    np.testing.assert_allclose([before, after], [expected["before"], expected["after"]], rtol=0, atol=1e-12)


def test_case_of_heads_written_back(front_end: Any) -> None:
    (case,) = (case for case in CASES if case["id"] == "heads-sum-equals-concat-wo")
    given = case["inputs"]
    row, W_O = given["z1"][0] + given["z2"][0], given["W_O_block1"] + given["W_O_block2"]
    np.testing.assert_allclose(front_end(["rowTimes", row, W_O]), case["expected"]["output"], rtol=0, atol=1e-12)


def test_case_of_left_padding(front_end: Any) -> None:
    (case,) = (case for case in CASES if case["id"] == "fmr-left-pad-causal")
    real = [bool(keep) for keep in case["inputs"]["attention_mask_keep"]]
    rules = {"causal": True, "align": "top-left", "is_real": real, "by_hand": [[True] * 3] * 3}
    assert front_end(["combineMasks", rules])[0] == case["expected"]["allowed"]


def test_random_arrays_of_every_size(front_end: Any) -> None:
    rng = np.random.default_rng(7)
    calls, truth = [], []
    for _ in range(300):
        n, m, d_v = rng.integers(1, 13, size=3)
        scores = rng.normal(size=(n, m)) * 10 ** rng.uniform(-3, 2.5)
        allowed, values = rng.random((n, m)) < 0.7, rng.normal(size=(m, d_v))
        weights = softmax_over_sources(scores, allowed, empty_rows="nan")
        calls.append(weights_call(scores.tolist(), allowed.tolist()))
        truth.append((weights, values, mix(weights, values)))
    found = front_end(*calls)
    mixed_by = zip(found, truth, strict=True)
    outputs = front_end(*(["mix", weights, values.tolist()] for weights, (_, values, _) in mixed_by))
    for own, output, (weights, values, mixed) in zip(found, outputs, truth, strict=True):
        np.testing.assert_allclose(filled(own, weights.shape[1]), weights, rtol=0, atol=1e-12)
        np.testing.assert_allclose(filled(output, values.shape[1]), mixed, rtol=0, atol=1e-12)


def test_random_products_with_a_matrix(front_end: Any) -> None:
    rng = np.random.default_rng(8)
    pairs = [(rng.normal(size=k), rng.normal(size=(k, d))) for k, d in rng.integers(1, 9, size=(50, 2))]
    for own, (row, matrix) in zip(
        front_end(*(["rowTimes", row.tolist(), matrix.tolist()] for row, matrix in pairs)), pairs, strict=True
    ):
        np.testing.assert_allclose(own, row @ matrix, rtol=0, atol=1e-12)


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4, 3)])
def test_masks_from_rules(front_end: Any, align: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(9)
    real, by_hand = rng.random(shape[1]) < 0.7, rng.random(shape) < 0.8
    rules = {"causal": True, "align": align, "is_real": real.tolist(), "by_hand": by_hand.tolist()}
    free = rules | {"causal": False}
    bound, unbound = front_end(["combineMasks", rules], ["combineMasks", free])
    assert bound == combine(by_hand, padding(real), causal(*shape, align)).tolist()
    assert unbound == combine(by_hand, padding(real)).tolist()


def test_hulls_and_what_lies_outside(front_end: Any) -> None:
    rng = np.random.default_rng(10)
    clouds = [rng.integers(0, 6, size=(k, 2)).tolist() for k in range(3, 13)]
    for found, cloud in zip(front_end(*(["convexHull", cloud] for cloud in clouds)), clouds, strict=True):
        assert [tuple(p) for p in found] == hull(cloud)
    square = [[0, 0], [2, 0], [2, 2], [0, 2]]
    points = {(1, 1): False, (2, 2): False, (3, 1): True, (-0.01, 1): True, (1, 2): False}
    assert front_end(*(["isOutside", list(p), square] for p in points)) == list(points.values())


def test_numbers_are_named_exactly_or_not_at_all(front_end: Any) -> None:
    calls = [["fraction", 1 / 3], ["fraction", -0.75], ["fraction", 2.0], ["fraction", 0.3333], ["fraction", 0]]
    assert front_end(*calls) == ["1/3", "−3/4", "2", None, "0"]
    logs = [math.log(2), math.log(0.5), 0, 0.7, math.log(16)]
    assert front_end(*(["logName", x] for x in logs)) == ["ln 2", "ln 1/2", "ln 1", None, "ln 16"]


def test_the_ledger_names_what_moved_and_what_did_not(front_end: Any) -> None:
    def part(name: str, rows: list[list[float]]) -> dict[str, Any]:
        pieces = [{"name": f"{name} row {i + 1}", "numbers": row} for i, row in enumerate(rows)]
        return {"name": name, "rest": f"the other rows of {name}", "pieces": pieces}

    before = [part("S", [[1, 2], [3, 4]]), part("V", [[0, 0]])]
    after = [part("S", [[1, 2], [3, 5]]), part("V", [[0, 0]])]
    found, nothing = front_end(["ledger", after, before], ["ledger", before, before])
    assert found == {"changed": ["S row 2"], "unchanged": ["the other rows of S", "V"]}
    assert nothing == {"changed": [], "unchanged": ["S", "V"]}


def test_an_undefined_row_counts_as_moved(front_end: Any) -> None:
    def whole(numbers: Any) -> list[dict[str, Any]]:
        return [{"name": "A", "pieces": [{"name": "A", "numbers": numbers}]}]

    assert front_end(["ledger", whole(None), whole([0.5, 0.5])])[0]["changed"] == ["A"]
    assert front_end(["ledger", whole(None), whole(None)])[0]["changed"] == []
