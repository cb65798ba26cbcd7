"""What a lesson says after an attempt (hints, reasons, sealed choices), compiled by the builder out of the notebooks.

One JSON file a lesson stands in `labkit/feedback/`. It maps every exercise id to base64 text, so that nobody
reads an answer by accident; it is no secret from anyone who wants to look.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

# The builder executes lessons against feedback that is not installed yet.
FOLDER = Path(os.environ.get("LABKIT_FEEDBACK") or Path(__file__).parent / "feedback")


@dataclass(frozen=True)
class Feedback:
    """Everything a lesson's source says about one exercise, except its answer."""

    points: float = 1
    covers: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)  # option (or "right") -> reason
    sealed: str = ""  # salted hash of the right choice, where no computation decides
    kind: str = ""
    lesson: str = ""  # the file it stands in, without its ending


_NOTHING = Feedback()
_borrowed: list[Mapping[str, Feedback]] = []


def of(exercise_id: str) -> Feedback:
    """Give the feedback of one exercise; an unknown id has none."""
    for entries in reversed(_borrowed):
        if exercise_id in entries:
            return entries[exercise_id]
    return _stored(FOLDER).get(exercise_id, _NOTHING)


@contextmanager
def using(entries: Mapping[str, Feedback]) -> Iterator[None]:
    """Use these entries, before the stored ones, inside a `with` block."""
    _borrowed.append(entries)
    try:
        yield
    finally:
        _borrowed.remove(entries)


def seal(exercise_id: str, answer: Any) -> str:
    """Hash a choice together with its exercise's id, forgiving about case and surrounding spaces.

    >>> seal("x", "B") == seal("x", " b"), seal("x", "B") == seal("y", "B")
    (True, False)
    """
    text = json.dumps([exercise_id, " ".join(str(answer).split()).casefold()])
    return hashlib.sha256(text.encode()).hexdigest()


def encode(entries: Mapping[str, Feedback]) -> str:
    """Write one lesson's feedback file: sorted, one exercise a line.

    >>> decode(encode({"x": Feedback(points=2, why={"A": "no"})}))["x"].why
    {'A': 'no'}
    """
    packed = {
        id: base64.b64encode(json.dumps(asdict(entry), sort_keys=True).encode()).decode()
        for id, entry in entries.items()
    }
    return json.dumps(packed, indent=1, sort_keys=True) + "\n"


def decode(text: str) -> dict[str, Feedback]:
    """Read what `encode` wrote."""
    return {id: _entry(json.loads(base64.b64decode(packed))) for id, packed in json.loads(text).items()}


def _entry(fields: dict[str, Any]) -> Feedback:
    return Feedback(**{**fields, "covers": tuple(fields["covers"]), "hints": tuple(fields["hints"])})


def files(folder: Path) -> list[Path]:
    """List the feedback files of the lessons, in their order."""
    return sorted(folder.glob("[0-9]*.json"))


@cache
def _stored(folder: Path) -> dict[str, Feedback]:
    found: dict[str, Feedback] = {}
    for path in files(folder):
        found |= decode(path.read_text(encoding="utf-8"))
    return found
