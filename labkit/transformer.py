"""A small attention-only transformer, run by `labkit.attend`, that can be opened, changed and measured.

Layer by layer: every head reads the residual state, its output goes through its block of `W_O`, and the sum of these
contributions is added to the state. No biases, no normalisation, no MLP: nothing but the formulas of the lessons.
Axes: `L` layers, `H` heads, `n` positions, `d_model`; leading axes of the tokens are batch axes.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from labkit.attention import Array, AttentionTrace, Head, attend, mix
from labkit.errors import LabkitError, ShapeError
from labkit.masks import causal

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MODELS = resources.files("labkit") / "models"
Kind = Literal["zero_head", "mean_head", "resample_head", "replace_weights", "replace_values", "patch"]


# ── what the model is ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Layer:
    """The heads of one layer and the matrix (H d_v, d_model) that writes them back."""

    heads: tuple[Head, ...]
    W_O: Array

    @property
    def blocks(self) -> list[Array]:
        """Cut `W_O` into one (d_v, d_model) block for each head."""
        return np.split(self.W_O, np.cumsum([head.W_V.shape[-1] for head in self.heads])[:-1])


@dataclass(frozen=True)
class Intervention:
    """One change to a run, as plain data: what to do, where, and with which numbers."""

    kind: Kind
    layer: int
    head: int | None = None
    data: Array | None = None
    position: int | None = None


@dataclass(frozen=True)
class LayerTrace:
    """The residual state before (..., n, d_model), every head's trace, and the state after."""

    before: Array
    heads: tuple[AttentionTrace, ...]
    blocks: tuple[Array, ...]
    after: Array

    @cached_property
    def contributions(self) -> Array:
        """What each head adds to the residual state: (H, ..., n, d_model)."""
        return np.stack([head.output @ block for head, block in zip(self.heads, self.blocks, strict=True)])


@dataclass(frozen=True)
class ModelTrace:
    """Every array of one run: tokens (..., n), the layers, and the logits (..., n, vocabulary)."""

    tokens: Array
    embedded: Array
    layers: tuple[LayerTrace, ...]
    logits: Array
    unembedding: Array

    @property
    def weights(self) -> Array:
        """Collect every head's map: (L, H, ..., n, n)."""
        return np.stack([[head.weights for head in layer.heads] for layer in self.layers])

    @property
    def contributions(self) -> Array:
        """Collect what every head adds to the residual state: (L, H, ..., n, d_model)."""
        return np.stack([layer.contributions for layer in self.layers])

    @property
    def states(self) -> Array:
        """Collect the residual state before each layer and after the last: (L + 1, ..., n, d_model)."""
        return np.stack([*(layer.before for layer in self.layers), self.layers[-1].after])


@dataclass(frozen=True)
class Model:
    """Learned numbers only: embedding (vocabulary, d_model), positions (n, d_model), layers, unembedding."""

    embedding: Array
    positions: Array
    layers: tuple[Layer, ...]
    unembedding: Array
    name: str = ""
    vocabulary: str = LETTERS

    def encode(self, text: str) -> Array:
        """Turn letters into token numbers: "AB" -> [0, 1]."""
        unknown = sorted(set(text) - set(self.vocabulary))
        if unknown:
            raise LabkitError(f"{text!r} has {unknown}; this model knows the letters {self.vocabulary} only.")
        return np.array([self.vocabulary.index(letter) for letter in text])

    def decode(self, tokens: ArrayLike) -> str:
        """Turn token numbers back into letters."""
        return "".join(self.vocabulary[int(token)] for token in np.ravel(tokens))

    def run(self, tokens: ArrayLike | str, *interventions: Intervention) -> ModelTrace:
        """Predict the token after each position, and keep everything: tokens (..., n) -> logits (..., n, vocabulary).

        Every intervention is carried out on the way. Text is encoded first.
        """
        tokens = _as_tokens(self, tokens)
        for intervention in interventions:
            _require_place(self, intervention)
        state = embedded = self.embedding[tokens] + self.positions[: tokens.shape[-1]]
        layers = []
        for index, layer in enumerate(self.layers):
            here = [change for change in interventions if change.layer == index]
            layers.append(_run_layer(self, layer, state, here))
            state = layers[-1].after
        return ModelTrace(tokens, embedded, tuple(layers), state @ self.unembedding, self.unembedding)


def _as_tokens(model: Model, tokens: ArrayLike | str) -> Array:
    array = model.encode(tokens) if isinstance(tokens, str) else np.asarray(tokens)
    if array.dtype.kind not in "iu" or array.ndim < 1:
        raise LabkitError(f"tokens have dtype {array.dtype} and shape {array.shape}; give integers (..., n) or text.")
    if not 1 <= array.shape[-1] <= len(model.positions):
        raise ShapeError(
            f"tokens {array.shape} have {array.shape[-1]} positions (last axis); "
            f"this model learned positions 1 to {len(model.positions)}: give a shorter sequence."
        )
    if array.min() < 0 or array.max() >= len(model.embedding):
        last = len(model.embedding) - 1
        raise LabkitError(f"tokens run from {array.min()} to {array.max()}; they must be 0 to {last}.")
    return array


def _run_layer(model: Model, layer: Layer, state: Array, changes: list[Intervention]) -> LayerTrace:
    for change in changes:
        if change.head is None:
            state = _put(state, _elsewhere(model, change).layers[change.layer].before, change.position)
    allowed = causal(state.shape[-2])
    traces = [attend(state, head, allowed) for head in layer.heads]
    for change in changes:
        if change.head is not None:
            traces[change.head] = _change_head(model, traces[change.head], change)
    update = np.concatenate([trace.output for trace in traces], axis=-1) @ layer.W_O
    return LayerTrace(state, tuple(traces), tuple(layer.blocks), state + update)


# ── interventions ────────────────────────────────────────────────────────────────────────────────────────────────────


def zero_head(layer: int, head: int) -> Intervention:
    """Remove what the head adds to the residual state."""
    return Intervention("zero_head", layer, head)


def mean_head(layer: int, head: int, reference: ArrayLike | None = None) -> Intervention:
    """Put the head's mean output at each position in place of its own.

    The mean is taken over the `reference` sequences (B, n), or over the batch that is run.
    """
    return Intervention("mean_head", layer, head, _tokens_or_none(reference))


def resample_head(layer: int, head: int, reference: ArrayLike | None = None) -> Intervention:
    """Put the head's output on another sequence in its place: `reference` (B, n), or the next one of the batch."""
    return Intervention("resample_head", layer, head, _tokens_or_none(reference))


def replace_weights(layer: int, head: int, weights: ArrayLike) -> Intervention:
    """Mix the head's own values with these weights (..., n, n)."""
    return Intervention("replace_weights", layer, head, np.asarray(weights, dtype=float))


def replace_values(layer: int, head: int, values: ArrayLike) -> Intervention:
    """Mix these values (..., n, d_v) with the head's own weights."""
    return Intervention("replace_values", layer, head, np.asarray(values, dtype=float))


def patch(layer: int, head: int | None, reference: ArrayLike, position: int | None = None) -> Intervention:
    """Copy a head's output from a run on `reference`, at one position or at all.

    With `head=None` the residual state before the layer is copied.
    """
    return Intervention("patch", layer, head, np.asarray(reference), position)


def _tokens_or_none(reference: ArrayLike | None) -> Array | None:
    return None if reference is None else np.asarray(reference)


def _require_place(model: Model, change: Intervention) -> None:
    depth, width = len(model.layers), len(model.layers[0].heads)
    if not 0 <= change.layer < depth or not (change.head is None or 0 <= change.head < width):
        raise LabkitError(
            f"{change.kind} names layer {change.layer}, head {change.head}; "
            f"this model has layers 0 to {depth - 1} with heads 0 to {width - 1}."
        )


def _elsewhere(model: Model, change: Intervention) -> ModelTrace:
    if change.data is None:
        raise LabkitError(f"{change.kind} needs reference tokens: the sequences to copy from.")
    return model.run(change.data)


def _change_head(model: Model, trace: AttentionTrace, change: Intervention) -> AttentionTrace:
    if change.kind == "zero_head":
        return replace(trace, output=np.zeros_like(trace.output))
    if change.kind == "replace_weights":
        weights = _fitted(change, trace.weights.shape)
        return replace(trace, weights=weights, output=mix(weights, trace.values))
    if change.kind == "replace_values":
        values = _fitted(change, trace.values.shape)
        return replace(trace, values=values, output=mix(trace.weights, values))
    return replace(trace, output=_substitute(model, trace.output, change))


def _substitute(model: Model, output: Array, change: Intervention) -> Array:
    assert change.head is not None
    if change.data is not None:
        other = _elsewhere(model, change).layers[change.layer].heads[change.head].output
    elif output.ndim < 3 or len(output) < 2:
        raise LabkitError(
            f"{change.kind} over a single sequence would put back what was there: "
            "run a batch of at least two sequences, or give reference tokens."
        )
    else:
        other = np.roll(output, 1, axis=0)
    if change.kind == "mean_head":
        other = other.mean(axis=tuple(range(other.ndim - 2)))
    return _put(output, other, change.position)


def _put(array: Array, other: Array, position: int | None) -> Array:
    if other.shape[-2:] != array.shape[-2:]:
        raise ShapeError(
            f"the reference has {other.shape[-2]} positions, the run has {array.shape[-2]} (axis -2): give as many."
        )
    here = slice(None) if position is None else position
    changed = array.copy()
    try:
        changed[..., here, :] = other[..., here, :]
    except ValueError as error:
        raise ShapeError(f"reference {other.shape} and run {array.shape} differ in their batch axes.") from error
    return changed


def _fitted(change: Intervention, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(np.asarray(change.data), shape)
    except ValueError as error:
        given = np.asarray(change.data).shape
        raise ShapeError(f"{change.kind} was given {given}; this head needs {shape}.") from error


# ── measurements ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Effect:
    """How far an intervention moves a metric: mean over sequences, with a 95 % interval of the mean.

    `effect = changed - baseline`; the interval is mean ± 1.96 standard errors of the differences sequence by sequence.
    """

    baseline: float
    changed: float
    effect: float
    low: float
    high: float
    differences: Array

    def __str__(self) -> str:
        count = len(self.differences)
        interval = f"[{self.low:+.3f}, {self.high:+.3f}]"
        return f"{self.effect:+.3f} {interval} over {count} sequences, from {self.baseline:.3f}"


Metric = Callable[[ModelTrace], Array]


def predictable(tokens: ArrayLike) -> Array:
    """Mark the positions whose next token follows from a repetition: (..., n) -> (..., n - 1).

    Position i counts when its token stood earlier and was followed by what follows now.
    """
    tokens = np.asarray(tokens)
    here, following = tokens[..., :-1], tokens[..., 1:]
    again = (here[..., :, None] == here[..., None, :]) & (following[..., :, None] == following[..., None, :])
    earlier = np.tri(here.shape[-1], k=-1, dtype=bool)
    found: Array = (again & earlier).any(axis=-1)
    return found


def next_logit(trace: ModelTrace, where: ArrayLike | None = None) -> Array:
    """Mean logit of the true next token over the predictable positions: one number for each sequence."""
    true = np.take_along_axis(trace.logits[..., :-1, :], trace.tokens[..., 1:, None], -1)[..., 0]
    return _mean_where(true, trace, where)


def next_accuracy(trace: ModelTrace, where: ArrayLike | None = None) -> Array:
    """Share of the predictable positions whose highest logit is the true next token: one number for each sequence."""
    hit = trace.logits[..., :-1, :].argmax(-1) == trace.tokens[..., 1:]
    return _mean_where(hit.astype(float), trace, where)


def next_loss(trace: ModelTrace, where: ArrayLike | None = None) -> Array:
    """Mean of -log probability of the true next token over the predictable positions."""
    logits = trace.logits[..., :-1, :]
    top = logits.max(axis=-1)
    log_total = top + np.log(np.exp(logits - top[..., None]).sum(axis=-1))
    true = np.take_along_axis(logits, trace.tokens[..., 1:, None], -1)[..., 0]
    return _mean_where(log_total - true, trace, where)


def _mean_where(numbers: Array, trace: ModelTrace, where: ArrayLike | None) -> Array:
    mask = predictable(trace.tokens) if where is None else np.broadcast_to(np.asarray(where, dtype=bool), numbers.shape)
    counts = mask.sum(axis=-1)
    if not np.all(counts):
        raise LabkitError(
            "a sequence repeats nothing, so no position is predictable: "
            "pass where=True to average over every position instead."
        )
    mean: Array = (numbers * mask).sum(axis=-1) / counts
    return mean


def measure(
    model: Model,
    tokens: ArrayLike,
    intervention: Intervention | Iterable[Intervention],
    metric: Metric = next_logit,
) -> Effect:
    """Run with and without the intervention and compare the metric sequence by sequence; tokens (B, n)."""
    changes = [intervention] if isinstance(intervention, Intervention) else list(intervention)
    before = np.atleast_1d(metric(model.run(tokens)))
    after = np.atleast_1d(metric(model.run(tokens, *changes)))
    differences = after - before
    low, high = interval(differences)
    return Effect(float(before.mean()), float(after.mean()), float(differences.mean()), low, high, differences)


def every_head(
    model: Model, tokens: ArrayLike, change: Callable[[int, int], Intervention], metric: Metric = next_logit
) -> dict[str, Effect]:
    """Measure the same change, such as `zero_head`, at each head by itself: {"L0H0": Effect, …}."""
    places = np.ndindex(len(model.layers), len(model.layers[0].heads))
    return {f"L{layer}H{head}": measure(model, tokens, change(layer, head), metric) for layer, head in places}


def interval(numbers: Array) -> tuple[float, float]:
    """The 95 % interval of a mean by the normal approximation; one number says nothing about others."""
    if len(numbers) < 2:
        return -np.inf, np.inf
    mean, margin = float(numbers.mean()), 1.96 * float(numbers.std(ddof=1)) / len(numbers) ** 0.5
    return mean - margin, mean + margin


def attribution(trace: ModelTrace, token: int, position: int = -1) -> dict[str, Array]:
    """Split one logit into what the embedding and every head wrote: the parts sum to the logit exactly.

    Each part is (...,): the component's residual vector at `position`, dotted with the token's unembedding column.
    """
    direction = trace.unembedding[:, token]
    parts = {"embedding": trace.embedded[..., position, :] @ direction}
    for layer, added in enumerate(trace.contributions):
        for head, vectors in enumerate(added):
            parts[f"L{layer}H{head}"] = vectors[..., position, :] @ direction
    return parts


def previous_token_score(weights: ArrayLike) -> Array:
    """Mean weight on the position just before: (..., n, n) -> (...,); the first row has none before it."""
    score: Array = np.diagonal(np.asarray(weights), offset=-1, axis1=-2, axis2=-1).mean(axis=-1)
    return score


def induction_score(weights: ArrayLike, tokens: ArrayLike) -> Array:
    """Mean weight on the position after the last earlier copy of the current token.

    weights (..., B, n, n) and tokens (B, n) -> (..., B); only rows whose token stood earlier count.
    """
    weights, tokens = np.asarray(weights), np.asarray(tokens)
    n = tokens.shape[-1]
    earlier = (tokens[..., :, None] == tokens[..., None, :]) & np.tri(n, k=-1, dtype=bool)
    last = np.where(earlier.any(-1), n - 1 - earlier[..., ::-1].argmax(-1), -1)  # (..., n), -1: never before
    seen = last >= 0
    if not seen.any(axis=-1).all():
        raise LabkitError("a sequence repeats no token, so it has no induction score: give repeating sequences.")
    target = np.broadcast_to(np.minimum(last + 1, n - 1), weights.shape[:-1])
    read = np.take_along_axis(weights, target[..., None], axis=-1)[..., 0]
    score: Array = (read * seen).sum(axis=-1) / seen.sum(axis=-1)
    return score


def brightness(weights: ArrayLike) -> Array:
    """Mean of the largest weight of each row: (..., n, n) -> (...,); rows with under four sources are left out."""
    score: Array = np.asarray(weights)[..., 3:, :].max(axis=-1).mean(axis=-1)
    return score


# ── two-layer paths ──────────────────────────────────────────────────────────────────────────────────────────────────


def two_layer_paths(first: ArrayLike, second: ArrayLike, row: int, residual: bool = True) -> Array:
    """Follow a row of the second map back through the first: `P[j, k]` = how much of input k arrives by position j.

    first (n, n), second (n, n) -> (n, n): `second[row, j] * first[j, k]`; with the residual a position also keeps
    itself at both layers. It multiplies weights only: values and `W_O` are left out, so it names routes, not effects.
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    keep = np.eye(first.shape[-1]) if residual else np.zeros_like(first)
    paths: Array = (second[row] + keep[row])[:, None] * (first + keep)
    return paths


def reachable(first: ArrayLike, second: ArrayLike, row: int, residual: bool = True) -> Array:
    """Say which input positions can reach a row through two masks of allowed sources: (n,) booleans."""
    routes = two_layer_paths(first, second, row, residual)
    found: Array = np.any(routes > 0, axis=0)
    return found


# ── sequences and files ──────────────────────────────────────────────────────────────────────────────────────────────


def repeated_sequences(count: int, seed: int, length: int = 24, shortest: int = 6) -> Array:
    """Draw sequences that repeat one segment of distinct letters, of random period: (count, length)."""
    rng = np.random.default_rng(seed)
    segment = rng.random((count, len(LETTERS))).argsort(axis=1)
    period = rng.integers(shortest, max(shortest, length // 2) + 1, size=count)
    return np.take_along_axis(segment, np.arange(length) % period[:, None], axis=1)


def distinct_sequences(count: int, seed: int, length: int = 24) -> Array:
    """Draw sequences in which no letter comes twice, as a control: (count, length)."""
    return np.random.default_rng(seed).random((count, len(LETTERS))).argsort(axis=1)[:, :length]


def from_parameters(arrays: Mapping[str, Array], name: str = "", dtype: type = np.float64) -> Model:
    """Build a model from arrays named `embedding`, `positions`, `unembedding`, `W_Q.0`, `W_K.0`, `W_V.0`, `W_O.0`.

    W_Q.0 is (H, d_model, d_k): the matrices of layer 0, one for each head.
    """
    get: dict[str, Array] = {key: np.asarray(array, dtype=dtype) for key, array in arrays.items()}
    depth = sum(key.startswith("W_O.") for key in get)
    layers = tuple(
        Layer(
            tuple(Head(*parts) for parts in zip(*(get[f"{kind}.{i}"] for kind in ("W_Q", "W_K", "W_V")), strict=True)),
            get[f"W_O.{i}"],
        )
        for i in range(depth)
    )
    return Model(get["embedding"], get["positions"], layers, get["unembedding"], name)


def model_names() -> list[str]:
    """List the models that ship with labkit."""
    return sorted(item.name.removesuffix(".npz") for item in MODELS.iterdir() if item.name.endswith(".npz"))


def load_model(name: str = "copy") -> Model:
    """Load a model that ships with labkit, after comparing its checksum."""
    if name not in model_names():
        raise LabkitError(f"there is no model {name!r}; labkit ships {model_names()}.")
    data = (MODELS / f"{name}.npz").read_bytes()
    expected = dict(line.split()[::-1] for line in (MODELS / "SHA256SUMS").read_text().splitlines())
    if hashlib.sha256(data).hexdigest() != expected.get(f"{name}.npz"):
        raise LabkitError(f"models/{name}.npz does not match its checksum in SHA256SUMS: install labkit again.")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return from_parameters(dict(arrays), name)
