"""`import labkit` costs next to nothing, and every name it lends leads somewhere."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

import labkit


def test_import_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import labkit; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[0] for name in loaded} - {*sys.stdlib_module_names} == {"labkit"}


def test_the_core_and_the_checks_load_numpy_and_nothing_heavier() -> None:
    code = "import sys; from labkit import check, softmax_over_sources, worked_example; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"matplotlib", "IPython", "ipywidgets", "anywidget", "nbformat", "nbclient", "jupytext"} & set(loaded)


@pytest.mark.parametrize("name", labkit._HOMES)
def test_lent_names(name: str) -> None:
    assert getattr(labkit, name) is getattr(importlib.import_module(f"labkit.{labkit._HOMES[name]}"), name)


@pytest.mark.parametrize("module", labkit._LENT)
def test_modules(module: str) -> None:
    assert importlib.util.find_spec(f"labkit.{module}") is not None


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sofmax'"):
        labkit.sofmax  # noqa: B018
    assert set(dir(labkit)) == {*labkit._HOMES, *labkit._LENT}
