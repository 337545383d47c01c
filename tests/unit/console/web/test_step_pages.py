"""The page of a step over HTTP: its groups, its figures, what was left out."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from seamlessflow.console.web.app import application
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.schemas.codec import encode
from tests.builders.console.course import DIP, RESUMED, STEPS, course_items
from tests.builders.console.memory_log import console_of, items_of, raw_item
from tests.builders.records import control, sessions


def client_of(items: Any) -> TestClient:
    app = application(console_of(items), Broadcaster(), HOST, None)
    return TestClient(app, base_url=f"http://{HOST}:8750")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    yield client_of(course_items())


def message(text: str) -> bytes:
    return orjson.dumps({"role": "user", "content": text})


def page(client: TestClient, step: int | str, **query: str) -> Any:
    answer = client.get(f"/step/{step}.json", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["page"]


def test_a_steps_groups_stand_side_by_side(client: TestClient) -> None:
    shown = page(client, DIP + 1)
    trained, filtered = shown["groups"]
    assert [cell["value"] for cell in trained["sessions"]] == [1.0, 0.5, 0.0, 0.25]
    assert [cell["trained"] for cell in trained["sessions"]] == [10] * 4
    assert (trained["admitted_version"], trained["oldest_version"]) == (DIP, DIP - 1)
    assert (trained["filtered"], filtered["filtered"]) == ("", "zero_variance")
    assert trained["task_id"] == f"task-a-{DIP}-0"


def test_a_histogram_counts_each_session_once_and_marks_a_range(client: TestClient) -> None:
    shown = page(client, 3, least="0.5")
    assert sum(bin["sessions"] for bin in shown["bins"]) == shown["sessions"] == 8
    marked = [
        cell["value"] for group in shown["groups"] for cell in group["sessions"] if cell["marked"]
    ]
    assert marked == [1.0, 0.5] * 2
    assert shown["marked"] == 4


def test_what_was_left_out_has_its_reason_and_its_setting(client: TestClient) -> None:
    shown = page(client, DIP)  # an odd step, counted from 0
    (masked,) = shown["masked"]
    assert (masked["reason"], masked["tokens"]) == ("stale", 7)
    assert "trainer.max_staleness" in masked["setting"]
    (dropped,) = shown["dropped"]
    assert (dropped["group_id"], dropped["reason"]) == (f"a-{DIP - 1}-dropped", "stale")


def test_a_step_that_was_executed_again_shows_the_newest(client: TestClient) -> None:
    shown = page(client, RESUMED)
    assert (shown["executions"], shown["lineage"]) == (2, "b")
    assert any("executed 2 times" in notice for notice in shown["notices"])
    before = page(client, RESUMED, at=f"control:{shown['commit_offset'] - 1}")
    assert (before["executions"], before["lineage"]) == (1, "a")


def test_steps_lead_to_their_neighbours(client: TestClient) -> None:
    assert (page(client, 1)["before"], page(client, 1)["after"]) == (None, 2)
    assert (page(client, STEPS)["before"], page(client, STEPS)["after"]) == (STEPS - 1, None)


@pytest.mark.parametrize("step", ["0", "41", "x", "1e3", "9" * 30, "-1", "²"])
def test_a_step_that_is_not_there_is_named(client: TestClient, step: str) -> None:
    answer = client.get(f"/step/{step}.json")
    assert answer.status_code == 404
    assert "is committed at this moment" in answer.json()["error"]


def test_a_step_whose_metrics_are_missing_is_shown(client: TestClient) -> None:
    records = [control.committed(0, ["g"], policy="policy")]
    shown = page(client_of(items_of("control", records)), 1, policy="policy")
    assert shown["notices"][0].startswith("It is committed")
    assert shown["groups"][0]["mean"] is None


def test_a_group_without_returns_on_the_log_has_cells_without_them() -> None:
    records = [
        control.ready("g", sessions=("g.0.0", "g.1.0"), policy="policy"),
        control.committed(0, ["g"], policy="policy"),
        control.completed(0, policy="policy"),
    ]
    shown = page(client_of(items_of("control", records)), 1, policy="policy")
    assert shown["bins"] == []


def test_what_stands_out_from_the_steps_before_comes_first(client: TestClient) -> None:
    figures = page(client, DIP + 1)["unusual"]
    assert [figure["name"] for figure in figures] == ["reward_mean"]
    assert page(client, DIP)["unusual"] == page(client, 1)["unusual"] == []
    text = client.get(f"/step/{DIP + 1}").text
    assert "Unusual here" in text and "metrics=reward_mean" in text
    assert "Unusual here" not in client.get(f"/step/{DIP}").text


def test_a_group_shows_the_beginning_of_its_prompt() -> None:
    long = "Say " + "the\nkey " * 100
    prompt = (message("Be brief"), message(long))
    events = [
        ("s", sessions.opened(session_id="s")),
        ("g.0.0", sessions.opened(session_id="g.0.0")),
        ("s", sessions.started("b", session_id="s", new_messages=(message("Not this"),))),
        ("g.0.0", sessions.started("a", session_id="g.0.0", new_messages=prompt)),
        ("g.0.0", sessions.started("c", session_id="g.0.0", new_messages=(message("Nor this"),))),
    ]
    keyed = [
        raw_item("sessions", 3, offset, 1_000, encode(event), key=key)
        for offset, (key, event) in enumerate(events, 7)
    ]
    records = [
        control.ready("g", sessions=("g.0.0",), first_offsets=(8,), policy="policy"),
        control.ready("h", sessions=("h.0.0",), first_offsets=(8,), policy="policy"),
        control.committed(0, ["g", "h"], policy="policy"),
    ]
    shown = page(client_of([*keyed, *items_of("control", records)]), 1, policy="policy")
    read, unread = (group["prompt"] for group in shown["groups"])
    assert read.startswith("Say the key the key") and len(read) <= 160
    assert unread == ""


def test_curves_lead_to_steps_and_steps_to_sessions(client: TestClient) -> None:
    assert f'href="/step/{DIP + 1}?policy=policy"' in client.get("/curves").text
    text = client.get(f"/step/{DIP + 1}").text
    assert f'href="/session/a-{DIP}-0.0.0"' in text
