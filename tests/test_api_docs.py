"""docs/api.md is what the docstrings say, and every public name says something."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_docs", ROOT / "tools" / "api_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


api_docs = load()


def test_the_page_is_fresh() -> None:
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == "\n".join(api_docs.lines()) + "\n"


@pytest.mark.parametrize("module", api_docs.MODULES)
def test_every_public_name_has_one_sentence(module: str) -> None:
    tree = ast.parse((ROOT / "labkit" / f"{module}.py").read_text(encoding="utf-8"))
    silent = [node.name for node in api_docs.public(tree.body) if "." not in (ast.get_docstring(node) or "")]
    assert silent == []


def test_a_new_function_shows_up() -> None:
    [node] = ast.parse('def f(a: int) -> int:\n    """Give a.\n\n    >>> f(1)\n    1\n    """').body
    assert list(api_docs.entry(node, 3)) == [
        "", "### `f`", "", "```python", "f(a: int) -> int", "```", "", "Give a.\n\n```pycon\n>>> f(1)\n1\n```",
    ]  # fmt: skip
