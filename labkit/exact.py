"""The whole computation once more on lists and fractions, with the standard library only: an independent oracle.

Nothing here imports NumPy, so a disagreement with `labkit.attention` is a finding about one of the two. Loops are
written out on purpose: this is also the reference for the lesson in which learners write attention themselves.

Exponentials are irrational for most scores, so exact examples start from the other end: `exp_scores` are the rational
numbers `exp(score)`, and scores are whole multiples of ln 2, whose exponentials are powers of two.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from labkit.errors import EmptyRowError, LabkitError, MaskError, NonFiniteError, ShapeError

Number = int | float | Fraction
Row = list[Any]  # numbers: int, float or Fraction, in any mixture
Matrix = list[Row]
LN2 = math.log(2)


@dataclass(frozen=True)
class Trace:
    """Every array of one head's computation as nested lists; same names as `labkit.attention.AttentionTrace`."""

    inputs: Matrix  # (n, d_model)
    sources: Matrix  # (m, d_model)
    queries: Matrix  # (n, d_k)
    keys: Matrix  # (m, d_k)
    values: Matrix  # (m, d_v)
    scores: Matrix  # (n, m), before the mask
    allowed: list[list[bool]]  # (n, m), True where reading is permitted
    weights: Matrix  # (n, m), rows sum to 1
    output: Matrix  # (n, d_v)


@dataclass(frozen=True)
class Example(Trace):
    """An example small enough for paper: integers, and weights and outputs that are exact fractions.

    `W_K = W_K_units * sqrt(d_k) * ln 2`, so that the root in the score's divisor cancels:
    `scores = dots * ln 2` and `exp_scores = 2 ** dots`.
    """

    W_Q: Matrix  # (d_model, d_k), integers
    W_K: Matrix  # (d_model, d_k), floats
    W_V: Matrix  # (d_model, d_v), integers
    W_K_units: Matrix  # (d_model, d_k), integers: W_K / (sqrt(d_k) ln 2)
    key_units: Matrix  # (m, d_k), integers: keys / (sqrt(d_k) ln 2)
    dots: list[list[int]]  # (n, m): scores / ln 2
    exp_scores: Matrix  # (n, m): exp(scores) as fractions


def dot(a: Sequence[Number], b: Sequence[Number]) -> Any:
    """Multiply coordinate by coordinate and add up.

    >>> dot([1, 2, 3], [4, 5, 6])
    32
    """
    if len(a) != len(b):
        raise ShapeError(f"vectors of {len(a)} and {len(b)} coordinates: a dot product needs equal lengths.")
    total: Any = 0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def transpose(A: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Turn rows into columns: (n, m) -> (m, n).

    >>> transpose([[1, 2, 3], [4, 5, 6]])
    [[1, 4], [2, 5], [3, 6]]
    """
    return [list(column) for column in zip(*A, strict=True)]


def matmul(A: Sequence[Sequence[Number]], B: Sequence[Sequence[Number]]) -> Matrix:
    """Take the dot product of every row of A with every column of B: (n, d), (d, m) -> (n, m).

    >>> matmul([[1, 2]], [[3, 4], [5, 6]])
    [[13, 16]]
    """
    if A and len(A[0]) != len(B):
        raise ShapeError(f"A has {len(A[0])} columns and B has {len(B)} rows: these two must be equal.")
    columns = transpose(B)
    return [[dot(row, column) for column in columns] for row in A]


def scores(Q: Sequence[Sequence[Number]], K: Sequence[Sequence[Number]]) -> Matrix:
    """Score every destination against every source, `q_i . k_j / sqrt(d_k)`: (n, d_k), (m, d_k) -> (n, m).

    >>> scores([[1, 2, 0, 1]], [[2, 1, 5, 0], [0, 0, 1, 0]])
    [[2.0, 0.0]]
    """
    return [[dot(query, key) / math.sqrt(len(query)) for key in K] for query in Q]


def normalise(row: Sequence[Number]) -> Row:
    """Divide by the sum; whole numbers and fractions stay exact.

    >>> [str(share) for share in normalise([1, 2, 5])]
    ['1/8', '1/4', '5/8']
    """
    total = sum(row)
    return [x / total if isinstance(total, float) else Fraction(x) / total for x in row]


def weights_from_exp(exp_scores: Sequence[Any], allowed: Sequence[Any] | None = None) -> list[Any]:
    """Finish a softmax whose exponentials are given as rationals; one row or a matrix, blocked weights are 0.

    >>> [str(weight) for weight in weights_from_exp([1, 2, 2], [True, True, False])]
    ['1/3', '2/3', '0']
    """

    def one_row(i: int, exponentials: Sequence[Number], permitted: Sequence[bool]) -> Row:
        return normalise([Fraction(e) if ok else Fraction(0) for e, ok in zip(exponentials, permitted, strict=True)])

    return _each_row(one_row, exp_scores, allowed)


def softmax_over_sources(scores: Sequence[Any], allowed: Sequence[Any] | None = None) -> list[Any]:
    """Turn scores into weights over the allowed sources; one row or a matrix, blocked weights are exactly 0.

    >>> softmax_over_sources([1000.0, 1000.0, 5000.0], [True, True, False])
    [0.5, 0.5, 0.0]
    """

    def one_row(i: int, row: Sequence[Number], permitted: Sequence[bool]) -> Row:
        for j, (score, ok) in enumerate(zip(row, permitted, strict=True)):
            if ok and not score < math.inf:  # NaN compares false with everything
                raise NonFiniteError(f"the score of row {i}, source {j} is {score} and allowed: block or repair it.")
        row_max = max(score for score, ok in zip(row, permitted, strict=True) if ok)
        if row_max == -math.inf:
            raise EmptyRowError([(i,)])
        return normalise([math.exp(s - row_max) if ok else 0.0 for s, ok in zip(row, permitted, strict=True)])

    return _each_row(one_row, scores, allowed)


def mix(weights: Sequence[Sequence[Number]], values: Sequence[Sequence[Number]]) -> Matrix:
    """Add up the value vectors, each times its weight: (n, m), (m, d_v) -> (n, d_v).

    A source of weight 0 is left out altogether, so whatever its value holds cannot reach the mixture.

    >>> mix([[Fraction(1, 4), Fraction(3, 4)]], [[4, 0], [0, 8]])
    [[Fraction(1, 1), Fraction(6, 1)]]
    """
    if weights and len(weights[0]) != len(values):
        raise ShapeError(f"weights over {len(weights[0])} sources and {len(values)} value vectors: need one for each.")
    output = []
    for row in weights:
        mixture: Row = [0] * len(values[0])
        for weight, value in zip(row, values, strict=True):
            if weight != 0:
                mixture = [so_far + weight * x for so_far, x in zip(mixture, value, strict=True)]
        output.append(mixture)
    return output


def causal(n: int) -> list[list[bool]]:
    """Let each position read itself and earlier ones.

    >>> causal(2)
    [[True, False], [True, True]]
    """
    return [[j <= i for j in range(n)] for i in range(n)]


def attend(
    inputs: Matrix,
    W_Q: Matrix,
    W_K: Matrix,
    W_V: Matrix,
    allowed: Sequence[Sequence[bool]] | None = None,
    sources: Matrix | None = None,
) -> Trace:
    """Run one head and keep everything it computed; without `sources`, positions read each other."""
    sources = inputs if sources is None else sources
    Q, K, V = matmul(inputs, W_Q), matmul(sources, W_K), matmul(sources, W_V)
    S = scores(Q, K)
    permitted = [[True] * len(K) for _ in Q] if allowed is None else [list(row) for row in allowed]
    A = softmax_over_sources(S, permitted)
    return Trace(inputs, sources, Q, K, V, S, permitted, A, mix(A, V))


def concatenate(outputs: Sequence[Matrix]) -> Matrix:
    """Lay the heads' outputs side by side, features after features: H times (n, d_v) -> (n, H d_v).

    >>> concatenate([[[1, 2]], [[3, 4]]])
    [[1, 2, 3, 4]]
    """
    return [[x for row in rows for x in row] for rows in zip(*outputs, strict=True)]


def multi_head(
    inputs: Matrix,
    heads: Sequence[tuple[Matrix, Matrix, Matrix]],
    W_O: Matrix,
    allowed: Sequence[Sequence[bool]] | None = None,
) -> Matrix:
    """Run heads given as (W_Q, W_K, W_V) and write their concatenation back through W_O: the update (n, d_model)."""
    return matmul(concatenate([attend(inputs, *head, allowed).output for head in heads]), W_O)


def residual(state: Matrix, update: Matrix) -> Matrix:
    """Add the update to the state it was computed from.

    >>> residual([[1, 1]], [[Fraction(3, 2), 3]])
    [[Fraction(5, 2), 4]]
    """
    return [[x + y for x, y in zip(a, b, strict=True)] for a, b in zip(state, update, strict=True)]


def worked_example() -> Example:
    """The three-position example that the lessons compute by hand, with every array in between.

    >>> [[str(weight) for weight in row] for row in worked_example().weights]
    [['1', '0', '0'], ['1/3', '2/3', '0'], ['1/4', '1/4', '1/2']]
    >>> [[str(x) for x in row] for row in worked_example().output]
    [['2', '0'], ['2/3', '8/3'], ['3/2', '3']]
    """
    return exact_example([[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1]], [[1, 0], [0, 1]], [[2, 0], [0, 4]], causal(3))


def exact_example(inputs: Matrix, W_Q: Matrix, W_K_units: Matrix, W_V: Matrix, allowed: list[list[bool]]) -> Example:
    """Compute an example in fractions; `W_K` is `W_K_units` times `sqrt(d_k) ln 2`."""
    scale = math.sqrt(len(W_K_units[0])) * LN2
    queries, units, values = matmul(inputs, W_Q), matmul(inputs, W_K_units), matmul(inputs, W_V)
    dots = matmul(queries, transpose(units))
    exp_scores = [[Fraction(2) ** d for d in row] for row in dots]
    weights = weights_from_exp(exp_scores, allowed)
    return Example(
        inputs=inputs,
        sources=inputs,
        queries=queries,
        keys=[[unit * scale for unit in row] for row in units],
        values=values,
        scores=[[d * LN2 for d in row] for row in dots],
        allowed=allowed,
        weights=weights,
        output=mix(weights, values),
        W_Q=W_Q,
        W_K=[[unit * scale for unit in row] for row in W_K_units],
        W_V=W_V,
        W_K_units=W_K_units,
        key_units=units,
        dots=dots,
        exp_scores=exp_scores,
    )


def fresh_example(
    seed: int | str,
    *,
    positions: int = 3,
    d_v: int = 2,
    causal: bool = True,
    d_k: int = 2,
    largest_denominator: int = 12,
) -> Example:
    """Draw an example a person can solve on paper; the same seed gives the same example everywhere.

    Allowed scores are 0 to 3 times ln 2, values are small integers, and no row's exponentials add up to more than
    `largest_denominator`. `d_model = positions + 1`. Examples in which a well-known slip gives the right number are
    drawn again.

    >>> example = fresh_example("demo")
    >>> max(weight.denominator for row in example.weights for weight in row) <= 12
    True
    """
    if positions < 2 or min(d_v, d_k) < 1 or largest_denominator < positions + 1:
        raise LabkitError(
            f"positions = {positions}, d_v = {d_v}, d_k = {d_k}, largest_denominator = {largest_denominator}: give at "
            "least 2 positions, widths of 1 or more, and a denominator above the number of positions."
        )
    draw = random.Random(f"labkit {seed} {positions} {d_v} {causal} {d_k} {largest_denominator}")
    allowed = [[j <= i or not causal for j in range(positions)] for i in range(positions)]
    for _ in range(100_000):
        queries = [_small_row(draw, d_k, -1, 2) for _ in range(positions)]
        units = _matching_keys(draw, queries, allowed)
        if units and _readable(matmul(queries, transpose(units)), allowed, largest_denominator):
            values = [_small_row(draw, d_v, -2, 6) for _ in range(positions)]
            inputs, W_Q, W_K_units, W_V = _as_projections(draw, queries, units, values)
            example = exact_example(inputs, W_Q, W_K_units, W_V, allowed)
            if _tells_slips_apart(example):
                return example
    raise LabkitError("no example fits these sizes: allow a larger denominator or fewer positions.")


def _small_row(draw: random.Random, width: int, low: int, high: int) -> Row:
    return [draw.randint(low, high) for _ in range(width)]


def _matching_keys(draw: random.Random, queries: Matrix, allowed: list[list[bool]]) -> Matrix:
    """Draw for each source a key whose scores are 0 to 3 where allowed and moderate elsewhere; [] if there is none."""
    candidates = [list(key) for key in itertools.product((-1, 0, 1, 2), repeat=len(queries[0]))]
    keys: Matrix = []
    for j in range(len(queries)):
        limits = [(0, 3) if row[j] else (-2, 4) for row in allowed]
        rated = [(key, matmul(queries, transpose([key]))) for key in candidates if key not in keys]
        fitting = [
            key for key, dots in rated if all(low <= d <= high for (d,), (low, high) in zip(dots, limits, strict=True))
        ]
        if not fitting:
            return []
        keys.append(draw.choice(fitting))
    return keys


def _readable(dots: list[list[int]], allowed: list[list[bool]], largest_denominator: int) -> bool:
    """Accept rows whose allowed exponentials have a small sum and are not all equal."""
    rows = [[d for d, ok in zip(*pair, strict=True) if ok] for pair in zip(dots, allowed, strict=True)]
    return all(sum(2**d for d in row) <= largest_denominator and (len(row) == 1 or len({*row}) > 1) for row in rows)


def _as_projections(draw: random.Random, *targets: Matrix) -> list[Matrix]:
    """Write several matrices as `inputs @ W`, with one `inputs` for all: [inputs, W_1, W_2, …].

    Every input row has one or two 1s, so projecting it is adding up at most two rows of W. Its first 1 stands in a
    column of its own, and its partner in an earlier column, so each W is found row by row.
    """
    positions = len(targets[0])
    order = draw.sample(range(positions + 1), positions + 1)  # order[0] belongs to no position
    partners = [draw.choice([None, *order[: i + 1]]) for i in range(positions)]
    inputs = [[int(k in (order[i + 1], partners[i])) for k in range(positions + 1)] for i in range(positions)]
    matrices = []
    for target in targets:
        W: Matrix = [_small_row(draw, len(target[0]), -1, 2) for _ in order]
        for row, own, partner in zip(target, order[1:], partners, strict=True):
            W[own] = row if partner is None else [x - y for x, y in zip(row, W[partner], strict=True)]
        matrices.append(W)
    return [inputs, *matrices]


def _tells_slips_apart(example: Example) -> bool:
    """Refuse an example in which a well-known slip gives the right number in a row that has a choice to make."""
    exponentials, weights, values = example.exp_scores, example.weights, example.values
    masked, masked_dots = (
        [[x * ok for x, ok in zip(*rows, strict=True)] for rows in zip(numbers, example.allowed, strict=True)]
        for numbers in (exponentials, example.dots)
    )
    wrong_weights = [
        weights_from_exp(transpose(exponentials), example.allowed),  # the roles of query and key swapped
        transpose([normalise(column) for column in transpose(masked)]),  # down the columns
        [normalise(row) if any(row) else row for row in masked_dots],  # score divided by total
        transpose(weights),
    ]
    wrong_outputs = [mix(wrong, values) for wrong in wrong_weights]
    wrong_outputs += [values, mix([normalise([1] * len(values))] * len(values), values)]  # own value, plain average
    choices = [i for i, row in enumerate(example.allowed) if sum(row) > 1]
    return (
        all(_no_twins(rows) for rows in (example.inputs, example.queries, example.key_units, values, transpose(values)))
        and all(weights[i] != wrong[i] for wrong in wrong_weights for i in choices)
        and all(example.output[i] != wrong[i] for wrong in wrong_outputs for i in choices)
        and all(any(row) for row in values)
    )


def _no_twins(rows: Sequence[Sequence[Any]]) -> bool:
    return len({tuple(row) for row in rows}) == len(rows)


def _each_row(one_row: Callable[[int, Sequence[Any], Sequence[bool]], Row], data: Sequence[Any], allowed: Any) -> Row:
    """Apply `one_row(i, numbers, permitted)` to a single row or to each row of a matrix, after checking the mask."""
    if not data or not isinstance(data[0], (list, tuple)):
        (only,) = _each_row(one_row, [data], None if allowed is None else [allowed])
        return list(only)
    mask = [[True] * len(row) for row in data] if allowed is None else allowed
    if [len(row) for row in mask] != [len(row) for row in data]:
        raise MaskError(f"allowed has rows of {[len(r) for r in mask]}, the scores {[len(r) for r in data]} sources.")
    if not all(isinstance(ok, bool) for row in mask for ok in row):
        raise MaskError("allowed must hold True (reading permitted) and False only.")
    empty: list[tuple[int, ...]] = [(i,) for i, row in enumerate(mask) if not any(row)]
    if empty:
        raise EmptyRowError(empty)
    return [one_row(i, row, permitted) for i, (row, permitted) in enumerate(zip(data, mask, strict=True))]
