"""The pages in a real Chromium: nothing leaves the host, nothing fails, all is reached by keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Route, expect

from seamlessflow.console.models.course import Course
from seamlessflow.console.web.console import NAV, RunBeside
from seamlessflow.console.web.timeline_pages import timeline_data
from tests.builders.console.content import late_worker, run_items
from tests.builders.console.course import DIP, POLICY, STEPS, course_items, items_beside
from tests.builders.console.masked_session import masked_items
from tests.builders.console.memory_log import beside_of
from tests.builders.console.recorded import recorded_items
from tests.builders.console.served import Served, served
from tests.builders.records.short_run import RUN as SHORT_RUN

pytestmark = pytest.mark.browser
PAGES = (
    *("/now", "/now?at=control:60", "/curves?smooth=0.8", "/step/3", "/timeline"),
    *("/sessions", "/records", "/record/tasks:3:41", "/compare", "/compare?with=control:40"),
)
SESSION = "/session/g-0.0.0"
STEPS_Y = 27
FIRST_WORKER_Y = 112
"""Heights at which the timeline draws optimizer steps, and the first worker."""
DRAWN = {"/timeline": ".timeline tbody tr", SESSION: "html[data-tokens-ready]"}
"""Parts that a script draws, by page."""
SHORT_MS = 60_000
ColorScheme = Literal["light", "dark"]


@contextmanager
def looking(
    browser: Browser, console: Served, scheme: ColorScheme = "light", width: int = 1440
) -> Iterator[Page]:
    """Yield a page of a new browser window; afterwards nothing may have failed or left the host."""
    faults: list[str] = []
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, base_url=console.url
    )
    page = context.new_page()
    page.set_default_timeout(SHORT_MS)
    expect.set_options(timeout=SHORT_MS)
    page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: faults.append(request.url) if _leaves(request.url) else None)

    def _leaves(url: str) -> bool:
        return not url.startswith(console.url + "/")

    try:
        yield page
        assert faults == []
        assert page.title() != "taken"
    finally:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole(
    browser: Browser,
    console: Served,
    screenshots: Path,
    path: str,
    width: int,
    scheme: ColorScheme,
) -> None:
    with looking(browser, console, scheme, width) as page:
        page.goto(path)
        expect(page.locator("main")).to_be_visible()
        name = path.strip("/").replace("?", "-").replace("/", "-").replace(":", "-")
        page.screenshot(path=screenshots / f"{name}-{scheme}-{width}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("path", [*PAGES, SESSION])
def test_axe_finds_no_serious_fault(
    browser: Browser, console: Served, path: str, width: int, scheme: ColorScheme
) -> None:
    with looking(browser, console, scheme, width) as page:
        page.goto(path)
        expect(page.locator(DRAWN.get(path, "main")).first).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        violations = Axe().run(page).response["violations"]
        serious = [fault for fault in violations if fault["impact"] in ("serious", "critical")]
        assert [(fault["id"], node["html"]) for fault in serious for node in fault["nodes"]] == []


def test_now_grows_without_a_reload(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/now")
        page.evaluate("window.sameWindow = true")
        page.locator("#processes > summary").click()
        expect(page.get_by_role("cell", name="gateway")).to_be_visible()
        console.append(late_worker("came-later"))
        expect(page.get_by_role("rowheader", name="came-later").first).to_be_visible()
        assert page.evaluate("window.sameWindow")
        expect(page.get_by_role("cell", name="gateway")).to_be_visible()  # still unfolded
        expect(page.locator("#chosen")).to_have_text("control:10000")


def test_a_page_is_live_though_its_scripts_come_one_by_one(
    browser: Browser, console: Served
) -> None:
    def long_after_htmx(route: Route) -> None:
        _wait_until(page, "window.htmx")
        route.continue_()

    with looking(browser, console) as page:
        page.route("**/hx-sse.min.js", long_after_htmx)
        with page.expect_request("**/live/now"):
            page.goto("/now", wait_until="commit")


def test_records_are_followed(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/records?topic=control")
        page.get_by_role("link", name="follow").click()
        expect(page.get_by_text("following")).to_be_visible()
        console.append(late_worker("came-later"))
        expect(page.get_by_text("worker came-later")).to_be_visible()


def test_the_slider_goes_back_in_time_by_keys(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/now")
        page.locator("#moment").focus()
        page.keyboard.press("Home")
        page.wait_for_url("**/now?at=control%3A0")
        expect(page.locator(".status")).to_contain_text("control:0")
        expect(page.locator("#moment")).to_be_focused()
        page.keyboard.press("ArrowRight")
        page.wait_for_url("**/now?at=control%3A1")
        expect(page.get_by_role("rowheader", name="w0").first).to_be_visible()
        page.get_by_role("link", name="now", exact=True).click()
        page.wait_for_url("**/now")


def test_the_slider_names_the_step_of_each_moment(browser: Browser) -> None:
    with served(course_items()) as console, looking(browser, console) as page:
        page.goto("/curves?at=control:2")
        step = page.locator("#step")
        expect(step).to_have_text("step 1")
        slider = page.locator("#moment")
        for offset, name in ((8, "step 1"), (9, "step 2"), (10_000, f"after step {STEPS}")):
            slider.evaluate(
                "(slider, offset) => { slider.value = offset; "
                "slider.dispatchEvent(new Event('input')); }",
                offset,
            )
            expect(step).to_have_text(name)


def test_a_link_to_a_moment_shows_the_same_after_the_log_has_grown(
    browser: Browser, console: Served
) -> None:
    with looking(browser, console) as page:
        page.goto("/now")
        page.get_by_role("link", name="link to this moment").click()
        page.wait_for_url("**at=control*")
        before = page.locator("main").inner_text()
        console.append(late_worker("came-later"))
        page.reload()
        assert page.locator("main").inner_text() == before


def test_every_page_is_reached_by_keys_alone(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/now")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        for _ in NAV:
            page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Records", exact=True)).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url("**/records")
        summary = page.locator(".record > summary").first
        summary.focus()
        page.keyboard.press("Enter")
        expect(page.locator(".record[open]")).to_have_count(1)


def test_a_search_is_an_address(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/records")
        page.get_by_label("type").fill("StepCompleted")
        page.get_by_label("type").press("Enter")
        page.wait_for_url("**type=StepCompleted**")
        expect(page.locator(".record")).to_have_count(12)


def test_a_session_leads_to_its_records(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/sessions?group=g-24")
        page.get_by_role("link", name="g-24.0.0").click()
        page.get_by_role("link", name="its records").click()
        expect(page.get_by_text("TurnDispatched")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_from_the_list_of_sessions_to_the_record_behind_a_token(
    browser: Browser, screenshots: Path, width: int, scheme: ColorScheme
) -> None:
    with served(recorded_items()) as recorded, looking(browser, recorded, scheme, width) as page:
        page.goto("/sessions?status=complete")
        page.locator("tbody th a").first.click()
        page.wait_for_selector("html[data-tokens-ready]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("[data-place]").last.click()
        page.screenshot(path=screenshots / f"session-{scheme}-{width}.png", full_page=True)
        page.locator(".tk-facts").get_by_role("link").first.click()
        expect(page.locator(".record[open]")).to_have_count(1)


def test_hostile_content_is_text_when_everything_is_unfolded(
    browser: Browser, console: Served
) -> None:
    with looking(browser, console) as page:
        for path in ("/now", "/sessions", "/records?count=500", "/record/tasks:3:41"):
            page.goto(path)
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            assert page.locator("main script, main img, main svg[onload]").count() == 0
            assert page.locator("main").count() == 1
        expect(page.locator("pre", has_text="<script>").first).to_be_visible()


def test_an_error_is_a_page(browser: Browser, console: Served) -> None:
    context = browser.new_context(base_url=console.url)
    page = context.new_page()
    page.goto("/now?at=yesterday")
    expect(page.get_by_role("alert")).to_contain_text("a moment is TOPIC:PARTITION:OFFSET")
    context.close()


def test_a_click_on_a_dip_leads_to_its_step_and_to_a_session(browser: Browser) -> None:
    with served(course_items()) as console, looking(browser, console) as page:
        page.goto("/curves")
        area = page.locator(f"a[href='/step/{DIP + 1}?policy={POLICY}'] rect").first
        area.click()
        expect(page.get_by_role("heading", name=f"Step {DIP + 1}")).to_be_visible()
        page.get_by_label("histogram of returns").locator("rect").last.click()
        expect(page.locator(".cell.marked")).to_have_count(2)
        link = page.locator(".cell.marked").first.get_attribute("href")
        assert link == f"/session/a-{DIP}-0.0.0"


def test_a_chart_shows_the_value_under_the_pointer(browser: Browser) -> None:
    with served(course_items()) as console, looking(browser, console) as page:
        page.goto("/curves")
        area = page.locator(f"a[href='/step/{DIP + 1}?policy={POLICY}'] rect").first
        value = page.locator("figure", has_text="reward_mean").locator("figcaption span")
        newest = value.inner_text()
        area.hover()
        expect(value).to_have_text(f"step {DIP + 1}: 0.1")
        page.get_by_text("steps done").hover()
        expect(value).to_have_text(newest)


def test_the_ends_of_steps_are_a_click_away(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/now?at=control:60")
        page.get_by_label("to the end of the next step").click()
        slider = page.get_by_label("moment: offset of control")
        expect(slider).not_to_have_value("60")
        assert int(slider.input_value()) > 60


def test_curves_grow_without_a_reload(browser: Browser) -> None:
    items = course_items()
    with served(items[:200]) as console, looking(browser, console) as page:
        page.goto("/curves")
        page.evaluate("window.sameWindow = true")
        before = page.get_by_text("steps done").inner_text()
        console.append(items[200:])
        expect(page.get_by_text("steps done")).not_to_have_text(before)
        expect(page.get_by_text("steps done")).to_contain_text(f"{STEPS} steps done")
        assert page.evaluate("window.sameWindow")


def test_the_timeline_draws_each_worker(browser: Browser, console: Served) -> None:
    with looking(browser, console) as page:
        page.goto("/timeline")
        expect(page.locator(".timeline tbody tr")).to_have_count(2)
        expect(page.locator(".timeline-summary")).to_contain_text("12 optimizer steps")
        page.get_by_role("button", name="whole run").click()


def _wait_until(page: Page, condition: str) -> None:
    """Wait by timers: `wait_for_function` needs frames and `eval`, which the page may not have."""
    page.evaluate(
        f"""new Promise((done, fail) => {{
            setTimeout(fail, {SHORT_MS}, "no {condition}");
            const look = () => setTimeout({condition} ? done : look, 10);
            look();
        }})"""
    )


def _shows_less(page: Page, chart: Locator, place: float, less: str) -> bool:
    """Click on a place, maybe between two steps, and return whether the next frame shows less."""
    chart.click(position={"x": place, "y": STEPS_Y})
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    return bool(page.evaluate(less))


def test_a_click_on_a_step_shows_that_step(browser: Browser, console: Served) -> None:
    span = "() => { const { from, to } = JSON.parse(sessionStorage.timeline); return to - from; }"
    with looking(browser, console) as page:
        page.goto("/timeline")
        expect(page.locator(".timeline tbody tr")).to_have_count(2)
        page.get_by_role("button", name="training").click()
        chart = page.locator(".timeline-chart")
        width = chart.evaluate("canvas => canvas.clientWidth")
        _wait_until(page, "sessionStorage.timeline")
        whole = page.evaluate(span)
        places = (width * part / 20 for part in range(2, 19))
        assert any(_shows_less(page, chart, place, f"({span})() < {whole / 2}") for place in places)


def test_a_click_on_a_workers_bar_shows_the_run_at_that_moment(
    browser: Browser, console: Served
) -> None:
    with looking(browser, console) as page:
        page.goto("/timeline")
        expect(page.locator(".timeline tbody tr")).to_have_count(2)
        expect(page.get_by_text("on a worker's bar: the run at that moment")).to_be_visible()
        page.get_by_role("button", name="whole run").click()
        chart = page.locator(".timeline-chart")
        width = chart.evaluate("canvas => canvas.clientWidth")
        chart.click(position={"x": width / 2, "y": FIRST_WORKER_Y})
        page.wait_for_url("**/now?time=*")
        offset = int(page.locator("#chosen").inner_text().removeprefix("control:"))
        last = int(page.locator("#moment").get_attribute("max") or 0)
        assert 0.3 < offset / last < 0.7
        expect(page.get_by_role("link", name="now", exact=True)).to_be_visible()


def test_the_timeline_grows_above_that_of_another_run(browser: Browser) -> None:
    beside = {"runs/other": RunBeside(Course(), timeline_data(SHORT_RUN, "runs/other"))}
    with served(run_items(), beside=beside) as console, looking(browser, console) as page:
        page.goto("/timeline")
        (growing, other) = page.locator(".timeline").all()
        expect(growing.locator("tbody tr")).to_have_count(2)
        expect(other.locator(".timeline-title")).to_have_text("Timeline of runs/other")
        expect(other.locator("tbody tr")).to_have_count(1)
        page.evaluate("window.sameWindow = true")
        console.append(late_worker("came-later"))
        expect(growing.locator("tbody tr")).to_have_count(3)
        expect(other.locator("tbody tr")).to_have_count(1)
        assert page.evaluate("window.sameWindow")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_moments_runs_and_rules_are_compared_by_keys(
    browser: Browser, screenshots: Path, width: int, scheme: ColorScheme
) -> None:
    beside = {"runs/with-another-setting": beside_of(items_beside())}
    with (
        served([*course_items(), *masked_items()], beside=beside) as console,
        looking(browser, console, scheme, width) as page,
    ):
        page.goto("/compare")
        picture(page, screenshots / f"compare-choice-{scheme}-{width}.png", width)
        page.get_by_role("link", name="step 4", exact=True).press("Enter")
        expect(page.get_by_role("heading", name="Trainers that started between")).to_be_visible()
        picture(page, screenshots / f"compare-moments-{scheme}-{width}.png", width)
        page.get_by_role("link", name="compare something else").press("Enter")
        page.get_by_label("with the run").focus()
        page.keyboard.press("Enter")
        page.get_by_label("up to step").last.press("Enter")
        expect(page.get_by_text("that both have")).to_be_visible()
        picture(page, screenshots / f"compare-runs-{scheme}-{width}.png", width)
        page.goto("/session/s")
        page.get_by_role("link", name="by other rules").press("Enter")
        page.get_by_label("turns of a bent distribution").select_option("trained")
        page.get_by_role("button", name="compare").press("Enter")
        expect(page.get_by_role("cell", name="+2", exact=True)).not_to_have_count(0)
        picture(page, screenshots / f"compare-rules-{scheme}-{width}.png", width)


def picture(page: Page, path: Path, width: int) -> None:
    """Take a picture of the page, which is no wider than the window."""
    page.screenshot(path=path, full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
