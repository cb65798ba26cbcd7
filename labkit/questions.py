"""Practice questions: fresh numbers for one step at one level, with the solution worked line by line."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import Any

from labkit import exact
from labkit.errors import LabkitError
from labkit.steps import AXES, axis_size
from labkit.variants import differs, variant

Row = list[Any]
HUES = {"q": "light-dark(#1f5bbf,#7fb0ff)", "k": "light-dark(#b8283a,#ff8f98)", "v": "light-dark(#14763c,#5fd08c)"}


@dataclass(frozen=True)
class Question:
    """What is asked, the numbers shown, the inputs the check computes the truth from, and the way there."""

    step: str
    ask: str
    given: Mapping[str, Any]
    inputs: Mapping[str, Any]
    solution: tuple[str, ...]


def draw(step: str, level: int, seed: str) -> Question:
    """Draw a question whose slips give other numbers; "mixed" draws the step too, and the same seed asks the same.

    >>> draw("weights", 1, "demo") == draw("weights", 1, "demo")
    True
    """
    step = random.Random(f"step {seed}").choice(list(STEPS)) if step == "mixed" else step
    for attempt in range(1000):
        question = STEPS[step](level, random.Random(f"practice {seed} {attempt}"))
        if step == "shapes" or differs(step, question.inputs):  # sizes are drawn all different
            return question
    raise LabkitError(f"no question for {step} at level {level} tells its slips apart.")


def matrix_text(numbers: Any) -> str:
    """Write a number, a row or a matrix as plain text.

    >>> matrix_text([[1, Fraction(2, 3)], [0, "ln 2"]])
    '[[1, 2/3], [0, ln 2]]'
    """
    if isinstance(numbers, list | tuple):
        return f"[{', '.join(matrix_text(part) for part in numbers)}]"
    return str(numbers)


def matrix_html(name: str, numbers: Any) -> str:
    """Write a named number, row or matrix, the last two as a small table; queries blue, keys red, values green."""
    colour = HUES.get(name.removeprefix("W_")[:1].lower(), "inherit")
    middle = "vertical-align:middle"
    if isinstance(numbers, list):
        rows = numbers if isinstance(numbers[0], list) else [numbers]
        cells = "".join(f"<tr>{''.join(f'<td>{escape(str(x))}</td>' for x in row)}</tr>" for row in rows)
        inline = f"display:inline-table;{middle};margin:0;border-inline:2px solid currentColor"
        shown = f'<table style="{inline}">{cells}</table>'
    else:
        shown = f'<span style="{middle}">{escape(str(numbers))}</span>'
    return (
        '<div style="display:inline-block;margin:0 1.5em .5em 0">'
        f'<b style="color:{colour};{middle}">{escape(name)} = </b>{shown}</div>'
    )


def _shapes(level: int, rng: random.Random) -> Question:
    n, m, d_model, d_k, d_v = rng.sample(range(2, 13), 5)
    asked = (("Q", "K", "V"), ("S", "Z", "A"), ("W_Q", "W_V", "W_K"), ("concat", "W_O", "Y"))[level - 1]
    of, sizes = rng.choice(asked), {"n": n, "m": m, "d_model": d_model, "d_k": d_k, "d_v": d_v}
    if level == 4:
        sizes["H"] = rng.choice([2, 3, 4])
    axes = " by ".join(AXES[of])
    answer = tuple(axis_size(axis, sizes) for axis in AXES[of])
    return Question(
        "shapes",
        f"{n} destinations read {m} sources. What is the shape of {of}? Answer with a tuple such as (2, 3).",
        sizes,
        {"of": of, **sizes},
        (f"{of} has {axes} entries.", f"So its shape is {answer}."),
    )


def _projection(level: int, rng: random.Random) -> Question:
    n, d_model, d = ((1, 2, 2), (2, 2, 3), (2, 3, 2), (3, 4, 2))[level - 1]
    name = rng.choice(["W_Q", "W_K", "W_V"])
    X, W = _integers(rng, n, d_model), _integers(rng, d_model, d)
    made = exact.matmul(X, W)
    lines = [
        f"Row {i + 1}: {_combination(x, W)} = {matrix_text(y)}" for i, (x, y) in enumerate(zip(X, made, strict=True))
    ]
    return Question(
        "projection",
        f"Project X with {name}. Give the whole matrix, one list a row: [[…], …].",
        {"X": X, name: W},
        {"inputs": X, "weights": W},
        ("Each row of X says how often to take each row of the matrix.", *lines),
    )


def _scores(level: int, rng: random.Random) -> Question:
    n, m, d_k = ((1, 1, 4), (1, 3, 4), (2, 3, 4), (3, 3, 9))[level - 1]
    Q, K = _integers(rng, n, d_k, 0, 3), _integers(rng, m, d_k, -1, 2)
    root = {4: 2, 9: 3}[d_k]
    dots = exact.matmul(Q, exact.transpose(K))
    shown: dict[str, Any] = {"Q": Q, "K": K}
    inputs: dict[str, Any] = {"queries": Q, "keys": K}
    if level <= 2:
        shown = {"q": Q[0], **({"k": K[0]} if level == 1 else {"K": K})}
        inputs = {"queries": Q[0], "keys": K[0] if level == 1 else K}
    shape = ("one number", "one row", "a matrix", "a matrix")[level - 1]
    return Question(
        "scores",
        f"Score each query against each key: {shape}. Rows are destinations, columns are sources.",
        shown,
        inputs,
        (
            f"The dot products are {matrix_text(dots)}.",
            f"d_k = {d_k} (the width of a query), so divide by {root}: "
            f"{matrix_text([[Fraction(dot, root) for dot in row] for row in dots])}.",
        ),
    )


def _weights(level: int, rng: random.Random) -> Question:
    example = _example(rng)
    given: dict[str, Any]
    inputs: dict[str, Any]
    if level == 4:
        rows = range(len(example.dots))
        given = {"S": [_in_ln2(row) for row in example.dots], "allowed": example.allowed}
        inputs = {"scores": example.scores, "allowed": example.allowed}
        lines = tuple(
            f"Row {i + 1}: " + "; ".join(_softmax_lines(example.exp_scores[i], example.allowed[i])) for i in rows
        )
        return Question("weights", "Turn the scores into weights: the whole matrix.", given, inputs, lines)
    i, m = ((1, 2), (2, 3), (1, 3))[level - 1]
    given = {"scores": _in_ln2(example.dots[i][:m])}
    inputs = {"scores": example.scores[i][:m]}
    if level == 3:
        given["allowed"] = inputs["allowed"] = example.allowed[i]
    lines = _softmax_lines(example.exp_scores[i][:m], example.allowed[i][:m])
    return Question("weights", "Turn this row of scores into weights.", given, inputs, lines)


def _mixture(level: int, rng: random.Random) -> Question:
    example = _example(rng)
    i, m = ((1, 2), (2, 3), (1, 3), (2, 3))[level - 1]
    shown: dict[str, Any]
    inputs: dict[str, Any]
    values = example.values[:m]
    weights = example.weights[i][:m]
    lines: tuple[str, ...] = (f"z = {_combination(weights, values)} = {matrix_text(exact.mix([weights], values)[0])}",)
    if level == 3:
        shown = {"scores": _in_ln2(example.dots[i]), "allowed": example.allowed[i], "V": values}
        inputs = {"scores": example.scores[i], "allowed": example.allowed[i], "values": values}
        lines = (*_softmax_lines(example.exp_scores[i], example.allowed[i]), *lines)
    elif level == 4:
        shown, inputs = {"A": example.weights, "V": values}, {"weights": _floats(example.weights), "values": values}
        rows = zip(example.weights, example.output, strict=True)
        lines = tuple(f"Row {k + 1}: {_combination(a, values)} = {matrix_text(z)}" for k, (a, z) in enumerate(rows))
    else:
        shown, inputs = {"weights": weights, "V": values}, {"weights": _floats(weights), "values": values}
    what = "Z, the whole matrix" if level == 4 else "the mixture z, one row"
    return Question("mixture", f"Mix the values: give {what}.", shown, inputs, lines)


def _mask(level: int, rng: random.Random) -> Question:
    n = rng.choice([3, 4])
    is_real = [True] * (n - 1) + [False] if rng.random() < 0.5 else [False] + [True] * (n - 1)
    form = "allowed" if level < 3 else "blocked"
    rule = ("causal", "padding", "causal", "causal+padding")[level - 1]
    if rule == "causal+padding":
        is_real = [True] * (n - 1) + [False]  # filler in front would leave row 1 nothing to read
    inputs: dict[str, Any] = {"rule": rule, "n": n, "form": form}
    if "padding" in rule:
        inputs["is_real"] = is_real
    meaning = "True = may read" if form == "allowed" else "True = blocked"
    reasons = {"causal": "j <= i", "padding": "source j is real"}
    allowed = [
        [("causal" not in rule or j <= i) and ("padding" not in rule or is_real[j]) for j in range(n)] for i in range(n)
    ]
    answer = allowed if form == "allowed" else [[not ok for ok in row] for row in allowed]
    return Question(
        "mask",
        f'Write the {rule} mask as the "{form}" array ({meaning}), one list of True and False a row.',
        {"n": n, **({"is_real": is_real} if "padding" in rule else {})},
        inputs,
        (
            f"Destination i may read source j when {' and '.join(reasons[part] for part in rule.split('+'))}.",
            f"{form} = {matrix_text(answer)}",
        ),
    )


def _update(level: int, rng: random.Random) -> Question:
    n, heads = ((1, 1), (1, 2), (1, 2), (2, 2))[level - 1]
    outputs = [_integers(rng, n, 2, -2, 3) for _ in range(heads)]
    W_O, state = _integers(rng, 2 * heads, 2), _integers(rng, n, 2, 0, 4)
    side_by_side = exact.concatenate(outputs)
    made = exact.matmul(side_by_side, W_O)
    shown = {f"Z_{h + 1}": output for h, output in enumerate(outputs)} | {"W_O": W_O}
    inputs: dict[str, Any] = {"outputs": outputs, "W_O": W_O}
    lines = [f"Side by side: {matrix_text(side_by_side)}", f"times W_O: {matrix_text(made)}"]
    if level > 2:
        shown["state"] = inputs["state"] = state
        lines.append(f"plus the state: {matrix_text(exact.residual(state, made))}")
    what = "the residual state after the update is added" if level > 2 else "the update Y"
    return Question("update", f"Write the heads back through W_O and give {what}.", shown, inputs, tuple(lines))


STEPS: dict[str, Callable[[int, random.Random], Question]] = {
    "shapes": _shapes,
    "projection": _projection,
    "scores": _scores,
    "weights": _weights,
    "mixture": _mixture,
    "mask": _mask,
    "update": _update,
}


def _example(rng: random.Random) -> exact.Example:
    return variant(f"practice {rng.getrandbits(64)}", "")


def _integers(rng: random.Random, rows: int, columns: int, low: int = -1, high: int = 3) -> list[Row]:
    return [[rng.randint(low, high) for _ in range(columns)] for _ in range(rows)]


def _floats(numbers: Sequence[Any]) -> list[Any]:
    return [_floats(part) if isinstance(part, list) else float(part) for part in numbers]


def _in_ln2(dots: Sequence[int]) -> Row:
    """Write whole multiples of ln 2 the way a person would.

    >>> _in_ln2([0, 1, 3, -1])
    [0, 'ln 2', '3 ln 2', '-ln 2']
    """
    words = {0: 0, 1: "ln 2", -1: "-ln 2"}
    return [words.get(dot, f"{dot} ln 2") for dot in dots]


def _combination(weights: Sequence[Any], rows: Sequence[Row]) -> str:
    return " + ".join(f"{weight}·{matrix_text(row)}" for weight, row in zip(weights, rows, strict=True))


def _softmax_lines(exponentials: Sequence[Any], allowed: Sequence[bool]) -> tuple[str, str, str]:
    kept = [e if ok else 0 for e, ok in zip(exponentials, allowed, strict=True)]
    blocked = "" if all(allowed) else " (0 where blocked)"
    return (
        f"exponentials {matrix_text(kept)}{blocked}",
        f"sum {sum(kept)}",
        f"weights {matrix_text(exact.normalise(kept))}",
    )
