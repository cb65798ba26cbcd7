"""Every panel in a real JupyterLab: each control by keyboard and by mouse, numbers on the page equal to labkit's."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from labkit import exact
from labkit.attention import mix, softmax_over_sources
from labkit.figures import canvas
from tests.browser.lab import Lab, Notebook

EX = exact.worked_example()
SETUP = "import numpy as np\nfrom labkit import check, exact, panels\nex = exact.worked_example()"
CELLS = {
    "softmax_row": "p = panels.softmax_row(ex.scores[2])\np",
    "scores_and_values": "p = panels.scores_and_values(ex)\np",
    "mask_builder": "p = panels.mask_builder(3)\np",
    "two_heads": "p = panels.two_heads(scores=[ex.scores] * 2, values=ex.values, inputs=ex.inputs)\np",
    "scale": "p = panels.scale()\np",
    "trained_model": "p = panels.trained_model()\np",
    "map_gallery": "p = panels.map_gallery({'worked': ex, 'fresh': exact.fresh_example(3, positions=4)})\np",
}
each_panel = pytest.mark.parametrize("kind", CELLS)
CONTROLS = '[role="slider"], [role="switch"], [role="radio"], input, .lk-cell'
TEXTS = """(table) => [...table.tBodies[0].rows].map(row => [...row.cells].slice(1).map(cell =>
  (cell.querySelector('b') ?? cell).textContent.trim()))"""

PRESSED = """(table) => [...table.tBodies[0].rows].slice(0, -1).map(row =>
  [...row.querySelectorAll('.lk-cell')].map(cell => cell.getAttribute('aria-pressed') === 'true'))"""


PLACES = """nodes => nodes.filter(node => node.textContent).map(node => {
  const { left, right, top, bottom } = node.getBoundingClientRect();
  return [node.textContent, left + 1, right - 1, top + 3, bottom - 3]; })"""  # of the letters, not of their line


PAINTED = """nodes => nodes.map(node => [getComputedStyle(node.querySelector('.text')).color,
  getComputedStyle(node).backgroundColor].map(colour => {
    const numbers = colour.match(/[\\d.]+/g).map(Number), share = colour.startsWith('rgb') ? 255 : 1;
    return [...numbers.slice(0, 3).map(x => x / share), numbers[3] ?? 1]; }))"""  # each as red, green, blue, alpha


# ── what the page shows, as numbers ──────────────────────────────────────────────────────────────────────────────────


def parsed(text: str) -> float:
    """Read "1/4", "−0.33", "0/0" and the empty blocked cell as the page writes them."""
    if text == "0/0":
        return float("nan")
    return float(Fraction(text.replace("−", "-").replace("<", "") or 0))


def table(notebook: Notebook, name: str) -> list[list[str]]:
    texts: list[list[str]] = notebook.page.locator(f'.lk [data-name="{name}"]').evaluate(TEXTS)
    return texts


def shown(notebook: Notebook, kind: str) -> dict[str, Any]:
    """Give the numbers on the page by the name of the kernel's trait."""
    pages: dict[str, Callable[[], dict[str, Any]]] = {
        "softmax_row": lambda: {"weights": [parsed(x) for x in table(notebook, "softmax")[3][:-1]]},
        "scores_and_values": lambda: {
            "weights": [[parsed(x) for x in row] for row in table(notebook, "A")],
            "output[p.row]": vector(table(notebook, "V")[-1][-1]),
        },
        "mask_builder": lambda: {
            "weights": [[parsed(x) for x in row] for row in table(notebook, "A")],
            "allowed": notebook.page.locator('.lk [data-name="mask"]').evaluate(PRESSED),
        },
        "two_heads": lambda: {
            "weights[:, p.row]": [[parsed(x) for x in table(notebook, f"head {h}")[1]] for h in (1, 2)],
            "update[p.row]": [parsed(x) for x in table(notebook, "W_O")[-3][1:]],
            "result[p.row]": [parsed(x) for x in table(notebook, "W_O")[-1][1:]],
        },
        "scale": lambda: {
            "scores": [parsed(x) for x in table(notebook, "one row")[1]],
            "weights": [parsed(x) for x in table(notebook, "one row")[2]],
        },
        "map_gallery": lambda: {"weights": [[parsed(x) for x in row] for row in table(notebook, "A")]},
        "trained_model": lambda: {
            "weights": [
                [parsed("0" + x if x in ("",) or x[0] == "." else x) for x in row] for row in table(notebook, "A")
            ],
            "logits[p.row]": shown_logit(notebook),
        },
    }
    return pages[kind]()


def shown_logit(notebook: Notebook) -> float:
    """Read the logit after the intervention: "6.85 → 6.76  (−0.09)"."""
    text = notebook.page.locator(".lk dl dd").nth(1).text_content()
    return parsed(text.split("→")[-1].split("(")[0].strip())


def vector(text: str) -> list[float]:
    return [float("nan")] * 2 if text == "0/0" else [parsed(x) for x in re.findall(r"[−\d./]+", text)]


def assert_page_shows_the_kernels_numbers(notebook: Notebook, kind: str) -> None:
    """Give the kernel two seconds to follow, then compare every number."""
    give_up = time.monotonic() + 5
    while True:
        try:
            for name, numbers in shown(notebook, kind).items():
                np.testing.assert_allclose(numbers, as_array(notebook, f"p.{name}"), rtol=0, atol=0.0051, err_msg=name)
            return
        except AssertionError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def as_array(notebook: Notebook, expression: str) -> Any:
    return np.array(notebook.value(f"np.where(np.isnan({expression}), None, {expression}).tolist()"), dtype=float)


def state(notebook: Notebook) -> Any:
    """Everything a control can move, and where the panel looks."""
    return notebook.value(
        "{k: v for k, v in p.get_state().items() if k in (*p.moves, 'row', 'column', 'shown', 'form') }"
    )


def wait_until(true: Callable[[], bool], seconds: float = 5) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.05)


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def opened(lab: Lab) -> Iterator[Callable[..., Notebook]]:
    """Open one panel; afterwards nothing may stand on the browser's console."""
    notebooks: list[Notebook] = []

    def open_panel(cell: str, **window: Any) -> Notebook:
        lab.write("panel", [SETUP, cell])
        notebook = lab.open("panel", **window)
        notebooks.append(notebook)
        notebook.run_all()
        notebook.page.locator(".lk").wait_for()
        return notebook

    yield open_panel
    assert [error for notebook in notebooks for error in notebook.errors] == []


@each_panel
def test_every_control_by_keyboard_and_by_mouse_and_again_after_a_restart(opened: Any, kind: str) -> None:
    notebook = opened(CELLS[kind], height=1300)
    assert_page_shows_the_kernels_numbers(notebook, kind)
    start, first = state(notebook), shown(notebook, kind)
    controls = notebook.page.locator(".lk").locator(CONTROLS)
    moved = 0
    for i in range(controls.count()):
        control = controls.nth(i)
        if not control.is_visible() or (kind == "trained_model" and i > 30):
            continue  # of the 144 cells of its map, a dozen
        for act in (by_keyboard, by_mouse):
            before = state(notebook)
            if act(notebook, control):
                wait_until(lambda before=before: state(notebook) != before)
                assert_page_shows_the_kernels_numbers(notebook, kind)
                moved += 1
    assert moved >= 5
    if kind != "map_gallery":
        notebook.page.get_by_role("button", name="Reset").click()
        wait_until(lambda: {k: state(notebook)[k] for k in notebook.value("p.start")} == notebook.value("p.start"))
    notebook.restart_and_run_all()
    notebook.page.locator(".lk").wait_for()
    assert notebook.page.locator(".lk").count() == 1
    assert shown(notebook, kind) == first
    controls = notebook.page.locator(".lk").locator('[role="slider"], input, .lk-cell')
    assert by_keyboard(notebook, controls.nth(1 if kind == "map_gallery" else 0))  # its first cell is in focus already
    wait_until(lambda: state(notebook) != start)
    assert_page_shows_the_kernels_numbers(notebook, kind)


def by_keyboard(notebook: Notebook, control: Any) -> bool:
    """Move a control by a key of its own; False where it has nothing to do (the choice is made already)."""
    role, tag = control.get_attribute("role"), control.evaluate("node => node.tagName")
    if control.get_attribute("aria-checked") == "true" and role == "radio":
        return False
    if "heat" in (control.get_attribute("class") or "") and control.get_attribute("aria-pressed") == "true":
        return False
    control.focus()
    if role == "slider" or tag == "INPUT":
        notebook.page.keyboard.press("ArrowUp")
    elif "heat" not in (control.get_attribute("class") or ""):
        notebook.page.keyboard.press("Space")
    return True


def by_mouse(notebook: Notebook, control: Any) -> bool:
    """Drag a slider, click anything else."""
    role = control.get_attribute("role")
    classes = control.get_attribute("class") or ""
    if (role == "radio" and control.get_attribute("aria-checked") == "true") or "heat" in classes:
        return False  # the key press before has chosen it
    control.scroll_into_view_if_needed()
    if role != "slider":
        control.click()
        return True
    box = control.evaluate("node => (node.querySelector('.knob') ?? node).getBoundingClientRect().toJSON()")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    notebook.page.mouse.move(x, y)
    notebook.page.mouse.down()
    notebook.page.mouse.move(x - 20, y + 15, steps=3)
    notebook.page.mouse.up()
    return True


def test_tab_reaches_every_group_of_controls_and_focus_can_be_seen(opened: Any) -> None:
    notebook = opened(CELLS["scores_and_values"])
    notebook.page.get_by_role("button", name="Reset").focus()
    labels = []
    for _ in range(9):
        notebook.page.keyboard.press("Tab")
        label, outline = notebook.page.evaluate(
            "() => { const a = document.activeElement, s = getComputedStyle(a), r = a.querySelector?.('.reach');"
            "return [a.getAttribute('aria-label') ?? a.textContent, s.outlineStyle !== 'none' || "
            "(r && getComputedStyle(r).stroke !== 'none')]; }"
        )
        labels.append(label)
        assert outline, label
    wanted = ["follow destination", "score of destination 3", "destination 3 may read", "v₁, coordinate", "tip of v"]
    for start in wanted:
        assert any(label.startswith(start) for label in labels), labels


def test_landmarks_are_hit_exactly(opened: Any) -> None:
    notebook = opened("p = panels.softmax_row([0.5, 0.0])\np")
    slider = notebook.page.get_by_role("slider", name="score of source 1")
    slider.focus()
    seen = []
    for _ in range(3):
        notebook.page.keyboard.press("ArrowUp")
        seen.append(float(slider.get_attribute("aria-valuenow")))
    np.testing.assert_allclose(seen, [0.6, np.log(2), 0.8], atol=1e-15)
    for key, value in {"Home": -2, "End": 3, "PageDown": 2}.items():
        notebook.page.keyboard.press(key)
        assert float(slider.get_attribute("aria-valuenow")) == value
    notebook.page.keyboard.press("PageDown")  # ln 4 lies on the way
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(np.log(4), abs=1e-15)
    assert "ln 4" in slider.get_attribute("aria-valuetext")


def test_ledger_tells_the_two_paths_apart(opened: Any) -> None:
    notebook = opened(CELLS["scores_and_values"])
    ledger = notebook.page.locator(".lk-ledger")
    notebook.page.get_by_role("switch", name="destination 3 may read source 2").click()
    assert "changed: mask row 3, A row 3, z₃ · unchanged: S, " in ledger.text_content()
    notebook.page.get_by_role("button", name="Reset").click()
    notebook.page.get_by_role("slider", name="v₂, coordinate 2").focus()
    notebook.page.keyboard.press("ArrowDown")
    assert "changed: v₂, z₂, z₃ · unchanged: S, mask, A, the other values" in ledger.text_content()


def test_an_empty_row_shows_the_error_instead_of_numbers(opened: Any) -> None:
    notebook = opened(CELLS["mask_builder"])
    notebook.page.get_by_role("switch", name="position 1 is real").click()
    assert table(notebook, "A")[0] == ["0/0"] * 3
    assert "destination 1 may read no source" in notebook.page.locator(".lk-empty").text_content()
    assert_page_shows_the_kernels_numbers(notebook, "mask_builder")


def test_python_sets_a_trait_and_the_panel_follows(opened: Any) -> None:
    notebook = opened(CELLS["scores_and_values"])
    notebook.kernel("p.scores = np.zeros((3, 3)); p.row = 1")
    wait_until(lambda: table(notebook, "A")[1][:2] == ["1/2", "1/2"])
    assert notebook.page.get_by_role("radio", name="follow destination 2").get_attribute("aria-checked") == "true"
    assert_page_shows_the_kernels_numbers(notebook, "scores_and_values")
    assert notebook.page.locator(".lk-notice").is_hidden()


def test_a_disagreement_with_the_kernel_is_shown(opened: Any) -> None:
    notebook = opened(CELLS["softmax_row"])
    notebook.kernel("p.set_trait('weights', p.weights + [1e-6, 0, 0])")
    notice = notebook.page.locator(".lk-notice")
    notice.wait_for()
    assert "differ from the ones drawn here by 0.0000010" in notice.text_content()
    notebook.kernel("p._recompute()")
    wait_until(notice.is_hidden)


def test_it_works_while_the_kernel_is_busy(opened: Any) -> None:
    notebook = opened(CELLS["scores_and_values"])
    notebook.page.evaluate(
        "() => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestExecute("
        "{ code: 'import time; time.sleep(6)', store_history: false }); }"
    )
    slider = notebook.page.get_by_role("slider", name="score of destination 3, source 2")
    slider.focus()
    notebook.page.keyboard.press("End")
    scores = [[*row] for row in EX.scores]
    scores[2][1] = float(slider.get_attribute("aria-valuemax"))
    weights = softmax_over_sources(scores, EX.allowed)
    status = notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status")
    assert status == "busy"
    page = shown(notebook, "scores_and_values")
    np.testing.assert_allclose(page["weights"], weights, atol=6e-4)
    np.testing.assert_allclose(page["output[p.row]"], mix(weights, EX.values)[2], atol=6e-3)
    notebook.rest()
    assert_page_shows_the_kernels_numbers(notebook, "scores_and_values")
    np.testing.assert_allclose(notebook.trait("p.weights"), weights, atol=1e-12)


def test_locked_until_checked_then_asks_which_entries_moved(opened: Any) -> None:
    cell = "p = panels.scores_and_values(ex, locked_by='forbid-source-2')\np"
    notebook = opened(cell)
    page = notebook.page
    assert "Predict first" in page.locator(".lk-lock").text_content()
    assert table(notebook, "A") == [["?"] * 3] * 3
    page.get_by_role("switch", name="destination 3 may read source 2").click()
    page.get_by_role("slider", name="score of destination 3, source 2").focus()
    page.keyboard.press("ArrowUp")
    assert notebook.value("p.revision") == 0
    notebook.kernel("check.weights('forbid-source-2', [1/3, 0, 2/3], scores=ex.scores[2], allowed=[True, False, True])")
    wait_until(page.locator(".lk-lock").is_hidden)
    assert table(notebook, "A")[2] == ["1/4", "1/4", "1/2"]
    page.get_by_role("switch", name="destination 3 may read source 2").click()
    ask = page.get_by_role("group", name="Which entries moved?")
    ask.wait_for()
    assert page.locator(".lk-ledger").is_hidden()
    for name in ("A row 3", "V"):
        ask.get_by_role("button", name=name, exact=True).click()
    ask.get_by_role("button", name="Compare").click()
    verdict = page.locator(".lk-verdict").text_content()
    assert "Also moved: mask row 3, z₃." in verdict
    assert "Did not move: V." in verdict
    assert "changed: mask row 3, A row 3, z₃" in page.locator(".lk-ledger").text_content()
    wait_until(
        lambda: notebook.value("p.noticed") == {"said": ["A row 3", "V"], "moved": ["mask row 3", "A row 3", "z₃"]}
    )
    notebook.restart_and_run_all()  # the prediction is on record: the panel opens at once, at its start
    page.locator(".lk").wait_for()
    assert page.locator(".lk-lock").is_hidden()
    assert table(notebook, "A")[2] == ["1/4", "1/4", "1/2"]
    assert_page_shows_the_kernels_numbers(notebook, "scores_and_values")


def test_what_is_asked_is_about_the_source_that_moved(opened: Any) -> None:
    notebook = opened("p = panels.softmax_row([0.0, 0.0, 0.0], locked_by='a-row')\np")
    page = notebook.page
    notebook.kernel("check.weights('a-row', [1/3, 1/3, 1/3], scores=[0, 0, 0])")
    wait_until(page.locator(".lk-lock").is_hidden)
    slider = page.get_by_role("slider", name="score of source 3")
    slider.focus()
    page.keyboard.press("PageUp")
    ask = page.get_by_role("group", name="Which entries moved?")
    ask.wait_for()
    names = ask.locator(".lk-chips button").all_text_contents()
    assert any("3" in name for name in names), names
    assert not any("1" in name for name in names), names
    ask.get_by_role("button", name="Compare").click()
    verdict, ledger = page.locator(".lk-verdict"), page.locator(".lk-ledger")
    wait_until(lambda: "Also moved" in verdict.text_content())
    unchanged = ledger.text_content().partition("unchanged: ")[2]
    assert "the other scores" in unchanged
    assert "the other scores" not in verdict.text_content()
    slider.focus()
    page.keyboard.press("PageUp")
    wait_until(lambda: verdict.text_content() == "")


# ── appearance and accessibility ─────────────────────────────────────────────────────────────────────────────────────


@each_panel
def test_axe_finds_nothing_serious_in_either_theme(opened: Any, axe: str, kind: str) -> None:
    notebook = opened(CELLS[kind])
    notebook.page.evaluate(axe)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        assert serious_violations(notebook, theme) == []


def serious_violations(notebook: Notebook, theme: str) -> list[str]:
    """Change the theme and let axe look at the panel."""
    notebook.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    light = str("Light" in theme).lower()
    notebook.page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)
    found = notebook.page.evaluate("() => axe.run('.lk')")
    assert found["passes"]
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@each_panel
@pytest.mark.parametrize("width", [360, 700, 1200])
def test_exported_page_is_alive_without_kernel_or_network(browser: Any, tmp_path: Any, kind: str, width: int) -> None:
    from labkit import panels

    namespace: dict[str, Any] = {"panels": panels, "exact": exact, "ex": EX}
    exec(CELLS[kind].removesuffix("\np"), namespace)
    path = panels.export_html(namespace["p"], tmp_path / "page.html")
    visit = browser.new_context(viewport={"width": width, "height": 900}, offline=True, reduced_motion="reduce")
    page, errors = visit.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.goto(path.as_uri())
    page.locator(".lk").wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    notebook = Notebook(page)
    before = shown(notebook, kind)
    for name, numbers in before.items():
        truth = eval(f"p.{name}", namespace)
        np.testing.assert_allclose(numbers, truth, rtol=0, atol=0.0051)
    control = page.locator(".lk").locator('input, [role="slider"]:visible, .lk-cell').first
    text = page.locator(".lk").text_content()
    control.focus()
    page.keyboard.press("ArrowUp" if kind != "map_gallery" else "ArrowDown")
    assert page.locator(".lk").text_content() != text or kind == "mask_builder"
    assert errors == []
    visit.close()


def test_a_locked_panel_on_an_exported_page_opens_on_the_readers_word(browser: Any, tmp_path: Any) -> None:
    from labkit import panels

    path = panels.export_html(panels.softmax_row([0.0, 0.0], locked_by="never-answered"), tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    notebook = Notebook(page)
    page.locator(".lk").wait_for()
    assert table(notebook, "softmax")[3][:2] == ["?", "?"]
    page.get_by_role("button", name="I have written my prediction down").click()
    assert table(notebook, "softmax")[3][:2] == ["1/2", "1/2"]
    page.close()


def test_a_notebook_page_made_by_nbconvert_comes_alive(browser: Any, tmp_path: Any) -> None:
    from labkit import panels

    nbconvert = pytest.importorskip("nbconvert")
    nbformat = pytest.importorskip("nbformat")
    data = {key: text for key, text in panels.softmax_row([0.0, 0.0])._repr_mimebundle_()[0].items() if "text" in key}
    output = nbformat.v4.new_output("display_data", data)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("panel", outputs=[output])])
    page_text, _ = nbconvert.HTMLExporter(embed_images=True).from_notebook_node(notebook)
    path = tmp_path / "lesson.html"
    path.write_text(panels.enliven(page_text), encoding="utf-8")
    visit = browser.new_context(offline=True)
    page = visit.new_page()
    page.goto(path.as_uri())
    slider = page.get_by_role("slider", name="score of source 1")
    slider.focus()
    page.keyboard.press("ArrowUp")
    assert slider.get_attribute("aria-valuenow") == "0.1"
    assert page.locator("figure").count() == 0
    visit.close()


@pytest.mark.parametrize(
    "cell",
    [
        CELLS["two_heads"],
        "panels.two_heads(scores=[[[8, 0, 0]], [[0, 8, 0]]], values=ex.values, W_O=[[1, 0], [0, 1], [2, 0], [0, -1]])",
        "panels.two_heads(scores=[ex.scores] * 2, values=[ex.values, np.array(ex.values, float) + 1])",
        CELLS["scores_and_values"],
    ],
)
def test_no_label_of_the_plane_covers_another(opened: Any, cell: str) -> None:
    names = opened(cell).page.locator(".lk-plane .name").evaluate_all(PLACES)
    assert len(names) > 3
    for k, (text, left, right, top, bottom) in enumerate(names):
        for other, *place in names[:k]:
            apart = left >= place[1] or right <= place[0] or top >= place[3] or bottom <= place[2]
            assert apart, f"{text} covers {other}"


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_weights_are_legible_at_every_strength(opened: Any, theme: str) -> None:
    """Black and white on the best of all middle tones reach 4.6 to 1; axe does not measure mixed colours."""
    gaps = "[[[np.log(w / (1 - w)), 0]] for w in np.arange(0.05, 1, 0.05)]"
    notebook = opened(f"panels.two_heads(scores={gaps}, values=[[0], [0]])")
    notebook.use_theme(theme)
    painted = notebook.page.locator(".lk-tank.weight").evaluate_all(PAINTED)
    assert len(painted) == 38
    ground = (0.129,) * 3 if "Dark" in theme else (1.0,) * 3
    for text, behind in painted:
        *paper, alpha = behind
        assert contrast(text[:3], [alpha * c + (1 - alpha) * g for c, g in zip(paper, ground, strict=True)]) >= 4


def contrast(one: Sequence[float], two: Sequence[float]) -> float:
    dark, light = sorted(np.dot([0.2126, 0.7152, 0.0722], [linear(c) for c in colour]) for colour in (one, two))
    return float((light + 0.05) / (dark + 0.05))


def linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def test_a_locked_chart_shows_no_part_of_itself(opened: Any) -> None:
    notebook = opened("panels.scale(locked_by='never-answered')")
    seen = "nodes => nodes.filter(node => getComputedStyle(node).visibility === 'visible').length"
    assert notebook.page.locator(".lk-chart, .lk-chart *").evaluate_all(seen) == 0


def test_a_figure_has_quieter_paper_in_the_dark_theme(opened: Any) -> None:
    from matplotlib.colors import to_hex
    from matplotlib.image import imread

    notebook = opened("from labkit import figures\nfigures.matrices(Q=[[1, 2]])\npanels.scale()")
    for theme, paper in (("JupyterLab Light", "#ffffff"), ("JupyterLab Dark", canvas.QUIET_PAPER)):
        notebook.use_theme(theme)
        picture = imread(io.BytesIO(notebook.page.locator(".jp-OutputArea-output img").screenshot()))
        assert to_hex(picture[-8, 20, :3]) == paper


def test_motion_stops_when_the_reader_prefers_it(opened: Any) -> None:
    notebook = opened(CELLS["scores_and_values"], reduced_motion="reduce")
    durations = notebook.page.evaluate(
        "() => [...document.querySelectorAll('.lk *')].map(node => getComputedStyle(node).transitionDuration)"
    )
    assert durations
    assert set(durations) == {"0s"}
