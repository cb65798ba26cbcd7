"""A cluster gives what the process pool gives, byte for byte. Needs the extra `cluster`; the test starts its own."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit import grading
from labkit.grading import run as running
from labkit.grading.model import to_json
from labkit.grading.probe import Report
from labkit.grading.store import Store
from tests.conftest import require

KEY = Path(__file__).with_name("small_key.md")
# Dask closes its own threads and sockets late, and says so.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    require("distributed", importlib.util.find_spec("distributed"))
    from distributed import LocalCluster

    with LocalCluster(2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as running_cluster:
        yield running_cluster


@pytest.fixture
def classroom(tmp_path: Path, notebook: Callable[..., bytes]) -> Path:
    given: dict[str, dict[str, str]] = {
        "ada": {},
        "bob": {"row_2": "row_2 = [0, 1]", "write_mix": "def mix(weights, values):\n    return values"},
        "cy": {"row_2": "row_2 = np.array([1, 3]) / sum([1, 3])"},
        "dee": {"write_mix": "def mix(weights, values):\n    raise ValueError('no')"},
    }
    for name, answers in given.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "small_key.ipynb").write_bytes(notebook(**answers))
    (tmp_path / "class" / "eve").mkdir()
    (tmp_path / "class" / "eve" / "small_key.ipynb").write_bytes(b"{")
    return tmp_path / "class"


def everything(out: Path) -> dict[str, str]:
    with Store(out) as store:
        stored = {r.student.id: json.dumps(to_json(r), sort_keys=True) for r in store.results()}
    written = {
        p.relative_to(out).as_posix(): p.read_text("utf-8") for p in out.rglob("*") if p.suffix in (".csv", ".html")
    }
    return stored | written


def test_a_cluster_gives_the_same_bytes_as_the_process_pool(
    cluster: Any, classroom: Path, tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "find_sandbox", lambda: report)
    words = [str(classroom), "--keys", str(KEY), "--secret", str(tmp_path / "secret.txt")]
    assert grading.grade([*words, "--out", str(tmp_path / "pool"), "--jobs", "2"]) == 0
    far = ["--executor", "dask", "--scheduler", cluster.scheduler_address]
    assert grading.grade([*words, "--out", str(tmp_path / "dask"), *far]) == 0
    pool, dask = everything(tmp_path / "pool"), everything(tmp_path / "dask")
    assert len(pool) > 10
    assert dask == pool


def test_workers_of_several_threads_are_refused(
    classroom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("distributed", importlib.util.find_spec("distributed"))
    from distributed import LocalCluster

    with LocalCluster(1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as threads:
        far = ["--executor", "dask", "--scheduler", threads.scheduler_address]
        assert grading.grade([str(classroom), "--keys", str(KEY), "--out", str(tmp_path / "out"), *far]) == 1
    assert "--nthreads 1" in capsys.readouterr().err


def test_what_is_missing_is_said(classroom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(classroom), "--keys", str(KEY), "--out", str(tmp_path / "out"), "--executor", "dask"]
    assert grading.grade(words) == 1
    assert "needs --scheduler ADDRESS" in capsys.readouterr().err
    assert grading.grade([*words, "--scheduler", "nonsense"]) == 1
    assert "no Dask scheduler answers at nonsense" in capsys.readouterr().err


def test_without_the_extra_there_is_advice(
    classroom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    words = [str(classroom), "--out", str(tmp_path), "--executor", "dask", "--scheduler", "tcp://127.0.0.1:1"]
    assert grading.grade(words) == 1
    assert 'pip install "labkit[cluster]"' in capsys.readouterr().err
