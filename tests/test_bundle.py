"""The offline bundle: the right packages for each kind of machine, no keys, and a set-up with the network cut."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from labkit import bundle
from tests.conftest import require

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def lock() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]


def test_each_system_gets_what_only_it_needs(lock: list[dict[str, Any]]) -> None:
    names = {system: set(bundle.locked(lock, system, "3.12.1", [])) for system in bundle.PLATFORMS}
    everywhere = set.intersection(*names.values())
    assert {"numpy", "jupyterlab", "ipywidgets", "matplotlib", "anywidget"} <= everywhere
    assert {"colorama", "pywinpty"} <= names["windows"] - names["linux"]
    assert "appnope" in names["macos-arm"] - names["windows"]
    assert "ptyprocess" in names["linux"] - names["windows"]


def test_each_python_gets_its_own_version(lock: list[dict[str, Any]]) -> None:
    chosen = {python: bundle.locked(lock, "linux", python, [])["numpy"] for python in ("3.11.2", "3.14.0")}
    listed = {package["version"] for package in lock if package["name"] == "numpy"}
    assert set(chosen.values()) <= listed
    assert (chosen["3.11.2"] == chosen["3.14.0"]) is (len(listed) == 1)


def test_extras_add_their_packages(lock: list[dict[str, Any]]) -> None:
    plain, test = (set(bundle.locked(lock, "linux", "3.12.1", extras)) for extras in ([], ["test"]))
    assert plain < test
    assert {"hypothesis", "jupytext", "mypy"} <= test - plain, "test brings authors' packages too"


def test_an_unlocked_package_is_named(lock: list[dict[str, Any]]) -> None:
    without = [package for package in lock if package["name"] != "numpy"]
    with pytest.raises(LookupError, match=r"no numpy for Python 3\.12"):
        bundle.locked(without, "linux", "3.12.1", [])


def test_the_copy_holds_no_keys(tmp_path: Path) -> None:
    bundle.copy_workbook(tmp_path / "new" / "workbook")
    there = {path.name for path in (tmp_path / "new" / "workbook").iterdir()}
    assert there == set(bundle.CONTENTS)


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert bundle.main(["--wheels", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def cut(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a network namespace that holds nothing, not even a loopback."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "LABKIT_"))}
    return subprocess.run(
        ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), *command],
        cwd=folder, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_wheel_holds_everything_that_is_not_python(tmp_path: Path) -> None:
    with bundle.pip() as pip:
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("labkit-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "labkit"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(tracked.stdout.splitlines()) > 40
    assert set(tracked.stdout.splitlines()) <= packed
    assert not [name for name in packed if not name.startswith(("labkit/", "labkit-"))]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can a test cut its own network")
def test_it_installs_and_runs_without_a_network(tmp_path: Path) -> None:
    require("unshare --net", cut(["true"], tmp_path).returncode == 0)
    target = tmp_path / "USB stick"
    assert bundle.main(["--wheels", str(target)]) == 0
    done = cut([sys.executable, "start.py", "doctor"], target)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The lessons are ready." in done.stdout
    python = str(target / ".venv" / "bin" / "python")
    code = "import jupyterlab.labapp, matplotlib.pyplot, labkit; print(labkit.softmax_over_sources([[0.0, 0.0]]))"
    assert "0.5" in cut([python, "-c", code], target).stdout
