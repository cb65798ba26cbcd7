#!/usr/bin/env python3
"""Set up the attention workbook and open it.

    python3 start.py                 set up (the first time), then open the lessons in JupyterLab
    python3 start.py --no-browser    the same, with options of `labkit lab`
    python3 start.py test            set up what the tests need as well, then run them all
    python3 start.py COMMAND ...     any other labkit command: doctor, build, grade, ...

Everything is installed into the folder .venv beside this file, and nowhere else: by uv when it is on
the PATH (LABKIT_NO_UV=1 forbids it), otherwise by Python's own venv and pip, in the versions named by
uv.lock. If a folder `wheels` stands beside this file, packages come from there and not from the network.
"""
# Standard library only. Old Pythons must be able to read this file, so that they can say they are too old.

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
WHEELS = ROOT / "wheels"
STAMP = VENV / "labkit-setup.json"  # what was installed, and from which declaration
OLDEST = (3, 11)
EXTRAS = {"test": "test", "build": "authors"}  # commands that need more than the lessons do

NETWORK_WORDS = (
    "name resolution", "name or service", "getaddrinfo", "dns error", "failed to fetch", "error sending request",
    "connection refused", "network is unreachable", "could not connect", "proxyerror", "from versions: none",
)  # fmt: skip


class SetupError(Exception):
    """Something the person at the keyboard can mend; the message says how."""


def main(argv: list[str]) -> int:
    """Set up whatever is missing, then become the labkit command."""
    if argv[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    command = ["lab", *argv] if not argv or argv[0].startswith("-") else argv
    try:
        set_up(EXTRAS.get(command[0], ""))
    except SetupError as problem:
        print("\n" + str(problem), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to go on.", file=sys.stderr)
        return 130
    # -P keeps the current folder off the import path: a learner's own numpy.py must not be imported.
    return become([str(venv_python()), "-P", "-m", "labkit.cli", *command])


def set_up(extra: str) -> None:
    """Install what pyproject.toml declares, unless the stamp says that this has been done."""
    stamp = read_stamp()
    extras = sorted({extra, *stamp.get("extras", ())} - {""})
    wanted = {"declared": fingerprint(), "folder": str(ROOT), "extras": extras}
    if stamp == wanted and venv_python().exists():
        return
    check_writable()
    print(f"Setting up the workbook in {VENV} (once; a minute or so) ...", flush=True)
    started = time.monotonic()
    install(extras)
    STAMP.write_text(json.dumps(wanted), encoding="utf-8")
    print(f"Ready after {time.monotonic() - started:.0f} s.", flush=True)


def install(extras: list[str]) -> None:
    """Fill .venv with the locked packages: uv where there is one, otherwise venv and pip."""
    if shutil.which("uv") and works(["uv", "--version"]) and not WHEELS.is_dir() and not os.environ.get("LABKIT_NO_UV"):
        chosen = [word for extra in extras for word in ("--extra", extra)]
        run(["uv", "sync", "--frozen", "--inexact", *chosen], UV_PROJECT_ENVIRONMENT=str(VENV))
        return
    check_python()
    if not works([str(venv_python()), "-c", f"import pip, sys; assert sys.version_info >= {OLDEST}"]):
        run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    constraints = VENV / "constraints.txt"
    constraints.write_text(locked_versions(), encoding="utf-8")
    source = ["--no-index", "--find-links", str(WHEELS)] if WHEELS.is_dir() else []
    target = f".[{','.join(extras)}]" if extras else "."
    pip = [str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    run([*pip, *source, "--constraint", str(constraints), "--editable", target])


def locked_versions() -> str:
    """Return uv.lock as pip constraints, so that both routes install the same versions."""
    import tomllib  # Python 3.11 and newer only; older ones have been refused by now

    lines = []
    for package in tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]:
        if "registry" in package["source"]:
            markers = " or ".join(f"({marker})" for marker in package.get("resolution-markers", []))
            lines.append(f"{package['name']}=={package['version']}" + (f" ; {markers}\n" if markers else "\n"))
    return "".join(lines)


def check_python() -> None:
    """Refuse a Python that is too old or lacks its venv module, and say what to install."""
    major, minor = sys.version_info[:2]
    if (major, minor) < OLDEST:
        raise SetupError(
            f"This is Python {major}.{minor}; the workbook needs Python {OLDEST[0]}.{OLDEST[1]} or newer.\n"
            "Install a newer one from https://www.python.org/downloads/ and start with it, for example:\n"
            "    python3.13 start.py\n"
            "or install uv (https://docs.astral.sh/uv/), which brings its own Python, and run this again."
        )
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            "This Python comes without its venv module. On Debian and Ubuntu install it with\n"
            "    sudo apt install python3-venv\n"
            f"(or python{major}.{minor}-venv), then run this again."
        )


def check_writable() -> None:
    """Refuse a read-only folder before anything is half done."""
    try:
        with tempfile.TemporaryFile(dir=str(ROOT)):
            pass
    except OSError as error:
        raise SetupError(
            f"Cannot write into {ROOT}: {error.strerror}.\n"
            "Copy the whole folder to a place that is yours, for example your home folder, and start it there."
        ) from error


def run(command: list[str], **environment: str) -> None:
    """Run an installer, showing what it is at on one line; on failure raise with the reason and its last words."""
    clean = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    child = subprocess.Popen(
        command, cwd=str(ROOT), env={**clean, **environment}, text=True, encoding="utf-8", errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    last: deque[str] = deque(maxlen=100)
    with child:
        for line in child.stdout or ():
            last.append(line.rstrip())
            if sys.stdout.isatty() and line.strip():
                print("\r  " + line.strip().encode("ascii", "replace").decode()[:76].ljust(76), end="", flush=True)
    if sys.stdout.isatty():
        print("\r" + " " * 79, end="\r", flush=True)
    if child.returncode:
        raise SetupError(explain(list(last), " ".join(command)))


def explain(output: list[str], command: str) -> str:
    """Turn an installer's last words into advice."""
    said = "\n".join(output).lower()
    if "no space left" in said or "disk quota" in said:
        advice = "The disk is full. The workbook needs about 500 MB; make room and run this again."
    elif WHEELS.is_dir() and "no matching distribution" in said:
        advice = (
            "The folder `wheels` holds no package that fits this system and this Python. Make the bundle again\n"
            "with `labkit bundle --wheels FOLDER --platform ... --python ...`, or delete `wheels` to use the network."
        )
    elif any(word in said for word in NETWORK_WORDS):
        advice = (
            "The packages could not be fetched: no network, or pypi.org cannot be reached from here.\n"
            "Connect and run this again; what is already there is kept. For machines that never have a network,\n"
            "`labkit bundle --wheels FOLDER` on another machine makes a copy that installs without one."
        )
    elif "permission denied" in said or "read-only file system" in said:
        advice = "A file in this folder cannot be written. Copy the folder to a place that is yours and start it there."
    else:
        advice = "Setting up did not work. If the reason below does not help, delete the folder .venv and try again."
    return "\n".join([advice, "", f"The last lines of `{command}` were:", *output[-12:]])


def fingerprint() -> str:
    """Return one hash over the files that declare what is installed."""
    declared = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "uv.lock")]
    return hashlib.sha256(b"\0".join(declared)).hexdigest()


def read_stamp() -> dict[str, Any]:
    """Return what the last complete set-up noted; empty when there was none."""
    try:
        found = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def venv_python(windows: bool = os.name == "nt") -> Path:
    """Return where the environment's Python stands on this system."""
    return VENV / "Scripts" / "python.exe" if windows else VENV / "bin" / "python"


def works(command: list[str]) -> bool:
    """Tell whether a command exists and succeeds; a shim of uv for another Python, for instance, does not."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def become(command: list[str]) -> int:
    """Hand this process over to the command; Windows has no such thing, so wait for it there."""
    if os.name != "nt":
        os.execv(command[0], command)
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
