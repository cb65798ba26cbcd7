"""The command line: one table, lazy imports, advice instead of tracebacks; and `labkit test` and `labkit doctor`."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit import cli, doctor, testing
from labkit.testing import Outcome, Step


def labkit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "labkit.cli", *arguments], capture_output=True, text=True, check=False)


# labkit


def test_help_lists_every_command() -> None:
    done = labkit("--help")
    assert done.returncode == 0
    assert labkit().stdout == done.stdout
    for name, command in cli.COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert command.summary in done.stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    done = labkit(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: labkit {name}")


def test_unknown_command_suggests_the_near_one() -> None:
    done = labkit("gradee")
    assert done.returncode == 2
    assert "Did you mean 'grade'?" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is told otherwise there")
def test_a_reader_who_has_read_enough_is_no_error() -> None:
    for words in (["--help"], ["grade", "--help"]):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "labkit.cli", *words]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writing)
        assert done.stderr == ""
        assert done.returncode in (0, 141)


def test_version() -> None:
    assert labkit("--version").stdout.strip() == importlib.metadata.version("labkit")


def test_a_missing_extra_becomes_advice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli.COMMANDS, "build", cli.Command("package_that_is_not_there", ""))
    assert cli.main(["build"]) == 1
    assert 'pip install "labkit[authors]"' in capsys.readouterr().err
    monkeypatch.setitem(cli.COMMANDS, "grade", cli.Command("labkit.part_left_out", ""))
    assert cli.main(["grade"]) == 1
    assert "This copy is the one for learners" in capsys.readouterr().err


def test_a_commands_status_is_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(doctor, "main", lambda argv: given.append(argv) or 7)
    assert cli.main(["doctor", "--x", "y"]) == 7
    assert given == [["--x", "y"]]


def test_help_imports_nothing_that_is_slow() -> None:
    code = "import sys; from labkit import cli; cli.main(['--help']); print({m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for module in ("numpy", "matplotlib", "ipywidgets", "nbformat", "jupyterlab", "rich", "argparse"):
        assert f"'{module}'" not in loaded


def seconds(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


@pytest.mark.alone
def test_help_takes_less_than_150_ms() -> None:
    assert min(seconds("from labkit import cli; cli.main(['--help'])") for _ in range(5)) < 0.150


@pytest.mark.alone
def test_import_labkit_adds_less_than_10_ms_to_numpy() -> None:
    code = "import numpy, time; t = time.perf_counter(); import labkit; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(5)]
    assert min(float(run.stdout) for run in runs) < 0.010


# labkit test


def step(code: str, **options: float) -> Step:
    return Step("one", "a step", [sys.executable, "-c", code], **options)  # type: ignore[arg-type]


def test_a_step_passes_with_its_closing_line(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = testing.run(step("print('noise'); print('==== 3 passed in 0.1s ====')"), verbose=False)
    assert outcome.passed
    assert outcome.closing == "3 passed in 0.1s"
    assert "noise" not in capsys.readouterr().out


def test_a_failing_step_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = testing.run(step("print('the reason'); raise SystemExit(1)"), verbose=False)
    assert not outcome.passed
    assert "the reason" in capsys.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="only on systems with process groups")
def test_a_step_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    child = f"import time, pathlib; time.sleep(3); pathlib.Path({str(tmp_path / 'alive')!r}).touch()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    outcome = testing.run(step(code, minutes=1 / 60), verbose=False)
    assert not outcome.passed
    assert "stopped after" in outcome.closing
    time.sleep(3)
    assert not (tmp_path / "alive").exists()


def test_a_missing_program_is_a_failure_not_a_crash() -> None:
    outcome = testing.run(Step("one", "a step", ["program-that-is-not-there"]), verbose=False)
    assert not outcome.passed
    assert "program-that-is-not-there" in outcome.closing


def test_steps_do_not_see_who_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LABKIT_LEARNER", "NBGRADER_EXECUTION", "MPLBACKEND", "PYTEST_ADDOPTS"):
        monkeypatch.setenv(name, "x")
    seen = testing.environment()
    assert not {"LABKIT_LEARNER", "NBGRADER_EXECUTION", "MPLBACKEND", "PYTEST_ADDOPTS"} & set(seen)
    assert seen["LABKIT_JOURNAL"] == "off"


def test_fast_and_only_choose() -> None:
    every = testing.steps(2)
    assert len({each.name for each in every}) == len(every)
    fast = testing.choose(every, [], fast=True)
    assert {each.name for each in every} - {each.name for each in fast} == {each.name for each in every if each.slow}
    assert [each.name for each in testing.choose(every, ["slow"], fast=True)] == ["slow"]
    with pytest.raises(SystemExit):
        testing.parse(["--only", "nonsense"])


def test_the_parts_fit_into_ci() -> None:
    names = [each.name for each in testing.steps(2)]
    assert {"lint", "types", "fresh", "unit", "blank", "solved", "slow", "mutants"} <= set(names)


def test_the_summary_names_what_failed() -> None:
    good = Outcome(step(""), True, 61.0, "5 passed")
    bad = Outcome(Step("slow", "other", []), False, 2.0, "1 failed")
    said = testing.summary([good, bad])
    assert "FAILED: slow (1 min 3 s)." in said
    assert "5 passed" in said
    assert "All 1 parts passed" in testing.summary([good])


def test_ci_turns_a_skip_into_a_failure(tmp_path: Path) -> None:
    """Run pytest on a small project that uses our conftest.py."""
    here = Path(__file__).parent
    (tmp_path / "conftest.py").write_text((here / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from conftest import require\n"
        "def test_gap(): pytest.skip('no reason')\n"
        "def test_fact(): pytest.skip('only on Windows')\n"
        "def test_peer(): require('torch', False)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    plain = {name: value for name, value in os.environ.items() if name != "CI"}

    def closing(env: dict[str, str]) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return testing.closing(done.stdout.splitlines())

    assert closing(plain).startswith("3 skipped")
    if sys.platform == "linux":
        assert closing({**plain, "CI": "true"}).startswith("2 failed, 1 skipped")


# labkit doctor


def test_doctor_reports_this_environment(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.main([])
    said = capsys.readouterr().out
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]}" in said
    assert "numpy" in said
    assert "jupyterlab" in said


def test_doctor_counts_only_what_lessons_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "00_start_here.ipynb").write_text("{}")
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert doctor.main([]) == 0
    assert "only browser tests need it" in capsys.readouterr().out
    (tmp_path / "notebooks" / "00_start_here.ipynb").unlink()
    assert doctor.main([]) == 1
    assert "missing" in capsys.readouterr().out
