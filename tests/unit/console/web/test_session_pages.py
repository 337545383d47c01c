"""A session's page over HTTP, its JSON, and its tokens by range, of a recorded run."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from seamlessflow.console.web.app import application
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.schemas.codec import encode
from tests.builders.console.memory_log import console_of, raw_item
from tests.builders.console.recorded import recorded_items
from tests.builders.records import sessions


def client_of(items: Any) -> TestClient:
    app = application(console_of(items), Broadcaster(), HOST, None)
    return TestClient(app, base_url=f"http://{HOST}:8750")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    yield client_of(recorded_items())


@pytest.fixture(scope="module")
def finalized(client: TestClient) -> str:
    """Return the id of a session that has ended."""
    lines = client.get("/sessions.json", params={"status": "complete"}).json()["page"]["lines"]
    return str(lines[0]["row"]["session_id"])


def page(client: TestClient, session: str, **query: str) -> Any:
    answer = client.get(f"/session/{quote(session, '')}.json", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["page"]


def test_the_list_of_sessions_leads_to_the_page_of_each(client: TestClient, finalized: str) -> None:
    assert f'href="/session/{quote(finalized, "")}' in client.get("/sessions").text
    answer = client.get(f"/session/{quote(finalized, '')}")
    assert answer.status_code == 200
    assert f"Session {finalized}" in answer.text


def test_tokens_by_range_are_all_that_the_page_counts(client: TestClient, finalized: str) -> None:
    whole = page(client, finalized)
    path = f"/tokens/{quote(finalized, '')}.json"
    first = client.get(path, params={"from": "0", "to": "3"}).json()["page"]
    rest = client.get(path, params={"from": "3", "to": str(whole["tokens"])}).json()["page"]
    assert len(first["ids"]) + len(rest["ids"]) == whole["tokens"]
    reasons = [*first["reasons"], *rest["reasons"]]
    sums = [reasons.count(number) for number in range(len(whole["reasons"]))]
    assert sums == [row["tokens"] for row in whole["reasons"]]


def test_the_page_asks_for_its_tokens_at_one_moment(client: TestClient, finalized: str) -> None:
    html = client.get(f"/session/{quote(finalized, '')}").text
    (tokens,) = (line for line in html.splitlines() if "data-twin" in line)
    moments = [part.split('"')[0] for part in tokens.split("at=")[1:]]
    assert len(set(moments)) == 1
    assert len(moments) == 2


def test_a_session_that_a_call_named_is_found_by_its_id_and_by_its_name(
    client: TestClient,
) -> None:
    lines = client.get("/sessions.json", params={"session": "~"}).json()["page"]["lines"]
    newest, *_, oldest = (line["row"]["session_id"] for line in lines)
    name = newest.partition("~")[0]
    assert oldest.startswith(f"{name}~")
    assert page(client, oldest)["session"] == oldest
    assert page(client, name)["session"] == newest
    html = client.get(f"/session/{quote(newest, '')}").text
    assert f"/records?topic=sessions&amp;key={quote(newest, '')}" in html
    assert client.get("/records.json", params={"key": newest}).json()["page"]["matching"] > 5


def test_an_earlier_moment_has_an_earlier_session(client: TestClient, finalized: str) -> None:
    opened = page(client, finalized)["places"]["SessionOpened"]
    earlier = page(client, finalized, at=opened)
    assert (earlier["status"], earlier["tokens"]) == ("open", 0)


def test_two_sessions_stand_beside_each_other(client: TestClient, finalized: str) -> None:
    query = {"beside": finalized}
    html = client.get(f"/session/{quote(finalized, '')}", params=query).text
    assert html.count("data-twin") == 2
    missing = client.get(f"/session/{quote(finalized, '')}", params={"beside": "nobody"})
    assert missing.status_code == 404
    assert "no session nobody among the" in missing.text


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/session/nobody", 404, "no session nobody among the"),
        ("/tokens/nobody.json?from=0&to=1", 404, "no session nobody among the"),
        ("/tokens/s.json?from=0&to=99", 400, "from=0&to=99 is no range of the session's"),
        ("/tokens/s.json?from=x&to=1", 400, "from=x: must be a whole number"),
    ],
)
def test_what_is_not_on_the_log_is_named(path: str, status: int, reason: str) -> None:
    events = [
        raw_item("sessions", 0, offset, offset, encode(record), "s")
        for offset, record in enumerate((sessions.claimed(), sessions.opened()))
    ]
    answer = client_of(events).get(path, headers={"accept": "application/json"})
    assert answer.status_code == status
    assert reason in answer.json()["error"]
