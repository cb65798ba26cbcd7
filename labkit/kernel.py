"""What IPython knows of the cells that ran here, and a word under a cell that stopped over a name."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any


def stopped(exercise_id: str) -> bool:
    """Say whether the answer cell ended in an error when it last ran here, so that its names hold an older answer.

    IPython keeps the text of every cell, and how the last one ended; a cell before that can only be read again.
    """
    shell, cells = _shell(), _cells()
    run = _last_run(exercise_id)
    if run is None or run == len(cells) - 1:  # this very cell
        return False
    return _parsed(cells[run]) is None or (run == len(cells) - 2 and not shell.last_execution_succeeded)


def unquoted(exercise_id: str) -> str:
    """Give the name that the answer cell assigned when it last ran, `my_choice = b`, if there is no such name."""
    run = _last_run(exercise_id)
    tree = None if run is None else _parsed(_cells()[run])
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)] if tree else []
    names = [value.id for value in values if isinstance(value, ast.Name)]
    return next((name for name in names if name not in _shell().user_ns), "")


def borrowed(exercise_id: str) -> str:
    """Give the first name of labkit's, or of an object it made, that the answer cell used when it last ran."""
    run = _last_run(exercise_id)
    tree = None if run is None else _parsed(_cells()[run])
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)] if tree else []
    return next((node.id for node in nodes if _is_labkits(_shell().user_ns.get(node.id))), "")


def _is_labkits(value: Any) -> bool:
    made_by = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(made_by, str) and made_by.partition(".")[0] == "labkit"


def watch(explain: Callable[[str, str], Any]) -> None:
    """Show under each cell that stops over a name what `explain(source, name)` makes of it, unless that is None."""

    def after_a_cell(result: Any) -> None:
        error = result.error_in_exec
        said = explain(result.info.raw_cell, error.name or "") if isinstance(error, NameError) else None
        if said is not None:
            from IPython.display import display

            display(said)  # type: ignore[no-untyped-call]

    if shell := _shell():
        shell.events.register("post_run_cell", after_a_cell)


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _cells() -> list[str]:
    shell = _shell()
    return shell.history_manager.input_hist_parsed if shell else []


def _last_run(exercise_id: str) -> int | None:
    runs = [i for i, cell in enumerate(_cells()) if cell.lstrip().startswith(f"# exercise: {exercise_id} (")]
    return runs[-1] if runs else None


def _parsed(cell: str) -> ast.Module | None:
    """Read a cell as IPython does, where `await` may stand at the top; None where it is no Python."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree: ast.Module = compile(cell, "cell", "exec", flags)
    except (SyntaxError, ValueError):
        return None
    return tree
