"""Find each exercise's answer in a notebook that has been through other editors, and say how it was found.

An answer cell is found by the id in its metadata, else by its marker line `# exercise: id`, else by the name it binds.
- Two cells with one id: the last that is not blank counts, and it is noted.
- Answer cells merged into one: each marker line begins a part; without markers, the names say what is whose.
- Cells of the student's own right below the answer that change it: they are read with it.
- Such cells right below its check: a second answer, for where the first is not right.
- A cell that was split: the parts that bind the missing names are read with it.
- A renamed answer: where one name is expected and the cell binds exactly one other, that one is read.
- A cell turned into text or raw is read as the code it was.
Locked cells are never read: the key's own stand in their place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from labkit.grading.key import Key
from labkit.grading.keyfile import MARKER, KeyCell
from labkit.grading.literals import bound_names, inside_a_statement, touched_names
from labkit.grading.model import Cell, Found

_CHECKS = re.compile(r"\bcheck\.\w+\(")
MOST_TRIES = 5  # at one answer: each is judged
MOST_PARTS = 100  # of one cell
ELSEWHERE = "a cell further below gives the answer again; it was not read"


@dataclass(frozen=True)
class Answer:
    """What stands in for one answer cell of the key: the student's sources in order, and how they were found."""

    sources: tuple[str, ...] = ()
    found: Found = "missing"
    renamed: tuple[tuple[str, str], ...] = ()  # (name the key uses, name the student uses)
    notes: tuple[str, ...] = ()
    again: tuple[tuple[str, ...], ...] = ()  # for each check below it, the student's own cells that change the answer

    @cached_property
    def source(self) -> str:
        """All of it as one text."""
        return "\n".join(self.sources)

    def tries(self) -> Iterator[Answer]:
        """Give the answer itself, and then as the cells below each check leave it."""
        yield (one := replace(self, again=()))
        for sources in self.again:
            one = replace(one, sources=(*one.sources, *sources))
            yield replace(one, notes=(*one.notes, "it was given again below its check"))


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
    again: int = 0  # below how many checks of that answer it stands


@dataclass
class _Seen:
    """A cell with what can be read off it without running it."""

    cell: Cell
    place: int  # in the notebook
    id: str = ""
    found: Found = "missing"

    @cached_property
    def binds(self) -> tuple[str, ...]:
        return bound_names(self.cell.source)

    @cached_property
    def checks(self) -> bool:
        return bool(_CHECKS.search(self.cell.source))


def match(key: Key, cells: Sequence[Cell]) -> Match:
    """Lay a notebook over a key."""
    keyed, placed = key.answers(), defaultdict(list)
    numbered = [(stage.cell, i) for i, stage in enumerate(key.stages) if stage.cell.role != "answer"]
    given = {cell.source.strip(): i for cell, i in reversed(numbered)}  # of cells that are alike the first
    parts = [part for cell in cells for part in _parts(cell, keyed)]
    stages = [given.get(cell.source.strip(), -1) for cell in parts]
    checks = frozenset(
        place
        for place, (cell, i) in enumerate(zip(parts, stages, strict=True))
        if (key.stages[i].cell.role == "check" if i >= 0 else cell.locked and _CHECKS.search(cell.source))
    )
    seen = [
        _identified(cell, place, keyed)
        for place, (cell, stage) in enumerate(zip(parts, stages, strict=True))
        if not cell.locked and stage < 0
    ]
    for i, one in enumerate(seen):
        placed[one.id].append(i)
    taken: dict[int, Step] = {}  # position in seen -> what its step belongs to
    end = _last_places(key, stages)
    answers = {
        id: _answer(cell, seen, placed[id], checks, taken, end.get(id, len(parts))) for id, cell in keyed.items()
    }
    unknown = sorted({one.id for one in seen if one.id and one.id not in keyed})
    notes = tuple(f"a cell carries the unknown exercise id {name!r}" for name in unknown[:5])
    return Match(answers, tuple(_program(key, seen, taken, list(accumulate(stages, max)))), notes)


def _last_places(key: Key, stages: Sequence[int]) -> dict[str, int]:
    """Give for each answer cell where its last check stands in the notebook."""
    owner = {item.id: item.cell for item in key.items}
    return {
        owner[exercise]: place
        for place, i in enumerate(stages)
        if i >= 0
        for _, exercise, _ in key.stages[i].cell.checks
        if exercise in owner
    }


def _parts(cell: Cell, keyed: Mapping[str, KeyCell]) -> list[Cell]:
    """Take a cell apart where several answer cells were merged into it; what comes first keeps its id."""
    if cell.kind != "code" or cell.source.count("exercise:") < 2:
        return [cell]
    lines = cell.source.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if (marker := MARKER.match(line)) and marker[1] in keyed][1:]
    starts = [i for i in starts[:MOST_PARTS] if not inside_a_statement(cell.source, i + 1)]
    sources = ["".join(lines[start:end]).rstrip() for start, end in pairwise([0, *starts, len(lines)])]
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


def _answer(
    cell: KeyCell, seen: list[_Seen], own: list[int], checks: frozenset[int], taken: dict[int, Step], end: int
) -> Answer:
    """Find one answer; of cells that could hold it, those above its check, which stands at `end`, come first."""
    found: Found = seen[own[0]].found if own else "missing"
    notes = []
    if len(own) > 1:
        own, note = _one_of(cell, seen, own, end)
        notes.append(note)
    if own and seen[own[0]].cell.kind != "code":
        notes.append(f"its cell had become a {seen[own[0]].cell.kind} cell and was read as code")
    if not own:
        free = _free(seen, taken)
        above = [i for i in free if seen[i].place < end]
        found_by_name = (_by_name(cell.binds, seen, places) for places in (above, free, range(len(seen))))
        own = next(filter(None, found_by_name), [])
        found = "name" if own else "missing"
    elif (missing := _missing(cell, seen, own)) and (rest := _by_name(missing, seen, _free(seen, taken))):
        own = sorted({*own, *rest})
        notes.append("its cell was split; the parts were read together")
    renamed = _renamed(cell, seen, own)
    notes += [f"`{used}` was read as `{name}`" for name, used in renamed]
    again: list[list[int]] = []
    if found in ("metadata", "marker"):
        names = {dict(renamed).get(name, name) for name in cell.binds}
        below, again, elsewhere = _below(names, seen, own[-1], checks, taken)
        own = [*own, *below]
        notes += ["a cell right below it was read with it"] * bool(below)
        notes += [ELSEWHERE] * elsewhere
    taken.update((i, Step(answer=cell.id)) for i in own if seen[i].id in ("", cell.id))
    taken.update((i, Step(answer=cell.id, again=n)) for n, places in enumerate(again, start=1) for i in places)
    sources = [tuple(seen[i].cell.source for i in places) for places in (own, *again)]
    return Answer(sources[0], found, renamed, tuple(notes), tuple(sources[1:]))


def _one_of(cell: KeyCell, seen: list[_Seen], own: list[int], end: int) -> tuple[list[int], str]:
    """Take parts that bind different names together; of cells that bind the same, the last with something in it.

    A copy below the check is an experiment, unless nothing above it is filled in.
    """
    names = [name for i in own for name in seen[i].binds]
    if len(set(names)) == len(names) and set(names) & set(cell.binds):
        return own, f"{len(own)} cells carry its id; they were read together"
    filled = [i for i in own if not _looks_blank(seen[i].cell.source)]
    filled = [i for i in filled if seen[i].place < end] or filled
    return [(filled or own)[-1]], f"{len(own)} cells carry its id; the last one that is filled in counts"


def _below(
    names: set[str], seen: list[_Seen], last: int, checks: frozenset[int], taken: dict[int, Step]
) -> tuple[list[int], list[list[int]], bool]:
    """Find the student's own cells that change an answer: right below it, below each check of it; and tell of others.

    "Right below" ends with whatever is neither the student's own nor a check: text, a figure, another answer.
    """
    theirs = {seen[i].place: i for i in range(last + 1, len(seen)) if _is_free(seen[i]) and i not in taken}
    found: list[list[int]] = [[]]
    place = seen[last].place + 1
    while place in theirs or place in checks:
        if place in theirs and not names.isdisjoint(touched_names(seen[theirs[place]].cell.source)):
            found[-1].append(theirs[place])
        elif place in checks or seen[theirs[place]].checks:  # its own check, or one that was edited
            found.append([])
        place += 1
    elsewhere = any(names.intersection(seen[i].binds) for far, i in theirs.items() if far >= place)
    return found[0], [places for places in found[1:] if places][:MOST_TRIES], elsewhere


def _free(seen: list[_Seen], taken: Mapping[int, Step]) -> list[int]:
    """List the code cells that are no exercise's so far."""
    return [i for i, one in enumerate(seen) if _is_free(one) and i not in taken]


def _is_free(one: _Seen) -> bool:
    return not one.id and one.cell.kind == "code"


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


def _program(key: Key, seen: list[_Seen], taken: Mapping[int, Step], passed: Sequence[int]) -> Iterator[Step]:
    """Order the cells to run: the student's in their own order, each after the key's cells that come before it.

    `passed` says for each place of the notebook which was the last of the key's cells that stand above it, or -1.
    """
    place = {stage.cell.id: i for i, stage in enumerate(key.stages) if stage.cell.role == "answer"}
    given = [i for i, stage in enumerate(key.stages) if stage.cell.role != "answer"]
    for i, one in enumerate(seen):
        known = max(passed[one.place], place[taken[i].answer] if i in taken else -1)
        while given and given[0] <= known:
            yield Step(stage=given.pop(0))
        passed_over = one.id in place and i not in taken  # a second cell with the id of one that counts
        if (one.cell.kind == "code" and not passed_over) or i in taken:
            owner = taken.get(i, Step())
            yield Step(one.cell.source, answer=owner.answer, again=owner.again)
    yield from (Step(stage=number) for number in given)
