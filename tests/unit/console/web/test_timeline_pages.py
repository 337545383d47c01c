"""The page of the timeline: the run's own, at any moment, and those of other runs beside it."""

from typing import Any

from starlette.testclient import TestClient

from seamlessflow.console.models.course import Course
from seamlessflow.console.web.app import application
from seamlessflow.console.web.console import RunBeside
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.console.web.timeline_pages import timeline_data
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.schemas.records import Record
from tests.builders.console.memory_log import console_of, items_of
from tests.builders.records import control
from tests.builders.records.short_run import RUN

OTHER = "runs/other & more"


def client_of(records: list[Record]) -> TestClient:
    """Return a client of a console, with the short run beside what it shows."""
    beside = {OTHER: RunBeside(Course(), timeline_data(RUN, OTHER))}
    console = console_of(items_of("control", records), beside)
    app = application(console, Broadcaster(), HOST)
    return TestClient(app, base_url=f"http://{HOST}:8750")


def data_of(client: TestClient, **query: str) -> dict[str, Any]:
    page: dict[str, Any] = client.get("/timeline.json", params=query).json()["page"]
    return page


def test_another_run_has_a_canvas_below_the_runs_own() -> None:
    client = client_of([control.claimed()])
    text = client.get("/timeline", headers={"accept": "text/html"}).text
    assert text.count("<canvas") == 2
    assert text.count('data-moments="/now"') == 1  # a time of the other run is no moment of this
    assert 'data-timeline="/timeline.json"' in text
    assert 'data-timeline="/timeline.json?beside=runs%2Fother+%26+more"' in text
    shown = data_of(client, beside=OTHER)
    assert (shown["title"], len(shown["steps"])) == (f"Timeline of {OTHER}", 1)
    assert data_of(client)["steps"] == []


def test_a_run_that_is_not_beside_is_refused() -> None:
    answer = client_of(RUN).get("/timeline.json", params={"beside": "runs/none"})
    assert answer.status_code == 404
    assert "no run runs/none stands beside this one" in answer.json()["error"]


def test_a_run_that_goes_on_is_asked_for_again_but_no_moment_and_no_ended_run() -> None:
    client = client_of(RUN)
    assert data_of(client)["refresh_s"] >= 3
    assert data_of(client, at="control:5")["refresh_s"] == 0
    assert data_of(client, beside=OTHER)["refresh_s"] == 0
    assert data_of(client_of([*RUN, control.finished(1)]))["refresh_s"] == 0
