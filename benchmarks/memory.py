"""Memory a learner takes on a shared host: one JupyterLab server, and the kernel of each lesson, all cells run.

python benchmarks/memory.py        Linux only: reads /proc
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Print one Markdown table."""
    os.environ |= {"LABKIT_JOURNAL": "off", "JUPYTER_PREFER_ENV_PATH": "1"}
    names = ", ".join(f"{name} {version(name)}" for name in ("jupyterlab", "ipykernel", "numpy", "matplotlib"))
    print(f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, {names}\n")
    print("| process | MB |\n|---|---|")
    print(f"| JupyterLab server, one lesson open | {server():.0f} |")
    for lesson in sorted((ROOT / "notebooks").glob("*.ipynb")):
        print(f"| kernel of {lesson.stem} | {kernel(lesson):.0f} |", flush=True)


def megabytes(pid: int) -> float:
    """Return a process's resident memory, an upper limit: pages that it shares are counted in full."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def server() -> float:
    """Return the server's memory with one lesson asked for."""
    with serving() as child:
        return megabytes(child.pid)


@contextlib.contextmanager
def serving() -> Iterator[subprocess.Popen[bytes]]:
    """Serve the lessons; enter once JupyterLab's page, a notebook and the settings have been read from it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "lesson.ipynb").write_bytes((ROOT / "notebooks" / "03_masks.ipynb").read_bytes())
        flags = [
            f"--port={port}",
            f"--ServerApp.root_dir={folder}",
            "--IdentityProvider.token=",
            "--no-browser",
            "--allow-root",
        ]
        child = subprocess.Popen([sys.executable, "-m", "jupyterlab", *flags], stderr=subprocess.DEVNULL)
        try:
            for page in ("lab", "api/contents/lesson.ipynb", "lab/api/settings"):
                fetch(f"http://127.0.0.1:{port}/{page}")
            yield child
        finally:
            child.terminate()
            child.wait()


def fetch(address: str, seconds: float = 120) -> None:
    """Read a page as soon as the server is there."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                answer.read()
            return
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)


def kernel(lesson: Path) -> float:
    """Run a lesson from top to bottom and return its kernel's memory."""
    notebook = nbformat.read(lesson, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import os; print(os.getpid())"))
    client = NotebookClient(notebook, kernel_name="python3", timeout=300)
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        return megabytes(int(notebook.cells[-1].outputs[0].text))


if __name__ == "__main__":
    main()
