"""A small key, a level A sandbox, and notebooks made in a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit.grading.keyfile import KeySource, read_key
from labkit.grading.probe import Report, find_sandbox
from labkit.grading.processes import Limits, Sandbox

MIX = """def mix(weights, values):
    return (np.array(weights) @ np.array(values)).tolist()"""
RIGHT = {
    "row-2": "row_2 = [1/4, 3/4]",
    "shapes": "n = 2\nd_k = 3",
    "write-mix": MIX,
    "say": 'words = "In between."',
}


@pytest.fixture(scope="session")
def small_key() -> KeySource:
    return read_key(Path(__file__).with_name("small_key.md"))


@pytest.fixture(scope="session")
def report() -> Report:
    """Find a level A sandbox; where there is none these tests skip, and in CI they fail."""
    found = find_sandbox(Limits(cell=6, call=4, total=20))
    if found.level != "A":
        words = "no level A sandbox: " + "; ".join(found.lines())
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return found


@pytest.fixture(scope="session")
def box(report: Report) -> Sandbox:
    assert report.sandbox is not None
    return report.sandbox


@pytest.fixture(scope="session")
def notebook() -> Callable[..., bytes]:
    """Make a notebook of the small key's answers, some of them replaced, with more cells after them."""

    def make(*more: str, **answers: str) -> bytes:
        filled = {**RIGHT, **{name.replace("_", "-"): source for name, source in answers.items()}}
        cells = [_cell(source, {"labkit": {"exercise": name}}) for name, source in filled.items()]
        cells += [_cell(source, {}) for source in more]
        document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"labkit": {"lesson": "small_key"}}, "cells": cells}
        return json.dumps(document).encode()

    return make


def _cell(source: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}


@pytest.fixture(scope="session")
def descendants() -> Callable[[int], list[int]]:
    """List the processes that a process has started, and those have started."""

    def below(pid: int) -> list[int]:
        try:
            threads = list(Path(f"/proc/{pid}/task").iterdir())
            children = [int(word) for thread in threads for word in (thread / "children").read_text().split()]
        except OSError:  # it has just ended
            return []
        return children + [further for child in children for further in below(child)]

    return below
