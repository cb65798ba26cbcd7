"""Fixtures for tests in a real browser: one Chromium and one JupyterLab for the session, a fresh page for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import CHROMIUM, Lab, chromium, jupyterlab
from tests.conftest import require

AXE = "axe-core@4.14.1"
CACHE = Path(__file__).parents[2] / ".cache"  # ignored by git


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Give the system's Chromium, headless."""
    require("chromium", CHROMIUM)
    pytest.importorskip("playwright")
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def lab_server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Give the session's JupyterLab."""
    with jupyterlab(browser, tmp_path_factory.mktemp("lab")) as served:
        yield served


@pytest.fixture
def lab(lab_server: Lab) -> Iterator[Lab]:
    """Give the session's JupyterLab, and afterwards close this test's pages and kernels."""
    yield lab_server
    lab_server.close_pages()


@pytest.fixture(scope="session")
def axe() -> str:
    """Give the source of axe-core, from npm, fetched once into `.cache`."""
    script = CACHE / AXE / "package" / "axe.min.js"
    if not script.exists() and shutil.which("npm"):
        script.parents[1].mkdir(parents=True, exist_ok=True)
        command = f"npm pack --silent {AXE} && tar xzf axe-core-*.tgz"
        subprocess.run(command, shell=True, cwd=script.parents[1], timeout=120, check=False, env=os.environ)
    require("axe-core (npm)", script.exists())
    return script.read_text(encoding="utf-8")
