"""A JupyterLab of one's own and the system's Chromium that visits it, for tests and benchmarks.

`lab.write("name", cells)` makes a notebook, `lab.open("name")` opens it and `Notebook` drives it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAB_FLAGS = [
    "--no-browser",
    "--allow-root",
    "--ip=127.0.0.1",
    "--IdentityProvider.token=",
    "--ServerApp.password=",
    "--ServerApp.disable_check_xsrf=True",
    "--ServerApp.terminals_enabled=False",
    "--LabApp.expose_app_in_browser=True",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]
QUIET = {"fetchNews": "false", "checkForUpdates": False}  # no question about news over the page
EMPTY: dict[str, Any] = {"metadata": {}, "outputs": [], "execution_count": None}
READY = """() => { const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === 'idle' && panel.content?.widgets?.length > 0; }"""
RESTS = """() => [...window.jupyterapp.shell.currentWidget.content.widgets].every(cell =>
  cell.model.type !== 'code' || cell.model.executionState === 'idle')"""
CELLS = """() => [...window.jupyterapp.shell.currentWidget.model.cells].map((cell, index) => ({
  index, source: cell.sharedModel.getSource(), outputs: cell.type === 'code' ? cell.outputs.toJSON() : [],
  exercise: '', role: '', ...cell.getMetadata('labkit') }))"""
TYPE = """sources => { const { cells } = window.jupyterapp.shell.currentWidget.model;
  for (const [i, source] of Object.entries(sources)) cells.get(Number(i)).sharedModel.setSource(source); }"""
DRAW = """async () => { const { content } = window.jupyterapp.shell.currentWidget;
  for (const [i, cell] of content.widgets.entries()) if (cell.isPlaceholder()) await content.scrollToItem(i, 'start');
  content.notebookConfig = { ...content.notebookConfig, windowingMode: 'none' }; }"""
DRAWN = """() => { const { widgets } = window.jupyterapp.shell.currentWidget.content;
  return widgets.every(cell => cell.node.isConnected && !cell.isPlaceholder()); }"""
WEARS = """light => document.body.dataset.jpThemeLight === light
  && !document.querySelector('#jupyterlab-splash')"""  # JupyterLab covers the page while it changes
AXE = """async ([content, rules]) => (await axe.run(content, { resultTypes: ['violations'], ...rules })).violations
  .filter(({ impact }) => ['serious', 'critical'].includes(impact))
  .flatMap(({ id, nodes }) => nodes.map(node => `${id}: ${node.target} ${node.html} ${node.failureSummary}`))"""
RUN = """async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  let text = '';
  const future = kernel.requestExecute({ code, store_history: false });
  future.onIOPub = ({ header, content }) => {
    if (header.msg_type === 'stream') text += content.text;
    if (header.msg_type === 'error') text += content.traceback.join('\\n');
  };
  await future.done;
  return text;
}"""


@dataclass
class Notebook:
    """One notebook in the browser, with everything that went wrong on its page."""

    page: Any
    errors: list[str] = field(default_factory=list)

    def command(self, name: str, **options: object) -> None:
        """Run one of JupyterLab's own commands."""
        run = "async ([name, options]) => { await window.jupyterapp.commands.execute(name, options); }"
        self.page.evaluate(run, [name, options])

    def cells(self) -> list[dict[str, Any]]:
        """Give every cell: its index, source, outputs, and the exercise and role labkit marked it with."""
        found: list[dict[str, Any]] = self.page.evaluate(CELLS)
        return found

    def type(self, sources: dict[int, str]) -> None:
        """Put a source into each of these cells."""
        self.page.evaluate(TYPE, {str(i): source for i, source in sources.items()})

    def failures(self) -> list[str]:
        """Collect the errors that stand in the outputs."""
        outputs = [output for cell in self.cells() for output in cell["outputs"]]
        return [output["evalue"] for output in outputs if output["output_type"] == "error"]

    def run_all(self, timeout: float = 60_000) -> None:
        """Run every cell and wait until the kernel rests."""
        self.command("notebook:run-all-cells")
        self.rest(timeout)

    def rest(self, timeout: float = 60_000) -> None:
        """Wait until no cell is waiting or running."""
        self.page.wait_for_function(RESTS, timeout=timeout)
        self.page.wait_for_function(READY)

    def restart_and_run_all(self, timeout: float = 60_000) -> None:
        """Restart the kernel without the question whether to, then run every cell.

        Outputs are cleared first: drawing a widget whose model went with the kernel is an error of JupyterLab's own.
        """
        self.command("notebook:clear-all-cell-outputs")
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.page.wait_for_function(READY)
        self.run_all(timeout)

    def draw_all(self) -> None:
        """Scroll to whatever JupyterLab has not drawn yet, and keep all of it drawn."""
        self.page.evaluate(DRAW)
        self.page.wait_for_function(DRAWN)

    def save(self) -> None:
        """Save the notebook to its file."""
        self.command("docmanager:save")
        self.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.model.dirty")

    def reload(self) -> None:
        """Load the page again; the kernel stays."""
        self.page.reload(wait_until="domcontentloaded")
        self.page.wait_for_function(READY)

    def use_theme(self, theme: str) -> None:
        """Change JupyterLab's theme and wait until the page wears it."""
        self.command("apputils:change-theme", theme=theme)
        self.page.wait_for_function(WEARS, arg=str("Light" in theme).lower())

    def serious_violations(self, content: str, only: str = "") -> list[str]:
        """Let axe, which the page must have loaded, look at whatever matches a selector, by all rules or only one."""
        rules = {"runOnly": [only]} if only else {}
        found: list[str] = self.page.evaluate(AXE, [content, rules])
        return found

    def kernel(self, code: str) -> str:
        """Run code beside the notebook and return what it printed."""
        return str(self.page.evaluate(RUN, code))

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the kernel, by way of JSON."""
        return json.loads(self.kernel(f"import json, numpy as np\nprint(json.dumps({expression}))"))

    def trait(self, expression: str) -> Any:
        """Return an array in the kernel as nested lists."""
        return self.value(f"np.asarray({expression}).tolist()")


@dataclass
class Lab:
    """A running JupyterLab and the browser that visits it."""

    url: str
    root: Path
    browser: Any
    opened: list[Any] = field(default_factory=list)

    def write(self, name: str, cells: Sequence[str]) -> None:
        """Write a notebook of code cells."""
        notebook = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{i}",
                    "metadata": {},
                    "source": source,
                    "outputs": [],
                    "execution_count": None,
                }
                for i, source in enumerate(cells)
            ],
        }
        (self.root / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")

    def open(self, name: str, *, width: int = 1400, height: int = 1000, **context: Any) -> Notebook:
        """Open a notebook of the root folder in a page of its own and wait for its kernel."""
        visit = self.browser.new_context(viewport={"width": width, "height": height}, **context)
        self.opened.append(visit)
        page = visit.new_page()
        page.set_default_timeout(60_000)
        notebook = Notebook(page)
        page.on("pageerror", lambda error: notebook.errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and notebook.errors.append(message.text))
        page.goto(f"{self.url}/lab/tree/{name}.ipynb?reset", wait_until="domcontentloaded")
        page.wait_for_function(READY)
        page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
        return notebook

    def close_pages(self) -> None:
        """Stop the kernels and close the pages of a test."""
        for session in json.loads(urllib.request.urlopen(f"{self.url}/api/sessions").read()):
            request = urllib.request.Request(f"{self.url}/api/sessions/{session['id']}", method="DELETE")
            urllib.request.urlopen(request).close()
        while self.opened:
            self.opened.pop().close()


@contextmanager
def chromium() -> Iterator[Any]:
    """Run the system's Chromium; Playwright must not bring a browser of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=CHROMIUM, headless=False, ignore_default_args=["--enable-automation"], args=CHROMIUM_FLAGS
        )
        yield running
        running.close()


@contextmanager
def jupyterlab(browser: Any, folder: Path) -> Iterator[Lab]:
    """Serve `folder/notebooks` without settings, data or journal of whoever runs this."""
    root, own = folder / "notebooks", folder / "jupyter"
    quiet = own / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    for place in (root, quiet.parent):
        place.mkdir(parents=True)
    quiet.write_text(json.dumps(QUIET), encoding="utf-8")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LABKIT", "JUPYTER", "NBGRADER"))}
    env |= {f"JUPYTER_{kind}_DIR": str(own / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    env |= {"JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"), "JUPYTERLAB_SETTINGS_DIR": str(own / "settings")}
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", f"--port={port}", f"--ServerApp.root_dir={root}", *LAB_FLAGS]
    with open(own / "log", "wb") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=root)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: urllib.request.urlopen(f"{url}/api/status", timeout=1).close())
        yield Lab(url, root, browser)
    finally:
        server.terminate()
        server.wait(20)


def free_port() -> int:
    """Ask the system for a port nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(attempt: Callable[[], None], seconds: float = 60) -> None:
    """Repeat until it raises no OSError any more."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)
