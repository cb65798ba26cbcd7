"""The untrusted side: runs a student's cells and calls their functions. Holds no key and no expected value.

Forked by `forkserver.py`, or a program of its own where there is no bubblewrap. It knows nothing of labkit. One JSON
line comes in for each request and one goes out. A student's code can change everything in this process, and gains
nothing by it: whatever leaves is read as plain values and compared elsewhere.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

MOST_VALUES, LONGEST_TEXT, DEEPEST = 20_000, 20_000, 8
# NumPy's modules that only hang docstrings on its functions: a sixth of what loading it costs, and nobody reads here.
DOCSTRINGS = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
EXACT = (("fractions", "Fraction"), ("decimal", "Decimal"))  # their modules and names, loaded or not
TIMERS = {"%%time", "%%timeit", "%%capture", "%%prun"}
ASSIGNED = re.compile(r"([A-Za-z_]\w*) *= *[%!]")

LACKED: set[str] = set()  # names that need labkit, and what was to be made of them
KEPT: dict[str, tuple[Any, dict[str, Any]]] = {}  # functions, and all names as they were then


class NotPlainError(Exception):
    """A value that is not plain data; carries one of the words the trusted side has sentences for."""


def main(stage: dict[str, Any], requests: int, replies: int) -> None:
    """Confine this process as well as it can by itself, load NumPy, and serve requests until the pipe closes."""
    limit(stage["limits"])
    load(stage["path"])
    become(stage["uid"])
    listen(requests, replies)


def load(path: list[str]) -> None:
    """Load NumPy from where the grader has it; labkit, which may lie beside it, stays out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, student code goes first
    sys.path.extend(path)
    sys.modules["labkit"] = None  # type: ignore[assignment]  # importing a module that is None fails
    sys.modules.update({name: type(sys)(name) for name in DOCSTRINGS})
    gc.disable()  # nothing is dropped while NumPy loads
    import numpy  # noqa: F401

    gc.freeze()
    gc.enable()


def listen(requests: int, replies: int) -> None:
    """Say that the process is ready, and answer requests until there are no more."""
    import numpy

    space = {
        "__name__": "__main__",
        "__builtins__": builtins,
        "np": numpy,
        **dict.fromkeys(("display", "help"), silent),
    }
    send(replies, {"id": 0, "ok": True})
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            request = json.loads(line)
            send(replies, {"id": request["id"], **answer(request, space)})


def silent(*_: Any, **__: Any) -> None:
    """Stand in for what shows something: nothing printed here is ever read."""


def limit(limits: dict[str, int]) -> None:
    """Set hard limits that nothing in this process can lift again."""
    import resource

    for name, most in limits.items():
        number = getattr(resource, name)
        ceiling = resource.getrlimit(number)[1]
        most = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(number, (most, most))


def become(uid: int) -> None:
    """Give up every privilege for good (0: there is none), before any student code is read."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    os.umask(0o077)


def send(replies: int, fields: dict[str, Any]) -> None:
    """Write one reply line, however often the pipe is full."""
    data = json.dumps(fields).encode("utf-8", "backslashreplace") + b"\n"
    while data:
        data = data[os.write(replies, data) :]


def answer(request: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    """Do one request, or all of a list in their order."""
    if request["do"] == "all":
        return {"all": [outcome(one, space) for one in request["requests"]]}
    return outcome(request, space)


def outcome(request: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    """Do one request; whatever goes wrong, SystemExit included, becomes a description of the error."""
    try:
        return {"ok": True, **serve(request, space)}
    except NotPlainError as error:
        return {"ok": False, "error": "NotPlain", "text": str(error), "line": None}
    except BaseException as error:
        try:
            return {"ok": False, **explain(error, quiet=request["do"] == "call")}
        except BaseException:
            return {"ok": False, "error": "Exception", "text": "", "line": None}


def serve(request: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    """Run a cell, set names, read an expression, or call a function; give the fields of the reply."""
    if request["do"] == "run":
        try:
            run(request["source"], space)
        except BaseException:
            space.update({name: argument(value) for name, value in request["otherwise"].items()})
            raise
        return {}
    if request["do"] == "given":
        LACKED.update(request["names"])
        return {}
    if request["do"] == "set":
        space.update({name: argument(value) for name, value in request["values"].items()})
        return {}
    if request["do"] == "keep":
        KEPT[request["as"]] = (eval(request["expression"], space), dict(space))
        return {}
    if request["do"] == "value":
        return {"value": plain(eval(request["expression"], space), [MOST_VALUES])}
    function = recalled(request, space)
    arguments = [argument(value) for value in request["arguments"]]
    value = plain(function(*arguments), [MOST_VALUES])
    fresh = [argument(value) for value in request["arguments"]]
    return {"value": value, "changed": not all(map(unchanged, arguments, fresh))}


def run(source: str, space: dict[str, Any]) -> None:
    """Run a cell; where it is known what may be missing, pass over statements that lack it, and say so at the end."""
    tree = parsed(source)
    if not LACKED:
        exec(compile(tree, "<cell>", "exec"), space)
        return
    missed: BaseException | None = None
    for statement in apart(tree):
        try:
            exec(compile(ast.Module([statement], []), "<cell>", "exec"), space)
        except (NameError, ModuleNotFoundError) as error:
            if isinstance(error, NameError) and error.name not in LACKED:
                raise
            if isinstance(statement, ast.Expr) and root(statement.value) == error.name:
                continue  # `check.weights(…)` and the like: it only shows something
            missed = missed or error
            for name in touched(statement):  # what it would have made is missing too, not what it was before
                space.pop(name, None)
                LACKED.add(name)
    if missed:
        raise missed


def apart(tree: ast.Module) -> Iterator[ast.stmt]:
    """Give the statements of a cell one by one, and the names of an import too."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (ast.copy_location(ast.Import([name]), statement) for name in statement.names)
        else:
            yield statement


def touched(statement: ast.stmt) -> Iterator[str]:
    """Give the names that a statement binds, or whose values it changes."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield root(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(statement, ast.Expr):
            yield root(node.func)  # row.append(…)


def root(node: ast.expr) -> str:
    """Give the name that `a.b[0].c` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def recalled(request: dict[str, Any], space: dict[str, Any]) -> Any:
    """Give a function as it was kept, and give the names it uses the values they had then."""
    kept = request.get("kept")
    if kept not in KEPT:
        return eval(request["name"], space)
    function, names = KEPT[kept]
    if space.get("__kept__") != kept:
        space.update(names, __kept__=kept)
        for name in [name for name in space if name not in names and hasattr(builtins, name)]:
            del space[name]  # such as a `sum` of their own, made later
    return function


def parsed(source: str) -> ast.Module:
    """Parse a cell; only a cell that is not Python is searched for IPython's own syntax."""
    try:
        return ast.parse(source)
    except SyntaxError:
        plainer = without_magics(source)
        if plainer == source:
            raise
        return ast.parse(plainer)


def without_magics(source: str) -> str:
    """Drop timing magics, empty cells of other magics, and turn `%…`, `!…` and `…?` lines into `pass`."""
    first, _, rest = source.lstrip().partition("\n")
    if first.startswith("%%"):
        return without_magics(rest) if first.split()[0] in TIMERS else ""
    lines = []
    for line in source.split("\n"):
        text, indent = line.strip(), line[: len(line) - len(line.lstrip())]
        if text.startswith("%time "):
            lines.append(indent + text.removeprefix("%time "))
        elif made := ASSIGNED.match(text):
            lines.append(f"{indent}{made[1]} = None")
        else:
            special = text.startswith(("%", "!", "?")) or text.endswith("?")
            lines.append(f"{indent}pass" if special else line)
    return "\n".join(lines)


def argument(value: Any) -> Any:
    """Rebuild an argument: {"array": …} becomes a NumPy array, everything else stays as it is."""
    import numpy

    if type(value) is dict:
        return numpy.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    return [argument(part) for part in value] if type(value) is list else value


def unchanged(given: Any, fresh: Any) -> bool:
    """Say whether an argument is still what it was."""
    import numpy

    if isinstance(fresh, numpy.ndarray):
        return type(given) is numpy.ndarray and numpy.array_equal(given, fresh)
    return bool(given == fresh)


def plain(value: Any, budget: list[int], depth: int = 0) -> Any:
    """Copy a result into plain JSON types, by exact type; anything else raises NotPlainError."""
    budget[0] -= 1
    if budget[0] < 0 or depth > DEEPEST:
        raise NotPlainError("large")
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if value.bit_length() < 1000 else {"float": "inf" if value > 0 else "-inf"}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is str:
        return value[:LONGEST_TEXT]
    if value is ...:
        return {"blank": True}
    if kind is list or kind is tuple:
        return [plain(part, budget, depth + 1) for part in value]
    if kind in [getattr(sys.modules.get(module), name, None) for module, name in EXACT]:
        return plain(float(value), budget, depth)
    return plain(raw_numbers(value, budget[0]), budget, depth)


def raw_numbers(value: Any, most: int) -> Any:
    """Give an array's raw numbers as nested lists, whatever class the array pretends to be."""
    import numpy

    masked = sys.modules.get("numpy.ma")  # loading it takes time, and no masked array exists before somebody did
    if masked and masked.is_masked(value):
        raise NotPlainError("masked")
    if not isinstance(value, numpy.ndarray | numpy.generic):
        raise NotPlainError("kind")
    array = numpy.ndarray.view(value, numpy.ndarray) if isinstance(value, numpy.ndarray) else numpy.asarray(value)
    if array.dtype.kind not in "bfiuOU":
        raise NotPlainError("entries")
    if array.size > most:
        raise NotPlainError("large")
    if array.ndim == 0 and array.dtype.kind == "O":  # it would come back for ever
        raise NotPlainError("kind")
    return array.astype(float).tolist() if array.dtype.kind == "f" else array.tolist()


def explain(error: BaseException, quiet: bool) -> dict[str, Any]:
    """Describe an error by its type, its line and, while no hidden input is known here, its text."""
    kind, line, trace = type(error), None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<cell>":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line = error.lineno
    known = getattr(builtins, kind.__name__, None) is kind
    text = error.args[0][:200] if known and not quiet and error.args and type(error.args[0]) is str else ""
    return {"error": kind.__name__ if known else "Exception", "text": text, "line": line}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
