"""The driver of the benchmarks: bars, tables, and a page of which only the measured part changes."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_run", ROOT / "benchmarks" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmarks_run", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "performance.md"
    path.write_text(
        "# Speed\n<!-- measured: fake -->\nold\n<!-- end -->\n<!-- measured: core -->\nkept\n<!-- end -->\n"
    )
    return path


@pytest.mark.parametrize(("number", "status", "said"), [(4.0, 0, "yes"), (6.0, 1, "**no**")])
def test_a_part_is_written_between_its_markers_and_judged(
    driver: ModuleType, page: Path, monkeypatch: pytest.MonkeyPatch, number: float, status: int, said: str
) -> None:
    rows = [driver.Row("a thing", number, "ms", 5), driver.Row("an anchor", 2000, "ms")]
    monkeypatch.setattr(driver, "PARTS", {"fake": lambda: rows})
    assert driver.main([], page) == status
    text = page.read_text()
    assert f"| a thing | {number:g} ms | at most 5 ms | {said} |\n| an anchor | 2,000 ms |  |  |\n" in text
    assert "Python 3." in text
    assert "old" not in text
    assert "<!-- measured: core -->\nkept\n<!-- end -->" in text
    assert [file.name for file in page.parent.iterdir()] == ["performance.md"]


def test_printing_writes_nothing(driver: ModuleType, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PARTS", {"fake": lambda: [driver.Row("a thing", 1, "ms")]})
    before = page.read_text()
    assert driver.main(["--print"], page) == 0
    assert page.read_text() == before


def test_a_part_without_a_place_is_an_error(driver: ModuleType, page: Path) -> None:
    with pytest.raises(ValueError, match="0 places for the part 'grading'"):
        driver.put(page.read_text(), "grading", "x")


def test_bars_below_and_above(driver: ModuleType) -> None:
    assert driver.Row("", 10, "", 10).met
    assert not driver.Row("", 10.1, "", 10).met
    assert driver.Row("", 10, "", 10, least=True).met
    assert not driver.Row("", 9.9, "", 10, least=True).met
    assert "at least 10 times | **no** |" in driver.Row("", 9.9, "times", 10, least=True).markdown()


def test_a_benchmark_that_misses_its_bar_is_read_all_the_same(
    driver: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setattr(driver, "ROOT", tmp_path)
    case = {
        "dtype": "float64", "mask": "none", "time_ratio": 9.0, "in_place_ratio": 9.5,
        "processor_ratio": 1.2, "memory_ratio": 1.6,
        "milliseconds": {"labkit": 10.0, "textbook": 20.0},
    }  # fmt: skip
    (tmp_path / "benchmarks" / "core.py").write_text(f"import json, sys; print(json.dumps([{case}])); sys.exit(1)")
    rows = list(driver.core())
    assert [(row.number, row.met) for row in rows] == [(1.2, True), (9.5, True), (1.6, False), (0.5, True)]
    (tmp_path / "benchmarks" / "core.py").write_text("raise RuntimeError('no sandbox')")
    with pytest.raises(SystemExit, match="no sandbox"):
        list(driver.core())


def test_numbers_come_from_what_is_printed_or_else_from_the_clock(driver: ModuleType) -> None:
    assert driver.best("print(0.25)", times=1) == 250
    assert 50 < driver.best("import time; time.sleep(0.05)", times=1) < 30_000


def test_processor_time_of_children_and_grandchildren_counts_work_not_waiting(driver: ModuleType) -> None:
    def cost(code: str) -> float:
        before = driver.childrens_seconds()
        driver.best(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)", times=1)
        return driver.childrens_seconds() - before

    assert cost("sum(range(30_000_000))") > cost("import time; time.sleep(0.5)") + 0.1


def test_the_page_has_a_place_for_every_part_and_for_nothing_else(driver: ModuleType) -> None:
    text = driver.PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<!-- measured: (\w+) -->", text) == list(driver.PARTS)
    for part in driver.PARTS:
        assert driver.put(text, part, "x") != text
