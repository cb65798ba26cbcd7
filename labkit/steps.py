"""What every step of attention gives, computed from its inputs, and the functions a learner can be asked to write."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labkit import masks
from labkit.attention import Array, project, scaled_scores, softmax_over_sources
from labkit.attention import mix as mix_values
from labkit.errors import LabkitError
from labkit.heads import residual

Inputs = Mapping[str, Any]

AXES: dict[str, tuple[str, ...]] = {
    "X": ("n", "d_model"),
    "sources": ("m", "d_model"),
    "W_Q": ("d_model", "d_k"),
    "W_K": ("d_model", "d_k"),
    "W_V": ("d_model", "d_v"),
    "Q": ("n", "d_k"),
    "K": ("m", "d_k"),
    "V": ("m", "d_v"),
    "S": ("n", "m"),
    "A": ("n", "m"),
    "maps": ("H", "n", "m"),
    "Z": ("n", "d_v"),
    "concat": ("n", "H d_v"),
    "W_O": ("H d_v", "d_model"),
    "Y": ("n", "d_model"),
}

RULES = ("causal", "padding", "causal+padding", "allowed")
FORMS = ("allowed", "blocked", "additive")

# What a step cannot do without.
NEEDS: dict[str, tuple[str, ...]] = {
    "shapes": ("of",),
    "projection": ("inputs", "weights"),
    "scores": ("queries", "keys"),
    "mixture": ("values",),
    "update": ("outputs", "W_O"),
    "mask": ("rule",),
}

# A step named here can make do without the input of that name: the earlier step computes it.
MADE_BY = {"weights": "scores", "mixture": "weights"}


def axis_size(axis: str, sizes: Inputs) -> int:
    """Look one axis up: `m` is `n` unless given, `H d_v` is the width of all heads side by side."""
    if axis == "H d_v":
        return int(sizes.get("H") or 1) * axis_size("d_v", sizes)
    if axis == "m" and not sizes.get("m"):
        axis = "n"
    if axis not in sizes:
        raise LabkitError(f"the shape of {sizes.get('of')!r} needs the size {axis}: add {axis}=…")
    return int(sizes[axis])


def shapes(given: Inputs) -> tuple[int, ...]:
    """Give the shape of the array named by `of`.

    >>> shapes({"of": "W_Q", "d_model": 12, "d_k": 3})
    (12, 3)
    """
    return tuple(axis_size(axis, given) for axis in _known(AXES, given["of"], "array"))


def projection(given: Inputs) -> Array:
    """Multiply every row by the matrix."""
    return project(given["inputs"], given["weights"])


def scores(given: Inputs) -> Array:
    """Score queries against keys; one query and one key give one number."""
    keys = np.asarray(given["keys"])
    all_scores = scaled_scores(given["queries"], np.atleast_2d(keys))
    return all_scores if keys.ndim > 1 else np.asarray(all_scores[..., 0])


def weights(given: Inputs) -> Array:
    """Turn scores into weights."""
    return softmax_over_sources(given["scores"], given.get("allowed"))


def mixture(given: Inputs) -> Array:
    """Mix the values."""
    return mix_values(given["weights"], given["values"])


def update(given: Inputs) -> Array:
    """Lay the heads side by side, write them back through W_O and, with a state, add the result to it."""
    made = project(np.concatenate([np.asarray(z, dtype=float) for z in given["outputs"]], axis=-1), given["W_O"])
    return made if given.get("state") is None else residual(given["state"], made)


def mask(given: Inputs) -> Array:
    """Build the mask of a rule in the form asked for."""
    return in_form(allowed_by(given["rule"], given), given.get("form", "allowed"))


def allowed_by(rule: str, given: Inputs) -> Array:
    """Give `allowed` for "causal", "padding", "causal+padding", or "allowed" (the array itself)."""
    _known(dict.fromkeys(RULES), rule, "rule of a mask")
    if rule == "allowed":
        _need("this mask", given, "allowed")
        return np.asarray(given["allowed"], dtype=bool)
    parts = []
    if "padding" in rule:
        _need("a padding mask", given, "is_real")
        real = masks.padding(given["is_real"])
        n = given.get("n") or real.shape[-1]
        parts.append(np.broadcast_to(real, (*real.shape[:-2], n, real.shape[-1])))
    if "causal" in rule:
        _need("a causal mask", given, "n")
        parts.append(masks.causal(given["n"], given.get("m"), given.get("align")))
    return masks.combine(*parts)


def in_form(allowed: Array, form: str) -> Array:
    """Say the same mask as "allowed", "blocked" or "additive" (0 and -inf)."""
    _known(dict.fromkeys(FORMS), form, "form of a mask")
    if form == "additive":
        return np.where(allowed, 0.0, -np.inf)
    return ~allowed if form == "blocked" else allowed


def sound_rows(given: Inputs) -> Array:
    """Say of each row whether it sums to 1 and has nothing on blocked sources."""
    rows, allowed = np.asarray(given["weights"], dtype=float), np.asarray(given["allowed"], dtype=bool)
    sound: Array = (np.abs(rows.sum(axis=1) - 1) < 1e-6) & (np.where(allowed, 0, rows) == 0).all(axis=1)
    return sound


def by_norm(given: Inputs) -> Array:
    """Weigh each source by the length of what it sends: weight times length of its value."""
    moved: Array = np.asarray(given["weights"]) * np.linalg.norm(np.asarray(given["values"], dtype=float), axis=1)
    return moved


def previous_token_score(given: Inputs) -> Array:
    """Average the weight on the position just before, over the rows that have one."""
    return np.asarray(np.diagonal(np.asarray(given["weights"], dtype=float), offset=-1).mean())


def induction_targets(given: Inputs) -> list[int]:
    """Find for each position the one after the last earlier copy of its token, or -1."""
    tokens = given["tokens"]
    copies = [[j for j in range(i) if tokens[j] == tokens[i]] for i in range(len(tokens))]
    return [earlier[-1] + 1 if earlier else -1 for earlier in copies]


def _called(name: str, given: Inputs) -> Any:
    if not callable(given[name]):
        raise LabkitError(f"`{name}` is {given[name]!r}; it must be a function that computes it, {name}=lambda: …")
    if (found := given[name]()) is None:
        raise LabkitError(f"`{name}` computes None: it must return the right answer")
    return found


TRUTHS: dict[str, Callable[[Inputs], Any]] = {
    "shapes": shapes,
    "projection": projection,
    "scores": scores,
    "weights": weights,
    "mixture": mixture,
    "update": update,
    "mask": mask,
    "number": lambda given: _called("by", given),
    "ordering": lambda given: list(_called("by", given)),
    "choice": lambda given: _called("outcome", given),
    "dot": lambda given: np.dot(given["a"], given["b"]),
    "matmul": lambda given: project(given["A"], given["B"]),
    "transpose": lambda given: np.transpose(given["A"]),
    "normalise": lambda given: np.divide(given["row"], np.sum(given["row"])),
    "sound_rows": sound_rows,
    "by_norm": by_norm,
    "previous_token_score": previous_token_score,
    "induction_targets": induction_targets,
    "split_heads": lambda given: np.stack(np.split(np.asarray(given["rows"]), given["H"], axis=-1)),
}


def truth(step: str, given: Inputs) -> Any:
    """Compute what a step gives.

    >>> truth("weights", {"scores": [0, np.log(3)]})
    array([0.25, 0.75])
    """
    step, given = as_last_step(step, given)
    _need(step, given, *NEEDS.get(step, ()))
    return TRUTHS[step](with_earlier_step(step, given))


def task_named(name: str) -> Task:
    """Return one of `TASKS`; LabkitError with all their names for any other."""
    task: Task = _known(TASKS, name, "task")
    return task


def _need(what: str, given: Inputs, *names: str) -> None:
    if missing := [name for name in names if given.get(name) is None]:
        raise LabkitError(f"{what} cannot be computed without {' and '.join(missing)}; given: {', '.join(given)}")


def _known(table: Mapping[str, Any], name: Any, what: str) -> Any:
    if name not in table:
        raise LabkitError(f"there is no {what} {name!r}; there are {', '.join(table)}")
    return table[name]


def with_earlier_step(step: str, given: Inputs) -> Inputs:
    """Add the input an earlier step makes, where it was not given."""
    earlier = MADE_BY.get(step)
    if earlier is None or earlier in given:
        return given
    return {**given, earlier: truth(earlier, given)}


def as_last_step(step: str, given: Inputs) -> tuple[str, Inputs]:
    """Rewrite a whole head, or several, as its last step."""
    if step == "attend":
        return "mixture", _head_inputs(given)
    if step == "multi_head":
        outputs = [truth("attend", {**given, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}) for W_Q, W_K, W_V in given["heads"]]
        return "update", {"outputs": outputs, "W_O": given["W_O"]}
    if step == "concatenate":
        outputs = [np.asarray(output, dtype=float) for output in given["outputs"]]
        return "update", {"outputs": outputs, "W_O": np.eye(sum(output.shape[-1] for output in outputs))}
    if step == "forbid":
        exponentials = np.asarray(given["exponentials"], dtype=float)
        return "weights", {"scores": np.log(exponentials), "allowed": np.arange(len(exponentials)) != given["source"]}
    return step, given


def _head_inputs(given: Inputs) -> Inputs:
    inputs = given["inputs"]
    made = {name: project(inputs, given[W]) for name, W in (("queries", "W_Q"), ("keys", "W_K"), ("values", "W_V"))}
    return {**made, "allowed": given.get("allowed"), "d_model": np.shape(inputs)[-1]}


# Functions a learner writes ------------------------------------------------------------------------------------

Case = list[Any]  # the arguments of one call, plain lists, numbers and booleans


@dataclass(frozen=True, eq=False)  # a task is itself, so that what is computed of it can be kept
class Task:
    """One function to write: what it must give, cases to show, cases that trip known slips, and cases at random.

    `reference(*case)` computes the right result; `given(case)` names the arguments as the step's inputs.
    """

    name: str
    step: str
    parameters: tuple[str, ...]
    visible: tuple[Case, ...]
    traps: tuple[Case, ...]
    draw: Callable[[random.Random], Case]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def given(self, case: Case) -> Inputs:
        """Name the arguments of one call."""
        return {**self.fixed, **dict(zip(self.parameters, case, strict=True))}

    def reference(self, *case: Any) -> Any:
        """Compute the right result as plain numbers and lists.

        >>> TASKS["transpose"].reference([[1, 2, 3]])
        [[1], [2], [3]]
        """
        return np.asarray(truth(self.step, self.given(list(case)))).tolist()

    def baits(self) -> list[Case]:
        """List the fixed cases: those shown in the lesson, and those that trip known slips."""
        return [*self.visible, *self.traps]

    def cases(self, rng: random.Random, drawn: int = 20) -> list[Case]:
        """List the fixed cases and some at random, the smallest first."""
        return sorted([*self.baits(), *(self.draw(rng) for _ in range(drawn))], key=_size)


def _size(case: Any) -> int:
    return sum(map(_size, case)) + 1 if isinstance(case, list) else 1


def _whole(rng: random.Random, *shape: int) -> Any:
    """Draw small whole numbers, never all zero, as nested lists."""
    if not shape:
        return rng.choice([-3, -2, -1, 1, 2, 3])
    return [_whole(rng, *shape[1:]) for _ in range(shape[0])]


def _real(rng: random.Random, n: int, m: int) -> Any:
    return [[round(rng.uniform(-3, 3), 2) for _ in range(m)] for _ in range(n)]


def _small(rng: random.Random, n: int, m: int) -> Any:
    """Draw inputs whose scores stay small: an honest float32 head must come within the tolerance."""
    return [[round(rng.uniform(-0.5, 0.5), 2) for _ in range(m)] for _ in range(n)]


def _readable(rng: random.Random, n: int, m: int) -> list[list[bool]]:
    """Draw a mask in which every destination may read at least one source."""
    mask = [[rng.random() < 0.6 for _ in range(m)] for _ in range(n)]
    for row in mask:
        row[rng.randrange(m)] = True
    return mask


def _shares(rng: random.Random, n: int, m: int) -> list[list[float]]:
    rows = [[rng.randint(0, 4) for _ in range(m - 1)] + [rng.randint(1, 4)] for _ in range(n)]
    return [[part / sum(row) for part in row] for row in rows]


def _size_of(rng: random.Random) -> int:
    return rng.randint(1, 5)


def _draw_dot(rng: random.Random) -> Case:
    d = _size_of(rng)
    return [_whole(rng, d), _whole(rng, d)]


def _draw_matmul(rng: random.Random) -> Case:
    n, d, m = _size_of(rng), _size_of(rng), _size_of(rng)
    return [_whole(rng, n, d), _whole(rng, d, m)]


def _draw_scores(rng: random.Random) -> Case:
    n, m, d_k = _size_of(rng), _size_of(rng), _size_of(rng)
    return [_whole(rng, n, d_k), _whole(rng, m, d_k)]


def _draw_softmax(rng: random.Random) -> Case:
    n, m = _size_of(rng), _size_of(rng)
    return [_real(rng, n, m), _readable(rng, n, m)]


def _draw_mix(rng: random.Random) -> Case:
    n, m, d_v = _size_of(rng), _size_of(rng), _size_of(rng)
    return [_shares(rng, n, m), _whole(rng, m, d_v)]


def _draw_attend(rng: random.Random) -> Case:
    n, d_model, d_k, d_v = _size_of(rng), _size_of(rng), _size_of(rng), _size_of(rng)
    matrices = [_whole(rng, d_model, d_k), _whole(rng, d_model, d_k), _whole(rng, d_model, d_v)]
    return [_small(rng, n, d_model), *matrices, _readable(rng, n, n)]


def _draw_split_heads(rng: random.Random) -> Case:
    H = _size_of(rng)
    return [_whole(rng, _size_of(rng), H * _size_of(rng)), H]


def _draw_multi_head(rng: random.Random) -> Case:
    n, d_model, d_k, d_v, H = (_size_of(rng) for _ in range(5))
    heads = [[_whole(rng, d_model, d_k), _whole(rng, d_model, d_k), _whole(rng, d_model, d_v)] for _ in range(H)]
    return [_small(rng, n, d_model), heads, _whole(rng, H * d_v, d_model), _readable(rng, n, n)]


def _draw_softmax_row(rng: random.Random) -> Case:
    [row], [permitted] = _real(rng, 1, (m := _size_of(rng))), _readable(rng, 1, m)
    return [row, permitted]


def _draw_forbid(rng: random.Random) -> Case:
    m = rng.randint(2, 5)
    return [[rng.choice([1, 2, 4, 8]) for _ in range(m)], rng.randrange(m)]


def _draw_outputs(rng: random.Random) -> Case:
    n, d_v = _size_of(rng), _size_of(rng)
    return [[_whole(rng, n, d_v) for _ in range(rng.randint(1, 4))]]


def _draw_write_back(rng: random.Random) -> Case:
    [outputs], d_model = _draw_outputs(rng), _size_of(rng)
    n, features = len(outputs[0]), len(outputs) * len(outputs[0][0])
    return [outputs, _whole(rng, features, d_model), _whole(rng, n, d_model)]


def _draw_sound_rows(rng: random.Random) -> Case:
    n = rng.randint(2, 5)
    allowed = _readable(rng, n, n)
    rows = [[rng.randint(1, 4) * (ok or rng.random() < 0.2) for ok in row] for row in allowed]
    return [[[part / (sum(row) + rng.choice([0, 0, 0, 1])) for part in row] for row in rows], allowed]


def _draw_by_norm(rng: random.Random) -> Case:
    n, m = _size_of(rng), _size_of(rng)
    return [_shares(rng, n, m), [[side * rng.choice([-1, 1]) for side in rng.choice(_SIDES)] for _ in range(m)]]


def _draw_square(rng: random.Random) -> Case:
    n = rng.randint(2, 6)
    return [_shares(rng, n, n)]


_SIDES = ([3, 4], [4, 3], [0, 2], [5, 12], [8, 6])  # right triangles: lengths without roots
_ALL = [[True, True], [True, True]]
_LOWER = [[True, False], [True, True]]
_LN2 = math.log(2)
# Whatever is subtracted but the largest (the first, the smallest, the mean, …) overflows or flattens one of these, and
# each does on others: that tells them apart.
_FAR_APART = ([0, 0, 1200], [0, 3000, 3000], [3000, 0, 0], [1001, 1000, 0])
_FAR_APART_ROWS = ([[0], [0], [35]], [[0], [60], [60]], [[40], [0], [0]], [[30], [29], [0]])  # the same as scores
_PRODUCTS = ([[1]], [[1]], [[1]])  # a head whose scores are the products of its inputs
_ONE_HEAD = ([[1, 0], [1, 1]], [[1, 2], [0, 1]], [[2, 0, 1], [0, 4, -1]])
_OTHER_HEAD = ([[0, 1], [1, 0]], [[1, 1], [-1, 1]], [[1, 1, 0], [0, 1, 2]])
_BOTH_BACK = [[1, 0], [0, 1], [1, 1], [2, 0], [0, -1], [1, 3]]

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("dot", "dot", ("a", "b"), ([[1, 2], [3, 4]], [[2], [-3]]), ([[0, 1, 2], [5, -1, 3]],), _draw_dot),
        Task(
            "matmul",
            "matmul",
            ("A", "B"),
            ([[[1, 2]], [[3], [4]]], [[[1, 2], [3, 4]], [[0, 1], [2, 5]]]),
            ([[[1, 2, 3]], [[1, 0], [0, 1], [2, 2]]], [[[2], [3]], [[1, 4]]]),
            _draw_matmul,
        ),
        Task(
            "transpose",
            "transpose",
            ("A",),
            ([[[1, 2, 3]]], [[[1, 2], [3, 4], [5, 6]]]),
            ([[[7]]], [[[1, 2], [3, 4]]]),
            lambda rng: [_whole(rng, _size_of(rng), _size_of(rng))],
        ),
        Task(
            "normalise",
            "normalise",
            ("row",),
            ([[1, 3]], [[2, 2, 4]]),
            ([[5]], [[0, 1, 3]]),
            lambda rng: [[rng.randint(0, 5) for _ in range(_size_of(rng))] + [rng.randint(1, 5)]],
        ),
        Task(
            "scores",
            "scores",
            ("queries", "keys"),
            ([[[2, 4, 0, 0]], [[1, 1, 5, 5]]], [[[1, 0], [0, 1]], [[1, 0], [1, 1], [2, 1]]]),
            ([[[1, 2], [3, 4]], [[1, 1], [0, 2]]], [[[3]], [[-2], [1]]]),
            _draw_scores,
        ),
        Task(
            "softmax_over_sources",
            "weights",
            ("scores", "allowed"),
            ([[[0, _LN2]], [[True, True]]], [[[_LN2, 2 * _LN2], [0, _LN2]], _LOWER]),
            (
                [[[1000, 1000], [0, 0]], _ALL],
                [[[1000, 0]], [[False, True]]],
                [[[-3000, -3000]], [[True, True]]],
                [[[-1, 1]], [[True, True]]],
                *([[row], [[True] * 3]] for row in _FAR_APART),
                [[[-1000, 0]], [[True, False]]],
                [[[1, 2, 3, 0]], [[True, False, True, False]]],
                [[[0, 1], [2, 3]], [[True, True], [False, True]]],
            ),
            _draw_softmax,
        ),
        Task(
            "softmax_row",
            "weights",
            ("scores", "allowed"),
            ([[0, _LN2], [True, True]], [[_LN2, 2 * _LN2, 0], [True, False, True]]),
            (
                [[1000, 1000], [True, True]],
                [[1000, 0], [False, True]],
                [[-1000, 0], [True, False]],
                [[-3000, -3000], [True, True]],
                *([row, [True] * 3] for row in _FAR_APART),
                [[-1, 1], [True, True]],
                [[7], [True]],
            ),
            _draw_softmax_row,
        ),
        Task(
            "softmax",
            "weights",
            ("scores",),
            ([[0, _LN2]], [[_LN2, 2 * _LN2, 0]]),
            ([[1000, 1000]], [[-3000, -3000]], *([row] for row in _FAR_APART), [[-1, 1]], [[7]]),
            lambda rng: _real(rng, 1, _size_of(rng)),
        ),
        Task(
            "forbid",
            "forbid",
            ("exponentials", "source"),
            ([[2, 2, 4], 1], [[1, 4], 0]),
            ([[1, 2, 4], 2], [[8, 1, 1, 2], 0]),
            _draw_forbid,
        ),
        Task(
            "mix",
            "mixture",
            ("weights", "values"),
            ([[[0.25, 0.75]], [[4, 0], [0, 8]]], [[[1, 0], [0.5, 0.5]], [[2, 0, 1], [0, 4, 3]]]),
            ([[[1]], [[5, -7]]], [[[0.2, 0.3, 0.5]], [[1], [2], [-4]]]),
            _draw_mix,
        ),
        Task(
            "attend",
            "attend",
            ("inputs", "W_Q", "W_K", "W_V", "allowed"),
            (
                [[[1, 0]], *_ONE_HEAD, [[True]]],
                [[[1, 0], [0, 1]], *_ONE_HEAD, _LOWER],
            ),
            (
                [[[1, 2], [-1, 1]], *_ONE_HEAD, _ALL],
                [[[40, 0], [0, 40]], *_ONE_HEAD, _ALL],
                *([rows, *_PRODUCTS, [[True] * 3] * 3] for rows in _FAR_APART_ROWS),
                [[[20], [60]], *_PRODUCTS, _LOWER],
                [[[40], [40]], [[1]], [[-1]], [[1]], _ALL],
                [[[40], [50]], [[1]], [[-1]], [[1]], _LOWER],  # allowed and blocked are far below
            ),
            _draw_attend,
        ),
        Task(
            "causal",
            "mask",
            ("n",),
            ([2], [3]),
            ([1],),
            lambda rng: [rng.randint(1, 7)],
            {"rule": "causal"},
        ),
        Task(
            "concatenate",
            "concatenate",
            ("outputs",),
            ([[[[1, 2]], [[3, 4]]]], [[[[1], [2]], [[3], [4]]]]),
            ([[[[5, 6]]]], [[[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]]]),
            _draw_outputs,
        ),
        Task(
            "split_heads",
            "split_heads",
            ("rows", "H"),
            ([[[1, 2, 3, 4], [5, 6, 7, 8]], 2],),
            ([[[1, 2, 3, 4, 5, 6]], 3], [[[1, 2], [3, 4]], 1]),
            _draw_split_heads,
        ),
        Task(
            "write_back",
            "update",
            ("outputs", "W_O", "state"),
            ([[[[1, 2]], [[3, 4]]], [[1, 0], [0, 1], [2, 0], [0, -1]], [[10, 20]]],),
            ([[[[1], [2]], [[3], [4]]], [[1, 2, 3], [0, 1, -1]], [[1, 1, 1], [2, 0, 2]]],),
            _draw_write_back,
        ),
        Task(
            "multi_head",
            "multi_head",
            ("inputs", "heads", "W_O", "allowed"),
            ([[[1, 0], [0, 1]], [[*_ONE_HEAD], [*_OTHER_HEAD]], _BOTH_BACK, _LOWER],),
            ([[[1, 0]], [[*_ONE_HEAD]], _BOTH_BACK[:3], [[True]]],),
            _draw_multi_head,
        ),
        Task(
            "sound_rows",
            "sound_rows",
            ("weights", "allowed"),
            ([[[1, 0], [0.5, 0.5]], _LOWER], [[[0.5, 0.5], [0.25, 0.25]], _LOWER]),
            (
                [[[1, 0], [0.5, 0.4]], _LOWER],
                [[[0, 1], [1, 0]], _LOWER],
                [[[0.5, 0.5], [0.5, 0.5]], _LOWER],
                [[[0.25, 0.7499998], [0.25, 0.7499]], _ALL],  # within 1e-6, and not
                [[[1 / 6] * 6], [[True] * 6]],  # its sum is a last bit below 1
                [[[0.75, 0.75], [1, 0.5]], _ALL],
                [[[1, 0.5], [0.5, 0.5]], _LOWER],
                [[[1 - 1e-9, 1e-9], [0.5, 0.5]], _LOWER],  # a leak is a leak, however small
                [[[1.5, -0.5], [0.5, 0.5]], _LOWER],
                [[[0.25, 0.74999], [0.25, 0.75001]], _ALL],
            ),
            _draw_sound_rows,
        ),
        Task(
            "by_norm",
            "by_norm",
            ("weights", "values"),
            ([[[0.75, 0.25]], [[3, 4], [0, 20]]],),
            (
                [[[0.5, 0.5], [1, 0]], [[-3, 4], [0, 0]]],
                [[[1]], [[0, -2]]],
                [[[1]], [[-3]]],
                [[[0.5, 0.5]], [[1, 2, 2], [2, 0, 1]]],  # another width, and a length with a root
            ),
            _draw_by_norm,
        ),
        Task(
            "previous_token_score",
            "previous_token_score",
            ("weights",),
            ([[[1, 0], [0.75, 0.25]]], [[[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.75, 0]]]),
            ([[[0, 1], [0, 1]]], [[[0, 1, 0], [0, 0, 1], [1, 0, 0]]]),
            _draw_square,
        ),
        Task(
            "induction_targets",
            "induction_targets",
            ("tokens",),
            ([["A", "B", "A", "B"]], [["A", "A", "A"]]),
            ([["A"]], [["A", "B", "A", "C", "A"]], [["B", "A", "C", "A"]], [["cat", "car", "cat", "car"]]),
            lambda rng: [[rng.choice("ABC") for _ in range(rng.randint(1, 9))]],
        ),
    )
}
