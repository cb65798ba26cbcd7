"""`labkit bundle`: a copy of the workbook with every package it needs, for machines that never see a network.

The packages are the locked ones. Which of them a machine needs depends on its system and Python (markers in uv.lock),
so the lock is followed from labkit outwards with the markers judged for the *target*, and pip only fetches the files.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Package = dict[str, Any]  # one [[package]] table of uv.lock, or one entry of its dependencies

ROOT = Path(__file__).resolve().parent.parent
CONTENTS = ("start.py", "pyproject.toml", "uv.lock", "README.md", "LICENSE", "LICENSE-prose", "labkit", "notebooks")
BUILD = ("hatchling", "editables")  # what pip needs to install labkit itself
PATCHES = ("0", "99")  # the lock may differ between, say, 3.11.2 and 3.11.9: bring what either needs

# name -> pip's platform tags (oldest systems that work) and what a marker sees there
PLATFORMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "linux": (
        ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"],
        {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux", "platform_machine": "x86_64"},
    ),
    "macos-arm": (
        ["macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64", "macosx_11_0_universal2"],
        {"sys_platform": "darwin", "os_name": "posix", "platform_system": "Darwin", "platform_machine": "arm64"},
    ),
    "macos-intel": (
        ["macosx_14_0_x86_64", "macosx_12_0_x86_64", "macosx_11_0_x86_64", "macosx_10_12_x86_64", "macosx_10_9_x86_64"],
        {"sys_platform": "darwin", "os_name": "posix", "platform_system": "Darwin", "platform_machine": "x86_64"},
    ),
    "windows": (
        ["win_amd64"],
        {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows", "platform_machine": "AMD64"},
    ),
}


def main(argv: list[str]) -> int:
    """Copy the workbook and fetch its packages; the exit status is pip's."""
    options = parse(argv)
    target = Path(options.wheels)
    if target.exists() and any(target.iterdir()):
        print(f"labkit bundle: {target} is not empty", file=sys.stderr)
        return 1
    copy_workbook(target)
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    print(f"Fetching the packages for {options.platform}, Python {options.python} ...", flush=True)
    if status := fetch(packages, target / "wheels", options):
        return status
    print(f"Done. Copy {target} to the machine without a network and run `python3 start.py` there.")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="labkit bundle", description=str(__doc__).split("\n")[0])
    parser.add_argument("--wheels", required=True, metavar="FOLDER", help="the folder to make; empty or missing")
    parser.add_argument("--platform", choices=PLATFORMS, default=this_platform(), help="default: this machine's")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    parser.add_argument("--python", default=python, metavar="3.11", help=f"default: this Python's ({python})")
    parser.add_argument("--extra", action="append", default=[], metavar="test", help="what authors or tests need too")
    return parser.parse_args(argv)


def this_platform() -> str:
    """Return the name of the machine this runs on."""
    return {"win32": "windows", "darwin": "macos-arm"}.get(sys.platform, "linux")


def locked(packages: list[Package], platform: str, python: str, extras: list[str]) -> dict[str, str]:
    """Return name → version of everything labkit needs on the target, by following the lock from labkit outwards."""
    target = {**PLATFORMS[platform][1], **python_names(python), "extra": ""}
    todo: list[Package] = [{"name": "labkit", "extra": extras}]
    seen, versions = set(), {}
    while todo:
        entry = todo.pop()
        wanted = (entry["name"], *entry.get("extra", []))
        if wanted in seen or not holds(entry.get("marker"), target):
            continue
        seen.add(wanted)
        package = find(entry, packages, target)
        versions[package["name"]] = package["version"]
        todo += package.get("dependencies", [])
        todo += [each for extra in entry.get("extra", []) for each in package["optional-dependencies"][extra]]
    del versions["labkit"]
    return versions


def holds(marker: str | None, target: dict[str, str]) -> bool:
    """Judge a marker for the target; no marker holds everywhere."""
    from packaging.markers import Marker

    return marker is None or Marker(marker).evaluate(target)


def find(entry: Package, packages: list[Package], target: dict[str, str]) -> Package:
    """Return the locked package an entry means; a package locked in two versions says for which Pythons each is."""
    for package in packages:
        forks = package.get("resolution-markers", [None])
        same = package["name"] == entry["name"] and entry.get("version") in (None, package.get("version"))
        if same and any(holds(fork, target) for fork in forks):
            return package
    raise LookupError(f"uv.lock has no {entry['name']} for Python {target['python_version']}")


def python_names(version: str) -> dict[str, str]:
    """Return what markers see of a Python such as 3.12.1."""
    return {
        "python_version": version.rpartition(".")[0],
        "python_full_version": version,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


def copy_workbook(target: Path) -> None:
    """Copy what a learner needs: no keys, no tests."""
    target.mkdir(parents=True, exist_ok=True)
    for source in (ROOT / name for name in CONTENTS):
        if source.is_dir():
            shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy2(source, target)


def fetch(packages: list[Package], folder: Path, options: argparse.Namespace) -> int:
    """Download the wheels for every patch release of the target's Python, and what pip builds labkit with."""
    tags = [word for tag in PLATFORMS[options.platform][0] for word in ("--platform", tag)]
    common = ["--disable-pip-version-check", "--quiet", "--dest", str(folder), "--only-binary=:all:", *tags]
    done: set[str] = set()
    with pip() as command:
        for python in (f"{options.python}.{patch}" for patch in PATCHES):
            versions = locked(packages, options.platform, python, options.extra)
            pins = {f"{name}=={version}" for name, version in versions.items()} - done
            for what in (["--no-deps", *sorted(pins)], BUILD):
                run = [*command, "download", *common, "--python-version", python, "--implementation", "cp", *what]
                if status := subprocess.run(run, check=False).returncode:
                    return status
            done |= pins
    return 0


@contextlib.contextmanager
def pip() -> Iterator[list[str]]:
    """Give pip; an environment made by uv has none, so one is made for the moment."""
    if importlib.util.find_spec("pip"):
        yield [sys.executable, "-m", "pip"]
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        yield [str(Path(folder, "Scripts" if sys.platform == "win32" else "bin", "python")), "-m", "pip"]
