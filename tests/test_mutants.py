"""The mutation check itself: its mutants are real changes, and it tells a good test from none."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import mutants

ROOT = Path(__file__).resolve().parent.parent


def made_from(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "labkit").mkdir()
    (tmp_path / "labkit" / "__init__.py").touch()
    (tmp_path / "labkit" / "small.py").write_text(f"def f(a, b):\n    {code}\n", encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return [ast.unparse(ast.parse(each.source).body[0].body).strip() for each in mutants.mutants("small")]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return a < b", ["return a <= b"]),
        ("return a @ b", ["return b @ a"]),
        ("return a + b", ["return a - b"]),
        ("return a & b", ["return a | b"]),
        ("return a and b", ["return a or b"]),
        ("return not a", ["return a"]),
        ("return ~a", ["return a"]),
        ("return f(a, axis=-1)", ["return f(a, axis=1)", "return f(a, axis=-2)"]),
        ("return f(a, keepdims=True)", ["return f(a, keepdims=False)"]),
        ("if a: raise ValueError(b + 1)", ["if False:\n    raise ValueError(b + 1)"]),
        ("x: list[int] = a", []),
        ('raise ValueError(f"{a + b}")', []),
        ("return 'text'", []),
    ],
)
def test_what_is_changed(code: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert made_from(code, tmp_path, monkeypatch) == expected


def test_a_mutant_leaves_the_rest_of_the_module_alone() -> None:
    original = ast.unparse(ast.parse((ROOT / "labkit" / "masks.py").read_text(encoding="utf-8")))
    for mutant in mutants.mutants("masks"):
        changed = [a != b for a, b in zip(original.splitlines(), mutant.source.splitlines(), strict=False)]
        assert 1 <= sum(changed) <= 2, mutant.name
        compile(mutant.source, mutant.name, "exec")


def test_there_are_enough_of_them_and_every_guard_exists() -> None:
    chosen = [mutant for module in mutants.GUARDS for mutant in mutants.choose(module, mutants.parse([]).every)]
    assert len(chosen) >= 100
    assert len([m for module in mutants.GUARDS for m in mutants.choose(module, mutants.parse(["--quick"]).every)]) >= 40
    missing = [test for guards in mutants.GUARDS.values() for test in guards if not (ROOT / test).exists()]
    assert not missing


def test_every_excuse_still_belongs_to_a_mutant() -> None:
    names = {mutant.name for module in mutants.GUARDS for mutant in mutants.mutants(module)}
    assert set(mutants.EQUIVALENT) <= names


@pytest.mark.slow
def test_only_a_test_that_looks_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labkit").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "labkit" / "__init__.py").touch()
    (tmp_path / "labkit" / "small.py").write_text("def f(a, b):\n    return a + b\n", encoding="utf-8")
    (tmp_path / "tests" / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    settings = '[tool.pytest.ini_options]\npythonpath = ["."]\nmarkers = ["slow", "alone"]\n'
    (tmp_path / "pyproject.toml").write_text(settings, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "GUARDS", {"small": ["tests/test_small.py"]})
    for value, status in ((0, 1), (3, 0)):  # 0 + 0 is 0 - 0, but 3 + 3 is not 3 - 3
        test = f"from labkit.small import f\ndef test_f(): assert f({value}, {value}) == {2 * value}\n"
        (tmp_path / "tests" / "test_small.py").write_text(test, encoding="utf-8")
        assert mutants.main(["--only", "small", "--jobs", "1"]) == status
