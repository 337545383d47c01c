"""Pages over HTTP: their forms, their errors, and nothing that writes."""

import json
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from seamlessflow.console.web.app import application, prefers_json
from seamlessflow.console.web.console import AskedPage
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.lab.timeline.facts import facts
from seamlessflow.lab.timeline.page import file_text, page_data
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.codec import decode, encode
from tests.builders.console import hostile
from tests.builders.console.course import STEPS, course_items
from tests.builders.console.memory_log import console_of, items_of, raw_item
from tests.builders.records import control, sessions

ITEMS = [
    *items_of("control", [control.claimed(), control.joined("w"), control.admitted("g")]),
    *items_of("sessions", [sessions.claimed(), sessions.opened()]),
]
PAGES = (
    *("/now", "/curves", "/timeline", "/compare", "/compare?with=control:1"),
    *("/sessions", "/records", "/record/control:1"),
)


def client_of(items: object = ITEMS, host: str = HOST, token: str | None = None) -> TestClient:
    console = console_of(items)  # type: ignore[arg-type]
    app = application(console, Broadcaster(), host, token)
    return TestClient(app, base_url=f"http://{HOST}:8750", follow_redirects=False)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    yield client_of()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_and_its_twin_stand_at_the_same_address(client: TestClient, path: str) -> None:
    html = client.get(path, headers={"accept": "text/html"})
    assert html.headers["content-type"] == "text/html; charset=utf-8"
    by_header = client.get(path, headers={"accept": "application/json"})
    by_suffix = client.get(path.replace("?", ".json?") if "?" in path else f"{path}.json")
    assert by_header.headers["content-type"] == "application/json"
    assert by_header.json() == by_suffix.json()
    assert set(by_header.json()) == {"frame", "page"}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_holds_to_its_host(client: TestClient, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text
    for forbidden in ("<script>", " style=", " onclick", " onload", "http://", "https://"):
        assert forbidden not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_address_alone_leads_to_now(client: TestClient) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/now")


@pytest.mark.parametrize("path", ["/now", "/records", "/static/console.js", "/live/now", "/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(client: TestClient, path: str, method: str) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path, status, reason",
    [
        ("/now?at=yesterday", 400, "at=yesterday: a moment is"),
        ("/now?time=yesterday", 400, "time=yesterday: must be a time"),
        ("/now?at=control:99", 404, "at=control:99: the newest record that was read"),
        ("/records?topic=x", 400, "topic=x: must be one of"),
        ("/sessions?least=x", 400, "least=x: must be a number"),
        ("/record/control:99", 404, "control:99"),
        ("/record/what", 400, "a moment is"),
    ],
)
def test_a_wrong_address_is_explained(
    client: TestClient, path: str, status: int, reason: str
) -> None:
    html = client.get(path)
    assert html.status_code == status
    assert reason in html.text
    twin = client.get(path, headers={"accept": "application/json"})
    assert twin.status_code == status
    assert reason in twin.json()["error"]


def test_the_slider_has_steps() -> None:
    client = client_of(course_items())
    slider = client.get("/now.json?at=control:40").json()["frame"]["slider"]
    assert (slider["step"], slider["names"][:2]) == ("step 6", ["step 1", "step 2"])
    text = client.get("/now?at=control:40").text
    assert f'<option value="{slider["marks"][0]}" label="step 1">' in text
    assert ">step 6</output>" in text


def test_the_slider_works_without_scripts(client: TestClient) -> None:
    twin = client.get("/now.json?control=1").json()
    assert twin["frame"]["moment"] == "control:1"


@pytest.mark.parametrize(
    "time, moment",
    [
        ("1000", "control:1"),
        ("1999", "control:1"),
        ("1970-01-01 00:00:01.5", "control:1"),
        ("9000", "control:2"),
    ],
)
def test_a_time_names_the_last_record_up_to_it(time: str, moment: str, client: TestClient) -> None:
    twin = client.get("/now.json", params={"time": time}).json()
    assert twin == client.get("/now.json", params={"at": moment}).json()
    page = client.get("/now", params={"time": time}).text
    assert f'href="/sessions?at={moment.replace(":", "%3A")}"' in page
    assert "time=" not in page
    assert "hx-sse:connect" not in page


def test_a_time_before_the_log_is_refused() -> None:
    client = client_of(items_of("control", [control.claimed()], first=5))
    answer = client.get("/now.json?time=4999")
    assert (answer.status_code, answer.json()) == (
        400,
        {"error": "time=4999: the log begins at 1970-01-01 00:00:05 UTC"},
    )


@pytest.mark.parametrize("content", hostile.ALL)
@pytest.mark.parametrize(
    "path", ["/now", "/sessions", "/records", "/records?key={}", "/compare?session={}"]
)
def test_hostile_content_is_text(content: str, path: str) -> None:
    stalled = control.stalled(what=content, detail=content)
    worker = control.joined(content)
    records = items_of("control", [control.claimed(), worker, stalled, control.admitted(content)])
    opened = sessions.opened(session_id=content, task_id=content, group_id=content, agent=content)
    events = [raw_item("sessions", 0, 0, 0, encode(opened), content)]
    query = {"key": content, "topic": "sessions", "session": content} if "{" in path else {}
    answer = client_of([*records, *events]).get(path.partition("?")[0], params=query)
    assert answer.status_code == 200
    escaped = content.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if escaped != content:
        assert content not in answer.text
    for sign in ("\x1b", "\x00", "\u202e", "\u2066", "\x07"):
        assert sign not in answer.text
    for href in answer.text.split('href="')[1:]:
        assert href.startswith(("/", "#content")), href[:80]


def test_half_of_a_character_is_shown_as_its_number() -> None:
    answer = client_of().get("/sessions", params="session=%ff&task=a")
    assert answer.status_code == 200
    asked = AskedPage("sessions", {"session": hostile.SURROGATE})
    assert "half \\ud83d of a character" in console_of(ITEMS).html(asked)
    assert json.loads(console_of(ITEMS).json(asked))["page"]["matching"] == 0


def test_json_has_the_text_as_it_is() -> None:
    records = items_of("control", [control.joined(hostile.ANSI + hostile.SCRIPT)])
    twin = client_of(records).get("/now.json").json()
    assert twin["page"]["workers"][0]["worker"] == hostile.ANSI + hostile.SCRIPT


def test_a_figure_that_is_no_number_is_null() -> None:
    records = items_of("control", [control.completed(0, metrics={"reward_mean": float("nan")})])
    twin = client_of(records).get("/now.json").json()
    assert twin["page"]["steps"][0]["rewards"] == [[1, None]]
    assert client_of(records).get("/now").status_code == 200


@pytest.mark.parametrize(
    "accept, json_first",
    [
        ("application/json", True),
        ("text/html,application/json;q=0.9", False),
        ("application/json, text/html", True),
        ("*/*", False),
        ("", False),
    ],
)
def test_html_is_the_form_unless_json_is_named_first(accept: str, json_first: bool) -> None:
    assert prefers_json(accept) is json_first


def test_the_timeline_is_that_of_its_moment() -> None:
    client = client_of(course_items())
    early = client.get("/timeline.json?at=control:40").json()["page"]
    whole = client.get("/timeline.json").json()["page"]
    raws = [item.record for item in course_items()]
    records = [decode(raw.value) for raw in raws if isinstance(raw, Raw)]
    assert early["steps"] == page_data(timeline(records[:41]), facts(records[:41]), "")["steps"]
    assert whole["steps"] == page_data(timeline(records), facts(records), "")["steps"]
    assert len(early["steps"]) < len(whole["steps"]) == STEPS


@pytest.mark.parametrize("name", ["timeline.js", "timeline.css"])
def test_the_timelines_files_are_those_of_its_own_page(client: TestClient, name: str) -> None:
    assert client.get(f"/static/timeline/{name}").text == file_text(name)
