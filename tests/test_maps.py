"""The audit finds planted faults and is silent about sound maps; the numbers beside a map come out by other routes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from labkit import maps
from labkit.attention import softmax_over_sources
from labkit.errors import LabkitError, MaskError, ShapeError
from labkit.maps import audit, average, contributions, entropy, rollout
from labkit.masks import causal, padding
from labkit.transformer import distinct_sequences, load_model, repeated_sequences

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(6, 6))
SOUND = softmax_over_sources(SCORES, causal(6))
OPEN = softmax_over_sources(SCORES)
MASK = causal(6)
LATER = np.tri(6, k=1, dtype=bool)
ONE_LEAK = np.vstack([SOUND[:1], [[0.4, 0.4, 0, 0, 0.2, 0]], SOUND[2:]])
STRICTER = np.tri(6, k=-1, dtype=bool) | np.diag(np.arange(6) < 3)


def faults(*arguments: object) -> set[str]:
    found = audit(*arguments)  # type: ignore[arg-type]
    return {finding.kind for finding in found if finding.severity in ("fault", "warning")}


# ── planted faults ───────────────────────────────────────────────────────────────────────────────────────────────────


def softmax_down_the_columns() -> np.ndarray:
    exponentials = np.where(MASK, np.exp(SCORES), 0)
    return exponentials / exponentials.sum(axis=0)


def with_nan_row() -> np.ndarray:
    broken = SOUND.copy()
    broken[3] = np.nan
    return broken


def struck_out_afterwards() -> np.ndarray:
    return np.where(MASK, OPEN, 0)


PLANTED = [
    ("sound", SOUND, MASK, set(), ""),
    ("no mask at all", OPEN, None, set(), ""),
    ("no mask where one was due", OPEN, MASK, {"no mask"}, "no mask worked"),
    ("blocked score set to 0", softmax_over_sources(np.where(MASK, SCORES, 0)), MASK, {"no mask"}, "set to 0"),
    ("one blocked source read", ONE_LEAK, MASK, {"blocked sources"}, "row 1: 0.2"),
    ("mask off by one", softmax_over_sources(SCORES, LATER), MASK, {"mask off by one"}, "off by one"),
    ("rows reversed", SOUND[::-1], MASK, {"flipped"}, "its rows in reverse"),
    ("columns reversed", SOUND[:, ::-1], MASK, {"flipped"}, "its columns in reverse"),
    ("both reversed", SOUND[::-1, ::-1], MASK, {"flipped"}, "both axes in reverse"),
    ("rows reversed, no mask given", SOUND[::-1], None, {"flipped"}, "origin"),
    ("transposed", SOUND.T, MASK, {"transposed"}, "is transposed"),
    ("transposed, no mask given", OPEN.T, None, {"axis swapped"}, "it cannot tell"),
    ("softmax down the columns", softmax_down_the_columns(), MASK, {"columns normalised"}, "down the columns"),
    ("zeroed afterwards", struck_out_afterwards(), MASK, {"row sums"}, "without renormalising"),
    ("dropout on", np.where(RNG.random((6, 6)) < 0.8, OPEN / 0.8, 0), None, {"row sums"}, "dropout"),
    ("scores", SCORES, None, {"not weights"}, "before softmax"),
    ("exponentials", np.exp(np.abs(SCORES)), None, {"not weights"}, "not normalised"),
    ("a weight above 1", [[1.5, 0.1], [0.5, 0.5]], None, {"not weights"}, "weights[0, 0] is 1.5"),
    ("a NaN row", with_nan_row(), MASK, {"not finite"}, "weights[3] holds NaN"),
    ("a stricter mask", softmax_over_sources(SCORES, STRICTER), MASK, {"exact zeros"}, "weights[3, 3] is exactly 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "allowed", "kinds", "words"), [case[1:] for case in PLANTED], ids=[c[0] for c in PLANTED]
)
def test_a_planted_fault_is_named_and_no_other(weights, allowed, kinds, words) -> None:
    assert faults(weights, allowed) == kinds
    if words:
        found = [f for f in audit(weights, allowed) if f.severity in ("fault", "warning")]
        assert words in found[0].sentence


def test_the_gallery_has_every_kind_once() -> None:
    kinds = [[f.kind for f in audit(weights, causal(4)).of("fault")] for weights in maps.fault_gallery()]
    assert sorted(kinds) == sorted(
        [["row sums"], ["transposed"], ["mask off by one"], ["flipped"], [], ["columns normalised"], ["no mask"]]
    )


def test_the_gallery_is_exact() -> None:
    struck, turned, late, upside_down, sound, columns, zeroed = maps.fault_gallery()
    expected = [[1, 0, 0, 0], [1 / 3, 2 / 3, 0, 0], [1 / 4, 1 / 4, 1 / 2, 0], [1 / 8, 1 / 8, 1 / 2, 1 / 4]]
    np.testing.assert_allclose(sound, expected)
    np.testing.assert_array_equal(turned, sound.T)
    np.testing.assert_array_equal(upside_down, sound[::-1])
    np.testing.assert_allclose(struck, [[1 / 4, 0, 0, 0], [1 / 5, 2 / 5, 0, 0], [1 / 8, 1 / 8, 1 / 4, 0], sound[3]])
    np.testing.assert_allclose(
        late, [[2 / 3, 1 / 3, 0, 0], [1 / 4, 1 / 2, 1 / 4, 0], [1 / 8, 1 / 8, 1 / 4, 1 / 2], sound[3]]
    )
    np.testing.assert_allclose(columns[:, 1], [0, 2 / 5, 2 / 5, 1 / 5])
    np.testing.assert_allclose(
        zeroed[:3], [np.array([2, 1, 1, 1]) / 5, np.array([1, 2, 1, 1]) / 5, np.array([2, 2, 4, 1]) / 9]
    )


def test_sound_maps_of_many_shapes_have_no_fault() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        n, m = rng.integers(1, 9, size=2)
        scores = rng.normal(scale=rng.uniform(0, 4), size=(n, m))
        mask = [None, rng.random((n, m)) < 0.5, causal(n, m, align="bottom-right")][rng.integers(3)]
        if mask is not None:
            mask[:, 0] = True
        assert not faults(softmax_over_sources(scores, mask), mask)


def test_every_map_of_the_trained_models_is_sound() -> None:
    for name in ("copy", "surplus"):
        trace = load_model(name).run(repeated_sequences(4, seed=0))
        found = audit(trace.weights, causal(24), np.stack([[h.values for h in layer.heads] for layer in trace.layers]))
        assert not found.of("fault")
        assert not found.of("warning")
        assert {f.where for f in found if f.kind == "forced one"} == set(np.ndindex(*trace.weights.shape[:3]))


def test_half_precision_and_three_decimals_are_no_fault() -> None:
    assert not faults(SOUND.astype(np.float16), MASK)
    assert not faults(np.round(OPEN, 4))


# ── what is true but says little ─────────────────────────────────────────────────────────────────────────────────────


def test_forced_ones_with_and_without_the_mask() -> None:
    for allowed in (MASK, None):
        (forced,) = [f for f in audit(SOUND, allowed) if f.kind == "forced one"]
        assert forced.rows == (0,)
        assert forced.severity == "note"
    assert "forced one" not in audit(OPEN).kinds


def test_zeros_draw_a_causal_mask_from_three_positions_on() -> None:
    assert "forced one" in audit(softmax_over_sources(SCORES[:3, :3], causal(3))).kinds
    assert "forced one" not in audit(softmax_over_sources(SCORES[:2, :2], causal(2))).kinds
    assert "forced one" not in audit(softmax_over_sources(SCORES, LATER)).kinds


def test_padding_forces_a_row_too() -> None:
    only_first = padding([True, False, False])
    weights = softmax_over_sources(np.zeros((3, 3)), only_first)
    (forced,) = [f for f in audit(weights, only_first) if f.kind == "forced one"]
    assert forced.rows == (0, 1, 2)


def test_uniform_rows_are_named_and_forced_rows_are_not_uniform() -> None:
    scores = np.where(np.arange(4)[:, None] == 2, RNG.normal(size=4), 0.0)
    (uniform,) = [f for f in audit(softmax_over_sources(scores, causal(4)), causal(4)) if f.kind == "uniform"]
    assert uniform.rows == (1, 3)


def test_a_sink_is_named_with_the_length_of_its_value() -> None:
    scores = np.zeros((6, 6))
    scores[:, 0] = 4
    weights = softmax_over_sources(scores, MASK)
    (bare,) = [f for f in audit(weights, MASK) if f.kind == "sink"]
    assert "nobody can tell" in bare.sentence
    values = np.ones((6, 4))
    values[0] = 0.1
    (with_values,) = [f for f in audit(weights, MASK, values) if f.kind == "sink"]
    assert "0.10 times the length" in with_values.sentence
    assert "sink" not in audit(SOUND, MASK).kinds


def test_a_sink_needs_three_readers_with_three_sources_each() -> None:
    scores = np.zeros((5, 5))
    scores[:, 0] = 4
    assert "its 3 readers" in next(
        f.sentence for f in audit(softmax_over_sources(scores, causal(5))) if f.kind == "sink"
    )
    assert "sink" not in audit(softmax_over_sources(scores[:4, :4], causal(4))).kinds


def test_sentences_name_rows_and_ranges() -> None:
    (one,) = audit([[0.5, 0.25], [0.5, 0.5]]).of("fault")
    assert one.sentence.startswith("weights[0] sums to 0.75, not 1: ")
    (several,) = audit([[0.5, 0.25], [0.25, 0.25]]).of("fault")
    assert several.sentence.startswith("weights[[0, 1]] sum to 0.5 … 0.75, not 1: ")
    (many,) = audit(np.full((8, 2), 0.25)).of("fault")
    assert many.sentence.startswith("weights[[0, 1, 2, 3, 4, 5, …]] sum to ")
    assert many.rows == tuple(range(8))


def test_no_reading_is_offered_of_a_broken_map() -> None:
    assert not audit(SOUND[::-1], MASK).of("note")


# ── where it cannot tell ─────────────────────────────────────────────────────────────────────────────────────────────


def test_one_head_or_an_average_cannot_be_told_from_numbers() -> None:
    averaged = softmax_over_sources(RNG.normal(size=(4, 6, 6)), MASK).mean(axis=0)
    assert "one head?" in {f.kind for f in audit(averaged, MASK).of("cannot tell")}
    assert "one head?" in {f.kind for f in audit(SOUND, MASK).of("cannot tell")}


def test_values_with_more_axes_betray_an_average() -> None:
    found = audit(SOUND, MASK, np.ones((4, 6, 5)))
    assert "4 heads" in next(f for f in found.of("warning") if f.kind == "average").sentence


def test_three_axes_are_not_interpreted() -> None:
    assert "leading axis" in {f.kind for f in audit(np.stack([SOUND, SOUND]), MASK).of("cannot tell")}


def test_a_fill_that_is_too_small_looks_like_a_head_that_looks_back() -> None:
    leaky = softmax_over_sources(SCORES + np.where(MASK, 0, -9))
    (found,) = [f for f in audit(leaky) if f.kind == "nearly causal"]
    assert found.severity == "cannot tell"
    above = sum(leaky[i, j] for i in range(6) for j in range(i + 1, 6)) / 6
    assert f"only {above:.2g} of" in found.sentence
    assert "no mask" in audit(leaky, MASK).kinds
    assert "nearly causal" not in audit(SOUND).kinds | audit(OPEN).kinds


def test_doubly_normalised_maps_leave_the_axis_open() -> None:
    for weights in (np.eye(4)[[2, 0, 3, 1]], np.full((3, 3), 1 / 3)):
        assert "axis" in {f.kind for f in audit(weights).of("cannot tell")}
        assert not audit(weights).of("fault")
    assert "axis" not in audit(OPEN).kinds


def test_without_values_the_effect_is_open() -> None:
    assert "effect" in {f.kind for f in audit(SOUND, MASK).of("cannot tell")}
    assert "effect" not in audit(SOUND, MASK, np.ones((6, 2))).kinds


def test_batches_say_which_map() -> None:
    batch = np.stack([[SOUND, SOUND[::-1]], [SOUND, SOUND]])
    found = audit(batch, MASK).of("fault")
    assert [f.where for f in found] == [(0, 1)]
    assert str(found[0]).startswith("fault: map [0, 1]: ")


def test_derived_maps_say_what_they_are() -> None:
    (finding,) = audit(average(np.stack([SOUND, SOUND])))
    assert finding.severity == "warning"
    assert "No head computed it" in finding.sentence
    assert "rollout through 1 layers" in str(rollout(SOUND[None, None]))


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda: audit([0.5, 0.5]), ShapeError),
        (lambda: audit(np.empty((0, 3))), ShapeError),
        (lambda: audit(SOUND, np.ones((6, 6))), MaskError),
        (lambda: audit(SOUND, causal(5)), MaskError),
        (lambda: audit(SOUND, MASK, np.ones((5, 2))), ShapeError),
        (lambda: audit([["a", "b"]]), LabkitError),
        (lambda: average(SOUND), ShapeError),
        (lambda: rollout(np.stack([SOUND])), ShapeError),
        (lambda: contributions(average(np.stack([SOUND, SOUND])), np.ones((6, 2))), LabkitError),
    ],
)
def test_refusals(act, error: type[Exception]) -> None:
    with pytest.raises(error):
        act()


# ── numbers beside a map ─────────────────────────────────────────────────────────────────────────────────────────────


def test_contributions_by_loops() -> None:
    values, W_O = RNG.normal(size=(6, 3)), RNG.normal(size=(3, 5))
    for moved, made in ((values, contributions(SOUND, values)), (values @ W_O, contributions(SOUND, values, W_O))):
        for i in range(6):
            output = sum(SOUND[i, j] * moved[j] for j in range(6))
            for j in range(6):
                part = SOUND[i, j] * moved[j]
                assert made.norm[i, j] == pytest.approx(np.sqrt(sum(x * x for x in part)))
                assert made.projection[i, j] == pytest.approx(part @ output / np.sqrt(output @ output))
            assert made.projection[i].sum() == pytest.approx(np.linalg.norm(output))


def test_batches_give_what_each_map_gives() -> None:
    weights = softmax_over_sources(RNG.normal(size=(2, 3, 6, 6)), MASK)
    values, W_O = RNG.normal(size=(2, 3, 6, 4)), RNG.normal(size=(4, 5))
    made, bits = contributions(weights, values, W_O), entropy(weights)
    for place in np.ndindex(2, 3):
        single = contributions(weights[place], values[place], W_O)
        np.testing.assert_allclose(made.norm[place], single.norm)
        np.testing.assert_allclose(made.projection[place], single.projection)
        np.testing.assert_allclose(bits[place], entropy(weights[place]))


def test_values_shared_by_a_batch_reach_every_map() -> None:
    scores = np.zeros((3, 6, 6))
    scores[..., 0] = 4
    values = np.ones((1, 6, 2))
    values[0, 0] = 0.5
    sinks = [f for f in audit(softmax_over_sources(scores, MASK), MASK, values) if f.kind == "sink"]
    assert ["0.50 times" in sink.sentence for sink in sinks] == [True] * 3


def test_cancelling_values_have_norms_and_no_projection() -> None:
    made = contributions([[0.5, 0.5]], [[3.0, 0], [-3.0, 0]])
    assert made.norm.tolist() == [[1.5, 1.5]]
    assert made.projection.tolist() == [[0, 0]]


def test_average_and_outputs_do_not_commute() -> None:
    weights = np.stack([SOUND, softmax_over_sources(RNG.normal(size=(6, 6)), MASK)])
    values = RNG.normal(size=(2, 6, 3))
    averaged = average(weights)
    np.testing.assert_allclose(averaged.numbers, (weights[0] + weights[1]) / 2)
    assert not np.allclose(averaged.numbers @ values.mean(axis=0), (weights @ values).mean(axis=0), atol=1e-3)


def test_rollout_by_loops() -> None:
    weights = softmax_over_sources(RNG.normal(size=(2, 3, 4, 4)), causal(4))
    first, second = ((layer[0] + layer[1] + layer[2]) / 6 + np.eye(4) / 2 for layer in weights)
    made = rollout(weights)
    np.testing.assert_allclose(made.numbers, second @ first)
    np.testing.assert_allclose(made.numbers.sum(axis=1), 1)
    assert str(made).startswith("rollout through 2 layers of 3 averaged heads.\n")
    assert "values" in made.caveat


def test_entropy_of_known_rows() -> None:
    rows = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.125, 0.125]]
    assert entropy(rows).tolist() == [0, 1, 2, 1.75]


# ── labkit audit FILE ────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_of_every_kind(tmp_path, capsys) -> None:
    np.save(tmp_path / "a.npy", SOUND)
    np.savez(tmp_path / "b.npz", weights=SOUND, allowed=MASK, values=np.ones((6, 2)))
    np.savetxt(tmp_path / "c.csv", SOUND, delimiter=",")
    (tmp_path / "d.json").write_text(json.dumps({"weights": SOUND.tolist(), "allowed": MASK.tolist()}))
    (tmp_path / "e.json").write_text(json.dumps(SOUND.tolist()))
    for name in ("a.npy", "b.npz", "c.csv", "d.json", "e.json"):
        assert maps.main([str(tmp_path / name)]) == 0
        assert "forced" not in capsys.readouterr().err
    np.save(tmp_path / "cached.npy", softmax_over_sources(SCORES[:2], causal(2, 6, "bottom-right")))
    assert maps.main([str(tmp_path / "cached.npy"), "--causal"]) == 0
    capsys.readouterr()
    np.save(tmp_path / "f.npy", SOUND[::-1])
    assert maps.main([str(tmp_path / "f.npy"), "--causal"]) == 1
    out = capsys.readouterr().out
    assert "rows in reverse order" in out
    assert "maps, the first" not in out


def test_many_maps_are_gathered_by_kind(tmp_path, capsys) -> None:
    np.savez(tmp_path / "maps.npz", attentions=np.stack([[SOUND, SOUND[::-1], SOUND[::-1]]]))
    assert maps.main([str(tmp_path / "maps.npz")]) == 0
    out = capsys.readouterr().out
    assert "warning (2 maps, the first: [0, 1])" in out
    assert maps.main([str(tmp_path / "maps.npz"), "--all"]) == 0
    assert capsys.readouterr().out.count("warning") == 2


def test_unreadable_files_are_one_sentence(tmp_path, capsys) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", weights=np.array([{}], dtype=object))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not really")
    (tmp_path / "broken.json").write_text("[[1, 2], [3]]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "text.csv").write_text("a,b\nc,d\n")
    (tmp_path / "maps.txt").write_text("1")
    np.savez(tmp_path / "two.npz", first=SOUND, second=SOUND)
    for name in (
        "objects.npy",
        "objects.npz",
        "broken.npz",
        "broken.json",
        "deep.json",
        "text.csv",
        "maps.txt",
        "two.npz",
        "none.npy",
    ):
        assert maps.main([str(tmp_path / name)]) == 2, name
        error = capsys.readouterr().err
        assert name in error
        assert "Traceback" not in error


def test_the_models_control_sequences_are_sound_too() -> None:
    trace = load_model("copy").run(distinct_sequences(2, seed=0))
    assert not audit(trace.weights, causal(24)).of("fault")


def test_a_file_that_claims_more_than_a_machine_holds_is_refused(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000000), }"
    header = header.ljust(117) + b"\n"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(LabkitError, match=r"huge\.npy cannot be read"):
        maps.load_arrays(tmp_path / "huge.npy")


def test_an_average_is_refused_as_an_average() -> None:
    with pytest.raises(LabkitError, match="has no values of its own"):
        contributions(average(np.stack([SOUND, SOUND])), np.ones((6, 2)))


def test_only_columns_that_sum_to_one_too_leave_the_axis_open() -> None:
    assert "axis" not in [finding.kind for finding in audit([[0.5, 0.5], [0.25, 0.75]])]
    assert "axis" in [finding.kind for finding in audit([[0.25, 0.75], [0.75, 0.25]])]
