"""Feedback pages and the class report in a real browser: nothing hostile acts, everybody can read them."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

from labkit.grading.probe import Report
from labkit.grading.reports import write_reports
from labkit.grading.run import grade
from tests.grading.make_class import make_class

HOSTILE = Path(__file__).parents[1] / "hostile"
KEY = HOSTILE / "key.md"
SERIOUS = """async () => (await axe.run(document)).violations
  .filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => `${one.id}: ${one.nodes[0].html}`)"""
WITNESS = """window.acted = [];
for (const name of ['alert', 'confirm', 'prompt', 'open']) window[name] = () => acted.push(name);"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="only on POSIX systems are file names this odd"),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grade the d-series: work whose texts attack whoever reads the reports."""
    place, out = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("graded")
    for file in sorted((HOSTILE / "files").glob("d*.ipynb")):
        (place / file.stem).mkdir()
        data = file.read_bytes().replace(b'"grading"', b'"labkit"')
        (place / file.stem / "lab06.ipynb").write_bytes(data)
    grade(place, KEY, out, report=Report((), None))
    write_reports(out)
    return out


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grade ten students of the made class, written answers waiting."""
    folder = tmp_path_factory.mktemp("ordinary")
    names = [f"{name} Example" for name in ("Ada", "Ben", "Cy", "Dee", "Eve", "Fay", "Gus", "Hal", "Ida", "Jo")]
    submissions, _ = make_class(folder, ("08_interventions",), names)
    keys = Path(__file__).parents[2] / "answer_keys" / "08_interventions.md"
    grade(submissions, keys, folder / "graded", report=Report((), None))
    write_reports(folder / "graded")
    return folder / "graded"


class Visit:
    """One page in a context of its own, with every request, dialogue and error it made."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.add_init_script(WITNESS)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.type), dialog.dismiss()))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.said.append(message.text))
        self.page.goto(path.as_uri())

    def _asked(self, url: str) -> None:
        if not url.startswith("data:"):
            self.said.append(url)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def pages(out: Path) -> list[Path]:
    return [out / "class_report.html", *sorted((out / "feedback").glob("*.html"))]


def test_no_hostile_text_acts(browser: Any, hostile: Path) -> None:
    seen = pages(hostile)
    assert len(seen) >= 10
    for path in seen:
        with Visit(browser, path) as visit:
            assert visit.said == [path.as_uri()], path.name  # the page itself, and nothing more
            assert visit.page.title() in ("Class report", f"Feedback for {path.stem}")
            assert visit.page.evaluate("acted") == []
            scripts = visit.page.locator("script").count()
            assert scripts == 0, path.name
            assert visit.page.locator("iframe, object, embed, form, link, base, meta[http-equiv=refresh]").count() == 0


def test_the_browser_itself_would_refuse_a_script(browser: Any, hostile: Path, tmp_path: Path) -> None:
    """The second line of defence: with escaping taken away the policy alone still stops it."""
    page = (hostile / "feedback" / "d03_html_in_values.html").read_text("utf-8")
    torn = tmp_path / "torn.html"
    torn.write_text(page.replace("</main>", "<script>document.title='PWNED'</script><img src=x></main>"), "utf-8")
    with Visit(browser, torn) as visit:
        assert visit.page.title() != "PWNED"
        assert any("Content Security Policy" in text for text in visit.said)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_axe_finds_nothing_serious(browser: Any, ordinary: Path, axe: str, scheme: str, width: int) -> None:
    weak = min(pages(ordinary)[1:], key=lambda path: path.read_text("utf-8").count("card right"))
    for path in (ordinary / "class_report.html", weak):
        # The policy allows no script but ours, so the checker comes in beside it.
        with Visit(
            browser, path, bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 900}
        ) as visit:
            visit.page.evaluate(axe)
            assert visit.page.evaluate(SERIOUS) == []


def test_a_phone_never_scrolls_sideways(browser: Any, ordinary: Path, hostile: Path) -> None:
    for path in (*pages(ordinary)[:3], *pages(hostile)):
        with Visit(browser, path, viewport={"width": 390, "height": 900}) as visit:
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390, path.name


def test_on_a_phone_every_cell_has_room_for_its_label(browser: Any, ordinary: Path) -> None:
    """Rows become blocks there, a label before each cell; labels of empty cells once ran into the next."""
    with Visit(browser, ordinary / "class_report.html", viewport={"width": 390, "height": 900}) as visit:
        heights = visit.page.evaluate(
            "[...document.querySelectorAll('td')].map(cell => [cell.innerText, cell.offsetHeight])"
        )
    assert any(not text for text, _ in heights)
    assert min(height for _, height in heights if height) >= 20


def test_the_form_saves_a_sheet_that_is_taken_in(browser: Any, ordinary: Path, tmp_path: Path) -> None:
    with Visit(browser, ordinary / "class_report.html") as visit:
        card = visit.page.locator("[data-student]").first
        student = card.get_attribute("data-student")
        card.locator("input").fill("9")  # of 4
        visit.page.click("#save")
        assert "saved as" not in visit.page.inner_text("#saved")
        card.locator("input").fill("2.5")
        card.locator("textarea").fill('=1+1, "quoted"\nand more')
        assert visit.page.inner_text("#saved").startswith("1 of ")
        with visit.page.expect_download() as download:
            visit.page.click("#save")
        download.value.save_as(tmp_path / "saved.csv")
        assert visit.page.inner_text("#saved") == "1 mark saved as manual.csv"
        assert visit.said[1:] == [] or all(one.startswith("blob:") for one in visit.said[1:])
    write_reports(ordinary, tmp_path / "saved.csv")
    with open(ordinary / "manual.csv", encoding="utf-8-sig", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["student"] == student)
    assert (row["points"], row["comment"]) == ("2.5", '\'=1+1, "quoted" and more')


def test_print_hides_what_only_a_screen_can_use(browser: Any, ordinary: Path) -> None:
    with Visit(browser, ordinary / "class_report.html") as visit:
        visit.page.emulate_media(media="print")
        assert not visit.page.locator("#save").is_visible()
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
