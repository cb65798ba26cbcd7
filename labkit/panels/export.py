"""Web pages on which panels stay alive without kernel or network: the front-end is written into the page."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

from labkit.panels.panel import Panel, asset


def enliven(page: str) -> str:
    """Bring the panels of an exported notebook page alive.

    Every figure that a panel left in the page is replaced by the working panel when the page is opened:
    `jupyter nbconvert --to html lesson.ipynb`, then read, enliven and write `lesson.html`.
    """
    # A module's source as JSON text inside a script: "</" would end the script element.
    module = json.dumps(asset("panel.mjs")).replace("</", "<\\/")
    script = (
        f"<style>{asset('panel.css')}</style>"
        f'<script type="module">const {{ standalone }} = await import(URL.createObjectURL(new Blob([{module}], '
        '{ type: "text/javascript" })));'
        'for (const figure of document.querySelectorAll("figure[data-labkit]")) {'
        'const place = document.createElement("div");'
        "standalone(place, JSON.parse(figure.dataset.labkit)); figure.replaceWith(place); }</script>"
    )
    before, end, after = page.rpartition("</body>")
    return before + script + end + after if end else page + script


def export_html(panels: Panel | Sequence[Panel], path: str | Path, title: str = "Attention panels") -> Path:
    """Write one self-contained page with working panels and return its path."""
    together = [panels] if isinstance(panels, Panel) else list(panels)
    figures = "".join(panel._repr_mimebundle_()[0]["text/html"] for panel in together)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title></head>"
        f'<body style="margin:2rem auto;max-width:60rem;padding:0 1rem"><main>{figures}</main></body></html>'
    )
    path = Path(path)
    path.write_text(enliven(page), encoding="utf-8")
    return path
