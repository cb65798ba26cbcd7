"""Every lesson in a real JupyterLab, as a learner has it: opened, run, answered, moved, saved, reloaded, run again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import Lab, Notebook

ROOT = Path(__file__).parents[2]
BLANK, KEYS = ROOT / "notebooks", ROOT / "answer_keys"
LESSONS = sorted(path.stem for path in KEYS.glob("*.md"))
MINUTES = 180_000  # in milliseconds, for the cells of a lesson on a loaded machine
CARD = '.jp-OutputArea-output div[role="status"]'
LOCK = ":text('Locked until you predict'), .lk-lock:visible"
CONTENT = ".jp-MarkdownOutput, .jp-OutputArea-output"  # ours; the rest of the page is JupyterLab's

READING = "node => `${node.ariaValueNow ?? node.value} ${node.ariaValueText}`"  # a tip has two coordinates, in words
ENDS = "node => [node.ariaValueNow ?? node.value, node.ariaValueMax ?? node.max].map(Number)"
MOVED = f"([node, before]) => ({READING})(node) !== before"
TWO_MOVES = """async () => {
  const slider = document.querySelector('.lk [role="slider"]'), seen = new Set();
  const pause = (time) => new Promise((done) => setTimeout(done, time));
  const press = (key) => slider.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  press('Home');
  await pause(300);
  press('PageUp'); // is sent at once
  await pause(2);
  press('ArrowUp'); // waits for the next message, 250 ms later
  for (let i = 0; i < 60; i++, await pause(4)) if (i) seen.add(slider.ariaValueNow);
  return seen.size;
}"""  # how many values the slider showed after the last move
AT_HEADING = """([file, words]) => {
  const { title, content } = window.jupyterapp.shell.currentWidget, page = content.node.getBoundingClientRect();
  const heading = [...content.node.querySelectorAll('h2')].find(node => node.textContent.startsWith(words));
  const place = heading?.getBoundingClientRect();
  return title.label === file && place?.top >= page.top - 1 && place.bottom <= page.bottom;
}"""
COUNT = "count => document.querySelectorAll('.lk').length === count"


def test_there_are_lessons_to_open() -> None:
    assert len(LESSONS) >= 9
    for folder in (BLANK, KEYS):
        assert sorted(path.stem for path in folder.glob("*.ipynb")) == LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_learner_works_through_a_lesson(lab: Lab, axe: str, lesson: str) -> None:
    answers = key_answers(lesson)
    shutil.copy(BLANK / f"{lesson}.ipynb", lab.root)
    notebook = lab.open(lesson)
    notebook.run_all(MINUTES)
    assert notebook.failures() == []
    assert set(verdicts(notebook).values()) == {"○ Not answered yet"}

    fill_in(notebook, answers)
    notebook.run_all(MINUTES)
    assert_all_is_right(notebook, answers)

    notebook.draw_all()
    assert notebook.page.locator(CARD).count() == len(answers)
    assert notebook.page.locator(LOCK).count() == 0
    panels = notebook.page.locator(".lk")
    notebook.page.wait_for_function(COUNT, arg=draws_panels(lesson))
    for i in range(panels.count()):
        assert_panel_moves(notebook, panels.nth(i))

    notebook.page.evaluate(axe)
    assert notebook.serious_violations(CONTENT) == []
    notebook.use_theme("JupyterLab Dark")
    assert notebook.serious_violations(CONTENT, only="color-contrast") == []

    notebook.save()
    notebook.reload()
    assert {id: source for id, source in answers.items() if sources(notebook).get(id) != source} == {}
    assert remembered(notebook, lesson) <= {"right", "recorded"}
    notebook.restart_and_run_all(MINUTES)
    assert_all_is_right(notebook, answers)
    assert notebook.errors == []


def test_a_card_leads_to_the_section_it_names(lab: Lab) -> None:
    for lesson in ("02_scores_and_softmax", "03_masks"):
        shutil.copy(BLANK / f"{lesson}.ipynb", lab.root)
    for wrong, lesson, heading in (
        ("row_2 = [0.3, 0.7, 0]", "03_masks", "Predict a masked row"),
        ("row_2 = [4, 2, 0]", "02_scores_and_softmax", "Turn a row into shares"),
    ):
        notebook = lab.open("03_masks")
        answer(notebook, "masks-row-2", wrong)
        notebook.run_all(MINUTES)
        notebook.draw_all()
        link = notebook.page.locator(f"{CARD} a", has_text=f'lesson {lesson[:2]}, "{heading}"')
        follow(notebook, link, [f"{lesson}.ipynb", heading])
        assert notebook.errors == []


def follow(notebook: Notebook, link: Any, there: list[str]) -> None:
    """Click twice at most: a busy JupyterLab may give up on its way down a lesson that it has to open first."""
    from playwright.sync_api import TimeoutError

    for patience in (20_000, 60_000):
        notebook.command("docmanager:open", path="03_masks.ipynb")
        link.click()
        try:
            notebook.page.wait_for_function(AT_HEADING, arg=there, timeout=patience)
        except TimeoutError:
            continue
        return
    raise AssertionError(f"the link does not lead to {there}")


def test_a_choice_without_quotes_is_put_in_words(lab: Lab) -> None:
    shutil.copy(BLANK / "03_masks.ipynb", lab.root)
    notebook = lab.open("03_masks")
    answer(notebook, "masks-route", "route = b")
    notebook.run_all(MINUTES)
    assert notebook.failures() == ["name 'b' is not defined"]
    notebook.draw_all()
    assert notebook.page.locator(CARD, has_text='Write your choice in quotes: "b".').count() == 1


def test_the_kernels_echo_of_a_move_does_not_undo_the_next_one(lab: Lab) -> None:
    lab.write("echo", ["from labkit import panels\npanels.softmax_row([0.5, 0.0])"])
    notebook = lab.open("echo")
    notebook.run_all()
    notebook.page.locator(".lk").wait_for()
    assert [notebook.page.evaluate(TWO_MOVES) for _ in range(12)] == [1] * 12


# ── what the lesson's files say ──────────────────────────────────────────────────────────────────────────────────────


def key_cells(lesson: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((KEYS / f"{lesson}.ipynb").read_text(encoding="utf-8"))["cells"]
    return cells


def key_answers(lesson: str) -> dict[str, str]:
    """Give the source of every answer cell by its exercise."""
    marked = [(cell["metadata"].get("labkit", {}), "".join(cell["source"])) for cell in key_cells(lesson)]
    return {mark["exercise"]: source for mark, source in marked if mark.get("role") == "answer"}


def draws_panels(lesson: str) -> int:
    """Count the panels by the picture each leaves in the stored output."""
    outputs = [output.get("data", {}) for cell in key_cells(lesson) for output in cell.get("outputs", [])]
    return sum("labkit-panel" in "".join(data.get("text/html", "")) for data in outputs)


# ── what a learner does, and sees ────────────────────────────────────────────────────────────────────────────────────


def sources(notebook: Notebook) -> dict[str, str]:
    return {cell["exercise"]: cell["source"] for cell in notebook.cells() if cell["role"] == "answer"}


def fill_in(notebook: Notebook, answers: dict[str, str]) -> None:
    """Type every answer into its cell; the lesson asks for exactly these."""
    assert sources(notebook).keys() == answers.keys()
    notebook.type({cell["index"]: answers[cell["exercise"]] for cell in notebook.cells() if cell["role"] == "answer"})


def answer(notebook: Notebook, exercise: str, text: str) -> None:
    """Type an answer below the first line of its cell."""
    [cell] = [cell for cell in notebook.cells() if (cell["exercise"], cell["role"]) == (exercise, "answer")]
    notebook.type({cell["index"]: f"{cell['source'].splitlines()[0]}\n{text}"})


def verdicts(notebook: Notebook) -> dict[str, str]:
    """Read the first line of every verdict, drawn yet or not: "✓ Right"."""
    outputs = [output for cell in notebook.cells() if cell["role"] == "check" for output in cell["outputs"]]
    lines = ["".join(output["data"]["text/plain"]).split("\n")[0] for output in outputs]
    return {name: title for title, name in (line.split(" · ") for line in lines)}


def assert_all_is_right(notebook: Notebook, answers: dict[str, str]) -> None:
    """Nothing failed, and each exercise has a verdict that says right, or recorded for a reader."""
    assert notebook.failures() == []
    seen = verdicts(notebook)
    assert seen.keys() == answers.keys()
    assert {name: title for name, title in seen.items() if title not in ("✓ Right", "✎ Recorded")} == {}


def remembered(notebook: Notebook, lesson: str) -> set[str]:
    """Give every status that `labkit.progress()` knows for this lesson's exercises."""
    return set(notebook.value(f"list(__import__('labkit').progress().lessons[{lesson!r}].values())"))


def assert_panel_moves(notebook: Notebook, panel: Any) -> None:
    """Every slider goes there and back by keyboard, the first control changes the page, the kernel agrees."""
    panel.scroll_into_view_if_needed()
    for slider in panel.locator('[role="slider"]:visible, input[type="range"]:visible').all():
        now, highest = slider.evaluate(ENDS)
        for key in ("ArrowUp", "ArrowDown") if now < highest else ("ArrowDown", "ArrowUp"):
            before = slider.evaluate(READING)
            slider.press(key)
            notebook.page.wait_for_function(MOVED, arg=[slider.element_handle(), before], timeout=10_000)
    before = panel.inner_html()
    panel.locator('[role="slider"]:visible, input:visible, .lk-cell:visible').first.focus()
    notebook.page.keyboard.press("ArrowDown")
    notebook.page.keyboard.press("Space")
    assert panel.inner_html() != before
    assert panel.locator(".lk-notice").is_hidden()
