"""start.py on good and bad machines; the installers are played by small scripts, or by pip without a network."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
POSIX = pytest.mark.skipif(os.name == "nt", reason="only on systems with sh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workbook's folder as a learner may have it, with a name that breaks careless programs."""
    copy = tmp_path / "für Schüler 教室"
    copy.mkdir()
    for name in ("start.py", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture
def start(folder: Path) -> ModuleType:
    """start.py of that folder, as a module."""
    spec = importlib.util.spec_from_file_location("start_under_test", folder / "start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_uv(folder: Path, sync: str) -> dict[str, str]:
    """Return an environment whose `uv` notes how it is called and then runs the given shell lines."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    uv = programs / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "$@" >> calls\n{sync}\n')
    uv.chmod(0o755)
    return {**clean_environment(), "PATH": f"{programs}:/usr/bin:/bin"}


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "LABKIT_"))}


# A Python that only says how it was called, put where uv would put the environment's.
FAKE_PYTHON = """mkdir -p "$UV_PROJECT_ENVIRONMENT/bin"
printf '#!/bin/sh\\necho "called with $@"\\n' > "$UV_PROJECT_ENVIRONMENT/bin/python"
chmod +x "$UV_PROJECT_ENVIRONMENT/bin/python\""""


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None, **options: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "start.py", *arguments],
        cwd=folder, env=env or clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        encoding="utf-8", check=False, **options,  # type: ignore[call-overload]
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


# Setting up once


@POSIX
def test_sets_up_once_and_forwards_arguments(folder: Path) -> None:
    env = fake_uv(folder, FAKE_PYTHON)
    status, said = run(folder, env=env)
    assert status == 0
    assert "Setting up" in said
    assert said.endswith("called with -P -m labkit.cli lab\n")
    status, said = run(folder, "grade", "two words", "--out", "x", env=env)
    assert (status, said) == (0, "called with -P -m labkit.cli grade two words --out x\n")
    assert (folder / "calls").read_text() == "sync --frozen --inexact\n"


@POSIX
def test_options_alone_belong_to_lab(folder: Path) -> None:
    assert run(folder, "--fresh", "03", env=fake_uv(folder, FAKE_PYTHON))[1].endswith("labkit.cli lab --fresh 03\n")


@POSIX
def test_more_is_installed_when_a_command_needs_more_and_never_less(folder: Path) -> None:
    env = fake_uv(folder, FAKE_PYTHON)
    for command in ("lab", "test", "lab", "build", "test"):
        run(folder, command, env=env)
    assert (folder / "calls").read_text().splitlines() == [
        "sync --frozen --inexact",
        "sync --frozen --inexact --extra test",
        "sync --frozen --inexact --extra authors --extra test",
    ]


@POSIX
@pytest.mark.parametrize("changed", ["pyproject.toml", "uv.lock"])
def test_a_changed_declaration_is_installed_again(folder: Path, changed: str) -> None:
    env = fake_uv(folder, FAKE_PYTHON)
    run(folder, env=env)
    with (folder / changed).open("a") as file:
        file.write("\n# one line more\n")
    run(folder, env=env)
    assert len((folder / "calls").read_text().splitlines()) == 2


@POSIX
def test_a_moved_folder_is_set_up_again(folder: Path) -> None:
    env = fake_uv(folder, FAKE_PYTHON)
    run(folder, env=env)
    moved = folder.rename(folder.with_name("moved"))
    assert "Setting up" in run(moved, env=fake_uv(moved, FAKE_PYTHON))[1]


@POSIX
def test_a_failed_set_up_is_tried_again(folder: Path) -> None:
    assert run(folder, env=fake_uv(folder, "exit 7"))[0] == 1
    assert run(folder, env=fake_uv(folder, FAKE_PYTHON))[0] == 0


@POSIX
def test_the_command_decides_the_exit_status(folder: Path) -> None:
    env = fake_uv(folder, FAKE_PYTHON.replace('echo "called with $@"', "exit 3"))
    assert run(folder, env=env)[0] == 3


def test_help_installs_nothing(folder: Path) -> None:
    status, said = run(folder, "--help")
    assert status == 0
    assert "start.py test" in said
    assert not (folder / ".venv").exists()


# What goes wrong


def test_old_pythons_can_read_it() -> None:
    source = (ROOT / "start.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 7))
    assert source.isascii(), "old Windows consoles"


def pretend(folder: Path, preparation: str) -> tuple[int, str]:
    """Run start.py without uv in an interpreter that was changed a little first."""
    code = f"import sys, runpy; {preparation}; sys.argv = ['start.py']; runpy.run_path('start.py', run_name='__main__')"
    env = {**clean_environment(), "LABKIT_NO_UV": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_too_old_python_is_named_with_a_way_out(folder: Path) -> None:
    status, said = pretend(folder, "sys.version_info = (3, 8, 18, 'final', 0)")
    assert status == 1
    assert "This is Python 3.8; the workbook needs Python 3.11 or newer." in said
    assert "Traceback" not in said


def test_missing_venv_module_names_the_package(folder: Path) -> None:
    status, said = pretend(folder, "sys.modules['ensurepip'] = None")
    assert status == 1
    assert "sudo apt install python3-venv" in said
    assert f"python3.{sys.version_info[1]}-venv" in said
    assert "Traceback" not in said


def test_read_only_folder(folder: Path) -> None:
    # Root may write anywhere, so the refusal is played instead of asking for it with chmod.
    refuse = "(_ for _ in ()).throw(OSError(30, 'Read-only file system'))"
    status, said = pretend(folder, f"import tempfile; tempfile.TemporaryFile = lambda dir: {refuse}")
    assert status == 1
    assert "Cannot write into" in said
    assert "Copy the whole folder" in said
    assert "Traceback" not in said
    assert not (folder / ".venv").exists()


def test_no_network_with_pip(folder: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    status, said = run(folder, env={**clean_environment(), **nowhere, "LABKIT_NO_UV": "1"})
    assert status == 1
    assert "no network" in said
    assert "Traceback" not in said


def test_wheels_for_another_system(folder: Path) -> None:
    (folder / "wheels").mkdir()
    status, said = run(folder, env={**clean_environment(), "PIP_CONFIG_FILE": os.devnull})
    assert status == 1
    assert "no package that fits this system" in said


@POSIX
@pytest.mark.parametrize(
    ("last_words", "advice"),
    [
        ("error: error sending request for url (https://pypi.org/simple/numpy/)", "no network"),
        ("  Caused by: dns error: failed to lookup address information", "no network"),
        ("Failed to establish: [Errno -3] Temporary failure in name resolution", "no network"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("error: Permission denied (os error 13)", "cannot be written"),
        ("error: something never seen before", "Setting up did not work"),
    ],
)
def test_an_installers_last_words_become_advice(folder: Path, last_words: str, advice: str) -> None:
    status, said = run(folder, env=fake_uv(folder, f"echo '{last_words}' >&2; exit 2"))
    assert status == 1
    assert advice in said
    assert last_words.strip() in said
    assert not (folder / ".venv" / "labkit-setup.json").exists()


# The two routes


def test_a_broken_uv_is_passed_over(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = noted_commands(start, monkeypatch, uv_works=False)
    start.install(["test"])
    assert commands[0][1:4] == ["-m", "venv", "--clear"]
    assert commands[1][1:4] == ["-m", "pip", "install"]
    assert commands[1][-2:] == ["--editable", ".[test]"]


def test_a_wheels_folder_replaces_the_network(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    start.WHEELS.mkdir()
    commands = noted_commands(start, monkeypatch, uv_works=True)
    start.install([])
    assert "uv" not in [command[0] for command in commands]
    assert commands[1][commands[1].index("--no-index") :][:3] == ["--no-index", "--find-links", str(start.WHEELS)]
    assert commands[1][-2:] == ["--editable", "."]


def noted_commands(start: ModuleType, monkeypatch: pytest.MonkeyPatch, uv_works: bool) -> list[list[str]]:
    commands: list[list[str]] = []
    start.VENV.mkdir()
    monkeypatch.setattr(start, "run", lambda command, **_: commands.append(command))
    monkeypatch.setattr(start, "works", lambda command: command[0] == "uv" and uv_works)
    monkeypatch.setattr(start.shutil, "which", lambda name: f"/somewhere/{name}")
    return commands


def test_pip_gets_exactly_the_locked_versions(start: ModuleType) -> None:
    lines = start.locked_versions().splitlines()
    assert len(lines) > 100
    for python in ("3.11.2", "3.12.1", "3.14.0"):
        environment = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
        chosen = [Requirement(line) for line in lines]
        names = [each.name for each in chosen if not each.marker or each.marker.evaluate(environment)]
        assert len(names) == len(set(names)), f"two versions of one package on Python {python}"
        assert {"numpy", "jupyterlab", "pytest"} <= set(names)


def test_windows_keeps_its_python_elsewhere(start: ModuleType) -> None:
    assert start.venv_python(windows=True) == start.VENV / "Scripts" / "python.exe"
    assert start.venv_python(windows=False) == start.VENV / "bin" / "python"
