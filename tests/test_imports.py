"""Imports go one way, heavy packages stay where they belong, and `import labkit` stays cheap: read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSIDE = ROOT / "labkit" / "grading" / "inside"
FILES = sorted(path for path in (ROOT / "labkit").rglob("*.py"))

# Of two modules in one line the right one never imports from the left one's right-hand neighbours, and so on up.
CHAINS = [
    ["errors", "exact"],
    ["errors", "attention", "masks", "heads", "steps", "slips", "functions", "exercises", "checks", "grading"],
    ["errors", "attention", "masks", "transformer", "panels"],
    ["attention", "audit", "maps"],
    ["attention", "figures", "model_figures"],
    ["checks", "authoring"],
    ["workspace", "cli"],
]
CONFINED = {
    "numpy": None,  # anywhere but in `exact`, `errors` and what runs before NumPy is installed
    "matplotlib": {"figures", "grading"},
    "ipywidgets": {"panels"},
    "anywidget": {"panels"},
    "traitlets": {"panels"},
    "IPython": {"figures", "panels", "kernel", "verdict", "journal"},
    "nbformat": {"authoring"},
    "nbclient": {"authoring"},
    "jupytext": {"authoring"},
    "yaml": {"authoring"},
}
WITHOUT_NUMPY = {"errors", "exact", "cli", "workspace", "doctor", "testing", "journal", "feedback"}


def part_of(path: Path) -> str:
    """Name the module or package directly under labkit that a file belongs to."""
    return path.relative_to(ROOT / "labkit").parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    """List every module a file imports, inside functions too, with `from labkit import x` as labkit.x."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if path.parent == INSIDE and node.level == 1:  # in the sandbox these files are a package of their own
                continue
            assert node.level == 0, f"{path} uses a relative import"
            module = node.module or ""
            found += [f"labkit.{alias.name}" for alias in node.names] if module == "labkit" else [module]
    return found


def graph() -> dict[str, set[str]]:
    edges: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        parts = {name.split(".")[1] for name in imports(path) if name.startswith("labkit.")}
        edges[part_of(path)] |= parts - {part_of(path)}
    return edges


GRAPH = graph()


def reaches(start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for part in GRAPH[waiting.pop()] - seen:
            seen.add(part)
            waiting.append(part)
    return seen


def test_there_is_no_circle() -> None:
    assert len(list(TopologicalSorter(GRAPH).static_order())) >= 20


@pytest.mark.parametrize("chain", CHAINS, ids=" ← ".join)
def test_imports_go_one_way(chain: list[str]) -> None:
    for k, part in enumerate(chain):
        assert (ROOT / "labkit" / part).exists() or (ROOT / "labkit" / f"{part}.py").exists(), part
        assert not reaches(part) & set(chain[k + 1 :]), part


def test_core_modules_rest_on_the_core_alone() -> None:
    assert GRAPH["exact"] == {"errors"}
    assert GRAPH["errors"] == set()
    assert GRAPH["attention"] == {"errors"}
    assert reaches("transformer") <= {"errors", "attention", "masks", "heads"}


def test_nothing_rests_on_authoring_and_the_command() -> None:
    for part in GRAPH.keys() - {"authoring", "cli", "testing", "__init__"}:
        assert not GRAPH[part] & {"authoring", "cli"}, part


@pytest.mark.parametrize("package", CONFINED)
def test_packages_stay_where_they_belong(package: str) -> None:
    users = {part_of(path) for path in FILES if any(name.split(".")[0] == package for name in imports(path))}
    allowed = CONFINED[package]
    stray = users & WITHOUT_NUMPY if allowed is None else users - allowed
    assert not stray


def test_exact_is_standard_library_only() -> None:
    roots = {name.split(".")[0] for name in imports(ROOT / "labkit" / "exact.py")}
    assert roots <= set(sys.stdlib_module_names) | {"labkit"}


def test_what_runs_beside_student_code_knows_nothing_of_labkit() -> None:
    files = sorted(INSIDE.glob("*.py"))
    assert len(files) >= 3
    for path in files:
        assert {name.split(".")[0] for name in imports(path)} <= set(sys.stdlib_module_names) | {"numpy"}, path
    for path in set(FILES) - set(files):
        assert not any("inside" in name.split(".") for name in imports(path)), path


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_exact_works_where_numpy_does_not_exist() -> None:
    code = """
import sys
sys.modules["numpy"] = None  # importing it now fails
from labkit import exact
print(exact.worked_example().weights[2], exact.fresh_example(1).dots)
"""
    assert run(code).startswith("[Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]")


def test_import_labkit_costs_numpy_at_most() -> None:
    heavy = "matplotlib ipywidgets anywidget IPython nbformat nbclient jupytext traitlets jsonschema yaml"
    code = f"import sys, labkit; labkit.attend, labkit.check; print([m for m in '{heavy}'.split() if m in sys.modules])"
    assert run(code).strip() == "[]"
    assert run("import sys, labkit; print('numpy' in sys.modules)").strip() == "False"


def test_figures_import_nothing_heavy_before_they_show() -> None:
    code = "import sys, labkit.figures; print([m for m in ('matplotlib', 'IPython') if m in sys.modules])"
    assert run(code).strip() == "[]"
