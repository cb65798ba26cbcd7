"""The declarations of what is installed agree: pyproject.toml, uv.lock, environment.yml and the CI files."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
import yaml
from packaging.requirements import Requirement

from tests.conftest import require

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def lock() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "uv.lock").read_text())["package"]


@pytest.fixture(scope="module")
def conda() -> list[Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def test_conda_route_installs_what_pyproject_declares(project: dict[str, Any], conda: list[Any]) -> None:
    ours = {"python": project["requires-python"]}
    ours |= {requirement.name: str(requirement.specifier) for requirement in map(Requirement, project["dependencies"])}
    theirs = dict(spec.partition(" ")[::2] for spec in conda if isinstance(spec, str))
    assert theirs.pop("pip") == ""
    assert theirs == ours
    assert conda[-1] == {"pip": ["-e ."]}


def test_conda_specs_are_valid_and_accept_the_locked_versions(conda: list[Any], lock: list[dict[str, Any]]) -> None:
    try:
        from rattler import MatchSpec, Version, VersionSpec
    except ImportError:
        require("py-rattler", False)
    versions = {package["name"]: package["version"] for package in lock if "registry" in package["source"]}
    for text in (spec for spec in conda if isinstance(spec, str)):
        spec = MatchSpec(text, strict=True)
        assert spec.name is not None
        if spec.name.normalized in versions:
            assert VersionSpec(str(spec.version)).matches(Version(versions[spec.name.normalized])), text


def test_lock_was_made_from_these_dependencies(project: dict[str, Any], lock: list[dict[str, Any]]) -> None:
    (ours,) = (package for package in lock if package["name"] == project["name"])

    def plain(requirement: Requirement, extra: str = "") -> tuple[str, str, str]:
        return (requirement.name, str(requirement.specifier), extra)

    declared = {plain(Requirement(line)) for line in project["dependencies"]}
    for extra, lines in project["optional-dependencies"].items():
        declared |= {plain(Requirement(line), extra) for line in lines}
    locked = set()
    for entry in ours["metadata"]["requires-dist"]:
        extra = re.search(r"extra == '([a-z]+)'", entry.get("marker", ""))
        locked.add((entry["name"], entry.get("specifier", ""), extra[1] if extra else ""))
    assert locked == declared, "run `uv lock`"


def test_lock_names_public_places_only(lock: list[dict[str, Any]]) -> None:
    files = []
    for package in lock:
        assert package["source"] in ({"registry": "https://pypi.org/simple"}, {"editable": "."}), package["name"]
        files += [package["sdist"]] if "sdist" in package else []
        files += package.get("wheels", [])
    assert len(files) > 1_000
    assert {urlparse(file["url"])[:2] for file in files} == {("https", "files.pythonhosted.org")}
    assert all(file["hash"].startswith("sha256:") for file in files)


def test_heavy_peers_stay_out_of_the_lock(lock: list[dict[str, Any]]) -> None:
    peers = re.findall(r"^([a-z0-9-]+)", (ROOT / ".ci" / "peers.txt").read_text(), flags=re.MULTILINE)
    assert "torch" in peers
    assert not set(peers) & {package["name"] for package in lock}


def test_ci_entry_can_be_executed_and_workflow_calls_it() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    assert job["timeout-minutes"] <= 45
    assert job["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.14"]
    assert workflow[True]["schedule"], "YAML reads the key `on` as True"
    pinned = [step["uses"] for each in workflow["jobs"].values() for step in each["steps"] if "uses" in step]
    assert pinned
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", use) for use in pinned), pinned
    assert any(step.get("run") == ".ci/run" for step in job["steps"])


def test_readme_lists_every_lesson_with_its_minutes() -> None:
    rows = []
    for source in sorted((ROOT / "answer_keys").glob("[0-9][0-9]_*.md")):
        front = next(yaml.safe_load_all(source.read_text(encoding="utf-8")))
        name = source.stem
        rows.append(f"| {name[:2]} | [{front['title']}](notebooks/{name}.ipynb) | {front['minutes']} |")
        assert (ROOT / "notebooks" / f"{name}.ipynb").exists()
    table = re.search(r"<!-- lessons.*?-->\n(.*?)<!-- end -->", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert table is not None
    assert table[1].splitlines()[2:] == rows, "copy these rows into README.md:\n" + "\n".join(rows)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    file = ROOT / page if (ROOT / page).exists() else ROOT / "docs" / page
    text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [target for target in targets if target and not (file.parent / target).exists()]
    assert not missing


def test_citation_and_changelog_name_this_version(project: dict[str, Any]) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project["version"]
    assert " AND ".join(citation["license"]) == project["license"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] in (project["version"], "Unreleased")
