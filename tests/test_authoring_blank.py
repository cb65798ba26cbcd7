"""Answers are taken out by their own shape, and nothing of them stays."""

import ast

import pytest

from labkit.authoring.blank import CannotBlankError, blank, marker


@pytest.mark.parametrize(
    ("answer", "blanked"),
    [
        ("row_2 = [1/3, 2/3, 0]", "row_2 = [..., ..., ...]"),
        ("A = [[1, 0],\n     [1/2, 1/2]]", "A = [[..., ...],\n     [..., ...]]"),
        ("A = np.array([[1, 0]], dtype=float)", "A = np.array([[..., ...]], dtype=float)"),
        ("A = np.tril(np.ones((3, 3)))", "A = ..."),
        ("shape = (5, 12)", "shape = (..., ...)"),
        ("pick = 'B'", "pick = ..."),
        ("x = -1/3", "x = ..."),
        ("x: float = 3.5", "x: float = ..."),
        ("a, b = 1, 2", "a, b = ..., ..."),
        ("found = {'mean': 2, 'rows': [1, 2]}", "found = {'mean': ..., 'rows': [..., ...]}"),
        ("empty = []", "empty = ..."),
        ("import math\n\nx = math.log(2)", "import math\n\nx = ..."),
        ("# in thirds\nx = [1, 2]  # because é", "# in thirds\nx = [..., ...]"),
        ("ü = 'é'; v = ['ö', 'B']", "ü = ...; v = [..., ...]"),
    ],
)
def test_shapes(answer: str, blanked: str) -> None:
    assert blank(answer) == blanked


def test_function_keeps_signature_and_docstring_only() -> None:
    source = (
        "def dot(a, b=(1, 2)):\n"
        '    """Multiply é and add.\n\n    >>> dot([1], [2])\n    """\n'
        "    # walk both\n"
        "    total = 0\n"
        "    for x, y in zip(a, b):  # pairs\n"
        "        total += x * y\n"
        "    return total  # done\n\n\n"
        "def square(a):\n"
        '    """Twice."""\n'
        "    return dot(a, a)\n"
        "    # nothing follows"
    )
    assert blank(source) == (
        'def dot(a, b=(1, 2)):\n    """Multiply é and add.\n\n    >>> dot([1], [2])\n    """\n    ...\n\n\n'
        'def square(a):\n    """Twice."""\n    ...'
    )


def test_written_answer_becomes_an_empty_text() -> None:
    assert blank('claim = """One\ntwo."""', filling='""') == 'claim = ""'


@pytest.mark.parametrize(
    ("answer", "given", "blanked"),
    [
        ("row = [1/4, 1/4, 1/2]", ["1 / 4"], "row = [1/4, ..., ...]"),
        ("A = [[1, 0], [1, 2]]", ["[1,0]"], "A = [[1, 0], [..., ...]]"),
        ("row = [F(1, 3), F(2, 3), 0]", ["F(1, 3)", "0"], "row = [F(1, 3), ..., 0]"),
    ],
)
def test_given_parts_stay(answer: str, given: list[str], blanked: str) -> None:
    assert blank(answer, given=given) == blanked


def test_given_parts_must_exist_and_leave_something() -> None:
    with pytest.raises(CannotBlankError, match="`given` keeps 1 / 5, but no part"):
        blank("row = [1/4, 3/4]", given=["1/5"])
    with pytest.raises(CannotBlankError, match="nothing is left"):
        blank("row = [1/4, 3/4]", given=["[1/4, 3/4]"])


def test_blank_twice_changes_nothing_more() -> None:
    once = blank("A = [[1, 2], [3, [4]]]\nb = {'x': 1}")
    assert blank(once) == once
    ast.parse(once)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("x = 1\nprint(x)", 2),
        ("for i in range(3):\n    x = i", 1),
        ("x = 1\nx += 1", 2),
        ("import math", 1),
        ("x = 1\n\ndef f():\n    return 1", 3),
        ("def f():\n    '''Only a docstring.'''", 1),
        ("class A:\n    '''No.'''", 1),
    ],
)
def test_what_cannot_be_blanked_is_refused_with_its_line(answer: str, line: int) -> None:
    with pytest.raises(CannotBlankError) as caught:
        blank(answer)
    assert caught.value.line == line


def test_marker_counts_points() -> None:
    assert [marker("a", n) for n in (1, 2, 0.5)] == [
        "# exercise: a (1 point)",
        "# exercise: a (2 points)",
        "# exercise: a (0.5 points)",
    ]
