"""Every learner their own numbers: the same exercise, drawn anew from the learner's name."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from labkit import journal
from labkit.errors import LabkitError
from labkit.exact import Example, fresh_example, transpose


def me(name: str) -> None:
    """Say who is learning, so that exercises draw their numbers from the name; "" asks for the printed numbers."""
    journal.append("me", learner=name)
    using = whoever()
    print(f"Numbers drawn for {using}." if using else "Using the printed numbers.")


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
    for attempt in range(500):
        example = _draw(_seed(who, exercise_id, attempt), tuple(sorted(options.items())))
        if tells_slips_apart(example) and (accept is None or accept(example)):
            return example
    raise LabkitError(f"no example for {exercise_id} was accepted in 500 draws: ask for less.")


def tells_slips_apart(example: Example) -> bool:
    """Say whether the usual slips change the numbers: swapped roles, shares of raw scores, a uniform row.

    Row 1 of a causal map is always [1, 0, …], so rows with a single allowed source do not count.
    """
    if example.dots == transpose(example.dots) or example.queries == example.key_units:
        return False
    rows = zip(example.dots, example.allowed, example.weights, strict=True)
    return all(_row_tells(dots, allowed, weights) for dots, allowed, weights in rows if sum(allowed) > 1)


def _row_tells(dots: list[int], allowed: list[bool], weights: list[Fraction]) -> bool:
    read = [dot for dot, ok in zip(dots, allowed, strict=True) if ok]
    shares = [Fraction(dot, sum(read)) for dot in read] if sum(read) else []
    return len(set(read)) > 1 and shares != [weight for weight, ok in zip(weights, allowed, strict=True) if ok]


def _seed(who: str, exercise_id: str, attempt: int) -> str:
    return hashlib.sha256(f"{who}\n{exercise_id}\n{attempt}".encode()).hexdigest()


@lru_cache(maxsize=256)
def _draw(seed: str, options: tuple[tuple[str, Any], ...]) -> Example:
    return fresh_example(seed, **dict(options))
