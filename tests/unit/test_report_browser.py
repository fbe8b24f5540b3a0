"""The report in a real browser: it opens offline without a complaint, and can be used by mouse, finger and keyboard."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.report import write_report
from tests.checkers import spoil
from tests.checkers.synthetic import SyntheticRun
from tests.report.browser import Browser, Page, find_chromium
from tests.report.judged import judged

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: install it (Debian: chromium) or name it in RIDEOUT_CHROMIUM"
)


@pytest.fixture(scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    assert CHROMIUM is not None
    async with Browser.open(CHROMIUM, tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def overlap(run: SyntheticRun) -> object:
        return spoil.overlap(run, "tick", run.pick("tick", "during"))

    return write_report(judged(tmp_path_factory.mktemp("bad"), overlap))


def in_view(name: str) -> str:
    """JavaScript: whether the element's top is in the window."""
    return f"((at) => at > -50 && at < innerHeight)(document.getElementById('{name}').getBoundingClientRect().y)"


def shown(plot: str) -> str:
    """JavaScript: the ends of a plot's x axis as numbers."""
    return f"document.querySelector('[data-plot={plot}].canvas')._fullLayout.xaxis.range.map((at) => +new Date(at))"


async def x_range(page: Page, plot: str) -> list[float]:
    return [float(at) for at in await page.value(shown(plot))]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_plot_is_drawn_without_error_request_or_sideways_scrolling(
    browser: Browser, report: Path, width: int, dark: bool
) -> None:
    page = await browser.visit(report, width=width, dark=dark)
    await page.draw_everything()
    marks = await page.value(
        "[...document.querySelectorAll('.canvas.drawn')].map((it) => it.querySelectorAll('path, text').length)"
    )
    assert len(marks) == 7
    assert min(marks) > 10
    assert await page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.troubles == []


async def test_the_first_offence_is_one_click_from_the_verdict(browser: Browser, report: Path) -> None:
    page = await browser.visit(report, width=1280)
    offence = in_view("first-offence")
    assert not await page.value(offence)
    await page.click("a.jump")
    await page.until(offence, "the first offence in view")
    await page.click("article.case a[href='#timeline']")
    await page.until(in_view("timeline"), "the worst rows in view")


async def test_colours_follow_the_system_while_the_page_is_open(browser: Browser, report: Path) -> None:
    page = await browser.visit(report, width=1280)
    await page.draw_everything()
    colour = "getComputedStyle(document.querySelector('.canvas.drawn .xtick text')).fill"
    light = await page.value(colour)
    await page.colours("dark")
    await page.until(f"{colour} !== {light!r}", "the plots in dark colours")
    assert page.troubles == []


async def test_a_plot_is_zoomed_by_keyboard_and_the_others_follow(browser: Browser, report: Path) -> None:
    page = await browser.visit(report, width=1280)
    await page.draw_everything()
    before = await x_range(page, "rates")
    await page.value("document.querySelector('[data-plot=rates].canvas').focus()")
    await page.press("+")
    limit = (before[1] - before[0]) * 0.7
    half = f"(([begin, end]) => end - begin < {limit})({shown('latency')})"
    await page.until(half, "the other plot zoomed as well")
    ladder = await x_range(page, "ladder")
    assert ladder[1] < 1000, "the ladder counts from its first offer: it does not follow the clock"
    await page.press("0")
    await page.until(half.replace("<", ">="), "everything in view again")
    assert await x_range(page, "rates") == before
    assert page.troubles == []


async def test_a_key_hides_its_marks(browser: Browser, report: Path) -> None:
    page = await browser.visit(report, width=1280)
    await page.draw_everything()
    lines = "document.querySelectorAll('[data-plot=rates].canvas .scatterlayer .trace').length"
    before = await page.value(lines)
    await page.click("#plot-rates .keys button")
    await page.until(f"{lines} === {before - 3}", "one line less a lane")
    assert (
        await page.value("document.querySelector('#plot-rates .keys button').getAttribute('aria-pressed')") == "false"
    )


async def test_what_is_folded_away_is_drawn_when_it_is_unfolded(browser: Browser, report: Path) -> None:
    page = await browser.visit(report, width=400)
    await page.click("#timeline-before > summary")
    drawn = "document.querySelector('[data-plot=timeline-control].canvas').classList.contains('drawn')"
    await page.until(drawn, "the control's rows drawn")
    assert page.troubles == []
