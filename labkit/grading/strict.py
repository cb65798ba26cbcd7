"""A JSON reader for bytes nobody vouches for: capped in size and depth, no duplicate keys, no guessing of encodings."""

from __future__ import annotations

import codecs
import json
from itertools import accumulate
from typing import Any, NoReturn

MAX_DEPTH = 64

_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NEITHER_QUOTE_NOR_BRACKET = bytes(set(range(256)) - _STEP.keys() - {ord('"')})


class Refused(Exception):  # noqa: N818  (a decision, not a fault)
    """The bytes are not read; the message says why, without naming the file."""


def decode(data: bytes) -> str:
    """Decode UTF-8 (with or without a byte-order mark) or UTF-16 with one; anything else is refused."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not data.startswith(codecs.BOM_UTF32_LE)
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"is not {'UTF-16' if wide else 'UTF-8'} text at byte {error.start}") from None


def read_json(data: bytes, *, cap: int, depth: int = MAX_DEPTH, constants: bool = False) -> Any:
    """Parse JSON bytes; `constants` says whether NaN and Infinity are read (as None) or refused.

    >>> read_json(b'{"a": [1, 2]}', cap=100)
    {'a': [1, 2]}
    >>> read_json(b'{"a": 1, "a": 2}', cap=100)
    Traceback (most recent call last):
        ...
    labkit.grading.strict.Refused: holds the key 'a' twice in one object
    """
    if len(data) > cap:
        raise Refused(f"is larger than {cap // 1024} KiB")
    text = decode(data)
    if nesting(text) > depth:
        raise Refused(f"is nested deeper than {depth} levels")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_nothing if constants else _refuse)
    except (ValueError, RecursionError):
        raise Refused("is not valid JSON") from None


def nesting(text: str) -> int:
    """Count how deep brackets nest outside strings, without building anything.

    >>> nesting('{"a": [[1], "[[["]}'), nesting(r'["\\\\", [[]], "\\"[[["]')
    (3, 3)
    """
    unescaped = text.replace("\\\\", "").replace('\\"', "")
    marks = unescaped.encode("ascii", "ignore").translate(None, _NEITHER_QUOTE_NOR_BRACKET)
    brackets = b"".join(marks.split(b'"')[::2])
    return max(accumulate(_STEP[bracket] for bracket in brackets), default=0)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"holds the key {twice[:40]!r} twice in one object")
    return made


def _nothing(_: str) -> None:
    return None


def _refuse(name: str) -> NoReturn:
    raise Refused(f"holds {name}, which is not JSON")
