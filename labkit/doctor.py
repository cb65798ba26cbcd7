"""`labkit doctor`: what works on this machine, what is missing, and who needs it."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from labkit import workspace


class Finding(NamedTuple):
    """One line of the report; only a missing thing that the lessons need makes the exit status 1."""

    state: str  # "ok", "missing" (the lessons need it) or "absent" (something else needs it)
    text: str


def main(argv: list[str]) -> int:
    """Print every finding."""
    if argv:
        print("usage: labkit doctor\n\nLook at this machine and say what works and what is missing. Takes no options.")
        return 0 if argv[0] in ("-h", "--help") else 2
    findings = [finding for look in (python, packages, lessons, copies, sandbox, programs) for finding in look()]
    for finding in findings:
        print(f"{finding.state:8}{finding.text}")
    missing = sum(finding.state == "missing" for finding in findings)
    print("The lessons are ready." if not missing else f"Missing: {missing}. Run `python3 start.py` to set up again.")
    return 1 if missing else 0


def python() -> Iterator[Finding]:
    """Look at the interpreter and the system."""
    state = "ok" if sys.version_info >= (3, 11) else "missing"
    yield Finding(state, f"Python {platform.python_version()} at {sys.executable}, on {platform.platform()}")


def packages() -> Iterator[Finding]:
    """Look for what labkit declares as its dependencies."""
    for requirement in importlib.metadata.requires("labkit") or []:
        if "extra ==" not in requirement:
            yield package(requirement)


def package(requirement: str) -> Finding:
    """Look for one distribution, given as `name>=version`."""
    name = requirement.split(">=")[0].strip()
    try:
        return Finding("ok", f"{name} {importlib.metadata.version(name)}")
    except importlib.metadata.PackageNotFoundError:
        return Finding("missing", f"{name}: the lessons need it")


def lessons() -> Iterator[Finding]:
    """Look for the notebooks."""
    folder = workspace.home() / "notebooks"
    try:
        yield Finding("ok", f"{len(workspace.lesson_files(folder))} lessons in {folder}")
    except workspace.WorkspaceError as error:
        yield Finding("missing", str(error))


def copies() -> Iterator[Finding]:
    """Try to write where the learner's copies will be."""
    folder = workspace.home() / "my_work"
    place = folder if folder.is_dir() else folder.parent
    free = shutil.disk_usage(place).free / 1e9
    try:
        with tempfile.TemporaryFile(dir=place):
            yield Finding("ok", f"your copies: {folder} ({free:.1f} GB free)")
    except OSError as error:
        yield Finding("absent", f"{folder} cannot be written ({error.strerror}): use `labkit lab --work FOLDER`")


def sandbox() -> Iterator[Finding]:
    """Ask the grading part, if it is here, how safely it can run code from submissions."""
    try:
        report = importlib.import_module("labkit.grading.probe").find_sandbox()
    except ModuleNotFoundError:
        yield Finding("absent", "grading: not part of this copy (instructors use the full project)")
    else:
        yield Finding("ok" if report.level == "A" else "absent", ("\n" + " " * 8).join(report.lines()))


def programs() -> Iterator[Finding]:
    """Look for programs that only authors' tests use."""
    for names, use in ((("chromium", "google-chrome", "chrome"), "browser tests"), (("node",), "tests of the panels")):
        found = next(filter(None, map(shutil.which, names)), None)
        yield Finding("ok" if found else "absent", f"{found}" if found else f"{names[0]}: only {use} need it")
