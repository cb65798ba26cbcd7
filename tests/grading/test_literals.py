"""Typed answers are read as Python would compute them, or left to the sandbox; nothing is ever run."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.grading.literals import NotLiteralError, assignments, bound_names, is_blank_function

NAMESPACE = {
    "np": np,
    "math": math,
    "Fraction": Fraction,
    "F": Fraction,
    "log": math.log,
    "sqrt": math.sqrt,
    "pi": math.pi,
    "array": np.array,
}

NUMBERS = st.one_of(
    st.integers(0, 99).map(str),
    st.floats(0, 100, allow_nan=False).map(repr),
    st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda pair: f"Fraction({pair[0]}, {pair[1]})"),
    st.integers(0, 99).map(lambda number: f"sqrt({number})"),
    st.sampled_from(["log(2)", "np.log(4)", "math.sqrt(2)", "pi", "np.e", "-np.inf", "True", "'B'", "...", "2**3"]),
)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: f"[{', '.join(parts)}]"),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: f"({', '.join(parts)},)"),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        inner.map(lambda part: f"-{part}"),
        inner.map(lambda part: f"np.array({part})"),
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=b.dtype != object)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or (a != a and b != b)


@settings(max_examples=300)
@given(EXPRESSIONS)
def test_a_literal_means_what_python_computes(source: str) -> None:
    try:
        read = assignments(f"x = {source}")["x"]
    except NotLiteralError:
        return
    with np.errstate(all="ignore"):
        assert same(read, eval(source, dict(NAMESPACE)))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("x = [1/3, 0, 2/3]", [1 / 3, 0, 2 / 3]),
        ("x = (0.5, Fraction(1, 2))", (0.5, Fraction(1, 2))),
        ("x = [F(1, 3), F('2/3')]", [Fraction(1, 3), Fraction(2, 3)]),
        ("x: list = [-np.inf, +0.0]", [-math.inf, 0.0]),
        ("import numpy as np\n# mine\nx = 'B'  # because", "B"),
        ("a = 1/4\nx = [a, 3*a]", [0.25, 0.75]),
        ("x, y = [1, 2], 3", [1, 2]),
        ("x = {'q1': [1, 2]}['q1'][-1]", 2),
        ("x = [..., ...]", [..., ...]),
        ("x = 1\nx = 2\nprint(x)", 2),
        ("x = math.log(8) / math.log(2)", math.log(8) / math.log(2)),
    ],
)
def test_ways_of_typing_an_answer(source: str, value: Any) -> None:
    assert assignments(source)["x"] == value


@pytest.mark.parametrize(
    "source",
    [
        "x = [1/3] * 3",
        "x = [i for i in range(3)]",
        "x = open('/etc/passwd').read()",
        "x = __import__('os').getcwd()",
        "x = S[1]",
        "x = [1]\nx.append(2)",
        "x = [1]\nx[0] = 2",
        "x = 1 if True else 2",
        "x = 9**9**9",
        "x = 10**400",
        "x = 1/0",
        "x = 1j",
        "x = f'{1}'",
        "x = Fraction('1e999999999')",
        "x = " + "-" * 100_000 + "1",
        "x = " + "(" * 300 + "1" + ")" * 300,
        "x = " + "1+" * 9_000 + "1",
        "x = '" + "a" * 20_001 + "'",
        "x = 1\0",
        "x = (",
        "def f(): pass",
        "x = np.array([" + "[1]," * 300 + "]) + np.array([[" + "1," * 300 + "]])",
    ],
)
def test_everything_else_is_left_to_the_sandbox(source: str) -> None:
    begun = time.process_time()
    with pytest.raises(NotLiteralError):
        assignments(source)
    assert time.process_time() - begun < 1


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from("xyz=0123456789.,()[]{}+-*/ \n'\"\\#:abdefnot\0é"), max_size=80) | st.text())
def test_any_text_is_read_or_left_alone(source: str) -> None:
    try:
        names = assignments(source)
    except NotLiteralError:
        names = {}
    assert all(name.isidentifier() for name in names)
    bound_names(source)
    assert is_blank_function(source, "f") in (True, False)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = 1\ny += 2\nfor z in (): pass", ("x", "y", "z")),
        ("class A: b = 1\nasync def g(): pass", ("A", "g")),
        ("%matplotlib inline\ndef mix(w, v):\n    total = 1\n    return total", ("mix",)),  # not Python: by its lines
        ("row_2 = [1,,2]\nif row_2 == 3: pass", ("row_2",)),
    ],
)
def test_names_are_found_even_in_broken_cells(source: str, names: tuple[str, ...]) -> None:
    assert bound_names(source) == names


@pytest.mark.parametrize(
    ("body", "blank"),
    [
        ('"""Doc."""\n    ...', True),
        ("pass", True),
        ("return ...", True),
        ("return None", True),
        ("return w @ v", False),
        ("...\n    return w @ v", False),
        ("raise NotImplementedError", False),
    ],
)
def test_blank_functions(body: str, blank: bool) -> None:
    assert is_blank_function(f"# exercise: mix (1 point)\ndef mix(w, v):\n    {body}\n", "mix") is blank
