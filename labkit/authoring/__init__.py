"""Build the lessons: one source each, `answer_keys/NN_name.md`, becomes notebooks, feedback and a coverage table."""

from labkit.authoring.build import main

__all__ = ["main"]
