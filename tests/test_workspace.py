"""The learner's copies: made, renewed while untouched, never touched once edited."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit import workspace
from labkit.workspace import bring_up_to_date, digest, first_to_open, lesson_files


def notebook(*sources: str, outputs: list[Any] | None = None, count: int | None = None) -> str:
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": source.splitlines(keepends=True),
         "outputs": outputs or [], "execution_count": count}
        for n, source in enumerate(sources)
    ]  # fmt: skip
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workbook with two lessons, in a folder whose name is not plain."""
    home = tmp_path / "Übung 1 — 注意"
    (home / "notebooks").mkdir(parents=True)
    for name in ("00_start_here", "03_masks"):
        (home / "notebooks" / f"{name}.ipynb").write_text(notebook("first version", "answer = ..."))
    monkeypatch.setenv("LABKIT_HOME", str(home))
    return home


def update(home: Path) -> list[str]:
    return bring_up_to_date(lesson_files(home / "notebooks"), home / "my_work")


def lesson(home: Path, text: str) -> None:
    (home / "notebooks" / "03_masks.ipynb").write_text(notebook(text, "answer = ..."))


def learner(home: Path, text: str, name: str = "03_masks.ipynb") -> None:
    (home / "my_work" / name).write_text(notebook("first version", text))


def copies(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "my_work").glob("*.ipynb"))


def test_copies_are_made_when_missing_and_equal_the_lessons(place: Path) -> None:
    assert update(place) == []
    assert copies(place) == ["00_start_here.ipynb", "03_masks.ipynb"]
    for name in copies(place):
        assert (place / "my_work" / name).read_bytes() == (place / "notebooks" / name).read_bytes()


def test_an_untouched_copy_follows_the_lesson(place: Path) -> None:
    update(place)
    lesson(place, "second version")
    (said,) = update(place)
    assert "03_masks: updated" in said
    assert "second version" in (place / "my_work" / "03_masks.ipynb").read_text()
    assert update(place) == []


@pytest.mark.parametrize(
    "opened",
    [
        notebook("first version", "answer = ...", outputs=[{"output_type": "stream", "name": "stdout", "text": "x"}]),
        notebook("first version", "answer = ...", count=7),
        notebook("first version", "answer = ...", ""),
        notebook("first version", "answer = ...").replace("first version", "first version  "),
    ],
    ids=["outputs", "count", "empty cell at the end", "trailing blanks"],
)
def test_what_jupyterlab_does_by_itself_is_no_edit(place: Path, opened: str) -> None:
    update(place)
    (place / "my_work" / "03_masks.ipynb").write_text(opened)
    assert update(place) == []
    assert (place / "my_work" / "03_masks.ipynb").read_text() == opened, "outputs of a run are kept"
    lesson(place, "second version")
    assert "updated" in update(place)[0]


def test_windows_line_ends_are_no_edit(tmp_path: Path) -> None:
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        (tmp_path / name).write_text(notebook(f"a = 1{end}b = 2"))
    assert digest(tmp_path / "unix") == digest(tmp_path / "windows") is not None


def test_an_edited_copy_is_never_touched_and_the_new_lesson_lies_beside_it(place: Path) -> None:
    update(place)
    learner(place, "answer = 1/3")
    mine = (place / "my_work" / "03_masks.ipynb").read_bytes()
    assert update(place) == [], "nothing new, nothing to say"
    lesson(place, "second version")
    (said,) = update(place)
    assert "your copy stays" in said
    assert "03_masks.new.ipynb" in said
    assert (place / "my_work" / "03_masks.ipynb").read_bytes() == mine
    assert "second version" in (place / "my_work" / "03_masks.new.ipynb").read_text()
    assert update(place) == [], "said once"
    (place / "my_work" / "03_masks.new.ipynb").unlink()
    assert update(place) == [], "thrown away by the learner, so not offered again"
    lesson(place, "third version")
    assert "03_masks.new.ipynb" in update(place)[0]
    assert (place / "my_work" / "03_masks.ipynb").read_bytes() == mine


def test_an_edited_offer_is_not_touched_either(place: Path) -> None:
    update(place)
    learner(place, "answer = 1/3")
    lesson(place, "second version")
    update(place)
    learner(place, "answer = 2/3", "03_masks.new.ipynb")
    lesson(place, "third version")
    assert "03_masks.new2.ipynb" in update(place)[0]
    assert "2/3" in (place / "my_work" / "03_masks.new.ipynb").read_text()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"cells": 3}', b'{"cells": [{}]}', b"\xff\xfe"])
def test_an_unreadable_copy_counts_as_the_learners(place: Path, damage: bytes) -> None:
    update(place)
    copy = place / "my_work" / "03_masks.ipynb"
    copy.write_bytes(damage)
    lesson(place, "second version")
    assert "your copy stays" in update(place)[0]
    assert copy.read_bytes() == damage


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"03_masks.ipynb": 5}'])
def test_a_broken_manifest_never_costs_an_edit(place: Path, damage: str) -> None:
    update(place)
    learner(place, "answer = 1/3")
    (place / "my_work" / ".labkit" / "manifest.json").write_text(damage)
    lesson(place, "second version")
    assert "your copy stays" in update(place)[0]
    assert "1/3" in (place / "my_work" / "03_masks.ipynb").read_text()


def test_starting_over_keeps_every_old_copy(place: Path) -> None:
    update(place)
    for attempt in ("answer = 1", "answer = 2"):
        learner(place, attempt)
        said = workspace.start_over(place / "notebooks" / "03_masks.ipynb", place / "my_work")
        assert "the old one is" in said
        update(place)
        assert "..." in (place / "my_work" / "03_masks.ipynb").read_text()
    backups = sorted((place / "my_work" / "backups").iterdir())
    assert [path.name for path in backups] == ["03_masks.1.ipynb", "03_masks.2.ipynb"]
    assert "answer = 1" in backups[0].read_text()
    assert "answer = 2" in backups[1].read_text()


def test_two_starts_at_once_leave_whole_copies(place: Path) -> None:
    (place / "notebooks" / "03_masks.ipynb").write_text(notebook("x" * 3_000_000))
    code = "import sys; from labkit.workspace import *; from pathlib import Path\n"
    code += "bring_up_to_date(lesson_files(home() / 'notebooks'), home() / 'my_work')"
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    for name in copies(place):
        assert (place / "my_work" / name).read_bytes() == (place / "notebooks" / name).read_bytes()
    assert update(place) == []
    assert not list((place / "my_work").glob(".*tmp"))


# What cannot be written


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "disk is full"), (errno.EROFS, "--work FOLDER"), (errno.EACCES, "--work FOLDER")],
)
def test_a_full_disk_or_a_read_only_folder_is_explained(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, words: str
) -> None:
    update(place)
    learner(place, "answer = 1/3", "00_start_here.ipynb")
    lesson(place, "second version")
    before = {name: (place / "my_work" / name).read_bytes() for name in copies(place)}

    def refuse(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    assert workspace.main([]) == 1
    assert words in capsys.readouterr().err
    assert {name: (place / "my_work" / name).read_bytes() for name in copies(place)} == before
    assert not list((place / "my_work").glob(".*tmp")), "no half-written file stays behind"


def test_no_lessons_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    assert workspace.main([]) == 1
    assert str(tmp_path / "notebooks") in capsys.readouterr().err


# Launching


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], Path, dict[str, str]]]:
    """Run `labkit lab` with JupyterLab's start replaced by a note of what would be started."""
    notes: list[tuple[list[str], Path, dict[str, str]]] = []
    monkeypatch.setattr(workspace, "become", lambda *what: notes.append(what) or 0)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("LABKIT_JOURNAL", raising=False)

    def launch(*arguments: str) -> tuple[list[str], Path, dict[str, str]]:
        assert workspace.main(list(arguments)) == 0
        return notes[-1]

    return launch


def opened(command: list[str]) -> str:
    (address,) = (word for word in command if word.startswith("--LabApp.default_url="))
    return address.rpartition("/")[2]


def test_opens_the_first_lesson_then_the_one_edited_last(place: Path, launched: Any) -> None:
    command, folder, _ = launched()
    assert command[1:3] == ["-m", "jupyterlab"]
    assert opened(command) == "00_start_here.ipynb"
    assert folder == place / "my_work"
    assert f"--ServerApp.root_dir={folder}" in command
    learner(place, "answer = 1/3")
    assert first_to_open(lesson_files(place / "notebooks"), folder) == "03_masks.ipynb"
    assert opened(launched()[0]) == "03_masks.ipynb"
    assert opened(launched("0")[0]) == "00_start_here.ipynb"


def test_copies_alone_for_other_editors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workspace.main(["--copies-only"]) == 0
    assert str(place / "my_work") in capsys.readouterr().out
    assert copies(place) == ["00_start_here.ipynb", "03_masks.ipynb"]


def test_options_reach_jupyterlab(place: Path, launched: Any) -> None:
    command, folder, _ = launched("--no-browser", "--port", "9123", "--ip", "0.0.0.0", "--notebooks")
    assert {"--no-browser", "--port=9123", "--ip=0.0.0.0"} <= set(command)
    assert folder == place / "notebooks"
    assert "--no-browser" not in launched()[0]


def test_security_stays_on(launched: Any, place: Path) -> None:
    command, _, variables = launched("--no-browser")
    assert not [word for word in command if "token" in word.lower() or "password" in word.lower()]
    assert "JUPYTER_TOKEN" not in variables or os.environ.get("JUPYTER_TOKEN") == variables["JUPYTER_TOKEN"]


def test_root_is_allowed_only_where_it_is_the_user(place: Path, launched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for uid, expected in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid, raising=False)
        assert ("--allow-root" in launched()[0]) is expected


def test_over_ssh_the_way_in_is_printed(
    place: Path, launched: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 10.0.0.2 22")
    monkeypatch.setenv("USER", "ada")
    command, _, _ = launched("--port", "9123")
    assert "--no-browser" in command
    assert "ssh -N -L 9123:localhost:9123 ada@10.0.0.2" in capsys.readouterr().out


def test_kernels_get_the_journal_beside_the_copies(place: Path, launched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched()[2]["LABKIT_JOURNAL"] == str(place / "my_work" / ".labkit")
    monkeypatch.setenv("LABKIT_JOURNAL", "off")
    assert launched()[2]["LABKIT_JOURNAL"] == "off"


def test_fresh_backs_up_and_opens_that_lesson(place: Path, launched: Any, capsys: pytest.CaptureFixture[str]) -> None:
    launched()
    learner(place, "answer = 1/3")
    assert opened(launched("--fresh", "3")[0]) == "03_masks.ipynb"
    assert "backups" in capsys.readouterr().out
    assert workspace.main(["--fresh", "17"]) == 1
    assert "no lesson '17'; there are: 00_start_here, 03_masks" in capsys.readouterr().err


def test_jupyterlab_reads_our_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ask JupyterLab's own loaders, which look into the configuration path that `environment` sets."""
    code = (
        "import json; from jupyterlab_server.settings_utils import _get_overrides\n"
        "from jupyterlab_server.config import get_static_page_config\n"
        "print(json.dumps([_get_overrides('/nowhere')[0], get_static_page_config(level='all')]))"
    )
    variables = workspace.environment(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    overrides, page = json.loads(done.stdout)
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert page["disabledExtensions"]["@jupyterlab/apputils-extension:announcements"] is True


def test_every_setting_exists_in_jupyterlab() -> None:
    schemas = Path(sys.prefix, "share", "jupyter", "lab", "schemas")
    settings = json.loads((workspace.SETTINGS / "labconfig" / "default_setting_overrides.json").read_text())
    for plugin, chosen in settings.items():
        package, _, name = plugin.partition(":")
        known = json.loads((schemas / package / f"{name}.json").read_text())["properties"]
        assert set(chosen) <= set(known), plugin


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="only on systems with terminate signals")
def test_a_real_server_asks_for_its_token_and_serves_the_copies(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "labkit.cli", "lab", "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            address = next(line.strip() for line in server.stdout if line.strip().startswith("http://127.0.0.1"))
            page, token = re.fullmatch(r"(http://.*/lab/tree/00_start_here\.ipynb)\?token=(\w+)", address).groups()  # type: ignore[union-attr]
            contents = page.replace("/lab/tree/", "/api/contents/")
            assert status(contents) == 403
            assert status(f"{contents}?token={token}") == 200
            assert status(f"{page}?token={token}") == 200
        finally:
            server.terminate()


def status(address: str) -> int:
    """Ask a server that says its address a moment before it listens."""
    for _ in range(100):
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except urllib.error.URLError:
            time.sleep(0.1)
    raise TimeoutError(address)
