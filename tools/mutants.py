"""Break labkit in one place at a time and see whether the tests notice.

    python tools/mutants.py            eight mutants of every module below
    python tools/mutants.py --quick    three of each
    python tools/mutants.py --only masks --every 1    every mutant of one module

A mutant is one change to the syntax tree (`<` to `<=`, `+` to `-`, an axis, a refusal that no longer refuses …), made
in a copy of the project. It is killed when the tests that guard its module fail. A survivor is a hole in the tests, or
a change that changes nothing; the latter are listed in EQUIVALENT with the reason.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("labkit", "tests", "tools", "docs", "answer_keys", "pyproject.toml")
SECONDS = 120  # longer than any guard takes; a mutant that hangs is noticed too

# module -> the tests that guard it, the quickest first
GUARDS = {
    "attention": ["labkit/attention.py", "tests/test_attention.py", "tests/test_cases.py"],
    "masks": ["labkit/masks.py", "tests/test_masks.py"],
    "heads": ["labkit/heads.py", "tests/test_heads.py", "tests/test_cases.py"],
    "exact": ["labkit/exact.py", "tests/test_exact.py"],
    "answers": ["labkit/answers.py", "tests/test_answers.py"],
    "functions": ["labkit/functions.py", "tests/test_functions.py"],
    "steps": ["labkit/steps.py", "tests/test_steps.py", "tests/test_checks.py", "tests/test_slips.py"],
    "slips": ["labkit/slips.py", "tests/test_slips.py"],
    "exercises": ["labkit/exercises.py", "tests/test_checks.py", "tests/test_slips.py"],
    "checks": ["labkit/checks.py", "tests/test_checks.py"],
    "verdict": ["labkit/verdict.py", "tests/test_verdict.py"],
    "audit": ["labkit/audit.py", "tests/test_maps.py"],
    "maps": ["labkit/maps.py", "tests/test_maps.py"],
    "transformer": ["tests/test_transformer.py"],
}

# "module.function: statement: before -> after" of mutants that compute the same, and why
EQUIVALENT = {
    "exact._tells_slips_apart: wrong_outputs += [values, mix([normalise([1] * len(values))]: 1 -> 2": (
        "a row of equal numbers is normalised to the same shares"
    ),
    "answers._has_decimals: return bool((np.abs(scaled - np.round(scaled)) < 1e-06).all(: "
    "np.abs(scaled - np.round(scaled)) < 1e-06 -> np.abs(scaled - np.round(scaled)) <= 1e-06": (
        "rounding errors are never exactly the bound"
    ),
}
DRAWN = ("_draw", "_real", "_whole", "_size", "_shares", "_readable")  # random cases of steps: other draws do as well

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one module: where, and what a node of its syntax tree was and became."""

    module: str
    line: int
    name: str
    tree: ast.Module
    before: ast.AST
    after: ast.AST

    @property
    def source(self) -> str:
        """The whole module with the change."""
        return ast.unparse(replaced(self.tree, self.before, self.after))


def main(argv: list[str] | None = None) -> int:
    """Run the mutants; exit status 0 only when every one was killed."""
    options = parse(argv)
    started = time.monotonic()
    chosen = [mutant for module in options.only or GUARDS for mutant in choose(module, options.every)]
    with Trees(options.jobs) as trees:
        modules = sorted({mutant.module for mutant in chosen})
        if broken := [module for module in modules if not trees.passes(module)]:
            print(f"the tests of {', '.join(broken)} fail without any mutant")
            return 1
        with ThreadPoolExecutor(options.jobs) as pool:
            killed = list(pool.map(trees.kills, chosen))
    survivors = [mutant for mutant, dead in zip(chosen, killed, strict=True) if not dead]
    print(table(chosen, survivors))
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed in {time.monotonic() - started:.0f} s")
    return 1 if survivors else 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="tools/mutants.py", description=str(__doc__).split("\n")[0])
    parser.add_argument("--only", action="append", choices=GUARDS, help="this module only")
    parser.add_argument("--every", type=int, help="take every n-th mutant of a module (default: eight a module)")
    parser.add_argument("--quick", action="store_true", help="three mutants a module")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    options.every = options.every or (-3 if options.quick else -8)
    return options


def choose(module: str, every: int) -> list[Mutant]:
    """Return every so manyeth mutant of a module; a negative `every` is the number wanted.

    These are taken by a hash of their names, so that a change of one line does not change the choice everywhere.
    """
    found = [mutant for mutant in mutants(module) if mutant.name not in EQUIVALENT]
    if every > 0:
        return found[::every]
    return sorted(found, key=lambda mutant: hashlib.sha256(mutant.name.encode()).digest())[:-every]


def table(chosen: list[Mutant], survivors: list[Mutant]) -> str:
    """Return what happened, one line a module."""
    lines = []
    for module in dict.fromkeys(mutant.module for mutant in chosen):
        count, alive = (sum(mutant.module == module for mutant in group) for group in (chosen, survivors))
        lines.append(f"  {module:10} {count - alive:3} of {count:3} killed")
    return "\n".join(lines)


# Making mutants


def mutants(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its lines."""
    tree = ast.parse((ROOT / "labkit" / f"{module}.py").read_text(encoding="utf-8"))
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if module == "steps" and function.name.startswith(DRAWN):
            continue
        for statement, node in list(code(function)):
            for changed in changes(node):
                name = f"{module}.{function.name}: {shown(statement)}: {shown(node)} -> {shown(changed)}"
                yield Mutant(module, getattr(node, "lineno", 0), name, tree, node, changed)


def code(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Walk a function's own nodes, each with its statement: no annotations, messages, inner functions, `strict=`."""
    todo: list[tuple[ast.AST, ast.AST]] = [(node, node) for node in reversed(function.body)]
    while todo:
        statement, node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.Raise | ast.JoinedStr | ast.Assert):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":  # a promise between our own functions
            continue
        if isinstance(node, ast.AnnAssign):
            todo += [(node, node.value)] if node.value else []
            continue
        yield statement, node
        for child in reversed(list(ast.iter_child_nodes(node))):
            todo.append((child if isinstance(child, ast.stmt) else statement, child))


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node may be changed into."""
    changed = copy.copy(node)
    if isinstance(changed, ast.Compare) and type(changed.ops[0]) in SWAPS:
        changed.ops = [SWAPS[type(changed.ops[0])](), *changed.ops[1:]]  # type: ignore[list-item]
        yield changed
    elif isinstance(changed, ast.BinOp) and type(changed.op) in SWAPS:
        changed.op = SWAPS[type(changed.op)]()  # type: ignore[assignment]
        yield changed
    elif isinstance(changed, ast.BinOp) and isinstance(changed.op, ast.MatMult):
        changed.left, changed.right = changed.right, changed.left
        yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = SWAPS[type(changed.op)]()  # type: ignore[assignment]
        yield changed
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not | ast.USub | ast.Invert):
        yield changed.operand
    elif isinstance(changed, ast.If) and isinstance(changed.body[0], ast.Raise):
        changed.test = ast.Constant(False)
        yield changed
    elif isinstance(changed, ast.Constant) and type(changed.value) in (bool, int):
        changed.value = not changed.value if isinstance(changed.value, bool) else int(changed.value) + 1  # type: ignore[arg-type]
        yield changed


def replaced(tree: ast.Module, old: ast.AST, new: ast.AST) -> ast.Module:
    """Return the tree with one node exchanged."""

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(copy.copy(node))

        def generic_visit(self, node: ast.AST) -> ast.AST:
            for field, value in ast.iter_fields(node):
                if isinstance(value, list):
                    setattr(node, field, [self.visit(item) if isinstance(item, ast.AST) else item for item in value])
                elif isinstance(value, ast.AST):
                    setattr(node, field, self.visit(value))
            return node

    return ast.fix_missing_locations(Exchange().visit(tree))  # type: ignore[return-value]


def shown(node: ast.AST) -> str:
    """Return a node's first line, short enough for a table."""
    return ast.unparse(node).split("\n")[0][:60]


# Running the tests


class Trees:
    """One copy of the project for each job, so that mutants do not meet."""

    def __init__(self, jobs: int) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="labkit-mutants-")
        self.free: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            tree = Path(self.folder.name, str(number))
            tree.mkdir()
            for source in (ROOT / name for name in COPIED):
                if source.is_dir():
                    shutil.copytree(source, tree / source.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
                elif source.exists():
                    shutil.copy(source, tree)
            self.free.put(tree)

    def __enter__(self) -> Trees:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()

    def passes(self, module: str) -> bool:
        """Tell whether the guards of an unchanged module pass, as they must."""
        tree = self.free.get()
        try:
            return guard(tree, module) == 0
        finally:
            self.free.put(tree)

    def kills(self, mutant: Mutant) -> bool:
        """Put the mutant in place, run its guards, and put the module back."""
        tree = self.free.get()
        file = tree / "labkit" / f"{mutant.module}.py"
        original = file.read_bytes()
        try:
            file.write_text(mutant.source, encoding="utf-8")
            dead = guard(tree, mutant.module) != 0
            if not dead:
                print(f"survived: labkit/{mutant.module}.py:{mutant.line}  {mutant.name}", flush=True)
            return dead
        finally:
            file.write_bytes(original)
            self.free.put(tree)


def guard(tree: Path, module: str) -> int:
    """Run a module's guards in a tree until the first failure; 1 also when they hang."""
    tests = [test for test in GUARDS[module] if (tree / test).exists()]
    flags = ["-q", "-x", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "--hypothesis-profile=mutants"]
    flags += ["-m", "not slow and not alone"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # most of a short run would be spent on loading plugins
    try:
        command = [sys.executable, "-m", "pytest", *flags, *tests]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return 1
    if done.returncode > 2:
        raise RuntimeError(f"pytest could not run: {done.stdout.decode(errors='replace')[-2000:]}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
