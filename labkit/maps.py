"""Numbers read beside an attention map, numbers made from several maps, and the audit of maps in a file.

Rows are destinations, columns sources; leading axes (layers, heads, sequences) are batch axes.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from labkit.attention import Array, as_floats, mix
from labkit.audit import DerivedMap, Finding, Findings, audit
from labkit.errors import LabkitError, ShapeError
from labkit.masks import causal

__all__ = [
    "Contributions",
    "DerivedMap",
    "Finding",
    "Findings",
    "Sample",
    "audit",
    "average",
    "contributions",
    "encoder_sample",
    "entropy",
    "fault_gallery",
    "load_arrays",
    "main",
    "rollout",
    "summary",
]
SAMPLES = resources.files("labkit") / "samples"


@dataclass(frozen=True)
class Sample:
    """One head of a real encoder on one sentence: pieces (n), weights (n, n), and moved (n, d_model).

    `moved[j]` is source j's value after the head's block of `W_O`: what one unit of weight would add.
    """

    pieces: list[str]
    weights: Array
    moved: Array
    source: str


def encoder_sample() -> Sample:
    """Load the sample that ships with labkit; `tools/encoder_sample.py` made it.

    >>> encoder_sample().source
    'sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), layer 4, head 2'
    """
    with (SAMPLES / "encoder_head.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        weights, moved = as_floats(arrays["weights"], "weights"), as_floats(arrays["moved"], "moved")
        return Sample(arrays["pieces"].tolist(), weights, moved, str(arrays["source"]))


# ── numbers beside a map ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Contributions:
    """Several answers to "how much comes from source j?", each (..., n, m).

    `weight` is the map. `norm` is weight × length of what is moved, ‖A_ij v_j‖. `projection` is the part of A_ij v_j
    that points along the row's output; a row of it sums to the output's length.
    """

    weight: Array
    norm: Array
    projection: Array


def contributions(weights: ArrayLike | DerivedMap, values: ArrayLike, W_O: ArrayLike | None = None) -> Contributions:
    """Put what each source contributes beside its weight, after the head's block of `W_O` where that is given.

    weights (..., n, m), values (..., m, d_v), W_O (d_v, d_model). With `W_O`, `norm` is the quantity of Kobayashi et
    al. 2020, section 3. It still leaves out direction; `projection` does not.

    >>> contributions([[0.75, 0.25]], [[1, 0], [8, 0]]).norm.tolist()
    [[0.75, 2.0]]
    """
    if isinstance(weights, DerivedMap):
        raise LabkitError(f"an {weights.made} has no values of its own: take one head's weights with its own values.")
    array, moved = as_floats(weights, "weights"), as_floats(values, "values")
    if W_O is not None:
        moved = moved @ as_floats(W_O, "W_O")
    output = mix(array, moved)
    length = np.linalg.norm(output, axis=-1, keepdims=True)
    direction = np.divide(output, length, out=np.zeros_like(output), where=length > 0)
    along = direction @ moved.swapaxes(-1, -2)
    return Contributions(array, array * np.linalg.norm(moved, axis=-1)[..., None, :], array * along)


def entropy(weights: ArrayLike) -> Array:
    """Measure in bits how widely each row spreads: (..., n, m) -> (..., n); 0 is one source, 2 is evenly over four.

    >>> entropy([[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]]).tolist()
    [0.0, 2.0]
    """
    array = as_floats(weights, "weights")
    logs = np.log2(array, out=np.zeros_like(array), where=array > 0)
    bits: Array = np.abs((array * logs).sum(axis=-1))
    return bits


# ── maps made from maps ──────────────────────────────────────────────────────────────────────────────────────────────


def average(weights: ArrayLike) -> DerivedMap:
    """Average the heads (..., H, n, m) into numbers (..., n, m) that are no head's map.

    >>> print(average([[[1, 0]], [[0, 1]]]))
    average of 2 heads.
    No head computed it: it can hide every pattern it is made of, and the average of the maps times the average of \
the values is not the average of the outputs.
    """
    array = as_floats(weights, "weights")
    if array.ndim < 3:
        raise ShapeError(f"weights {array.shape} have no axis of heads to average over: give (..., H, n, m).")
    return DerivedMap(
        array.mean(axis=-3),
        f"average of {array.shape[-3]} heads",
        "No head computed it: it can hide every pattern it is made of, and the average of the maps times the average "
        "of the values is not the average of the outputs.",
    )


def rollout(weights: ArrayLike, residual: float = 0.5) -> DerivedMap:
    """Multiply the layers' averaged maps, each mixed with the identity for the residual: (L, H, n, n) -> (n, n).

    Source: Abnar and Zuidema 2020, section 3, "attention rollout", where `residual` is one half.
    """
    array = as_floats(weights, "weights")
    if array.ndim != 4 or array.shape[-1] != array.shape[-2]:
        raise ShapeError(f"weights {array.shape}: rollout needs square maps (L, H, n, n) of one sequence.")
    reach = keep = np.eye(array.shape[-1])
    for layer in array.mean(axis=1):
        reach = (residual * keep + (1 - residual) * layer) @ reach
    return DerivedMap(
        reach,
        f"rollout through {len(array)} layers of {array.shape[1]} averaged heads",
        "It follows weights only: values, W_O, signs and MLPs are left out, and the residual's share is a convention.",
    )


def fault_gallery() -> list[Array]:
    """Make seven causal maps (4, 4) from the same exponentials: one is sound, six went wrong, each in its own way."""
    exponentials = np.array([[2.0, 1, 1, 4], [1, 2, 1, 1], [2, 2, 4, 8], [1, 1, 4, 2]])
    allowed = causal(4)
    shares = {
        "sound": np.where(allowed, exponentials, 0),
        "open": exponentials,
        "zero": np.where(allowed, exponentials, 1),  # a blocked score of 0 has exponential 1
        "late": np.where(np.tri(4, k=1, dtype=bool), exponentials, 0),
    }
    made = {name: part / part.sum(axis=1, keepdims=True) for name, part in shares.items()}
    columns = shares["sound"] / shares["sound"].sum(axis=0)
    struck = np.where(allowed, made["open"], 0)
    return [struck, made["sound"].T, made["late"], made["sound"][::-1], made["sound"], columns, made["zero"]]


# ── labkit audit FILE ────────────────────────────────────────────────────────────────────────────────────────────────


def load_arrays(path: Path) -> dict[str, Array]:
    """Read arrays from a .npz, .npy, .csv or .json file; pickles are refused.

    A .json file holds a nested list, or an object with `weights` and perhaps `allowed` and `values`.
    """
    readers: dict[str, Callable[[Path], dict[str, Array]]] = {
        ".npz": _read_npz,
        ".npy": _read_npy,
        ".csv": lambda file: {"weights": np.loadtxt(file, delimiter=",", ndmin=2)},
        ".json": _read_json,
    }
    if path.suffix not in readers:
        raise LabkitError(f"{path.name}: give a file that ends in {', '.join(readers)}.")
    try:
        return readers[path.suffix](path)
    # zlib.error: a damaged member; MemoryError: a header that claims more than any machine holds
    except (OSError, ValueError, EOFError, RecursionError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise LabkitError(f"{path.name} cannot be read as {path.suffix}: {error}") from error


def _read_npz(path: Path) -> dict[str, Array]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _read_npy(path: Path) -> dict[str, Array]:
    with path.open("rb") as file:
        return {"weights": np.load(file, allow_pickle=False)}


def _read_json(path: Path) -> dict[str, Array]:
    content = json.loads(path.read_text(encoding="utf-8"))
    parts = content if isinstance(content, dict) else {"weights": content}
    return {name: np.array(part) for name, part in parts.items()}


def summary(findings: Findings) -> str:
    """Gather the findings of many maps: one line for each kind, with how many maps have it and one example."""
    lines = []
    for severity in ("fault", "warning", "note", "cannot tell"):
        chosen = findings.of(severity)
        for kind in dict.fromkeys(finding.kind for finding in chosen):
            same = [finding for finding in chosen if finding.kind == kind]
            count = f" ({len(same)} maps, the first: {list(same[0].where)})" if len(same) > 1 else ""
            lines.append(f"{severity}{count}: {same[0].sentence}" if count else str(same[0]))
    return "\n".join(lines) or "nothing found"


def main(argv: Sequence[str] | None = None) -> int:
    """Audit the maps in a file: exit status 0 without faults, 1 with, 2 where the file cannot be read."""
    parser = argparse.ArgumentParser(prog="labkit audit", description="Say what is wrong with exported attention maps.")
    parser.add_argument("file", type=Path, help=".npz, .npy, .csv or .json: weights (..., destinations, sources)")
    parser.add_argument("--array", default="weights", help="which array of the file holds the maps (default: weights)")
    parser.add_argument("--causal", action="store_true", help="the maps were made under a causal mask")
    parser.add_argument("--all", action="store_true", help="one line for each map instead of one for each kind")
    options = parser.parse_args(argv)
    try:
        findings = _audit_file(options.file, options.array, options.causal)
    except LabkitError as error:
        print(error, file=sys.stderr)
        return 2
    print(findings if options.all else summary(findings))
    return 1 if findings.of("fault") else 0


def _audit_file(path: Path, name: str, is_causal: bool) -> Findings:
    arrays = load_arrays(path)
    if name not in arrays and len(arrays) == 1:
        name = next(iter(arrays))
    if name not in arrays:
        raise LabkitError(f"{path.name} holds {sorted(arrays)} and no array {name!r}: choose one with --array.")
    weights = arrays[name]
    allowed = arrays.get("allowed")
    if is_causal and weights.ndim >= 2:
        allowed = causal(weights.shape[-2], weights.shape[-1], align="bottom-right")
    return audit(weights, allowed, arrays.get("values"))
