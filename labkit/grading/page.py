"""One frame for every page of a graded class: self-contained, nothing loaded, everything from outside escaped.

The content security policy forbids scripts, pictures from elsewhere, forms that go somewhere and frames. The class
report allows one script of ours, named by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape

from labkit.grading.text import visible, visible_lines

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6472; --line: #d9dee6; --card: #fff; --page: #f5f6f8;
  --good: #1d7a3e; --bad: #b3402a; --wait: #2f63a8; --link: #1d5fbf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #a4adba; --line: #3a4350; --card: #1c222b;
  --page: #12161c; --good: #62c489; --bad: #f0937c; --wait: #8db9f2; --link: #8db9f2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3, h4 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
h2 ~ h3 { margin: 1rem 0 .3rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
.soft { color: var(--soft); }
.warning { border: 2px solid var(--bad); border-radius: .5rem; padding: .5rem .8rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-left: .35rem solid var(--line);
  border-radius: .5rem; padding: .7rem .9rem; margin: .7rem 0; break-inside: avoid; }
.right { border-left-color: var(--good); } .wrong { border-left-color: var(--bad); }
.wait { border-left-color: var(--wait); }
.head { display: flex; flex-wrap: wrap; gap: .2rem .8rem; justify-content: space-between; align-items: baseline; }
.points { font-variant-numeric: tabular-nums; }
pre { margin: .4rem 0; padding: .5rem .7rem; background: var(--page); border: 1px solid var(--line);
  border-radius: .35rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .875rem; }
pre.words { font: inherit; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; background: var(--card); font-size: .9375rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0; } figcaption { color: var(--soft); font-size: .9rem; }
figure svg, figure img { max-width: 100%; height: auto; display: block; background: #fff; border-radius: .5rem; }
textarea, input { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--soft);
  border-radius: .3rem; padding: .2rem .4rem; max-width: 100%; }
input { margin: 0 .3rem; }
textarea { display: block; width: 100%; }
button { font: inherit; padding: .4rem .9rem; border-radius: .4rem; border: 1px solid var(--link); cursor: pointer;
  background: var(--link); color: var(--card); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
summary { cursor: pointer; color: var(--link); padding: .4rem 0; }
.bar { position: sticky; bottom: 0; padding: .6rem 0; background: var(--page); }
@media (max-width: 40rem) { thead { position: absolute; width: 1px; height: 1px;
  overflow: hidden; clip-path: inset(50%); display: block; } tr { display: block;
  padding: .4rem 0; border-bottom: 1px solid var(--line); } td, td.number { display: flow-root;
  padding: .1rem .6rem .1rem 8rem; border: 0; text-align: left; white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-name); color: var(--soft); float: left; width: 7rem; margin-left: -7.4rem; } }
@media print { tr, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
  body { background: #fff; color: #000; } .card, table { background: #fff; } .screen { display: none; } }
"""


def page(title: str, body: Iterable[str], script: str = "") -> str:
    """Put trusted HTML into the frame; `title` is text, `script` is our own and is allowed by its hash."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="referrer" content="no-referrer"><title>{text(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><main>\n{chr(10).join(body)}\n</main>{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def text(value: object, cap: int = 2000) -> str:
    """Show text from anywhere on one line: escaped, without characters that act.

    >>> text("<b>\\u202etxt")
    '&lt;b&gt;\\\\u202etxt'
    """
    return escape(visible(str(value), cap))


def block(value: str, cap: int = 4000, *, words: bool = False) -> str:
    """Show text from anywhere with its lines: code, or words as people write them."""
    look = ' class="words"' if words else ""
    return f"<pre{look}>{escape(visible_lines(value, cap))}</pre>" if value.strip() else ""


def prose(value: str, cap: int = 2000) -> str:
    """Show a sentence of labkit's, with what stands between backticks as code.

    >>> prose("`allowed` <b>")
    '<code>allowed</code> &lt;b&gt;'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text(value, cap))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = (), label: str = "") -> str:
    """Lay trusted HTML cells out; the columns in `numeric` are set right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        aligned = ["" if place not in numeric else ' class="number"' for place in range(len(row))]
        named = ["" if tag == "th" else f' data-name="{text(name)}"' for name in header]
        return "".join(f"<{tag}{scope}{a}{b}>{c}</{tag}>" for a, b, c in zip(aligned, named, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    named = f' role="region" tabindex="0" aria-label="{text(label)}"' if label else ""
    head = f"<thead><tr>{cells('th', header)}</tr></thead>"
    return f'<div class="scroll"{named}><table>{head}<tbody>{body}</tbody></table></div>'


def number(value: float | None) -> str:
    """Write a number of points without useless digits.

    >>> number(2.0), number(1.25), number(None)
    ('2', '1.25', '–')
    """
    return "–" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")
