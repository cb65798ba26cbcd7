"""One exception family: every message says what was given, what was expected, along which axis, and what to do."""

from __future__ import annotations


class LabkitError(ValueError):
    """Anything labkit refuses; catch this one to catch them all."""


class ShapeError(LabkitError):
    """Two arrays do not fit together along a named axis."""


class MaskError(LabkitError):
    """A mask is not a boolean `allowed` array of the right shape."""


class NonFiniteError(LabkitError):
    """A NaN or infinity sits where it would reach a result."""


class EmptyRowError(LabkitError):
    """A destination may read no source at all, so its weights would be 0/0.

    `rows` lists the index of every such row (with batch axes: a tuple of indices).
    """

    def __init__(self, rows: list[tuple[int, ...]]) -> None:
        self.rows = rows
        shown = ", ".join(str(row[0] if len(row) == 1 else row) for row in rows[:5])
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        super().__init__(
            f"destination row {shown}{more} may read no source: softmax there is 0/0. "
            "Allow at least one source in every row, or say what you want with "
            'empty_rows="zero" or empty_rows="nan".'
        )
