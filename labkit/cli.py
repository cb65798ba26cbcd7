"""The `labkit` command: one table of subcommands, each imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NamedTuple


class Command(NamedTuple):
    """Where a subcommand lives and what it is for; `main(argv)` of that module gets the words after its name."""

    module: str
    summary: str
    function: str = "main"


COMMANDS = {
    "lab": Command("labkit.workspace", "open the lessons in JupyterLab, on your own copies"),
    "test": Command("labkit.testing", "run every test of the project"),
    "doctor": Command("labkit.doctor", "look at this machine and say what works and what is missing"),
    "audit": Command("labkit.maps", "say what is wrong with an attention map in a file"),
    "build": Command("labkit.authoring", "make the notebooks from their sources (authors)"),
    "release": Command("labkit.grading", "make the zip that learners get (instructors)", "release"),
    "grade": Command("labkit.grading", "mark a folder or zip of submissions (instructors)", "grade"),
    "regrade": Command("labkit.grading", "mark again and show what changed (instructors)", "regrade"),
    "report": Command("labkit.grading", "write the reports of a graded folder again (instructors)", "report"),
    "bundle": Command("labkit.bundle", "make a folder that installs on machines without a network"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    try:
        try:
            return answer(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python still holds goes nowhere
        return 141


def answer(words: list[str]) -> int:
    """Do what the words of a command line say."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] == "--version":
        print(version())
        return 0
    if words[0] not in COMMANDS:
        print(f"labkit: no command called {words[0]!r}.{suggestion(words[0])}\n\n{usage()}", file=sys.stderr)
        return 2
    return run(words[0], words[1:])


def run(name: str, arguments: list[str]) -> int:
    """Import the subcommand's module and call it; a package that is not installed becomes advice, not a traceback."""
    command = COMMANDS[name]
    try:
        function = getattr(importlib.import_module(command.module), command.function)
        return int(function(arguments) or 0)
    except ModuleNotFoundError as error:
        print(f"labkit {name} needs {error.name}, which is not here.{advice(name, error.name)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def advice(name: str, missing: str | None) -> str:
    """Say how to get a missing part: a sub-package that this release leaves out, or an extra."""
    if missing and missing.startswith("labkit"):
        return " This copy is the one for learners; instructors and authors use the full project."
    extra = {"build": "authors", "test": "test"}.get(name)
    return f' Install it with: pip install "labkit[{extra}]"' if extra else f" Install it with: pip install {missing}"


def usage() -> str:
    """Return the help text."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: labkit COMMAND [options]\n\n"
        f"An interactive workbook on attention.\n\n{rows}\n\n"
        "`labkit COMMAND --help` explains one of them."
    )


def suggestion(word: str) -> str:
    """Name the closest command, if one is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def version() -> str:
    """Return the installed version."""
    from importlib.metadata import version

    return version("labkit")


if __name__ == "__main__":
    sys.exit(main())
