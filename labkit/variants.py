"""Every learner their own numbers: the same exercise, drawn anew from the learner's name."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache
from typing import Any

import numpy as np

from labkit import journal, slips, steps
from labkit.answers import same
from labkit.errors import LabkitError
from labkit.exact import Example, fresh_example, transpose
from labkit.steps import Inputs

DRAWN_FOR = "Your numbers are drawn for {}."  # grading finds the name in the cell's output, where the cell lacks it


def me(name: str = "") -> None:
    """Say who is learning, so that exercises draw their numbers from the name; "" only tells whose are in use."""
    if normalised(name):
        journal.append("me", learner=name)
    using = whoever()
    print(DRAWN_FOR.format(using) if using else "No name yet: these are the printed numbers.")
    if using and not normalised(name):
        print(
            "Type this name between the quotes before you hand in: only so are your answers checked with your numbers."
        )


def whoever() -> str:
    """Return the learner's name as exercises use it: `LABKIT_LEARNER`, else the last `labkit.me(...)`, else ""."""
    told = [str(entry.get("learner", "")) for entry in journal.entries("me")]
    return normalised(os.environ.get("LABKIT_LEARNER") or (told[-1] if told else ""))


def normalised(name: str) -> str:
    """Read a name the same way however it was typed.

    >>> normalised("  ADA   Lovelace") == normalised("ada lovelace")
    True
    """
    folded = " ".join(unicodedata.normalize("NFC", name).casefold().split())
    return unicodedata.normalize("NFC", folded)


def variant(
    exercise_id: str,
    learner: str | None = None,
    *,
    accept: Callable[[Example], bool] | None = None,
    **options: Any,
) -> Example:
    """Draw the exact example that belongs to one exercise and one learner (default: whoever works here).

    The same pair always gives the same example. Draws whose common slips would give the right number are passed over;
    `accept` may ask for more, `options` go to `labkit.exact.fresh_example`.

    >>> variant("weights-mine", "Ada").weights == variant("weights-mine", " ada ").weights
    True
    """
    who = whoever() if learner is None else normalised(learner)
    return deepcopy(_accepted(who, exercise_id, accept, tuple(sorted(options.items()))))


@lru_cache(maxsize=1024)
def _accepted(
    who: str, exercise_id: str, accept: Callable[[Example], bool] | None, options: tuple[tuple[str, Any], ...]
) -> Example:
    for attempt in range(200):
        seed = hashlib.sha256(f"{who}\n{exercise_id}\n{attempt}".encode()).hexdigest()
        example = fresh_example(seed, **dict(options))
        if tells_slips_apart(example) and (accept is None or accept(example)):
            return example
    raise LabkitError(f"no example for {exercise_id} was accepted in 200 draws: ask for less.")


def tells_slips_apart(example: Example) -> bool:
    """Say whether every slip would give another number, whatever an exercise asks about this example."""
    return example.dots != transpose(example.dots) and all(differs(*asked) for asked in _questions(example))


def differs(step: str, given: Inputs) -> bool:
    """Say whether every slip of a step gives another number than the truth."""
    truth = np.asarray(steps.truth(step, given), dtype=float)
    wrong = [np.asarray(value, dtype=float) for _, value in slips.values(step, given)]
    return not any(same(value, truth) for value in wrong)


def _questions(example: Example) -> Iterator[tuple[str, Inputs]]:
    """Yield what lessons ask: projections, the last two rows of the map one by one, and the whole of it."""
    scores, allowed, values = example.scores, example.allowed, example.values
    weights = [[float(weight) for weight in row] for row in example.weights]
    yield "projection", {"inputs": example.inputs, "weights": example.W_Q}
    yield "projection", {"inputs": example.inputs, "weights": example.W_V}
    for i in range(1, len(scores)):
        yield "weights", {"scores": scores[i], "allowed": allowed[i]}
        yield "mixture", {"weights": weights[i], "values": values}
    yield "weights", {"scores": scores, "allowed": allowed}
    yield "mixture", {"weights": weights, "values": values}
