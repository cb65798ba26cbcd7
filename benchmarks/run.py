"""Measure everything and write the tables of docs/performance.md: one command, one thing at a time.

    python benchmarks/run.py                   everything; exit status 1 when a bar is missed
    python benchmarks/run.py --only start      some parts; the tables of the others stay as they are
    python benchmarks/run.py --print           show the tables, write nothing

Every part notes what it ran on and how busy the machine was. Ratios come from one run of one program and suffer less
from other work than seconds do; only an idle machine gives either exactly.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
NAMED = ("numpy", "jupyterlab", "ipykernel", "nbgrader", "torch")


@dataclass(frozen=True)
class Row:
    """One measured number, and the bar it must stay under (or reach, if `least`); no bar: an anchor."""

    what: str
    number: float
    unit: str
    bar: float | None = None
    least: bool = False

    @property
    def met(self) -> bool:
        """Tell whether the bar is met."""
        return self.bar is None or (self.number >= self.bar if self.least else self.number <= self.bar)

    def markdown(self) -> str:
        """Return a line of the table."""
        bar = "" if self.bar is None else f"{'at least' if self.least else 'at most'} {self.bar:g} {self.unit}"
        verdict = "" if self.bar is None else ("yes" if self.met else "**no**")
        number = f"{self.number:,.0f}" if self.number >= 100 else f"{self.number:.3g}"
        return f"| {self.what} | {number} {self.unit} | {bar.rstrip()} | {verdict} |"


def script(name: str) -> Any:
    """Run another benchmark and return its JSON; its exit status only repeats what the numbers say."""
    command = [sys.executable, str(ROOT / "benchmarks" / name), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(ran.stdout)
    except ValueError:
        sys.exit(f"{name} gave no JSON:\n{ran.stdout}\n{ran.stderr}")


def best(code: str, times: int = 7) -> float:
    """Return the smallest number that fresh processes running this code print, or else take, in milliseconds."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        took = time.perf_counter() - begun
        found.append(float(said) if re.fullmatch(r"[\d.e-]+\s*", said) else took)
    return 1000 * min(found)


def childrens_seconds() -> float:
    """Return the processor time of all processes started from here that have ended: what a busy machine cannot blur."""
    times = os.times()
    return times.children_user + times.children_system


# The parts ----------------------------------------------------------------------------------------------------------


def start() -> Iterable[Row]:
    """Imports and the command."""
    timed = "import {first}time; t = time.perf_counter(); import {second}; print(time.perf_counter() - t)"
    yield Row("`import numpy`", best(timed.format(first="", second="numpy")), "ms")
    yield Row("`import labkit` after it", best(timed.format(first="numpy, ", second="labkit")), "ms", 10)
    yield Row("an empty Python", best("pass"), "ms")
    yield Row("`labkit --help`", best("from labkit import cli; cli.main(['--help'])"), "ms", 150)


def opening() -> Iterable[Row]:
    """From a click on a lesson to its first verdict."""
    import memory
    import nbformat
    from nbclient import NotebookClient

    begun = time.perf_counter()
    with memory.serving():
        served = time.perf_counter() - begun
    notebook = nbformat.read(ROOT / "notebooks" / "03_masks.ipynb", as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", timeout=120)
    begun = time.perf_counter()
    with client.setup_kernel():
        ready = time.perf_counter() - begun
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
            if cell.metadata.get("labkit", {}).get("role") == "check":
                break
        checked = time.perf_counter() - begun
    yield Row("once: JupyterLab starts and serves its page and a lesson", served, "s")
    yield Row("the lesson's kernel starts", ready, "s")
    yield Row("from there to the first verdict", checked - ready, "s")
    yield Row("opening a lesson to its first verdict", checked, "s", 5)


def notebooks() -> Iterable[Row]:
    """Every notebook, blank and solved, executed and compared with two jobs."""
    import nbformat
    from nbclient import NotebookClient

    from labkit import testing

    begun = time.perf_counter()
    client = NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3")
    with client.setup_kernel():
        one_kernel = time.perf_counter() - begun
    count = sum(len(list((ROOT / folder).glob("*.ipynb"))) for folder in ("notebooks", "answer_keys"))
    command = [*testing.NBVAL, "-n", "2", "--dist", "loadfile", "notebooks", "answer_keys"]
    begun, worked = time.perf_counter(), childrens_seconds()
    ran = subprocess.run(command, cwd=ROOT, env=testing.environment(), capture_output=True, text=True, check=False)
    took, worked = time.perf_counter() - begun, childrens_seconds() - worked
    if ran.returncode:
        sys.exit(ran.stdout[-2000:])
    yield Row(f"{count} notebooks executed and compared", took, "s", 120)
    yield Row("processor time of it, shared by two processors", worked / 2, "s")
    yield Row("of it, starting kernels", 100 * count * one_kernel / 2 / took, "%")


def core() -> Iterable[Row]:
    """One call of `attend`: 8 heads of 2,048 positions, width 64."""
    for case in script("core.py"):
        name = f"{case['dtype']}, mask {case['mask']}"
        time_ratio = min(case["time_ratio"], case["processor_ratio"])
        bar = 1.3 if case["mask"] == "none" else None  # bare NumPy applies no mask
        yield Row(f"{name}: time, over the bare products and exponentials", time_ratio, "times", bar)
        yield Row(f"{name}: time, over the same written over the scores", case["in_place_ratio"], "times")
        yield Row(f"{name}: memory, over the scores alone", case["memory_ratio"], "times", 1.5)
        milliseconds = case["milliseconds"]
        for peer in ("textbook", "torch"):
            if peer in milliseconds:
                yield Row(f"{name}: time, over {peer}", milliseconds["labkit"] / milliseconds[peer], "times")


def grading() -> Iterable[Row]:
    """One submission of 14 predictions, without and with two functions."""
    found = script("grading.py")
    yield Row("predictions only", found["predictions_ms"], "ms", 5)
    yield Row("with code, in the sandbox", found["code_ms"], "ms", 120)
    yield Row("the same two functions by nbgrader", found["nbgrader_ms"], "ms")
    yield Row("nbgrader over labkit", found["nbgrader_ms"] / found["code_ms"], "times", 10, least=True)
    yield Row("gain of a second job", found["two_jobs_speedup"], "times", 1.7, least=True)
    yield Row("memory for 100 submissions", found["peak_mib_100"], "MiB", 250)
    yield Row("memory for 5,000 submissions", found["peak_mib_5000"], "MiB", 250)


def sliders() -> Iterable[Row]:
    """From a key press to the painted picture, in a browser."""
    found = script("slider_latency.py")
    yield Row("a panel, median", found["panel_median_ms"], "ms")
    yield Row("a panel, 95th percentile", found["panel_p95_ms"], "ms")
    yield Row("`interact` with an inline figure, median", found["interact_median_ms"], "ms")
    yield Row("panel over `interact`", found["ratio"], "times", 0.1)
    yield Row("pictures a second while dragging: a panel", found["panel_updates_per_s"], "")
    yield Row("pictures a second while dragging: `interact`", found["interact_updates_per_s"], "")


PARTS: dict[str, Callable[[], Iterable[Row]]] = {
    part.__name__: part for part in (start, opening, notebooks, core, grading, sliders)
}


# The page -----------------------------------------------------------------------------------------------------------


def machine() -> str:
    """Say what this is, and how busy it is."""
    versions = [f"Python {platform.python_version()}"]
    for name in NAMED:
        try:
            versions.append(f"{name} {version(name)}")
        except ModuleNotFoundError:
            continue
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    state = f"load {load:.0f}"
    if load > cores:
        state += ", so busy with other work: times are upper limits and ratios scatter"
    return f"{platform.system()} {platform.machine()}, {cores} processors, {state}; {', '.join(versions)}."


def table(rows: list[Row], where: str) -> str:
    """Return one part's table, with what it was measured on."""
    lines = ["| what | measured | bar | met |", "|---|---|---|---|", *(row.markdown() for row in rows), "", where]
    return "\n".join(lines)


def put(page: str, part: str, text: str) -> str:
    """Replace what stands between a part's markers; raises ValueError when the page has none."""
    pattern = rf"(<!-- measured: {part} -->\n).*?(\n<!-- end -->)"
    page, count = re.subn(pattern, lambda found: found[1] + text + found[2], page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has {count} places for the part {part!r}, not one")
    return page


def write(path: Path, page: str) -> None:
    """Write the page in one move."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", newline="\n", delete=False) as file:
        file.write(page)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def main(argv: list[str] | None = None, path: Path = PAGE) -> int:
    """Measure the chosen parts one after the other, writing each table as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="measure this part only")
    parser.add_argument("--print", action="store_true", help="show the tables and write nothing")
    options = parser.parse_args(argv)
    met = True
    for part in options.only or PARTS:
        where, rows = machine(), list(PARTS[part]())
        met = met and all(row.met for row in rows)
        print(f"\n{part}\n{table(rows, where)}", flush=True)
        if not options.print:
            write(path, put(path.read_text(encoding="utf-8"), part, table(rows, where)))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
