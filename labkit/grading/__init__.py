"""Grade a class: read submissions as data, run code exercises in a sandbox, compare, report.

Nothing in this package executes, unpickles, renders or extracts anything a student made; only `worker.py` runs
student code, in a separate process that holds no key.
"""

from __future__ import annotations

from collections.abc import Sequence


def grade(argv: Sequence[str]) -> int:
    """Run `labkit grade` with these words."""
    from labkit.grading.command import main

    return main(argv, "grade")


def regrade(argv: Sequence[str]) -> int:
    """Run `labkit regrade` with these words."""
    from labkit.grading.command import main

    return main(argv, "regrade")


def report(argv: Sequence[str]) -> int:
    """Run `labkit report` with these words."""
    from labkit.grading.command import report

    return report(argv)


def release(argv: Sequence[str]) -> int:
    """Run `labkit release` with these words."""
    from labkit.grading.handout import main

    return main(argv)
