"""How long from a key press until the new picture is painted: a panel against `interact` with an inline figure.

Both run in one JupyterLab and one headless Chromium, and show the same: a 3 x 3 map with its numbers and a plot of the
value vectors with their mixture. Times are the browser's own, from the key event to the end of the frame in which
the changed picture was painted; a paint counts only when the picture itself changed.

    python benchmarks/slider_latency.py [--json] [--presses 40] [--seconds 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.browser.lab import Lab, Notebook, chromium, jupyterlab

PANEL = ["from labkit import exact, panels", "panels.scores_and_values(exact.worked_example())"]
INTERACT = [
    """%matplotlib inline
import ipywidgets, matplotlib.pyplot as plt, numpy as np
from labkit import exact, mix, softmax_over_sources
ex = exact.worked_example()""",
    """def draw(score):
    scores = np.array(ex.scores)
    scores[2, 1] = score
    weights = softmax_over_sources(scores, ex.allowed)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4))
    left.imshow(weights, vmin=0, vmax=1, cmap="Purples")
    for (i, j), weight in np.ndenumerate(weights):
        left.text(j, i, f"{weight:.3f}", ha="center", va="center")
    for x, y in [*ex.values, mix(weights, ex.values)[2]]:
        right.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->"})
    right.set(xlim=(-1, 5), ylim=(-1, 5))
    plt.show()
_ = ipywidgets.interact(draw, score=ipywidgets.FloatSlider(min=-2.0, max=3.0, step=0.05, value=0.7))""",
]
LESSON = ["from labkit import exact\nex = exact.worked_example()", *["ex.weights"] * 6]
LESSON_WITH_PANELS = [
    "from labkit import exact, panels\nex = exact.worked_example()",
    "panels.scores_and_values(ex)",
    "panels.softmax_row(ex.scores[2])",
    "panels.mask_builder(4)",
    "panels.two_heads(scores=[ex.scores] * 2, values=ex.values, inputs=ex.inputs)",
    "panels.scale()",
    "panels.map_gallery(ex)",
]
# Note when a picture changed, wait until the frame has been painted, and note that moment.
WATCH = """(kind) => {
  const b = window.bench = { keys: [], paints: [], blank: 0, recording: false };
  const channel = new MessageChannel();
  let pending = false;
  channel.port1.onmessage = () => { pending = false; b.paints.push(performance.now()); };
  const changed = () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => channel.port2.postMessage(0));
  };
  addEventListener('keydown', (event) => b.keys.push(event.timeStamp), true);
  const map = () => document.querySelector('.lk [data-name="A"]').textContent;
  const drawn = (image) => image.tagName === 'IMG' && image.complete && image.naturalWidth > 100;
  const blank = kind === 'panel' ? () => !map().trim()
    : () => ![...document.querySelectorAll('.jp-OutputArea img')].some(drawn);
  if (kind === 'panel') {
    let last = map();
    const compare = () => { const now = map(); if (now !== last) { last = now; changed(); } };
    const everything = { subtree: true, childList: true, characterData: true };
    new MutationObserver(compare).observe(document.querySelector('.lk'), everything);
  } else {
    document.addEventListener('load', (event) => drawn(event.target) && changed(), true);
  }
  const frame = () => { if (b.recording) b.blank += blank(); requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""
# Where the handle is and between which two points to drag it. Landmarks hold a panel's level for a few pixels, and a
# move that changes nothing is no update: the panel's level is dragged below the first of them, at ln 1 = 0.
TRACK = {
    "panel": """node => {
      const r = node.getBoundingClientRect(), [x, y] = [r.left + r.width / 2, r.top + r.height / 2];
      const [low, high, now] = ["min", "max", "now"].map(name => Number(node.getAttribute(`aria-value${name}`)));
      const down = level => y + (now - level) * 92 / (high - low);
      return [[x, y], [[x, down(low)], [x, down(-0.25)]]];
    }""",
    "interact": """node => {
      const [h, t] = [node, node.closest(".noUi-base")].map(part => part.getBoundingClientRect());
      const y = h.top + h.height / 2;
      return [[h.left + h.width / 2, y], [[t.left, y], [t.right, y]]];
    }""",
}
HANDLE = {"panel": '[aria-label="score of destination 3, source 2"]', "interact": ".noUi-handle"}


def latencies(notebook: Notebook, presses: int) -> list[float]:
    """Press one key after the other, each after the last has settled; milliseconds from key to paint."""
    found = [press(notebook, "ArrowUp" if (i // 8) % 2 == 0 else "ArrowDown") for i in range(presses + 5)]
    return found[5:]


def press(notebook: Notebook, key: str) -> float:
    """Press one key and wait for the picture to change; milliseconds between the two."""
    notebook.page.evaluate("() => { bench.keys = []; bench.paints = []; }")
    notebook.page.keyboard.press(key)
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        notebook.page.wait_for_timeout(150)
        key_at, painted = notebook.page.evaluate("() => [bench.keys[0], bench.paints[0]]")
        if painted:
            notebook.page.wait_for_timeout(150)  # let the kernel come to rest as well
            return float(painted - key_at)
    raise RuntimeError("a key press changed nothing on the page")


def updates_per_second(notebook: Notebook, kind: str, seconds: float) -> tuple[float, int]:
    """Drag to and fro without a pause; changed pictures painted per second, and frames without a picture."""
    page = notebook.page
    handle = page.locator(HANDLE[kind])
    at, ends = handle.evaluate(TRACK[kind])
    devtools = page.context.new_cdp_session(page)  # Playwright's own moves look for drag and drop at every step
    page.mouse.move(*at)
    page.mouse.down()
    page.evaluate("() => { bench.paints = []; bench.blank = 0; bench.recording = true; }")
    start, moves = time.perf_counter(), 0
    while (now := time.perf_counter() - start) < seconds:
        swing = abs(now * 4 % 2 - 1)  # to and fro twice a second, at constant speed
        place = {axis: ends[0][i] + swing * (ends[1][i] - ends[0][i]) for i, axis in enumerate("xy")}
        devtools.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "button": "left", "buttons": 1, **place})
        moves += 1
        time.sleep(max(0, start + moves / 60 - time.perf_counter()))
    page.mouse.up()
    painted, blank = page.evaluate("() => { bench.recording = false; return [bench.paints.length, bench.blank]; }")
    return painted / seconds, blank


def measure(lab: Lab, kind: str, cells: list[str], presses: int, seconds: float) -> dict[str, float]:
    """Run one design and give its median and 95th percentile in milliseconds, updates per second, blank frames."""
    lab.write(kind, cells)
    notebook = lab.open(kind, width=1280, height=900)
    notebook.run_all()
    handle = notebook.page.locator(HANDLE[kind])
    handle.scroll_into_view_if_needed()
    notebook.page.wait_for_timeout(1500)
    notebook.page.evaluate(WATCH, kind)
    handle.focus()
    times = latencies(notebook, presses)
    rate, blank = updates_per_second(notebook, kind, seconds)
    lab.close_pages()
    return {
        f"{kind}_median_ms": statistics.median(times),
        f"{kind}_p95_ms": statistics.quantiles(times, n=20)[-1],
        f"{kind}_updates_per_s": rate,
        f"{kind}_blank_frames": blank,
    }


def seconds_to_run(lab: Lab, name: str, cells: list[str], panels: int) -> float:
    """Time a whole lesson from "run all" until its last output, and its panels if it has any, stand on the page."""
    lab.write(name, cells)
    notebook = lab.open(name)
    start = time.perf_counter()
    notebook.run_all()
    notebook.page.wait_for_function("count => document.querySelectorAll('.lk').length >= count", arg=panels)
    took = time.perf_counter() - start
    lab.close_pages()
    return took


def run(presses: int, seconds: float) -> dict[str, float]:
    """Measure both designs, and what six panels add to a lesson, in one session."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, jupyterlab(browser, Path(folder)) as lab:
        found = measure(lab, "panel", PANEL, presses, seconds) | measure(lab, "interact", INTERACT, presses, seconds)
        pairs = [
            seconds_to_run(lab, "with", LESSON_WITH_PANELS, 6) - seconds_to_run(lab, "without", LESSON, 0)
            for _ in range(3)
        ]
    found["ratio"] = found["panel_median_ms"] / found["interact_median_ms"]
    found["six_panels_add_s"] = statistics.median(pairs)
    return {name: round(number, 3) for name, number in found.items()}


def main() -> None:
    """Print the measurements, as a table or as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--presses", type=int, default=40, help="key presses of each design")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of dragging")
    options = parser.parse_args()
    found: dict[str, Any] = run(options.presses, options.seconds)
    if options.json:
        print(json.dumps(found))
        return
    for name, number in found.items():
        print(f"{name:26s} {number:10.3f}")


if __name__ == "__main__":
    main()
