"""Names and answers of students as inert text: for screens, for file names, for comparing."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


def visible(text: str, cap: int = 2000) -> str:
    r"""Write control, bidirectional and invisible characters as escapes, and cut what is too long.

    >>> visible("a\nb\x1b[2J")
    'a\\nb\\x1b[2J'
    """
    shown = "".join(_escaped(char) for char in text[:cap])
    return shown if len(text) <= cap else shown + f"… ({len(text)} characters)"


def visible_lines(text: str, cap: int = 20_000) -> str:
    """Do the same and keep line ends and tabs, for answers of several lines."""
    return "\n".join("\t".join(visible(part, cap) for part in line.split("\t")) for line in text[:cap].splitlines())


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or char == "\u200d":  # emoji joiner
        return char
    return char.encode("unicode_escape").decode("ascii")


def same_name(text: str) -> str:
    """Fold a name for comparing: composed, caseless, blanks as one space.

    >>> same_name(" Jose\u0301  Diaz") == same_name("jos\xe9 diaz")
    True
    """
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def plural(number: float, one: str, many: str = "") -> str:
    """Count something in words; `many` is needed where an `s` is not enough.

    >>> plural(1, "student"), plural(0, "student"), plural(2, "answer waits", "answers wait")
    ('1 student', '0 students', '2 answers wait')
    """
    return f"{number:.10g} {one if number == 1 else many or f'{one}s'}"


def file_name(text: str) -> str:
    """Make a file name that is safe on every system; different texts never share one.

    >>> file_name("alice"), file_name("../x")
    ('alice', 'x-d6b96a97')
    """
    safe = re.sub(r"[^0-9A-Za-z_-]+", "-", text)[:60].strip("-_")
    hashed = re.search(r"-[0-9a-f]{8}$", text)  # looks like one of those below
    if safe and safe == text.lower() == text and safe not in _RESERVED and not hashed:
        return safe
    return f"{safe or 'student'}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
