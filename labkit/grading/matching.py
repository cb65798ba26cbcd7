"""Find each exercise's answer in a notebook that has been through other editors, and say how it was found.

An answer cell is found by the id in its metadata, else by its marker line `# exercise: id`, else by the name it binds.
- Two cells with one id: the last that is not blank counts, and it is noted.
- Answer cells merged into one: each marker line begins a part; without markers, the names say what is whose.
- The answer given again in cells of the student's own right below it, or below its check: the last one counts.
- A cell that was split: the parts that bind the missing names are read with it.
- A renamed answer: where one name is expected and the cell binds exactly one other, that one is read.
- A cell turned into text or raw is read as the code it was.
Locked cells are never read: the key's own stand in their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from labkit.grading.key import Key
from labkit.grading.keyfile import MARKER, KeyCell
from labkit.grading.literals import bound_names
from labkit.grading.model import Cell, Found

ELSEWHERE = "a cell further below gives the answer again; it was not read"


@dataclass(frozen=True)
class Answer:
    """What stands in for one answer cell of the key: the student's sources in order, and how they were found."""

    sources: tuple[str, ...] = ()
    found: Found = "missing"
    renamed: tuple[tuple[str, str], ...] = ()  # (name the key uses, name the student uses)
    notes: tuple[str, ...] = ()

    @cached_property
    def source(self) -> str:
        """All of it as one text."""
        return "\n".join(self.sources)


@dataclass(frozen=True)
class Match:
    """A notebook laid over a key: an answer for each answer cell, and the cells to run in their order."""

    answers: dict[str, Answer]
    program: tuple[Step, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One cell to run in the sandbox: the student's source, or a stage of the key by its number."""

    source: str = ""
    stage: int | None = None
    answer: str = ""  # id of the answer cell it belongs to


@dataclass
class _Seen:
    """A cell with what can be read off it without running it."""

    cell: Cell
    place: int  # in the notebook, checks left out
    id: str = ""
    found: Found = "missing"

    @cached_property
    def binds(self) -> tuple[str, ...]:
        return bound_names(self.cell.source)


def match(key: Key, cells: Sequence[Cell]) -> Match:
    """Lay a notebook over a key."""
    keyed, placed = key.answers(), defaultdict(list)
    given = {stage.cell.source.strip() for stage in key.stages if stage.cell.role != "answer"}
    checks = {stage.cell.source.strip() for stage in key.stages if stage.cell.role == "check"}
    parts = [part for cell in cells if cell.source.strip() not in checks for part in _parts(cell, keyed)]
    seen = [
        _identified(cell, place, keyed)
        for place, cell in enumerate(parts)
        if not cell.locked and cell.source.strip() not in given
    ]
    for i, one in enumerate(seen):
        placed[one.id].append(i)
    taken: dict[int, str] = {}  # position in seen -> answer cell
    answers = {id: _answer(cell, seen, placed[id], taken) for id, cell in keyed.items()}
    unknown = sorted({one.id for one in seen if one.id and one.id not in keyed})
    notes = tuple(f"a cell carries the unknown exercise id {name!r}" for name in unknown[:5])
    return Match(answers, tuple(_program(key, seen, taken)), notes)


def _parts(cell: Cell, keyed: Mapping[str, KeyCell]) -> list[Cell]:
    """Take a cell apart where several answer cells were merged into it; what comes first keeps its id."""
    if cell.kind != "code" or cell.source.count("exercise:") < 2:
        return [cell]
    lines = cell.source.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if (marker := MARKER.match(line)) and marker[1] in keyed][1:]
    bounds = pairwise([0, *starts, len(lines)])
    sources = ["".join(lines[start:end]).rstrip() for start, end in bounds] if starts else [cell.source]
    return [replace(cell, source=sources[0]), *(replace(cell, source=source, exercise=None) for source in sources[1:])]


def _identified(cell: Cell, place: int, keyed: dict[str, KeyCell]) -> _Seen:
    name = _without_role(cell.exercise or "", keyed)
    if name in keyed:
        return _Seen(cell, place, name, "metadata")
    if marker := MARKER.search(cell.source[:2000]):
        return _Seen(cell, place, marker[1], "marker")
    return _Seen(cell, place)


def _without_role(name: str, keyed: dict[str, KeyCell]) -> str:
    """nbgrader's ids say the cell's part first: `answer-masks-row-2`."""
    return name if name in keyed else name.removeprefix("answer-")


def _answer(cell: KeyCell, seen: list[_Seen], own: list[int], taken: dict[int, str]) -> Answer:
    found: Found = seen[own[0]].found if own else "missing"
    notes = []
    if len(own) > 1:
        own, note = _one_of(cell, seen, own)
        notes.append(note)
    if own and seen[own[0]].cell.kind != "code":
        notes.append(f"its cell had become a {seen[own[0]].cell.kind} cell and was read as code")
    if not own:
        own = _by_name(cell.binds, seen, _free(seen, taken)) or _by_name(cell.binds, seen, range(len(seen)))
        found = "name" if own else "missing"
    elif rest := _by_name(_missing(cell, seen, own), seen, _free(seen, taken)):
        own = sorted({*own, *rest})
        notes.append("its cell was split; the parts were read together")
    if found in ("metadata", "marker"):
        again, elsewhere = _given_again(cell, seen, own, taken)
        own = [*own, *again]
        notes += ["a cell right below it gives the answer again, and counts"] * bool(again)
        notes += [ELSEWHERE] * elsewhere
    taken.update((i, cell.id) for i in own if seen[i].id in ("", cell.id))
    renamed = _renamed(cell, seen, own)
    notes += [f"`{used}` was read as `{name}`" for name, used in renamed]
    return Answer(tuple(seen[i].cell.source for i in own), found, renamed, tuple(notes))


def _one_of(cell: KeyCell, seen: list[_Seen], own: list[int]) -> tuple[list[int], str]:
    """Take parts that bind different names together; of cells that bind the same, the last with something in it."""
    names = [name for i in own for name in seen[i].binds]
    if len(set(names)) == len(names) and set(names) & set(cell.binds):
        return own, f"{len(own)} cells carry its id; they were read together"
    filled = [i for i in own if not _looks_blank(seen[i].cell.source)]
    return [(filled or own)[-1]], f"{len(own)} cells carry its id; the last one that is filled in counts"


def _given_again(cell: KeyCell, seen: list[_Seen], own: list[int], taken: dict[int, str]) -> tuple[list[int], bool]:
    """Find cells of the student's own right below the answer that give it again; say whether there are more elsewhere.

    "Right below" ends with whatever is neither the student's own nor a check: text, a figure, another answer.
    """
    last = own[-1]
    theirs = [i for i in _free(seen, taken) if i > last]
    giving = [i for i in theirs if not {*cell.binds}.isdisjoint(seen[i].binds)]
    near = [i for i in giving if seen[i].place - seen[last].place == 1 + theirs.index(i)]  # no cell in between
    return near, len(giving) > len(near)


def _free(seen: list[_Seen], taken: dict[int, str]) -> list[int]:
    """List the code cells that are no exercise's so far."""
    return [i for i, one in enumerate(seen) if not one.id and i not in taken and one.cell.kind == "code"]


def _looks_blank(source: str) -> bool:
    code = [line for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]
    return not code or "..." in code[-1] or code[-1].strip() == "pass"


def _missing(cell: KeyCell, seen: list[_Seen], own: list[int]) -> list[str]:
    bound = {name for i in own for name in seen[i].binds}
    return [name for name in cell.binds if name not in bound]


def _by_name(names: Sequence[str], seen: list[_Seen], places: Sequence[int]) -> list[int]:
    """Find, for each name, the last of these cells that binds it."""
    wanted = set(names)
    binding = {name: i for i in places if wanted for name in wanted.intersection(seen[i].binds)}
    return sorted(set(binding.values()))


def _renamed(cell: KeyCell, seen: list[_Seen], own: list[int]) -> tuple[tuple[str, str], ...]:
    bound = list(dict.fromkeys(name for i in own for name in seen[i].binds))
    wanted = cell.binds
    if len(wanted) == len(bound) == 1 and wanted[0] != bound[0]:
        return ((wanted[0], bound[0]),)
    return ()


def _program(key: Key, seen: list[_Seen], taken: dict[int, str]) -> Iterator[Step]:
    """Order the cells to run: the student's in their own order, each after the key's cells that come before it."""
    place = {stage.cell.id: i for i, stage in enumerate(key.stages) if stage.cell.role == "answer"}
    given = [i for i, stage in enumerate(key.stages) if stage.cell.role == "given"]
    for i, one in enumerate(seen):
        while i in taken and given and given[0] < place[taken[i]]:
            yield Step(stage=given.pop(0))
        passed_over = one.id in place and i not in taken  # a second cell with the id of one that counts
        if (one.cell.kind == "code" and not passed_over) or i in taken:
            yield Step(one.cell.source, answer=taken.get(i, ""))
    yield from (Step(stage=number) for number in given)
