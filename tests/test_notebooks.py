"""The stored notebooks can be compared honestly, and the comparison of `labkit test` fails when it should."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from labkit import testing
from labkit.authoring import guard

ROOT = testing.ROOT
STORED = sorted(path for folder in ("notebooks", "answer_keys") for path in (ROOT / folder).glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_stored_notebook_is_fully_compared(path: Path) -> None:
    assert guard.problems(path) == []


def test_every_source_has_both_notebooks() -> None:
    sources = {path.stem for path in (ROOT / "answer_keys").glob("[0-9]*.md")}
    assert len(sources) > 0
    for folder in ("notebooks", "answer_keys"):
        assert {path.stem for path in (ROOT / folder).glob("*.ipynb")} == sources


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_stored_checks_say_blank_or_right(path: Path) -> None:
    cells = [cell for cell in read(path)["cells"] if cell["metadata"].get("labkit", {}).get("role") == "check"]
    said = {"".join(cell["outputs"][-1]["data"]["text/plain"])[0] for cell in cells}
    assert said <= ({"○"} if path.parent.name == "notebooks" else {"✓", "✎"})
    assert len(cells) >= 8


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_links_lead_somewhere(path: Path) -> None:
    prose = "".join("".join(cell["source"]) for cell in read(path)["cells"] if cell["cell_type"] == "markdown")
    targets = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not link.startswith(("http", "#"))]
    assert not [link for link in targets if not (path.parent / link.split("#")[0]).exists()]
    assert targets or path.stem.startswith("08")  # every lesson but the last names the next


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_code_cells_are_short(path: Path) -> None:
    sources = [cell["source"] for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    lengths = sorted(map(len, sources))
    assert lengths[len(lengths) // 2] <= 5
    assert lengths[-1] <= 20
    assert not [line for lines in sources for line in lines if len(line.rstrip()) > 120]


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_folded_cells_hide_something_and_their_first_line_fits_a_narrow_page(path: Path) -> None:
    """JupyterLab keeps the first line of a folded cell on the page and never wraps it."""
    metadata = [(cell["source"], cell["metadata"].get("jupyter", {})) for cell in read(path)["cells"]]
    folded = [lines for lines, jupyter in metadata if jupyter.get("source_hidden")]
    assert not [lines for lines in folded if len(lines) == 1 or len(lines[0].rstrip()) > 58]


# The guard itself ----------------------------------------------------------------------------------------------

SOUND = {
    "metadata": {},
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Hello"]},
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {},
            "execution_count": 1,
            "source": ["1 + 1"],
            "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["2"]}}],
        },
    ],
}


def tampered(place: list[Any], value: Any) -> dict[str, Any]:
    notebook = copy.deepcopy(SOUND)
    target: Any = notebook
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    return notebook


OUTPUTS = ["cells", 1, "outputs"]
UNSOUND = [
    (["metadata", "widgets"], {}, "widget state"),
    (["cells", 1, "execution_count"], None, "not executed in order"),
    (["cells", 1, "execution_count"], 2, "not executed in order"),
    (["cells", 1, "cell_type"], "raw", "no code cell"),
    (["cells", 1, "source"], ["# NBVAL_IGNORE_OUTPUT\n", "1 + 1"], "look away"),
    (["cells", 1, "metadata", "tags"], ["nbval-skip"], "look away"),
    (["cells", 1, "metadata", "tags"], ["raises-exception"], "look away"),
    (OUTPUTS, [{"output_type": "error", "ename": "ValueError"}], "stores an error"),
    (OUTPUTS, [{"output_type": "stream", "name": "stderr", "text": ["oh"]}], "stderr"),
    ([*OUTPUTS, 0, "data", "text/plain"], ["<object at 0x7f0011223344>"], "address"),
    (OUTPUTS, [{"output_type": "display_data", "data": {"image/png": "AA"}}], "not one word"),
    (OUTPUTS, [{"output_type": "display_data", "data": {"image/png": "A", "text/plain": "<Figure>"}}], "not one word"),
    ([*OUTPUTS, 0, "data", "application/vnd.jupyter.widget-view+json"], {}, "widget view"),
    (["cells", 0, "source"], ["x" * guard.LARGEST], "above"),
]


@pytest.mark.parametrize(("place", "value", "complaint"), UNSOUND)
def test_guard_finds(tmp_path: Path, place: list[Any], value: Any, complaint: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(SOUND))
    assert guard.problems(path) == []
    path.write_text(json.dumps(tampered(place, value)))
    assert any(complaint in found for found in guard.problems(path))


# The comparison itself -----------------------------------------------------------------------------------------


def alter(notebook: dict[str, Any]) -> set[int]:
    """Change one character of every kind of stored text once; return the numbers of the changed cells."""
    changed: dict[str, int] = {}
    for number, cell in enumerate(cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        for output in cell["outputs"]:
            for kind, text in [*output.get("data", {}).items(), ("stream", output.get("text"))]:
                if text and kind not in changed and number not in changed.values():
                    changed[kind] = number
                    holder, key = (output, "text") if kind == "stream" else (output["data"], kind)
                    holder[key] = ["".join(text).replace("a", "b", 1) if isinstance(text, list) else f"{text}x"]
    return set(changed.values())


def nbval(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compare a folder exactly as `labkit test` does."""
    command = [*testing.NBVAL, "-rA", "."]
    environment = testing.environment()
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_an_altered_output_fails_and_only_that(tmp_path: Path) -> None:
    notebook = read(ROOT / "answer_keys" / "00_start_here.ipynb")
    altered = alter(notebook)
    assert len(altered) >= 2
    (tmp_path / "altered.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    ran = nbval(tmp_path)
    outcome = {
        int(number): word == "PASSED"
        for word, number in re.findall(r"^(PASSED|FAILED) \S*::(?:ipynb::)?Cell (\d+)", ran.stdout, re.MULTILINE)
    }
    assert len(outcome) == sum(cell["cell_type"] == "code" for cell in notebook["cells"]), ran.stdout[-2000:]
    assert {number for number, passed in outcome.items() if not passed} == altered
    assert ran.returncode == 1


def test_the_comparison_is_strict_and_takes_whole_folders() -> None:
    steps = {step.name: step.command for step in testing.steps(jobs=1)}
    for name, folder in (("blank", "notebooks"), ("solved", "answer_keys")):
        command = steps[name]
        assert command[-1] == folder
        assert "--nbval" in command
        assert not [word for word in command if "lax" in word or "sanitize" in word or "nbdime" in word]
        assert any(word.startswith("--nbval-cell-timeout") for word in command)
