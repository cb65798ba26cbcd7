"""`labkit lab`: the learner's own copies of the lessons, and JupyterLab on top of them.

A copy is *untouched* while the sources of its cells are those of a lesson that was handed out: running cells changes
outputs and metadata only. Untouched copies follow the lessons; a copy with an edit belongs to the learner, for good.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETTINGS = Path(__file__).parent / "jupyter"  # JupyterLab's settings for learners: no news, follow the system's theme
MANIFEST = "manifest.json"


class WorkspaceError(Exception):
    """A copy cannot be made; the message says what to do."""


def main(argv: list[str]) -> int:
    """Bring the learner's copies up to date, then become JupyterLab."""
    options = parse(argv)
    try:
        lessons = lesson_files(home() / "notebooks")
        work = Path(options.work).absolute()
        for number in options.fresh:
            print(start_over(find_lesson(lessons, number), work))
        for notice in bring_up_to_date(lessons, work):
            print(notice)
        if options.copies_only:
            print(f"Your copies are in {work}.")
            return 0
        folder = home() / "notebooks" if options.notebooks else work
        asked = options.lesson or next(iter(options.fresh), "")
        chosen = find_lesson(lessons, asked).name if asked else first_to_open(lessons, folder)
    except WorkspaceError as error:
        print(f"labkit lab: {error}", file=sys.stderr)
        return 1
    return launch(folder, chosen, work, options)


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="labkit lab", description="Open the lessons in JupyterLab.")
    parser.add_argument("lesson", nargs="?", help="a lesson's number, for example 03 (default: where you stopped)")
    parser.add_argument("--fresh", action="append", default=[], metavar="03", help="start over; keeps a backup")
    parser.add_argument("--notebooks", action="store_true", help="open the originals, not your copies")
    parser.add_argument("--copies-only", action="store_true", help="make your copies and stop (for other editors)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--port", type=int, help="default: 8888, or the next free one")
    parser.add_argument("--ip", help="address to listen on, for example 0.0.0.0 in a container")
    parser.add_argument("--work", default=str(home() / "my_work"), metavar="FOLDER", help="where your copies are kept")
    return parser.parse_args(argv)


def home() -> Path:
    """Return the folder that holds `notebooks/`: LABKIT_HOME, this checkout, or else the current folder."""
    if named := os.environ.get("LABKIT_HOME"):
        return Path(named).absolute()
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "notebooks").is_dir() else Path.cwd()


# Lessons


def lesson_files(folder: Path) -> list[Path]:
    """Return the lessons in order."""
    if lessons := sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        return lessons
    raise WorkspaceError(f"no lessons in {folder}. Run this from the workbook's folder, or set LABKIT_HOME to it.")


def find_lesson(lessons: list[Path], wanted: str) -> Path:
    """Return the lesson with this number or name."""
    number = wanted.zfill(2) if wanted.isdigit() else wanted
    for lesson in lessons:
        if number in (lesson.name[:2], lesson.stem, lesson.name):
            return lesson
    raise WorkspaceError(f"no lesson {wanted!r}; there are: {', '.join(lesson.stem for lesson in lessons)}")


def first_to_open(lessons: list[Path], folder: Path) -> str:
    """Return the lesson the learner edited last, or the first one."""
    edited = [copy for lesson in lessons if (copy := folder / lesson.name).exists() and digest(copy) != digest(lesson)]
    return max(edited, key=lambda copy: copy.stat().st_mtime).name if edited else lessons[0].name


# Copies


def bring_up_to_date(lessons: list[Path], work: Path) -> list[str]:
    """Make missing copies, renew untouched ones, offer new versions of edited ones beside them; return what to say."""
    with understandable(work):
        (work / ".labkit").mkdir(parents=True, exist_ok=True)
        handed_out = read_manifest(work)
        notices = [notice for lesson in lessons if (notice := renew(lesson, work, handed_out))]
        write_atomically(work / ".labkit" / MANIFEST, json.dumps(handed_out, indent=1, sort_keys=True).encode())
    return notices


def renew(lesson: Path, work: Path, handed_out: dict[str, str]) -> str | None:
    """Bring one copy up to date; `handed_out` holds, by file name, the digest of what was given to the learner."""
    newest, copy = digest(lesson), work / lesson.name
    before = handed_out.get(lesson.name)
    if untouched(copy, before, newest):
        place(lesson, copy, handed_out)
        return f"{lesson.stem}: updated (you had not changed it)." if before not in (None, newest) else None
    if newest in (before, handed_out.get(f"offered {lesson.name}")):
        return None  # the learner's own version of the current lesson, or the new one was offered earlier
    beside = next(path for path in names_beside(copy) if untouched(path, handed_out.get(path.name), newest))
    place(lesson, beside, handed_out)
    handed_out[f"offered {lesson.name}"] = str(newest)
    return f"{lesson.stem}: your copy stays as it is; the lesson has changed, and the new one is {beside.name}."


def untouched(copy: Path, *handed_out: str | None) -> bool:
    """Tell whether a copy may be written: missing, or with the very cells that were handed out."""
    return not copy.exists() or digest(copy) in [known for known in handed_out if known]


def names_beside(copy: Path) -> Iterator[Path]:
    """Yield the names NAME.new.ipynb, NAME.new2.ipynb and so on."""
    yield copy.with_suffix(".new.ipynb")
    for number in range(2, 1_000):
        yield copy.with_suffix(f".new{number}.ipynb")


def place(lesson: Path, copy: Path, handed_out: dict[str, str]) -> None:
    """Copy a lesson, unless the cells there are the same already (outputs of an earlier run are kept)."""
    newest = str(digest(lesson))
    if digest(copy) != newest:
        write_atomically(copy, lesson.read_bytes())
    handed_out[copy.name] = newest


def start_over(lesson: Path, work: Path) -> str:
    """Put the lesson's copy aside, so that a fresh one is made; return what to say."""
    copy = work / lesson.name
    if not copy.exists():
        return f"{lesson.stem}: a fresh copy."
    with understandable(work):
        backups = work / "backups"
        backups.mkdir(parents=True, exist_ok=True)
        backup = next(path for n in range(1, 10_000) if not (path := backups / f"{lesson.stem}.{n}.ipynb").exists())
        shutil.move(str(copy), str(backup))
    return f"{lesson.stem}: a fresh copy; the old one is {backup.relative_to(work)}."


def digest(notebook: Path) -> str | None:
    """Hash the kinds and sources of the cells that are not empty; None when there is no readable notebook.

    Outputs, counts, ids and metadata are left out: JupyterLab changes them when a notebook is opened or run, and adds
    an empty cell at the end. Line ends are left out because editors change them.
    """
    try:
        cells = json.loads(notebook.read_bytes())["cells"]
        parts = [(cell["cell_type"], "".join(cell["source"]).replace("\r\n", "\n").rstrip()) for cell in cells]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return hashlib.sha256(json.dumps([part for part in parts if part[1]]).encode()).hexdigest()


def read_manifest(work: Path) -> dict[str, str]:
    """Return what was handed out; a lost or broken manifest only means that every copy counts as edited."""
    try:
        found = json.loads((work / ".labkit" / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file in one move: readers and other starts see the old content or the new one, never a half."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def understandable(work: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into a message that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WorkspaceError(f"the disk is full, so {work} stays as it was. Make room and try again.") from error
        raise WorkspaceError(
            f"cannot write into {work} ({error.strerror}). Choose a folder that is yours with --work FOLDER."
        ) from error


# JupyterLab


def launch(folder: Path, lesson: str, work: Path, options: argparse.Namespace) -> int:
    """Start JupyterLab on one lesson; its own token keeps other people on this machine out."""
    remote = "SSH_CONNECTION" in os.environ
    print(f"Opening {lesson} from {folder}. Ctrl-C here stops the workbook; your answers are saved.", flush=True)
    if remote:
        print(tunnel(options.port or 8888), flush=True)
    command = [sys.executable, "-m", "jupyterlab", "--log-level=WARN", "--LabApp.extension_manager=readonly"]
    command += [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{lesson}"]
    command += jupyter_options(options, browser=not remote, root=getattr(os, "geteuid", lambda: 1)() == 0)
    return become(command, folder, environment(work))


def jupyter_options(options: argparse.Namespace, browser: bool, root: bool) -> list[str]:
    """Translate our options into JupyterLab's."""
    chosen = {
        "--no-browser": options.no_browser or not browser,
        "--allow-root": root,  # a container's usual user
        f"--port={options.port}": options.port,
        f"--ip={options.ip}": options.ip,
    }
    return [option for option, wanted in chosen.items() if wanted]


def environment(work: Path) -> dict[str, str]:
    """Return the variables the server and its kernels need: settings, this environment's kernel, the journal."""
    paths = [str(SETTINGS), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    ours = {
        "JUPYTER_CONFIG_PATH": os.pathsep.join(paths),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "LABKIT_JOURNAL": os.environ.get("LABKIT_JOURNAL") or str(work / ".labkit"),
    }
    return {**os.environ, **ours}


def tunnel(port: int) -> str:
    """Say how to reach a server on the far side of an SSH connection."""
    user, host = os.environ.get("USER", "you"), os.environ["SSH_CONNECTION"].split()[2]
    return (
        "You are connected by SSH. On your own computer run\n"
        f"    ssh -N -L {port}:localhost:{port} {user}@{host}\n"
        "and open the address with ?token= that follows, in your own browser."
    )


def become(command: list[str], folder: Path, variables: dict[str, Any]) -> int:
    """Hand this process over to the server; Windows has no such thing, so wait for it there."""
    os.chdir(folder)
    if os.name != "nt":
        os.execve(command[0], command, variables)
    with contextlib.suppress(KeyboardInterrupt):
        return subprocess.run(command, env=variables, check=False).returncode
    return 130
