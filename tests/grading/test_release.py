"""What a lecturer hands out: complete, the same bytes every time, and without a single answer."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from labkit import grading
from labkit.errors import LabkitError
from labkit.grading.handout import TOP, make_release
from labkit.grading.key import run_key
from labkit.grading.keyfile import find_keys, read_key

ROOT = Path(__file__).parents[2]
KEYS = find_keys(ROOT / "answer_keys")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_release(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def unzipped(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learner")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    return folder / TOP


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the unzipped copy, with the installed packages but not the project itself."""
    hide = "import sys; sys.path[:] = [p for p in sys.path if p != sys.argv[1]]; sys.path.insert(0, sys.argv[2]); "
    hide += "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]; "
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LABKIT", "PYTHON"))}
    code = hide + words[0]
    command = [sys.executable, "-P", "-c", code, str(ROOT), str(folder), *words[1:]]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


CLI = "from labkit.cli import main; sys.exit(main(sys.argv[3:]))"


# What is inside


def test_it_holds_lessons_and_labkit_and_nothing_of_the_instructors(archive: Path) -> None:
    names = [name.removeprefix(f"{TOP}/") for name in zipfile.ZipFile(archive).namelist()]
    assert names == sorted(names)
    assert {"start.py", "pyproject.toml", "README.md", "LICENSE", "LICENSE-prose", "labkit/__init__.py"} <= set(names)
    lessons = {f"notebooks/{key.stem}.ipynb" for key in KEYS}
    assert {name for name in names if name.startswith("notebooks/")} == lessons
    assert {name for name in names if name.endswith(".npz")} == {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "labkit").rglob("*.npz")
    }
    for name in names:
        assert not re.search(r"answer_keys|grading|authoring|tests|hostile|__pycache__|\.pyc|secret", name), name


def test_every_file_that_labkit_loads_is_inside(unzipped: Path) -> None:
    left_out = {"authoring", "grading", "__pycache__"}
    for path in (ROOT / "labkit").rglob("*"):
        relative = path.relative_to(ROOT)
        if path.is_file() and not left_out & set(relative.parts) and path.suffix != ".pyc":
            assert (unzipped / relative).read_bytes() == path.read_bytes(), relative


@pytest.mark.parametrize("key", KEYS, ids=lambda path: path.stem)
def test_no_answer_is_inside(key: Path, unzipped: Path) -> None:
    texts = {
        path: path.read_text("utf-8")
        for path in unzipped.rglob("*")
        if path.is_file() and path.suffix not in (".npz", ".png", ".pyc")
    }
    lesson = json.loads(texts[unzipped / "notebooks" / f"{key.stem}.ipynb"])
    blank = {
        cell["metadata"]["labkit"]["exercise"]: "".join(cell["source"])
        for cell in lesson["cells"]
        if cell["metadata"].get("labkit", {}).get("role") == "answer"
    }
    told = "\n".join(decoded(json.loads(texts[unzipped / "labkit" / "feedback" / f"{key.stem}.json"])))
    for name, cell in run_key(read_key(key)).answers().items():
        answer = cell.source.strip()
        assert answer not in blank[name]
        assert "..." in blank[name] or '""' in blank[name]
        if len(answer) >= 20:
            assert [path.name for path, text in texts.items() if written(answer) in text or answer in text] == []
            assert answer not in told
    for item in run_key(read_key(key)).items:
        if item.exercise.step == "written":
            for line in item.rubric.splitlines():
                if len(line) > 40:
                    assert all(written(line) not in text for text in (*texts.values(), told))


def written(text: str) -> str:
    """Write a text as it stands inside JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def decoded(value: object) -> list[str]:
    """Give every text of a feedback file, those in base64 too."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in decoded(part)]
    if isinstance(value, list):
        return [text for part in value for text in decoded(part)]
    try:
        return [str(value), base64.b64decode(str(value), validate=True).decode("utf-8")]
    except ValueError:
        return [str(value)]


@pytest.mark.parametrize("key", KEYS, ids=lambda path: path.stem)
def test_the_letter_of_a_choice_that_only_the_key_knows_is_sealed(key: Path, unzipped: Path) -> None:
    packed = json.loads((unzipped / "labkit" / "feedback" / f"{key.stem}.json").read_text("utf-8"))
    assert packed
    for exercise, text in packed.items():
        sealed = json.loads(base64.b64decode(text))["sealed"]
        assert re.fullmatch(r"([0-9a-f]{64})?", sealed), exercise


def test_the_same_project_gives_the_same_bytes_whenever_it_was_copied(unzipped: Path, tmp_path: Path) -> None:
    for name, when in (("one", 1_600_000_000), ("two", 1_700_000_000)):
        shutil.copytree(unzipped, tmp_path / name)
        (tmp_path / name / "answer_keys").mkdir()
        for path in (tmp_path / name).rglob("*"):
            os.utime(path, (when, when))
    one, two = (make_release(tmp_path / f"dist-{name}", tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


# Used as a learner would


def test_it_imports_and_marks_a_prediction(unzipped: Path) -> None:
    code = (
        "import labkit; from labkit import check; assert labkit.__file__.startswith(sys.argv[2]), labkit.__file__; "
        "v = check.number('x', 2, by=lambda: 2); print(v.status)"
    )
    ran = call(unzipped, code)
    assert (ran.returncode, ran.stdout.split()[-1:]) == (0, ["right"]), ran.stderr


def test_the_command_helps_and_says_what_is_for_instructors(unzipped: Path) -> None:
    assert "usage: labkit" in call(unzipped, CLI, "--help").stdout
    for command in ("grade", "regrade", "report", "release", "build"):
        ran = call(unzipped, CLI, command, "class.zip")
        assert ran.returncode == 1
        assert "instructors and authors use the full project" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_its_project_file_builds(unzipped: Path) -> None:
    project = tomllib.loads((unzipped / "pyproject.toml").read_text("utf-8"))["project"]
    assert (unzipped / project["readme"]).is_file()
    readme = (unzipped / "README.md").read_text("utf-8")
    assert "start.py" in readme
    assert "start.py test" not in readme
    assert "grade" not in readme
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", readme)
    assert links
    assert [link for link in links if not (unzipped / link).exists()] == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grading.release(["--out", str(tmp_path / "new" / "dist")]) == 0
    made = tmp_path / "new" / "dist" / f"{TOP}.zip"
    assert made.is_file()
    assert capsys.readouterr().out.startswith(f"wrote {made} (")


def test_a_release_makes_no_release(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    shutil.copy(ROOT / "start.py", tmp_path / "copy")
    with pytest.raises(LabkitError, match="full project"):
        make_release(tmp_path / "dist", tmp_path / "copy")
    assert not (tmp_path / "dist").exists()
