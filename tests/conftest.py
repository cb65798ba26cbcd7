"""What every test shares: optional peers, and a surrounding that does not depend on who runs the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import Phase, settings

CI = bool(os.environ.get("CI")) and sys.platform == "linux"  # there, .ci/run installs everything

for name in ("LABKIT_LEARNER", "NBGRADER_EXECUTION", "NBGRADER_VALIDATING"):
    os.environ.pop(name, None)
os.environ["LABKIT_JOURNAL"] = "off"  # a test that wants a journal names a folder of its own

# A loaded machine is no failure, so no deadlines; mutants need a quick yes or no, not the smallest example.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("mutants", deadline=None, derandomize=True, max_examples=25, phases=[Phase.generate])
settings.load_profile("ci" if CI else "here")


def require(name: str, available: object) -> None:
    """Skip the calling test when something optional is missing; in CI nothing may be missing, so fail there."""
    if available:
        return
    if CI:
        pytest.fail(f"{name} is missing, and in CI every test must run")
    pytest.skip(f"{name} is not available here")


def _fail_if_skipped(report: Any) -> None:
    """Turn a skip into a failure in CI; "only on Windows" and the like is a fact, not a gap."""
    if not (CI and report.skipped and not hasattr(report, "wasxfail")):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if "only on " not in reason:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where every test must run: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Look at every test's report."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Look at modules that skip themselves as a whole."""
    report = yield
    _fail_if_skipped(report)
    return report
