"""What attention costs: labkit against the bare products and exponentials, textbook NumPy, and PyTorch where installed.

    python benchmarks/core.py            a table; exit status 1 when a bar is missed
    python benchmarks/core.py --json     the same as JSON
    python benchmarks/core.py --n 512    other sizes

Bars: without a mask at most 1.3 times the time of the bare NumPy products and exponentials; always at most 1.5 times
the size of the score array beside inputs and outputs. Beside the bar stand the ratios with a causal mask, which bare
NumPy does not apply, and to exponentials written over the scores, which spares bare NumPy a second large array.
All routes run in turn and each keeps its best time, so a busy machine does not decide; processor time is given beside
wall-clock time because it is steadier.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit import masks
from labkit.attention import Array, Head, attend

TIME_BAR, MEMORY_BAR = 1.3, 1.5
Route = Callable[[], Any]


def bare(x: Array, head: Head) -> Array:
    """Only what the definition needs: three projections, two products, one exponential; no mask, nothing normalised."""
    weights: Array = np.exp((x @ head.W_Q) @ (x @ head.W_K).swapaxes(-1, -2))
    return weights @ (x @ head.W_V)


def bare_in_place(x: Array, head: Head) -> Array:
    """The same with the exponentials written over the scores: the least NumPy can do."""
    weights = (x @ head.W_Q) @ (x @ head.W_K).swapaxes(-1, -2)
    np.exp(weights, out=weights)
    return weights @ (x @ head.W_V)


def textbook(x: Array, head: Head, allowed: Array | None) -> Array:
    """The usual few lines, with a new array for every step."""
    scores = (x @ head.W_Q) @ (x @ head.W_K).swapaxes(-1, -2) / float(head.W_Q.shape[-1]) ** 0.5
    if allowed is not None:
        scores = np.where(allowed, scores, np.array(-np.inf, scores.dtype))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)) @ (x @ head.W_V)


def by_torch(x: Array, head: Head, causal: bool) -> Route | None:
    try:
        import torch
    except ImportError:
        return None
    inputs, W_Q, W_K, W_V = (torch.from_numpy(array) for array in (x, head.W_Q, head.W_K, head.W_V))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return lambda: sdpa(inputs @ W_Q, inputs @ W_K, inputs @ W_V, is_causal=causal)


def best_times(routes: dict[str, Route], repeats: int) -> dict[str, tuple[float, float]]:
    """Run all routes in turn, several times, and keep each one's best wall-clock and processor time."""
    best = dict.fromkeys(routes, (np.inf, np.inf))
    for _ in range(repeats):
        for name, route in routes.items():
            wall, cpu = time.perf_counter(), time.process_time()
            route()
            took = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = min(best[name][0], took[0]), min(best[name][1], took[1])
    return best


def peak_bytes(route: Route) -> int:
    """Measure how much memory was held at the worst moment, results included."""
    tracemalloc.start()
    result = route()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return peak


def measure(H: int, n: int, d: int, dtype: str, causal: bool, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(H, n, d)).astype(dtype)
    head = Head(*((rng.normal(size=(d, d)) / d**0.5).astype(dtype) for _ in range(3)))
    allowed = masks.causal(n) if causal else None
    routes: dict[str, Route] = {
        "bare": lambda: bare(x, head),
        "in place": lambda: bare_in_place(x, head),
        "labkit": lambda: attend(x, head, allowed),
        "textbook": lambda: textbook(x, head, allowed),
    }
    torch_route = by_torch(x, head, causal)
    if torch_route:
        routes["torch"] = torch_route
    np.testing.assert_allclose(routes["labkit"]().output, routes["textbook"](), atol=1e-4)
    times = best_times(routes, repeats)
    scores = H * n * n * x.itemsize
    return {
        "dtype": dtype,
        "mask": "causal" if causal else "none",
        "milliseconds": {name: round(1e3 * wall, 1) for name, (wall, _) in times.items()},
        "processor_milliseconds": {name: round(1e3 * cpu, 1) for name, (_, cpu) in times.items()},
        "time_ratio": round(times["labkit"][0] / times["bare"][0], 3),
        "in_place_ratio": round(times["labkit"][0] / times["in place"][0], 3),
        "processor_ratio": round(times["labkit"][1] / times["bare"][1], 3),
        # queries, keys, values and output are results; inputs exist already
        "memory_ratio": round((peak_bytes(routes["labkit"]) - 4 * x.nbytes) / scores, 3),
        "textbook_memory_ratio": round((peak_bytes(routes["textbook"]) - 4 * x.nbytes) / scores, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    for name, default in (("n", 2048), ("d", 64), ("heads", 8), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    rows = [
        measure(given.heads, given.n, given.d, dtype, causal, given.repeats)
        for dtype in ("float64", "float32")
        for causal in (False, True)
    ]
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            times = "  ".join(f"{name} {ms:7.1f} ms" for name, ms in row["milliseconds"].items())
            print(f"{row['dtype']} mask {row['mask']:6}  {times}", end="  ")
            print("  ".join(f"{name.replace('_ratio', '')} x{row[name]}" for name in row if name.endswith("_ratio")))
    fast = all(min(r["time_ratio"], r["processor_ratio"]) <= TIME_BAR for r in rows if r["mask"] == "none")
    small = all(r["memory_ratio"] <= MEMORY_BAR for r in rows)
    return 0 if fast and small else 1


if __name__ == "__main__":
    sys.exit(main())
