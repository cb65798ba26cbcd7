"""A class of forty as a lecturer gets it from Canvas: strong, weak, empty, renamed, twice, not listed, hostile.

    python -m tests.grading.make_class FOLDER [LESSON ...]

writes submissions.zip and roster.csv. The same lessons give the same class.
"""

from __future__ import annotations

import csv
import json
import random
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labkit.grading.key import Item, Key, run_key
from labkit.grading.keyfile import read_key
from labkit.grading.roster import squeezed

ROOT = Path(__file__).parents[2]
LESSONS = ("03_masks", "08_interventions")
NAMES = """Ada Okafor;Ben Carter;
Chiara Rossi;Daniel Nguyen;Elif Yılmaz;Farid Haddad;Grace Kim;Hugo Lindqvist;Inés Ortega;
Jonas Weber;Kavya Iyer;Lena Schäfer;Mateo Silva;Nadia Petrova;Omar Benali;Priya Natarajan;Quentin Dubois;Rosa Álvarez;
Samuel Mensah;Tuuli Nieminen;Uma Krishnan;Viktor Horvat;Wen Zhang;Ximena Cruz;Yusuf Demir;Zofia Nowak;Aaron O'Neill;
Bianca Popescu;Cem Aydın;Dana Levi;Emil Sørensen;Fatima Zahra El-Amrani;Gustav Holm;Hana Suzuki;Ivan Marić;Julia Braun;
Kwame Asante;Lucía Fernández de la Cruz;Ming Li;Noor van Dijk""".replace("\n", "").split(";")
WROTE = (
    "Head L0H2 attends to the previous token: its score is 0.98. Removing it lowers the copy of the pair.",
    "Attention shows what the model thinks is important.",
    "Induction needs both layers. When L0H2 is set to its mean the logit of the target falls by more than half, "
    "while the other heads of layer 0 change it by less than 0.1. This holds for the pairs I tried, not for all text.",
    "I think the bright head matters most because it is bright.",
)
WRONG_CODE = {
    "masks-write-causal": "def causal(n):\n    return [[j < i for j in range(n)] for i in range(n)]",
    "masks-write-softmax": "import math\n\ndef masked_softmax(row, allowed):\n    parts = [math.exp(s) for s in row]\n"
    "    return [p / sum(parts) if ok else 0.0 for p, ok in zip(parts, allowed)]",
}
Document = dict[str, Any]


def make_class(folder: Path, lessons: Sequence[str] = LESSONS, names: Sequence[str] = NAMES) -> tuple[Path, Path]:
    """Write the class and return (submissions, roster)."""
    folder.mkdir(parents=True, exist_ok=True)
    roster, handed = folder / "roster.csv", folder / "submissions.zip"
    with open(roster, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Student", "ID", "SIS User ID", "SIS Login ID", "Section"])
        table.writerow(["    Points Possible", "", "", "", ""])
        for place, name in enumerate(names):
            if place in UNLISTED:
                continue
            table.writerow([sorted_name(name), 7000 + place, f"s{place:03}", login(name), "Tuesday"])
    with zipfile.ZipFile(handed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, lesson in enumerate(lessons):
            key = run_key(read_key(ROOT / "answer_keys" / f"{lesson}.md"))
            for place, name in enumerate(names):
                for file_name, data in files(key, place, name, 90_000 + 100 * (len(names) * number + place)):
                    clock = random.Random(f"{lesson} {name}")
                    when = (2026, 3, 2 + 7 * number + clock.randrange(4), clock.randrange(8, 23), 15, 0)
                    archive.writestr(zipfile.ZipInfo(file_name, when), data)
    return handed, roster


def sorted_name(name: str) -> str:
    """Write a name as Canvas sorts it: family name first."""
    first, _, rest = name.partition(" ")
    return f"{rest}, {first}"


def login(name: str) -> str:
    """Make a login of plain letters."""
    return re.sub(r"[^a-z]", "", name.lower())[:12]


def files(key: Key, place: int, name: str, upload: int) -> Iterator[tuple[str, bytes]]:
    """Give what one student handed in for one lesson, under Canvas's names."""
    oddity = ODDITIES.get(place, written)
    late = "_LATE" if place % 11 == 5 else ""
    for number, (file_name, data) in enumerate(oddity(key, place, name)):
        canvas = next(squeezed(sorted_name(name)))
        yield f"{canvas}{late}_{7000 + place}_{upload + number}_{file_name}", data


Handed = list[tuple[str, bytes]]


def written(key: Key, place: int, name: str) -> Handed:
    """An ordinary student: some answers right, some slips, the last ones perhaps not attempted."""
    return [(f"{key.lesson}.ipynb", packed(attempt(key, place, name)))]


def attempt(key: Key, place: int, name: str) -> Document:
    chance = random.Random(f"{key.lesson} {place}")
    skill, reach = chance.betavariate(4, 1.6), 1.0 if place % 4 else chance.uniform(0.4, 0.9)
    last = reach * len(key.items)
    return notebook(
        key.lesson,
        {
            item.cell: answer(key, item, name, chance, right=chance.random() < skill)
            for at, item in enumerate(key.items)
            if at < last
        },
    )


def answer(key: Key, item: Item, name: str, chance: random.Random, *, right: bool) -> str:
    """Write one answer as source: the truth, or a slip of this exercise."""
    own = key.answers()[item.cell].source
    if item.exercise.step == "written":
        return f"{item.names[0]} = {chance.choice(WROTE)!r}"
    if item.exercise.step == "function":
        wrong = WRONG_CODE.get(item.id, own.replace("return ", "return [] and ", 1))
        return own if right else wrong
    mine = item.exercise.for_learner(sorted_name(name))
    if right and not item.personal:
        return own
    slips = [value for _, value in mine.slips() if not callable(value)]
    favourite = 0 if chance.random() < 0.6 else chance.randrange(len(slips) or 1)
    value = mine.truth() if right else slips[favourite] if slips else None
    return f"{item.names[0]} = {literal(value)}" if value is not None else own


def literal(value: Any) -> str:
    """Write a value as a learner types it."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, float):
        return {float("inf"): "np.inf", float("-inf"): "-np.inf"}.get(value) or f"{value:.9g}"
    return repr(value)


def notebook(lesson: str, answers: dict[str, str]) -> Document:
    """Fill answers into the blank lesson."""
    document: Document = json.loads((ROOT / "notebooks" / f"{lesson}.ipynb").read_text("utf-8"))
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        mark = cell["metadata"].get("labkit", {})
        if mark.get("role") == "answer" and mark["exercise"] in answers:
            marker = "".join(cell["source"]).partition("\n")[0]
            cell["source"] = f"{marker}\n{answers[mark['exercise']].strip()}"
    return document


def packed(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


# What goes wrong in every class


def untouched(key: Key, place: int, name: str) -> Handed:
    return [(f"{key.lesson}.ipynb", packed(notebook(key.lesson, {})))]


def nothing(key: Key, place: int, name: str) -> Handed:
    return []


def perfect(key: Key, place: int, name: str) -> Handed:
    chance = random.Random(0)
    answers = {item.cell: answer(key, item, name, chance, right=True) for item in key.items}
    return [(f"{key.lesson}.ipynb", packed(notebook(key.lesson, answers)))]


def all_slips(key: Key, place: int, name: str) -> Handed:
    chance = random.Random(place)
    answers = {item.cell: answer(key, item, name, chance, right=False) for item in key.items}
    return [(f"{key.lesson}.ipynb", packed(notebook(key.lesson, answers)))]


def twice(key: Key, place: int, name: str) -> Handed:
    return [*untouched(key, place, name), (f"{key.lesson}-1.ipynb", packed(attempt(key, place, name)))]


def stripped(key: Key, place: int, name: str) -> Handed:
    """Saved by an editor that keeps no metadata, under another name."""
    document = attempt(key, place, name)
    document["metadata"] = {}
    for cell in document["cells"]:
        cell["metadata"] = {}
    return [("Untitled3 (1).ipynb", packed(document))]


def doubled(key: Key, place: int, name: str) -> Handed:
    """The first answer cell copied, the second renamed."""
    document = attempt(key, place, name)
    answers = [cell for cell in document["cells"] if cell["metadata"].get("labkit", {}).get("role") == "answer"]
    document["cells"].insert(document["cells"].index(answers[0]) + 1, dict(answers[0]))
    answers[1]["source"] = re.sub(r"^(\w+) =", "my_answer =", answers[1]["source"], flags=re.MULTILINE)
    return [(f"{key.lesson}.ipynb", packed(document))]


def copied(key: Key, place: int, name: str) -> Handed:
    """All numbers of one's own taken from student 7, who had other numbers."""
    document = attempt(key, 7, NAMES[7])
    return [(f"{key.lesson}.ipynb", packed(document))]


def passed_on(key: Key, place: int, name: str) -> Handed:
    """The file of student 3 as it is, with the name in it."""
    document = attempt(key, 3, NAMES[3])
    for cell in document["cells"]:
        cell["source"] = "".join(cell["source"]).replace('labkit.me("")', f'labkit.me("{NAMES[3]}")')
    return [(f"{key.lesson}.ipynb", packed(document))]


def broken(key: Key, place: int, name: str) -> Handed:
    return [(f"{key.lesson}.ipynb", packed(attempt(key, place, name))[:-2000])]


def report_in_word(key: Key, place: int, name: str) -> Handed:
    return [("my answers final.docx", b"PK\x03\x04 not a notebook")]


def hostile(file: str) -> Callable[[Key, int, str], Handed]:
    def make(key: Key, place: int, name: str) -> Handed:
        data = json.loads((ROOT / "tests" / "hostile" / "files" / file).read_bytes())
        document = attempt(key, place, name)
        document["cells"] += [cell for cell in data["cells"] if cell["cell_type"] == "code"]
        for cell in document["cells"]:
            if cell["metadata"].get("labkit", {}).get("role") == "answer":
                cell["source"] += "\n# </pre><script>document.title='PWNED'</script><img src=x onerror=alert(1)>"
        return [(f"{key.lesson}.ipynb", packed(document))]

    return make


UNLISTED = {37}  # who joined late
ODDITIES: dict[int, Callable[[Key, int, str], Handed]] = {
    0: perfect,
    2: untouched,
    6: all_slips,
    9: twice,
    13: stripped,
    17: doubled,
    20: copied,
    21: nothing,
    24: broken,
    25: passed_on,
    28: report_in_word,
    30: hostile("d03_html_in_values.ipynb"),
    31: hostile("r19_infinite_loop.ipynb"),
    33: perfect,
    36: nothing,
}


if __name__ == "__main__":
    print(*make_class(Path(sys.argv[1]), sys.argv[2:] or LESSONS))
