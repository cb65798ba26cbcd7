"""What every panel shares: arrays as traits, the lock, reset, agreement with the front-end, and the still picture.

The traits are the truth. The front-end (`panel.mjs`) repeats the little arithmetic that a repaint within one frame
needs, sends moves with a growing `revision` (a few times a second in a drag), and this side answers with labkit's own
numbers and `confirmed`.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, ClassVar

import anywidget
import numpy as np
import traitlets
from numpy.typing import ArrayLike

from labkit import journal
from labkit.attention import Array
from labkit.errors import LabkitError, ShapeError
from labkit.panels.still import Still


def asset(name: str) -> str:
    """Read a file of the front-end."""
    return (resources.files("labkit.panels") / name).read_text(encoding="utf-8")


class Numbers(traitlets.TraitType[Any, Any]):
    """A read-only array that compares by content and keeps its shape; NaN travels to the front-end as null."""

    info_text = "an array of numbers"

    def __init__(self, dtype: type = float, undefined: bool = False) -> None:
        """Hold `dtype`; entries may be NaN only where a result can be `undefined` (0/0)."""
        super().__init__()
        self.dtype, self.undefined = dtype, undefined
        self.tag(sync=True, to_json=lambda value, _: to_json(value), from_json=lambda value, _: value)

    def validate(self, obj: Any, value: Any) -> Array:
        """Copy into a read-only array, of the shape it had before."""
        array = as_array(value, str(self.name), None if self.dtype is bool else self.dtype)
        if self.dtype is bool and array.dtype != bool:
            raise LabkitError(f"{self.name} has dtype {array.dtype}; it must be boolean, True where permitted.")
        if not self.undefined and not np.isfinite(array).all():
            raise LabkitError(f"{self.name} holds NaN or infinity: to block a source, set `allowed`.")
        old = obj._trait_values.get(self.name)
        if old is not None and old.shape != array.shape:
            raise ShapeError(f"{self.name} was {old.shape} and would become {array.shape}: make a new panel for it.")
        array.setflags(write=False)
        return array

    def set(self, obj: Any, value: Any) -> None:
        """Notify only when an entry really changed."""
        old, new = obj._trait_values.get(self.name), self.validate(obj, value)
        if old is None or not np.array_equal(old, new, equal_nan=self.undefined):
            super().set(obj, new)


def as_array(value: Any, name: str, dtype: type | None) -> Array:
    """Copy into a new array; what is none is refused in words."""
    try:
        return np.array(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise LabkitError(f"{name} is no array of numbers: {error}.") from error


def to_json(value: Any) -> Any:
    """Turn arrays into nested lists, with None for what JSON cannot write."""
    if not isinstance(value, np.ndarray):
        return value
    plain = value.astype(object)
    plain[~np.isfinite(value)] = None
    return plain.tolist()


def finite(array: ArrayLike, name: str, ndim: int) -> Array:
    """Give back a float array of `ndim` axes, refusing NaN and infinity: a panel draws every entry."""
    numbers = as_array(array, name, float)
    if numbers.ndim != ndim:
        raise ShapeError(f"{name} {numbers.shape} has {numbers.ndim} axes; a panel shows {ndim} here.")
    if not numbers.size:
        raise ShapeError(f"{name} {numbers.shape} is empty: there is nothing to draw.")
    if not np.isfinite(numbers).all():
        raise LabkitError(f"{name} holds NaN or infinity: to block a source, set `allowed` instead of a score of -inf.")
    return numbers


class Panel(anywidget.AnyWidget):
    """One state, drawn; `moves` are the traits a control can change and `derive` computes everything else."""

    _esm = asset("panel.mjs")
    _css = asset("panel.css")
    moves: ClassVar[tuple[str, ...]] = ()

    kind = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    start = traitlets.Dict().tag(sync=True)
    locked_by = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    locked = traitlets.Bool(False).tag(sync=True)
    noticed = traitlets.Dict().tag(sync=True)
    revision = traitlets.Int(0).tag(sync=True)
    confirmed = traitlets.Int(0).tag(sync=True)

    def __init__(self, *, locked_by: str | None = None, **traits: Any) -> None:
        locked = locked_by is not None and not journal.answered(locked_by)
        super().__init__(locked_by=locked_by, locked=locked, **traits)
        self.observe(self._recompute, names=[*self.moves, "revision"])
        self.observe(self._note, names=["noticed"])
        if locked:
            _waiting.add(self)

    @traitlets.validate("score_range", "value_range")
    def _from_low_to_high(self, proposal: Any) -> Any:
        ends = proposal["value"]
        if len(ends) != 2 or not -np.inf < ends[0] < ends[1] < np.inf:
            raise LabkitError(f"{proposal['trait'].name} is {ends}; expected two numbers, the lower one first.")
        return ends

    def open(self) -> None:
        """Complete the state just before the front-end hears of it."""
        self.start = {name: to_json(getattr(self, name)) for name in self.moves}
        self._recompute()
        super().open()

    def derive(self) -> Mapping[str, ArrayLike]:
        """Compute the traits that follow from the state."""
        raise NotImplementedError

    def still(self) -> Still:
        """Describe the present state as pictures and tables without controls."""
        raise NotImplementedError

    def reset(self) -> None:
        """Go back to the state the panel was made with."""
        with self.hold_trait_notifications():
            for name, value in self.start.items():
                setattr(self, name, value)

    def _recompute(self, _change: Any = None) -> None:
        with self.hold_sync():
            for name, value in self.derive().items():
                self.set_trait(name, value)
            self.set_trait("confirmed", self.revision)

    def _note(self, change: Any) -> None:
        """Keep in the journal what the learner said had moved, beside what had."""
        journal.append("noticed", exercise=self.locked_by, **change["new"])

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        still = self.still()
        # Derived numbers stay out: the front-end computes them, and a locked panel must not give them away.
        left_out = {*_FOREIGN, *self.derive()}
        state = {key: to_json(getattr(self, key)) for key in self.keys if key[0] != "_" and key not in left_out}
        state["confirmed"] = -1  # no kernel will answer
        return {**data, "text/plain": still.text(), "text/html": still.html(state)}, metadata


# Traits of ipywidgets that the front-end of a panel has no use for.
_FOREIGN = ("layout", "tabbable", "tooltip")
_waiting: weakref.WeakSet[Panel] = weakref.WeakSet()


def _unlock(exercise_id: str) -> None:
    for panel in list(_waiting):
        if panel.locked_by == exercise_id:
            panel.locked = False
            _waiting.discard(panel)


journal.listeners.append(_unlock)


def names(given: Sequence[object] | None, count: int, noun: str = "") -> list[str]:
    """Return one name for each position: the given ones, or 1, 2, 3 … after a noun."""
    if given is None:
        return [f"{noun}{i + 1}" for i in range(count)]
    if len(given) != count:
        raise ShapeError(f"{len(given)} labels for {count} positions: give one for each.")
    return [str(name) for name in given]
