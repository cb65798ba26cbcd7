"""The small transformer: the same numbers by other routes, interventions that do what they say, honest measurements."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import pytest

from labkit import exact, transformer
from labkit.errors import LabkitError, ShapeError
from labkit.heads import multi_head
from labkit.masks import causal
from labkit.transformer import (
    Effect,
    Model,
    ModelTrace,
    attribution,
    distinct_sequences,
    from_parameters,
    induction_score,
    load_model,
    mean_head,
    measure,
    next_accuracy,
    next_logit,
    next_loss,
    patch,
    predictable,
    previous_token_score,
    reachable,
    repeated_sequences,
    replace_values,
    replace_weights,
    resample_head,
    two_layer_paths,
    zero_head,
)

TOKENS = repeated_sequences(5, seed=3)


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("copy")


@pytest.fixture(scope="module")
def trace(model: Model) -> ModelTrace:
    return model.run(TOKENS)


@pytest.fixture(scope="module")
def small() -> Model:
    """An untrained model with d_v != d_k and H d_v != d_model, so that no shape fits by chance."""
    rng = np.random.default_rng(0)
    arrays = {"embedding": rng.normal(size=(26, 7)), "positions": rng.normal(size=(6, 7))}
    arrays["unembedding"] = rng.normal(size=(7, 26))
    for i in range(2):
        arrays[f"W_Q.{i}"], arrays[f"W_K.{i}"] = rng.normal(size=(2, 3, 7, 4))
        arrays[f"W_V.{i}"] = rng.normal(size=(3, 7, 5))
        arrays[f"W_O.{i}"] = rng.normal(size=(15, 7))
    return from_parameters(arrays)


# ── the forward pass ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_run_equals_lists_and_loops(small: Model) -> None:
    tokens = [3, 1, 4, 1, 5]
    state = [
        [e + p for e, p in zip(small.embedding[token], small.positions[i], strict=True)]
        for i, token in enumerate(tokens)
    ]
    allowed = [[j <= i for j in range(5)] for i in range(5)]
    for layer in small.layers:
        outputs = []
        for head in layer.heads:
            queries, keys, values = (exact.matmul(state, W.tolist()) for W in (head.W_Q, head.W_K, head.W_V))
            weights = exact.softmax_over_sources(exact.scores(queries, keys), allowed)
            outputs.append(exact.mix(weights, values))
        joined = [[number for output in outputs for number in output[i]] for i in range(5)]
        update = exact.matmul(joined, layer.W_O.tolist())
        state = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(state, update, strict=True)]
    logits = exact.matmul(state, small.unembedding.tolist())
    np.testing.assert_allclose(small.run(tokens).logits, logits, atol=1e-10)


def test_each_layer_is_multi_head_and_a_residual(model: Model, trace: ModelTrace) -> None:
    for layer, made in zip(model.layers, trace.layers, strict=True):
        expected = multi_head(made.before, layer.heads, layer.W_O, causal(24)).update
        np.testing.assert_allclose(made.after - made.before, expected, atol=1e-12)
        np.testing.assert_allclose(made.contributions.sum(axis=0), expected, atol=1e-12)


def test_trace_has_every_array_with_its_shape(trace: ModelTrace) -> None:
    assert trace.weights.shape == (2, 4, 5, 24, 24)
    assert trace.contributions.shape == (2, 4, 5, 24, 48)
    assert trace.states.shape == (3, 5, 24, 48)
    assert trace.logits.shape == (5, 24, 26)
    np.testing.assert_array_equal(trace.states[0], trace.embedded)


def test_a_batch_is_its_sequences(model: Model, trace: ModelTrace) -> None:
    for i, tokens in enumerate(TOKENS):
        np.testing.assert_allclose(model.run(tokens).logits, trace.logits[i], atol=1e-11)


def test_a_later_token_leaves_earlier_rows_bit_identical(model: Model, trace: ModelTrace) -> None:
    changed = TOKENS.copy()
    changed[:, 15] = (changed[:, 15] + 1) % 26
    other = model.run(changed)
    np.testing.assert_array_equal(other.logits[:, :15], trace.logits[:, :15])
    np.testing.assert_array_equal(other.states[:, :, :15], trace.states[:, :, :15])
    assert (other.logits[:, 15:] != trace.logits[:, 15:]).any(axis=(0, 2)).all()


def test_text_and_tokens_are_the_same(model: Model) -> None:
    np.testing.assert_array_equal(model.run("CATCAT").logits, model.run([2, 0, 19, 2, 0, 19]).logits)
    assert model.decode(model.encode("CATCAT")) == "CATCAT"


def test_a_split_logit_sums_to_the_logit(model: Model, trace: ModelTrace) -> None:
    for position, token in [(-1, 0), (7, 25), (0, 11)]:
        parts = attribution(trace, token, position)
        assert list(parts) == ["embedding", *(f"L{layer}H{head}" for layer in range(2) for head in range(4))]
        np.testing.assert_allclose(sum(parts.values()), trace.logits[:, position, token], rtol=0, atol=1e-10)


# ── interventions ────────────────────────────────────────────────────────────────────────────────────────────────────


def without_block(model: Model, layer: int, head: int) -> Model:
    layers = list(model.layers)
    W_O = layers[layer].W_O.copy()
    d_v = layers[layer].heads[0].W_V.shape[1]
    W_O[head * d_v : (head + 1) * d_v] = 0
    layers[layer] = replace(layers[layer], W_O=W_O)
    return replace(model, layers=tuple(layers))


@pytest.mark.parametrize("place", [(0, 0), (0, 3), (1, 2)])
def test_zeroing_a_head_is_zeroing_its_block_of_the_output_matrix(model: Model, place: tuple[int, int]) -> None:
    expected = without_block(model, *place).run(TOKENS).logits
    changed = model.run(TOKENS, zero_head(*place))
    np.testing.assert_allclose(changed.logits, expected, atol=1e-11)
    assert not changed.contributions[place].any()


def test_zero_values_are_a_zero_head(model: Model) -> None:
    np.testing.assert_array_equal(
        model.run(TOKENS, replace_values(0, 1, 0.0)).logits, model.run(TOKENS, zero_head(0, 1)).logits
    )


def test_a_head_given_its_own_numbers_changes_nothing(model: Model, trace: ModelTrace) -> None:
    own = trace.layers[0].heads[2]
    for change in (
        replace_weights(0, 2, own.weights),
        replace_values(0, 2, own.values),
        resample_head(0, 2, TOKENS),
        patch(0, 2, TOKENS),
        patch(1, None, TOKENS),
        patch(1, None, TOKENS, position=4),
    ):
        np.testing.assert_array_equal(model.run(TOKENS, change).logits, trace.logits)


def test_replaced_weights_mix_the_same_values(model: Model, trace: ModelTrace) -> None:
    made = model.run(TOKENS, replace_weights(0, 2, np.eye(24))).layers[0].heads[2]
    np.testing.assert_array_equal(made.values, trace.layers[0].heads[2].values)
    np.testing.assert_allclose(made.output, made.values, atol=1e-14)


def test_the_mean_is_taken_at_each_position_over_the_sequences(model: Model, trace: ModelTrace) -> None:
    outputs = trace.layers[0].heads[1].output
    for change, reference in ((mean_head(0, 1), outputs), (mean_head(0, 1, TOKENS[:2]), outputs[:2])):
        made = model.run(TOKENS, change).layers[0].heads[1].output
        for i in range(24):
            expected = np.mean([sequence[i] for sequence in reference], axis=0)
            np.testing.assert_allclose(made[:, i], np.tile(expected, (5, 1)), atol=1e-12)


def test_resampling_takes_the_head_of_the_next_sequence(model: Model, trace: ModelTrace) -> None:
    made = model.run(TOKENS, resample_head(1, 3)).layers[1].heads[3].output
    np.testing.assert_array_equal(made, trace.layers[1].heads[3].output[[4, 0, 1, 2, 3]])


def test_patching_the_whole_state_gives_the_other_run(model: Model, trace: ModelTrace) -> None:
    other = repeated_sequences(5, seed=9)
    np.testing.assert_array_equal(model.run(other, patch(0, None, TOKENS)).logits, trace.logits)


def test_patching_one_position_leaves_the_earlier_ones(model: Model) -> None:
    other = repeated_sequences(5, seed=9)
    plain, patched = model.run(other).logits, model.run(other, patch(1, None, TOKENS, position=10)).logits
    np.testing.assert_array_equal(patched[:, :10], plain[:, :10])
    assert (patched[:, 10] != plain[:, 10]).any()


def test_interventions_add_up(model: Model) -> None:
    both = model.run(TOKENS, zero_head(0, 0), zero_head(1, 1))
    assert not both.contributions[0, 0].any()
    assert not both.contributions[1, 1].any()


# ── measurements ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_predictable_by_loops() -> None:
    crowded = np.random.default_rng(0).integers(3, size=(5, 12))  # the same letter may stand side by side
    for tokens in [*TOKENS, *distinct_sequences(2, 1), *crowded]:
        expected = [
            any(tokens[j] == tokens[i] and tokens[j + 1] == tokens[i + 1] for j in range(i))
            for i in range(len(tokens) - 1)
        ]
        assert predictable(tokens).tolist() == expected


def test_metrics_by_loops(trace: ModelTrace) -> None:
    for b, tokens in enumerate(TOKENS):
        rows = [i for i in range(23) if predictable(tokens)[i]]
        logits = [trace.logits[b, i] for i in rows]
        true = [tokens[i + 1] for i in rows]
        assert next_logit(trace)[b] == pytest.approx(np.mean([x[t] for x, t in zip(logits, true, strict=True)]))
        hits = [x.argmax() == t for x, t in zip(logits, true, strict=True)]
        assert next_accuracy(trace)[b] == pytest.approx(np.mean(hits))
        losses = [np.log(np.exp(x).sum()) - x[t] for x, t in zip(logits, true, strict=True)]
        assert next_loss(trace)[b] == pytest.approx(np.mean(losses))


def test_head_scores_by_loops(trace: ModelTrace) -> None:
    for b, tokens in enumerate(TOKENS):
        A = trace.weights[1, 2, b]
        assert previous_token_score(A) == pytest.approx(np.mean([A[i, i - 1] for i in range(1, 24)]))
        read = []
        for i in range(24):
            before = [j for j in range(i) if tokens[j] == tokens[i]]
            if before:
                read.append(A[i, before[-1] + 1])
        assert induction_score(trace.weights, TOKENS)[1, 2, b] == pytest.approx(np.mean(read))


def test_induction_score_of_letters_side_by_side() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        tokens, A = rng.integers(2, size=6), rng.random((6, 6))
        copies = [[j for j in range(i) if tokens[j] == tokens[i]] for i in range(6)]
        expected = np.mean([A[i, before[-1] + 1] for i, before in enumerate(copies) if before])
        assert induction_score(A, tokens) == pytest.approx(expected)


def test_measure_reports_the_paired_differences(model: Model) -> None:
    tokens = repeated_sequences(40, seed=5)
    effect = measure(model, tokens, zero_head(0, 1))
    before, after = next_logit(model.run(tokens)), next_logit(model.run(tokens, zero_head(0, 1)))
    differences = (after - before).tolist()
    margin = 1.96 * statistics.stdev(differences) / 40**0.5
    assert effect.effect == pytest.approx(statistics.mean(differences))
    assert effect.low == pytest.approx(effect.effect - margin)
    assert effect.high == pytest.approx(effect.effect + margin)
    assert effect.changed - effect.baseline == pytest.approx(effect.effect)
    assert "over 40 sequences" in str(effect)


def test_an_intervention_that_changes_nothing_measures_nothing(model: Model) -> None:
    effect = measure(model, TOKENS, patch(1, None, TOKENS))
    assert (effect.effect, effect.low, effect.high) == (0, 0, 0)


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(1000):
        low, high = transformer.interval(rng.normal(loc=0.3, size=60))
        covered += low <= 0.3 <= high
    assert 920 <= covered <= 970


def test_one_sequence_says_nothing_about_others(model: Model) -> None:
    effect = measure(model, TOKENS[:1], zero_head(0, 1))
    assert effect.low == -np.inf
    assert effect.high == np.inf
    assert transformer.interval(np.array([1.0, 3.0])) == pytest.approx((2 - 1.96, 2 + 1.96))


def test_measure_takes_several_interventions_and_any_metric(model: Model) -> None:
    everything = [zero_head(layer, head) for layer in range(2) for head in range(4)]
    effect = measure(model, TOKENS, everything, next_accuracy)
    assert isinstance(effect, Effect)
    assert effect.changed < 0.2 < 0.9 < effect.baseline


def test_every_head_is_measured_by_itself(model: Model) -> None:
    measured = transformer.every_head(model, TOKENS, zero_head, next_accuracy)
    assert list(measured) == [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    assert measured["L1H2"].effect == measure(model, TOKENS, zero_head(1, 2), next_accuracy).effect


def test_brightness_by_loops(trace: ModelTrace) -> None:
    A = trace.weights[0, 1, 2]
    assert transformer.brightness(A) == pytest.approx(np.mean([max(A[i]) for i in range(3, 24)]))


# ── two-layer paths ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_paths_are_products_of_weights_and_sum_to_the_matrix_product(trace: ModelTrace) -> None:
    first, second = trace.weights[0, 1, 0], trace.weights[1, 2, 0]
    paths = two_layer_paths(first, second, row=9, residual=False)
    assert paths[4, 3] == second[9, 4] * first[4, 3]
    np.testing.assert_allclose(paths.sum(axis=0), (second @ first)[9], atol=1e-14)
    kept = two_layer_paths(first, second, row=9)
    identity = np.eye(24)
    np.testing.assert_allclose(kept.sum(axis=0), ((second + identity) @ (first + identity))[9], atol=1e-14)


def test_reachable_positions_are_those_whose_change_arrives(model: Model, trace: ModelTrace) -> None:
    row, found = 6, reachable(causal(24), causal(24), 6)
    for position in range(24):
        changed = TOKENS[0].copy()
        changed[position] = (changed[position] + 1) % 26
        arrives = (model.run(changed).logits[row] != model.run(TOKENS[0]).logits[row]).any()
        assert arrives == found[position]


def test_without_the_residual_a_position_blocked_from_itself_is_lost() -> None:
    strictly = causal(4) & ~np.eye(4, dtype=bool)
    assert reachable(strictly, strictly, 3, residual=False).tolist() == [True, True, False, False]
    assert reachable(strictly, strictly, 3, residual=True).tolist() == [True, True, True, True]


# ── sequences, files and refusals ────────────────────────────────────────────────────────────────────────────────────


def test_sequences_are_what_they_say() -> None:
    for tokens in repeated_sequences(50, seed=1):
        period = next(p for p in range(1, 25) if (tokens[p:] == tokens[:-p]).all())
        assert 6 <= period <= 12
        assert len(set(tokens[:period].tolist())) == period
    assert all(len(set(tokens.tolist())) == 24 for tokens in distinct_sequences(20, seed=1))
    np.testing.assert_array_equal(repeated_sequences(3, 7), repeated_sequences(3, 7))


def test_shipped_models_are_small_and_hold_no_pickle() -> None:
    assert "copy" in transformer.model_names()
    for name in transformer.model_names():
        path = transformer.MODELS / f"{name}.npz"
        assert len(path.read_bytes()) < 200_000
        assert load_model(name).name == name
        with np.load(str(path), allow_pickle=False) as arrays:
            assert all(array.dtype == np.float16 for array in arrays.values())


def test_a_changed_model_file_is_refused(tmp_path, monkeypatch) -> None:
    data = bytearray((transformer.MODELS / "copy.npz").read_bytes())
    data[2000] ^= 1
    (tmp_path / "copy.npz").write_bytes(data)
    (tmp_path / "SHA256SUMS").write_bytes((transformer.MODELS / "SHA256SUMS").read_bytes())
    monkeypatch.setattr(transformer, "MODELS", tmp_path)
    with pytest.raises(LabkitError, match="checksum"):
        load_model("copy")


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda m: load_model("nothing"), "labkit ships"),
        (lambda m: m.run("cat"), "knows the letters"),
        (lambda m: m.run([1.5, 2.0]), "give integers"),
        (lambda m: m.run([26]), "must be 0 to 25"),
        (lambda m: m.run([-1]), "must be 0 to 25"),
        (lambda m: m.run(np.zeros(25, dtype=int)), "learned positions 1 to 24"),
        (lambda m: m.run(TOKENS, zero_head(2, 0)), "layers 0 to 1"),
        (lambda m: m.run(TOKENS, zero_head(0, 4)), "heads 0 to 3"),
        (lambda m: m.run(TOKENS, zero_head(-1, 0)), "layers 0 to 1"),
        (lambda m: m.run(TOKENS, zero_head(0, -1)), "heads 0 to 3"),
        (lambda m: m.run(TOKENS[0], mean_head(0, 0)), "single sequence"),
        (lambda m: m.run(TOKENS[:1], resample_head(0, 0)), "single sequence"),
        (lambda m: m.run(TOKENS, patch(0, 0, TOKENS[:, :12])), "12 positions"),
        (lambda m: m.run(TOKENS, patch(0, 0, TOKENS[:2])), "batch axes"),
        (lambda m: m.run(TOKENS, replace_weights(0, 0, np.eye(3))), "needs"),
        (lambda m: next_logit(m.run(distinct_sequences(2, 0))), "where=True"),
        (lambda m: induction_score(m.run(distinct_sequences(2, 0)).weights, distinct_sequences(2, 0)), "no token"),
    ],
)
def test_refusals_say_what_to_do(model: Model, act, message: str) -> None:
    with pytest.raises(LabkitError, match=message):
        act(model)


def test_shape_refusals_are_shape_errors(model: Model) -> None:
    with pytest.raises(ShapeError):
        model.run(np.zeros((2, 30), dtype=int))
