"""Train the small models that ship with labkit, and write their files.

The forward pass is labkit's own `Model.run`; the backward pass below is written by hand, formula by formula, and
`tests/test_train_model.py` compares it with finite differences. NumPy only.

    python tools/train_model.py                 train every model and write labkit/models
    python tools/train_model.py --only copy     train one of them
    python tools/model_card.py                  measure the models and write docs/model_card.md
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.attention import Array, AttentionTrace
from labkit.transformer import LETTERS, LayerTrace, Model, from_parameters, repeated_sequences

Arrays = dict[str, Array]
MODELS = Path(__file__).parent.parent / "labkit" / "models"


@dataclass(frozen=True)
class Setting:
    """Everything that decides a training run; `spread` is how large W_Q and W_K start. They do not decay."""

    name: str
    seed: int
    heads: int
    steps: int
    weight_decay: float
    spread: float
    d_model: int = 48
    d_k: int = 12
    d_v: int = 8
    layers: int = 2
    length: int = 24
    batch: int = 64
    learning_rate: float = 3e-3

    def rate(self, step: int) -> float:
        """Warm up over 100 steps, then go down along a cosine to a twentieth."""
        down = 0.05 + 0.475 * (1 + float(np.cos(np.pi * step / self.steps)))
        return self.learning_rate * min(1, (step + 1) / 100) * down


SETTINGS = (
    Setting("copy", seed=1, heads=4, steps=3000, weight_decay=1.0, spread=2.0),
    Setting("surplus", seed=3, heads=6, steps=2500, weight_decay=1.2, spread=3.0),
)


# ── parameters ───────────────────────────────────────────────────────────────────────────────────────────────────────


def start(setting: Setting) -> Arrays:
    """Draw the parameters a training run begins with."""
    rng = np.random.default_rng(setting.seed)
    d, h, letters = setting.d_model, setting.heads, len(LETTERS)

    def draw(*shape: int, spread: float) -> Array:
        return rng.normal(scale=spread, size=shape).astype(np.float32)

    arrays = {
        "embedding": draw(letters, d, spread=0.3),
        "positions": draw(setting.length, d, spread=0.3),
        "unembedding": draw(d, letters, spread=d**-0.5),
    }
    for i in range(setting.layers):
        for kind, width in (("W_Q", setting.d_k), ("W_K", setting.d_k), ("W_V", setting.d_v)):
            scale = 1.0 if kind == "W_V" else setting.spread
            arrays[f"{kind}.{i}"] = draw(h, d, width, spread=scale * d**-0.5)
        arrays[f"W_O.{i}"] = draw(h * setting.d_v, d, spread=d**-0.5)
    return arrays


# ── the backward pass, one function for each formula ─────────────────────────────────────────────────────────────────


def loss_and_gradients(arrays: Arrays, tokens: Array, targets: Array, dtype: type = np.float32) -> tuple[float, Arrays]:
    """Mean cross-entropy of the targets, and its derivative for every parameter; tokens, targets (B, n)."""
    model = from_parameters(arrays, dtype=dtype)
    trace = model.run(tokens)
    loss, d_logits = cross_entropy(trace.logits, targets)
    final = trace.layers[-1].after
    gradients: Arrays = {"unembedding": over_batch(final, d_logits)}
    d_state = d_logits @ model.unembedding.T
    for index in reversed(range(len(model.layers))):
        d_state, found = layer_backward(model, index, trace.layers[index], d_state)
        gradients |= found
    gradients["positions"] = np.zeros_like(model.positions)
    gradients["positions"][: tokens.shape[1]] = d_state.sum(axis=0)
    gradients["embedding"] = np.zeros_like(model.embedding)
    np.add.at(gradients["embedding"], tokens, d_state)
    return loss, gradients


def cross_entropy(logits: Array, targets: Array) -> tuple[float, Array]:
    """Mean of -log softmax(logits)[target]; its derivative is (probabilities - one-hot) / count."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    picked = np.take_along_axis(log_probability, targets[..., None], -1)
    one_hot = np.arange(logits.shape[-1]) == targets[..., None]
    return float(-picked.mean()), (np.exp(log_probability) - one_hot).astype(logits.dtype) / targets.size


def layer_backward(model: Model, index: int, trace: LayerTrace, d_after: Array) -> tuple[Array, Arrays]:
    """state_after = state + Concat(Z_1 … Z_H) W_O: the derivative flows past the layer and through every head."""
    layer, d_before = model.layers[index], d_after
    concatenated = np.concatenate([head.output for head in trace.heads], axis=-1)
    gradients: Arrays = {f"W_O.{index}": over_batch(concatenated, d_after)}
    parts = []
    for head, block, made in zip(layer.heads, trace.blocks, trace.heads, strict=True):
        d_queries, d_keys, d_values = head_backward(made, d_after @ block.T)
        d_before = d_before + d_queries @ head.W_Q.T + d_keys @ head.W_K.T + d_values @ head.W_V.T
        parts.append([over_batch(trace.before, d) for d in (d_queries, d_keys, d_values)])
    for kind, stack in zip(("W_Q", "W_K", "W_V"), zip(*parts, strict=True), strict=True):
        gradients[f"{kind}.{index}"] = np.stack(stack)
    return d_before, gradients


def head_backward(made: AttentionTrace, d_output: Array) -> tuple[Array, Array, Array]:
    """Z = A V, A = softmax(S), S = Q K^T / sqrt(d_k): the derivatives of Q, K and V."""
    d_values = made.weights.swapaxes(-1, -2) @ d_output
    d_weights = d_output @ made.values.swapaxes(-1, -2)
    # Row by row: dS_j = A_j (dA_j - sum_k A_k dA_k).
    d_scores = made.weights * (d_weights - (d_weights * made.weights).sum(axis=-1, keepdims=True))
    d_dots = d_scores / float(made.queries.shape[-1]) ** 0.5
    return d_dots @ made.keys, d_dots.swapaxes(-1, -2) @ made.queries, d_values


def over_batch(inputs: Array, d_outputs: Array) -> Array:
    """outputs = inputs W at every position of every sequence: the derivative of W sums over all of them."""
    flat: Array = inputs.reshape(-1, inputs.shape[-1]).T @ d_outputs.reshape(-1, d_outputs.shape[-1])
    return flat


# ── training ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def train(setting: Setting, report: Callable[[str], None] = print) -> Arrays:
    """Run AdamW with a warm-up and a cosine decay; the data are drawn afresh at every step."""
    arrays = start(setting)
    first = {name: np.zeros_like(array) for name, array in arrays.items()}
    second = {name: np.zeros_like(array) for name, array in arrays.items()}
    began = time.perf_counter()
    for step in range(setting.steps):
        sequences = repeated_sequences(setting.batch, seed=10**9 * setting.seed + step, length=setting.length + 1)
        loss, gradients = loss_and_gradients(arrays, sequences[:, :-1], sequences[:, 1:])
        rate = setting.rate(step)
        for name, gradient in gradients.items():
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.02 * (gradient**2 - second[name])
            move = first[name] / (1 - 0.9 ** (step + 1)) / (np.sqrt(second[name] / (1 - 0.98 ** (step + 1))) + 1e-8)
            decay = 0.0 if name[:3] in ("W_Q", "W_K") else setting.weight_decay
            arrays[name] = (arrays[name] * (1 - rate * decay) - rate * move).astype(np.float32)
        if step % 250 == 0 or step == setting.steps - 1:
            report(f"{setting.name}: step {step:5d}  loss {loss:.4f}  {time.perf_counter() - began:5.1f} s")
    return arrays


def save(name: str, arrays: Arrays) -> None:
    """Write a model in half precision, and the checksums of all models beside it."""
    halves = {key: array.astype(np.float16) for key, array in arrays.items()}
    np.savez_compressed(MODELS / f"{name}.npz", allow_pickle=False, **halves)
    lines = [f"{checksum(path)}  {path.name}" for path in sorted(MODELS.glob("*.npz"))]
    (MODELS / "SHA256SUMS").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def checksum(path: Path) -> str:
    """Give a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(argv: Sequence[str] | None = None) -> None:
    """Train what is asked for."""
    parser = argparse.ArgumentParser(description="Train the models that ship with labkit.")
    parser.add_argument("--only", choices=[setting.name for setting in SETTINGS], help="train one model")
    options = parser.parse_args(argv)
    for setting in SETTINGS:
        if options.only in (None, setting.name):
            save(setting.name, train(setting))


if __name__ == "__main__":
    main()
