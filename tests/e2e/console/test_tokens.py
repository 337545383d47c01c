"""The tokens of sessions in a real Chromium: coloured, chosen, explained, whatever their number."""

import re
from collections.abc import Iterator, Sequence

import pytest
from playwright.sync_api import Browser, expect

from tests.builders.console.chromium import (
    NARROW,
    WIDE,
    Theme,
    WatchedPage,
    watched,
)
from tests.builders.console.explained_sessions import (
    ENDED,
    OPENED,
    READY,
    STEP,
    committed,
    explanation,
    method,
    rows_of,
)
from tests.builders.console.long_session import TOKENS, long_session
from tests.builders.console.session_site import SessionSite, serving
from tests.builders.records import control, sessions
from tests.builders.records.content import ids, message

pytestmark = pytest.mark.browser

LONG = "long"
HOSTILE = "<img src=x onerror=alert(1)>"
TEXTS = ("a", " b", "\n", "<script>alert(2)</script>", " é", " f", " g", " h")
PROMPT = 0
TRAINED = 2
MASKED = 4
"""Places of tokens of session `s`."""
COLOURINGS = ("reason", "logprob", "version", "worker", "mask", "advantage")


def spell(tokens: Sequence[int]) -> str:
    return "".join(TEXTS[token % len(TEXTS)] for token in tokens)


@pytest.fixture(scope="module")
def site() -> Iterator[SessionSite]:
    asked = sessions.started("a", new_messages=(message("user", HOSTILE),))
    answered = (asked, sessions.dispatched("a"), sessions.completed(ids(3, 4, 5), "a"))
    commit = committed(2, methods=(method("loss", "ppo_clip"), method("mask", "sure_turns")))
    runs = {STEP: [rows_of(0, 3, 4, advantage=-0.5)]}
    short = explanation([OPENED, *answered, *ENDED], [READY, commit], runs)
    dropped = [control.dropped("g", "filtered", detail="zero_variance")]
    other = explanation([OPENED, *answered, *ENDED], dropped, session_id="other")
    with serving(SessionSite({"s": short, "other": other}, spell)) as running:
        yield running


@pytest.fixture(scope="module")
def long_site() -> Iterator[SessionSite]:
    with serving(SessionSite({"s": long_session()}, spell)) as running:
        yield running


@pytest.fixture
def shown(browser: Browser) -> Iterator[WatchedPage]:
    """Yield a page, and fail if anything went wrong on it or a request left the host."""
    with watched(browser) as page:
        yield page
        assert page.errors == []
        assert page.hosts == {"127.0.0.1"}


def token(place: int, session: int = 1) -> str:
    return f"#t{session} [data-place='{place}']"


def test_a_chosen_token_shows_why_it_was_trained_and_the_record_that_says_so(
    site: SessionSite, shown: WatchedPage
) -> None:
    shown.open(site.url("s"))
    shown.page.click(token(TRAINED))
    facts = shown.page.locator(".tk-facts")
    expect(facts).to_contain_text("trained in step 1, which made version 1")
    expect(facts).to_contain_text("-0.250000 (77.9 %)")
    expect(facts).to_contain_text("-0.5000")
    link = facts.get_by_role("link", name="StepCommitted at control:0:1")
    expect(link).to_have_attribute("href", "/record/control%3A0%3A1")


def test_a_masked_token_names_its_rule(site: SessionSite, shown: WatchedPage) -> None:
    shown.open(site.url("s"))
    shown.page.click(token(MASKED))
    expect(shown.page.locator(".tk-facts")).to_contain_text("the mask sure_turns took it out")
    expect(shown.page.locator(token(MASKED))).to_have_class(re.compile(r"\bwhy-masked\b"))


def test_every_colouring_has_a_class_for_each_token_and_an_entry_in_the_legend(
    site: SessionSite, shown: WatchedPage
) -> None:
    shown.open(site.url("s"))
    shown.page.wait_for_selector(token(MASKED))
    for name in COLOURINGS:
        shown.page.select_option(".tk-colour", name)
        classes = [
            shown.page.locator(token(place)).get_attribute("class") or "" for place in range(5)
        ]
        swatches = shown.page.locator(".tk-legend .t").evaluate_all(
            "all => all.map(e => e.className)"
        )
        assert {css for css in classes} <= set(swatches), name
        assert len(set(classes)) > 1, name


def test_a_colouring_stands_in_the_address(site: SessionSite, shown: WatchedPage) -> None:
    shown.open(site.url("s", colour="logprob"))
    expect(shown.page.locator(".tk-colour")).to_have_value("logprob")
    shown.page.select_option(".tk-colour", "mask")
    assert "colour=mask" in shown.page.url


def test_tokens_are_chosen_by_the_keyboard_alone(site: SessionSite, shown: WatchedPage) -> None:
    shown.open(site.url("s"))
    facts = shown.page.locator(".tk-facts")
    flow = shown.page.locator(".tk-flow")
    flow.focus()
    flow.press("ArrowRight")
    expect(facts).to_contain_text("1 of 5")
    flow.press("n")
    expect(facts).to_contain_text("3 of 5")
    flow.press("End")
    expect(facts).to_contain_text("5 of 5")
    flow.press("ArrowLeft")
    expect(facts).to_contain_text("4 of 5")
    flow.press("Home")
    expect(facts).to_contain_text("1 of 5")


def test_a_link_to_a_token_chooses_it_again(site: SessionSite, shown: WatchedPage) -> None:
    shown.open(site.url("s"))
    shown.page.click(token(MASKED))
    shown.open(shown.page.url)
    expect(shown.page.locator(".tk-facts")).to_contain_text("5 of 5")


def test_two_sessions_stand_side_by_side(site: SessionSite, shown: WatchedPage) -> None:
    shown.open(site.url("s", beside="other"))
    shown.page.click(token(TRAINED, 2))
    facts = shown.page.locator(".tk-facts")
    expect(facts).to_contain_text("its group was dropped by the filter zero_variance")
    shown.page.click(token(TRAINED, 1))
    expect(facts).to_contain_text("trained in step 1")
    boxes = [shown.page.locator(f"#t{number}").bounding_box() for number in (1, 2)]
    assert boxes[0] is not None and boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]


def test_what_agents_and_models_wrote_is_shown_as_text(
    site: SessionSite, shown: WatchedPage
) -> None:
    shown.open(site.url("s"))
    expect(shown.page.locator(".tk-messages").first).to_contain_text(HOSTILE)
    expect(shown.page.locator(token(3))).to_have_text(" é")
    assert shown.page.locator(".tk-flow img, .tk-flow script").count() == 0


def test_a_page_whose_tokens_do_not_come_says_so(site: SessionSite, browser: Browser) -> None:
    with watched(browser) as shown:
        shown.page.route("**/s.json", lambda route: route.fulfill(status=503))
        shown.page.goto(site.url("s"))
        expect(shown.page.get_by_role("alert")).to_contain_text("cannot be shown: 503")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("beside", ["", "other"])
def test_a_page_fits_its_window_in_both_themes(
    site: SessionSite, browser: Browser, width: int, theme: Theme, beside: str
) -> None:
    with watched(browser, width, theme) as shown:
        shown.open(site.url("s", beside=beside))
        shown.page.wait_for_selector(token(TRAINED))
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.errors == []


def test_of_a_million_tokens_those_near_the_view_are_in_the_document(
    long_site: SessionSite, shown: WatchedPage
) -> None:
    shown.open(long_site.url("s"))
    shown.page.wait_for_selector(token(0))
    assert 0 < shown.page.locator("[data-place]").count() < 20_000
    ranges = [path for path in long_site.requests if "tokens.json" in path]
    assert 1 <= len(ranges) <= 4


def test_the_last_of_a_million_tokens_is_one_key_away(
    long_site: SessionSite, shown: WatchedPage
) -> None:
    shown.open(long_site.url("s"))
    shown.page.locator(".tk-flow").press("End")
    expect(shown.page.locator(".tk-facts")).to_contain_text(f"{TOKENS:,} of {TOKENS:,}")
    expect(shown.page.locator(token(TOKENS - 1))).to_be_in_viewport()
    assert shown.page.locator("[data-place]").count() < 20_000


def test_a_click_on_the_strip_goes_to_that_part_of_a_million_tokens(
    long_site: SessionSite, shown: WatchedPage
) -> None:
    shown.open(long_site.url("s"))
    strip = shown.page.get_by_role("slider")
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    chosen = shown.page.locator(".tk-chosen")
    expect(chosen).to_be_in_viewport()
    place = int(chosen.get_attribute("data-place") or -1)
    assert abs(place - TOKENS // 2) < TOKENS // 100


def test_a_hand_over_inside_an_answer_is_marked_where_the_next_worker_began(
    long_site: SessionSite, shown: WatchedPage
) -> None:
    shown.open(long_site.url("s"))
    mark = shown.page.locator(".tk-hand-over").first
    expect(mark).to_have_text("▸ w1, version 1")
    following = mark.evaluate("mark => Number(mark.nextElementSibling.dataset.place)")
    assert following == 350
