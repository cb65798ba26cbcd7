"""Write docs/api.md from the docstrings: every public name of the modules that lessons and instructors import."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "api.md"
MODULES = (
    "attention", "masks", "heads", "exact", "errors", "checks", "verdict", "slips", "journal", "variants", "drills",
    "overview", "figures/maps", "figures/flow", "figures/charts", "model_figures", "panels/one_head",
    "panels/many_heads", "panels/scaling", "panels/gallery", "panels/trained", "panels/export", "transformer", "maps",
    "audit",
)  # fmt: skip
Named = ast.FunctionDef | ast.ClassDef


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    page = "\n".join(lines()) + "\n"
    if "--check" in sys.argv[1:]:
        fresh = TARGET.read_text(encoding="utf-8") == page
        print("docs/api.md is up to date" if fresh else "docs/api.md is stale: run tools/api_docs.py")
        return 0 if fresh else 1
    TARGET.write_text(page, encoding="utf-8", newline="\n")
    return 0


def lines() -> Iterator[str]:
    """Give the page line by line."""
    yield "# The public names of labkit"
    yield ""
    yield "Made by `tools/api_docs.py` from the docstrings; do not edit. Axis letters: `n` destinations, `m` sources,"
    yield "`d_model`, `d_k`, `d_v`, `H` heads. Every example is run as a test."
    for module in MODULES:
        tree = ast.parse((ROOT / "labkit" / f"{module}.py").read_text(encoding="utf-8"))
        yield from ("", f"## labkit.{module.split('/')[0]}", "", first_paragraph(tree))
        for node in public(tree.body):
            yield from entry(node, level=3)


def public(body: list[ast.stmt]) -> Iterator[Named]:
    """Give the functions and classes whose names have no underscore in front."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def entry(node: Named, level: int, owner: str = "") -> Iterator[str]:
    """Describe one name, and the methods of a class below it."""
    yield from ("", f"{'#' * level} `{owner}{node.name}`", "")
    if isinstance(node, ast.FunctionDef) and not node.decorator_list:  # a property has no call to show
        yield from ("```python", signature(node), "```", "")
    yield docstring(node)
    if isinstance(node, ast.ClassDef):
        for method in public(node.body):
            if isinstance(method, ast.FunctionDef):
                yield from entry(method, level + 1, f"{node.name}.")


def signature(node: ast.FunctionDef) -> str:
    """Write a function's head on one line."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def docstring(node: Named) -> str:
    """Give a docstring with its examples set as code."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        f"```pycon\n{paragraph}\n```" if paragraph.startswith(">>>") else paragraph for paragraph in paragraphs
    )


def first_paragraph(tree: ast.Module) -> str:
    """Give the first paragraph of a module's docstring."""
    return (ast.get_docstring(tree) or "").split("\n\n")[0]


if __name__ == "__main__":
    sys.exit(main())
