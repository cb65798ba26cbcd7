"""Where each topic is explained and each exercise stands: compiled by the builder from the headings of the sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labkit import feedback

FILE = "sections.json"  # beside the feedback of the lessons


@dataclass(frozen=True)
class Section:
    """One section of a lesson: the lesson's name, the id of the cell that opens the section, its heading."""

    lesson: str
    cell: str
    heading: str

    @property
    def words(self) -> str:
        """Say where it is.

        >>> Section("03_masks", "predict-a-masked-row-1", "Predict a masked row").words
        'lesson 03, "Predict a masked row"'
        """
        return f'lesson {self.lesson[:2]}, "{self.heading}"'

    def link(self, lesson: str = "") -> str:
        """Give the link that JupyterLab follows from a lesson to this section: by cell, since any heading has one.

        >>> there = Section("03_masks", "predict-a-masked-row-1", "Predict a masked row")
        >>> there.link("03_masks"), there.link("04_worked_example")
        ('#cell-id=predict-a-masked-row-1', '03_masks.ipynb#cell-id=predict-a-masked-row-1')
        """
        file = "" if lesson == self.lesson else f"{self.lesson}.ipynb"
        return f"{file}#cell-id={self.cell}"


def of(name: str) -> Section | None:
    """Give the section that explains a topic, such as "M2", or that holds an exercise; None where no lesson does."""
    return _stored(feedback.FOLDER).get(name)


def in_words(name: str) -> str:
    """Say where a topic is explained or an exercise stands, or give "".

    >>> in_words("M2"), in_words("")
    ('lesson 03, "Try to mask with a zero"', '')
    """
    section = of(name)
    return section.words if section else ""


def encode(sections: Mapping[str, Section]) -> str:
    """Write the builder's table: sorted, one name a line."""
    lines = [f'"{name}": {json.dumps(vars(sections[name]), ensure_ascii=False)}' for name in sorted(sections)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@cache
def _stored(folder: Path) -> dict[str, Section]:
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:  # a single lesson is being built
        return {}
    return {name: Section(**fields) for name, fields in json.loads(text).items()}
