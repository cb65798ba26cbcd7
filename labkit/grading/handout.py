"""`labkit release`: the zip a lecturer hands out: lessons and the learner's labkit, without keys or grading."""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from labkit.errors import LabkitError

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "start.py", "pyproject.toml", "uv.lock", "environment.yml", "README.md", "CITATION.cff", "LICENSE",
    "LICENSE-prose", "docs/images/lesson.png",
)  # fmt: skip
FOLDERS = ("notebooks", "labkit")
WITHHELD = ("labkit/authoring", "labkit/grading")  # what makes keys, and what marks
ENDINGS = {".py", ".ipynb", ".json", ".npz", ".mjs", ".css", ".toml", ".csv", ".svg", ""}  # "": checksums
TOP = "attention-workbook"
DAY = (2020, 1, 1, 0, 0, 0)  # one date for all, so that the same project gives the same bytes


def main(argv: Sequence[str]) -> int:
    """Run `labkit release` and return its exit status."""
    parser = argparse.ArgumentParser(prog="labkit release", description="Make the zip that learners get, without keys.")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder for the zip (default: dist)")
    words = parser.parse_args(argv)
    made = make_release(words.out)
    print(f"wrote {made} ({made.stat().st_size / 1e6:.1f} MB)")
    return 0


def make_release(out: Path, root: Path = ROOT) -> Path:
    """Write the zip; raises LabkitError where this copy is itself a release, or has no lessons."""
    if not (root / "answer_keys").is_dir():
        raise LabkitError(f"{root} has no answer_keys/: a release is made from the full project.")
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{TOP}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents(root)):
            entry = zipfile.ZipInfo(f"{TOP}/{name}", DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            data = (root / name).read_bytes()
            archive.writestr(entry, for_learners(data.decode()).encode() if name == "README.md" else data)
    return path


def for_learners(readme: str) -> str:
    """Leave out of the README what only the full project has: tests, and the parts for instructors and authors.

    >>> for_learners("# A\\n\\n## Two commands\\nstart.py test  # all\\n\\n## For authors\\nx\\n\\n## Other ways\\n")
    '# A\\n\\n## One command\\n\\n## Other ways\\n'
    """
    kept = re.sub(r"^## For (instructors|authors)\n.*?(?=^## |\Z)", "", readme, flags=re.MULTILINE | re.DOTALL)
    kept = re.sub(r"^.*(start\.py test|labkit bundle)\b.*\n", "", kept, flags=re.MULTILINE)
    return kept.replace("## Two commands", "## One command")


def contents(root: Path) -> Iterator[str]:
    """Name every file of the release, from the top of the project."""
    yield from (name for name in FILES if (root / name).is_file())
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and path.suffix in ENDINGS and not _withheld(name):
                yield name


def _withheld(name: str) -> bool:
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
    return hidden or any(name.startswith(f"{folder}/") for folder in WITHHELD)
