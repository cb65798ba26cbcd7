"""`labkit test`: every check of the project, one after the other, with one summary at the end."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider"]
# The notebooks are compared by nbval alone: the options of the unit tests (doctests, warnings) do not apply to them.
NBVAL = [*PYTEST, "-o", "addopts=", "-W", "default", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=120"]


@dataclass(frozen=True)
class Step:
    """One part of the whole: a command, whether `--fast` leaves it out, and the minutes it may take at most."""

    name: str
    about: str
    command: list[str]
    slow: bool = False
    minutes: float = 3


@dataclass(frozen=True)
class Outcome:
    """How a step ended; `closing` is the last line it said (pytest's count of tests, for instance)."""

    step: Step
    passed: bool
    seconds: float
    closing: str


def steps(jobs: int) -> list[Step]:
    """List what is run, in the order in which a mistake is cheapest to find."""
    parallel = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
    python = sys.executable
    return [
        Step("lint", "code style", [python, "-m", "ruff", "check", "."]),
        Step("types", "types", [python, "-m", "mypy"]),
        Step("fresh", "notebooks match their sources", [python, "-m", "labkit.cli", "build", "--check"], minutes=12),
        Step("unit", "unit tests and doctests", [*PYTEST, *parallel, "-m", "not slow and not alone"], minutes=35),
        Step("alone", "timing tests, one at a time", [*PYTEST, "-m", "alone and not slow"], minutes=8),
        Step("blank", "every notebook blank, compared", [*NBVAL, *parallel, "notebooks"], minutes=8),
        Step("solved", "every key solved, compared", [*NBVAL, *parallel, "answer_keys"], minutes=8),
        Step("slow", "browser and other slow tests", [*PYTEST, "-m", "slow"], slow=True, minutes=25),
        Step("mutants", "mutants killed", [python, "tools/mutants.py", "--quick"], slow=True, minutes=12),
    ]


def main(argv: list[str]) -> int:
    """Run the chosen steps; the exit status is 0 only when every one of them ran and passed."""
    ci = bool(os.environ.get("CI"))
    options = parse(argv)
    chosen = choose(steps(options.jobs), options.only, options.fast)
    outcomes = [run(step, verbose=options.verbose or ci) for step in chosen]
    print(summary(outcomes))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    names = ", ".join(step.name for step in steps(1))
    parser = argparse.ArgumentParser(prog="labkit test", description="Run every test of the project.")
    parser.add_argument("--fast", action="store_true", help="leave out the slow parts (browser, mutants)")
    parser.add_argument("--only", action="append", metavar="PART", default=[], help=f"run this part only: {names}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at a time (default: every core)")
    parser.add_argument("--verbose", action="store_true", help="show everything while it runs, as in CI")
    options = parser.parse_args(argv)
    if unknown := set(options.only) - {step.name for step in steps(1)}:
        parser.error(f"no part called {', '.join(sorted(unknown))}; there are: {names}")
    return options


def choose(every: list[Step], only: list[str], fast: bool) -> list[Step]:
    """Keep the named steps, or all but the slow ones."""
    return [step for step in every if (step.name in only if only else not (fast and step.slow))]


def run(step: Step, verbose: bool) -> Outcome:
    """Run one step, print what it says (at once when verbose, otherwise only if it fails), and time it."""
    print(f"\n== {step.name}: {step.about}", flush=True)
    started = time.monotonic()
    try:
        status, lines = listen(step, verbose)
    except OSError as error:
        status, lines = 1, [f"{step.command[0]} cannot be run: {error}"]
    seconds = time.monotonic() - started
    if status and not verbose:
        print("".join(lines))
    print(f"   {'FAILED' if status else 'passed'} in {seconds:.1f} s: {closing(lines)}", flush=True)
    return Outcome(step, not status, seconds, closing(lines))


def listen(step: Step, verbose: bool) -> tuple[int, list[str]]:
    """Return a step's exit status and what it said, stopping it when its time is over."""
    child = subprocess.Popen(
        step.command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    late = threading.Event()
    timer = threading.Timer(60 * step.minutes, stop, (child, late))
    timer.start()
    lines = []
    with child:
        for line in child.stdout or ():
            lines.append(line)
            if verbose:
                print(line, end="", flush=True)
    timer.cancel()
    return (1, [*lines, f"stopped after {step.minutes:g} minutes"]) if late.is_set() else (child.returncode, lines)


def environment() -> dict[str, str]:
    """Return this environment without what would make a test depend on who runs it."""
    personal = ("LABKIT_", "NBGRADER_", "MPLBACKEND", "PYTEST_ADDOPTS")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(personal)}
    return {**clean, "LABKIT_JOURNAL": "off", "JUPYTER_PREFER_ENV_PATH": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def stop(child: subprocess.Popen[str], late: threading.Event) -> None:
    """End a step that takes too long, with everything it started."""
    late.set()
    with contextlib.suppress(ProcessLookupError):
        if os.name == "nt":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)


def closing(lines: list[str]) -> str:
    """Return the last line that says something, without pytest's rulers and colours."""
    plain = (re.sub(r"\x1b\[[0-9;]*m", "", line).strip("= \n") for line in reversed(lines))
    return next((line for line in plain if line), "it said nothing")


def summary(outcomes: list[Outcome]) -> str:
    """Return one table of every step and one sentence about the whole."""
    rows = [
        f"  {'passed' if each.passed else 'FAILED'}  {each.seconds:7.1f} s  {each.step.name:8} {each.closing}"
        for each in outcomes
    ]
    failed = [outcome.step.name for outcome in outcomes if not outcome.passed]
    seconds = sum(outcome.seconds for outcome in outcomes)
    verdict = f"FAILED: {', '.join(failed)}" if failed else f"All {len(outcomes)} parts passed"
    return "\n".join(["", "Summary", *rows, f"{verdict} ({seconds // 60:.0f} min {seconds % 60:.0f} s)."])
