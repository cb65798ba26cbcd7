"""Look into a folder or a zip without extracting anything: names, sizes, and bytes on demand."""

from __future__ import annotations

import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from labkit.grading.notebook import MAX_NOTEBOOK
from labkit.grading.strict import Refused
from labkit.grading.text import visible

MAX_MEMBERS = 20_000
MAX_FOLDERS = 20  # how deep
MAX_NAME = 300  # characters of the whole path

_JUNK_FOLDERS = {"__MACOSX", ".ipynb_checkpoints", ".git", "__pycache__"}
_JUNK_FILES = {".DS_Store", "Thumbs.db", "desktop.ini"}


@dataclass(frozen=True)
class Found:
    """One file in a folder or a zip: where it stands, when it was written, and how to get its bytes."""

    source: str
    parts: tuple[str, ...]
    when: str
    read: Callable[[], bytes]  # raises Refused
    refused: str = ""  # why it is not even looked at


def look(path: Path, label: str = "") -> Iterator[Found]:
    """List the files of a folder, a zip, or the one notebook `path` names, in a fixed order.

    `label` is what their sources call it; without one a folder is not mentioned.
    """
    if path.is_dir():
        yield from _folder(path, label)
    elif path.suffix.lower() == ".ipynb":
        yield Found(label or path.name, (path.name,), "", lambda: _read_file(path))
    else:
        yield from _zip(path, label or path.name)


def _folder(root: Path, label: str) -> Iterator[Found]:
    for folder, inner, names in os.walk(root, followlinks=False):
        inner[:] = sorted(name for name in inner if name not in _JUNK_FOLDERS)
        for name in sorted(set(names) - _JUNK_FILES):
            path = Path(folder, name)
            parts = tuple(map(whole, path.relative_to(root).parts))
            link = "is a link, and links are not followed" if path.is_symlink() else ""
            source = "/".join(filter(None, (label, *parts)))
            yield Found(source, parts, "", lambda path=path: _read_file(path), link)  # type: ignore[misc]


def _read_file(path: Path) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Refused("is not a regular file")
            return _capped(file.read)
    except OSError as error:
        raise Refused(f"cannot be read ({error.strerror})") from None


def _zip(path: Path, label: str) -> Iterator[Found]:
    try:
        archive = zipfile.ZipFile(path)
        members = _members(archive)
    except Refused as refused:
        yield Found(label, (path.name,), "", lambda: b"", str(refused))
        return
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError):
        yield Found(label, (path.name,), "", lambda: b"", "is not a zip archive that can be read")
        return
    for member in members:
        source = f"{label}!{member.filename}"
        # Some Windows programs write backslashes between folders, against the standard.
        parts = tuple(part for part in re.split(r"[\\/]", member.filename) if part not in ("", "."))
        if not parts or _JUNK_FOLDERS & set(parts) or parts[-1] in _JUNK_FILES or parts[-1].startswith("._"):
            continue
        yield Found(source, parts, _time(member), _reader(archive, member), _unsafe(member, parts))


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) > MAX_MEMBERS:
        raise Refused(f"holds {len(members)} files, more than {MAX_MEMBERS}")
    placed = sorted(members, key=lambda member: member.header_offset)
    if any(a.header_offset + 30 + a.compress_size > b.header_offset for a, b in pairwise(placed)):
        raise Refused("holds files that overlap each other, as a zip bomb does")
    return members


def _unsafe(member: zipfile.ZipInfo, parts: Sequence[str]) -> str:
    """Say why a member is refused by its name or kind, or nothing."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "is a link or a device, not a file"
    if member.flag_bits & 1:
        return "is encrypted"
    if ".." in parts or member.filename.startswith(("/", "\\")) or re.match(r"[A-Za-z]:[\\/]", member.filename):
        return "points outside its archive"
    if len(parts) > MAX_FOLDERS or len(member.filename) > MAX_NAME:
        return "has a path that is too long or too deep"
    return ""


def _reader(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with archive.open(member) as stream:
                return _capped(stream.read)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, OSError, RuntimeError, EOFError, ValueError):
            raise Refused("is damaged inside its archive") from None

    return read


def _capped(read: Callable[[int], bytes]) -> bytes:
    data = read(MAX_NOTEBOOK + 1)
    if len(data) > MAX_NOTEBOOK:
        raise Refused(f"is larger than {MAX_NOTEBOOK >> 20} MiB")
    return data


def _time(member: zipfile.ZipInfo) -> str:
    try:
        when = datetime(*member.date_time)
    except ValueError:
        return ""
    return "" if when.year == 1980 else when.isoformat(sep=" ")  # 1980: the format's way of saying nothing


def whole(text: str) -> str:
    """Replace what is no character (a file name of bytes that are not UTF-8), so that the text can be stored."""
    return text.encode("utf-8", "replace").decode("utf-8", "replace")


def own_name(source: str) -> str:
    """Give a file's name without the archive and the folders it came in.

    >>> own_name("week1.zip!ada/a.ipynb")
    'a.ipynb'
    """
    return re.split(r"[/\\!]", source)[-1]


def sentence(source: str, reason: str) -> str:
    """Name the file and say why it is refused.

    >>> sentence("a.ipynb", "is empty")
    'a.ipynb is empty.'
    """
    return f"{visible(source, 200)} {reason}."
