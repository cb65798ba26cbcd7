"""Read typed answers without running them: numbers, 1/3, log(2), lists, Fraction(1, 3), np.array([...]), text.

Anything else raises `NotLiteralError` and goes to the sandbox. Sources are bounded before they reach Python's parser.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

MAX_SOURCE = 20_000  # characters
MAX_NODES = 20_000
MAX_DEPTH = 30
LARGEST = 10**60

MAX_KEYWORDS = 200
MOST_OF_NAMES = 100  # characters of all parameters together
CHANGING = ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "fill", "put", "update")
CHANGING_FIRST = ("shuffle", "copyto", "fill_diagonal", "place", "putmask")

_SIGNS = re.compile(r"(?:[-+~]\s*+){24}")
_KEYWORD = re.compile(r"\b(?:not|lambda|await|if|else|for|yield)\b")


class NotLiteralError(Exception):
    """The source is not a literal answer (or too long for one); nothing is said about whether it is right."""


def parse(source: str) -> ast.Module:
    """Parse a bounded source into a syntax tree, or raise `NotLiteralError`."""
    if len(source) > MAX_SOURCE or _deepest(source) > MAX_DEPTH or _SIGNS.search(source) or _is_nested(source):
        raise NotLiteralError("too long or too deep to be a typed answer")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an odd backslash in a student's text
            tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise NotLiteralError("not Python") from None
    # At most four nodes come from one character, so most answers need no counting.
    if 4 * len(source) > MAX_NODES and sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise NotLiteralError("too large to be a typed answer")
    return tree


def _is_nested(source: str) -> bool:
    return len(_KEYWORD.findall(source)) > MAX_KEYWORDS


def _deepest(source: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\](){}]", source):
        depth += 1 if bracket in "[({" else -1
        deepest = max(deepest, depth)
    return deepest


def assignments(source: str) -> dict[str, Any]:
    """Give the values a cell of plain assignments makes; imports, comments and prints may stand beside them.

    >>> assignments("# thirds" + chr(10) + "row = [1/4, Fraction(3, 4), ...]")
    {'row': [0.25, Fraction(3, 4), Ellipsis]}
    """
    names: dict[str, Any] = {}
    for statement in parse(source).body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                made = evaluate(value, names)
                for target in targets:
                    _bind(target, made, names)
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                _bind(target, evaluate(value, names), names)
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(value=ast.Constant() | ast.Name()):
                pass
            case ast.Expr(value=ast.Call(func=ast.Name(id="print" | "display"))):
                pass
            case _:
                raise NotLiteralError("more than assignments")
    return names


def _bind(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    match target:
        case ast.Name(id=name):
            names[name] = value
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, (list, tuple)):
            if len(parts) != len(value):
                raise NotLiteralError("another number of names than of values")
            for part, one in zip(parts, value, strict=True):
                _bind(part, one, names)
        case _:
            raise NotLiteralError("an assignment into something")


def evaluate(node: ast.expr, names: dict[str, Any]) -> Any:
    """Evaluate one expression of literals and of names bound to literals."""
    try:
        return _bounded(_value(node, names))
    except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError):
        raise NotLiteralError("an expression that fails") from None


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.Constant(value=value) if value is ...:
            return ...
        case ast.List(elts=parts):
            return [evaluate(part, names) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(evaluate(part, names) for part in parts)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_key(key): evaluate(value, names) for key, value in zip(keys, values, strict=True)}
        case ast.Name(id=name):
            return names[name] if name in names else CONSTANTS[name]
        case ast.Attribute(value=ast.Name(id="np" | "numpy" | "math"), attr=name):
            return CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand):
            return UNARY[type(op)](_number(evaluate(operand, names)))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _number(evaluate(left, names)), _number(evaluate(right, names)))
        case ast.Subscript(value=inner, slice=index):
            return evaluate(inner, names)[_key(index)]
        case ast.Call(func=function, args=arguments, keywords=keywords):
            return _call(function, [evaluate(argument, names) for argument in arguments], keywords)
    raise NotLiteralError(type(node).__name__)


def _call(function: ast.expr, arguments: list[Any], keywords: list[ast.keyword]) -> Any:
    match function:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="np" | "numpy" | "math" | "fractions"), attr=name):
            if name in ("array", "asarray") and all(map(_asks_for_floats, keywords)):
                return _array(arguments, float if keywords else None)
            if name in FUNCTIONS and not keywords:
                return FUNCTIONS[name](*arguments)
    raise NotLiteralError("a call of something else")


def _asks_for_floats(word: ast.keyword) -> bool:
    return word.arg == "dtype" and isinstance(word.value, ast.Name) and word.value.id == "float"


def _array(arguments: list[Any], dtype: type | None) -> Any:
    (entries,) = arguments  # another number of them is no typed answer
    array = np.array(entries, dtype)
    if array.dtype.kind not in "bif" and array.dtype != object:
        raise NotLiteralError("an array of something else")
    return array


def _key(node: ast.expr | None) -> str | int:
    match node:
        case ast.Constant(value=str() | int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
    raise NotLiteralError("an index that is not plain")


def _number(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "if":
        return value
    if isinstance(value, (int, float, Fraction, np.floating)) and not isinstance(value, bool):
        return value
    raise NotLiteralError("arithmetic with something that is not a number")


def _arithmetic(op: ast.operator, a: Any, b: Any) -> Any:
    if math.prod(np.broadcast_shapes(np.shape(a), np.shape(b))) > MAX_NODES:  # a column and a row make a table
        raise NotLiteralError("an array too large to type")
    with np.errstate(all="ignore"):
        return BINARY[type(op)](a, b)


def _fraction(*parts: Any) -> Fraction:
    if any(isinstance(part, str) and not re.fullmatch(r"[-+/.\d ]{1,60}", part) for part in parts):
        raise NotLiteralError("a fraction in another notation")
    return Fraction(*parts)


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, np.ndarray) or abs(exponent) > 64 or (not isinstance(base, np.ndarray) and abs(base) > 1e6):
        raise NotLiteralError("a large power")
    return _real(base**exponent)


def _real(value: Any) -> Any:
    if isinstance(value, complex):
        raise NotLiteralError("a complex number")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, (int, Fraction)):
        exact = Fraction(value)
        if abs(exact.numerator) > LARGEST or exact.denominator > LARGEST:
            raise NotLiteralError("a number too long to type")
    return value


def _elementwise(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            value = np.array(value, dtype=float)
        return np.vectorize(function, otypes=[float])(value) if isinstance(value, np.ndarray) else function(value)

    return apply


CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(getattr(math, name)) for name in ("log", "log2", "exp", "sqrt")},
    "ln": _elementwise(math.log),
    "Fraction": _fraction,
    "F": _fraction,  # as the lessons abbreviate it
    "float": float,
    "float64": float,
    "float32": lambda value: float(np.float32(value)),
}
KNOWN = frozenset({*CONSTANTS, *FUNCTIONS, "array", "asarray"})
SAME = {"ln": "log", "F": "Fraction"}  # what these are called where they come from
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: lambda a: -a, ast.UAdd: lambda a: a}
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: _power,
}


def bound_names(source: str) -> tuple[str, ...]:
    """List the names a cell binds at its top level, in order: assignments, functions, classes.

    >>> bound_names("x, (y, z) = 1, (2, 3)" + chr(10) + "def f(a): b = a")
    ('x', 'y', 'z', 'f')
    """
    return _bound_names(source) if len(source) > 2_000 else _remembered(source)


@lru_cache(maxsize=4096)
def _remembered(source: str) -> tuple[str, ...]:
    """Most cells of a class are the same cell."""
    return _bound_names(source)


def _bound_names(source: str) -> tuple[str, ...]:
    try:
        body = parse(source).body
    except NotLiteralError:
        return tuple(dict.fromkeys(_BINDING.findall(source[: 10 * MAX_SOURCE])))
    return tuple(dict.fromkeys(name for statement in body for name in _names(statement)))


_BINDING = re.compile(r"^(?:async +)?(?:def +|class +)?([A-Za-z_]\w{0,99})(?= *(?:=[^=]|\())", re.MULTILINE)


def _names(statement: ast.stmt) -> Iterable[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.For() | ast.With() | ast.If() | ast.Try():
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id


def parameters(source: str, name: str) -> tuple[str, ...]:
    """List what a function of a cell calls its parameters; none where that cannot be told, or is too long to show.

    >>> parameters("def mix(A, V): return A", "mix"), parameters("mix = max", "mix")
    (('A', 'V'), ())
    """
    try:
        body = parse(source).body
    except NotLiteralError:
        return ()
    found = [statement.args for statement in body if isinstance(statement, ast.FunctionDef) and statement.name == name]
    names = tuple(one.arg for one in (*found[-1].posonlyargs, *found[-1].args)) if found else ()
    return names if sum(map(len, names)) <= MOST_OF_NAMES else ()


@dataclass(frozen=True)
class Facts:
    """What can be read off a cell without running it; all of it is empty where the cell cannot be parsed."""

    used: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()  # bound, or changed as by `x[0] = 1` and `x.append(1)`
    imports: tuple[tuple[str, str, str], ...] = ()  # the name, the module it comes from, what it is called there
    spans: tuple[tuple[int, int], ...] = ()  # first and last line of the statements that take several


@lru_cache(maxsize=4096)
def _facts(source: str) -> Facts:
    """Walk a cell once: a class has thousands of them, and several things are asked of each."""
    try:
        tree = parse(source)
    except NotLiteralError:
        return Facts(touched=frozenset(bound_names(source)))
    used, touched, imports = set(), set(), []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                touched.add(name)
            case ast.Subscript(value=inner, ctx=ast.Store() | ast.Del()) | ast.Attribute(value=inner, ctx=ast.Store()):
                touched.add(_root(inner))
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in CHANGING:
                touched.add(_root(inner))
            case ast.Call(func=ast.Attribute(attr=method), args=[ast.Name(id=name), *_]) if method in CHANGING_FIRST:
                touched.add(name)
            case ast.Import(names=names):
                imports += [(one.asname or one.name.partition(".")[0], "", one.name) for one in names]
            case ast.ImportFrom(module=module, names=names):
                imports += [(one.asname or one.name, module or "", one.name) for one in names]
    spans = [(one.lineno, one.end_lineno or 0) for one in tree.body if one.lineno != one.end_lineno]
    return Facts(frozenset(used), frozenset(touched), tuple(imports), tuple(spans))


def _root(node: ast.expr) -> str:
    """Give the name that `a.b[0].c` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def used_names(source: str) -> frozenset[str]:
    """Give the names a cell reads; none where it cannot be parsed.

    >>> sorted(used_names("row = labkit.mix(A, V)"))
    ['A', 'V', 'labkit']
    """
    return _facts(source).used


def touched_names(source: str) -> frozenset[str]:
    """Give the names that a cell binds, imports, or whose values it may change.

    >>> sorted(touched_names("import labkit as lk" + chr(10) + "row[0] = col.append(x) or 2"))
    ['col', 'lk', 'row']
    """
    facts = _facts(source)
    return facts.touched.union(name for name, _, _ in facts.imports)


def inside_a_statement(source: str, line: int) -> bool:
    """Say whether a line, counted from 1, lies within a statement that begins above it, such as a long text.

    >>> inside_a_statement("x = 1" + chr(10) + "y = 2", 2), inside_a_statement("x = [" + chr(10) + "2]", 2)
    (False, True)
    """
    return any(first < line <= last for first, last in _facts(source).spans)


def other_meanings(source: str) -> set[str]:
    """Give those of the names read here, such as `log` and `e`, to which a cell gives a meaning of its own.

    >>> other_meanings("from math import log, log2 as sqrt" + chr(10) + "e = 4") == {"sqrt", "e"}
    True
    """
    imported = {
        name
        for name, module, what in _facts(source).imports
        if name in KNOWN and not (module in ("math", "numpy", "fractions") and what == SAME.get(name, name))
    }
    return imported.union(name for name in bound_names(source) if name in KNOWN)


def is_blank_function(source: str, name: str) -> bool:
    """Say whether the function's body is still only a docstring, `...` or `pass`; unsure is no."""
    try:
        body = parse(source).body
    except NotLiteralError:
        return False
    found = [statement for statement in body if isinstance(statement, ast.FunctionDef) and statement.name == name]
    return bool(found) and all(_does_nothing(statement) for statement in found[-1].body)


def _does_nothing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Return(value=None) | ast.Return(value=ast.Constant(value=None)):
            return True
        case ast.Return(value=ast.Constant(value=value)):
            return value is ...
    return False
