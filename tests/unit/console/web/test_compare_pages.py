"""The page Compare over HTTP, and its JSON: moments, runs and rules."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from seamlessflow.console.log.follower import ReadingProgress
from seamlessflow.console.web.app import application
from seamlessflow.console.web.console import Console, RunBeside, ShownRun
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Reward
from tests.builders.console.course import STEPS, course_items, items_beside
from tests.builders.console.masked_session import MASKED, masked_items
from tests.builders.console.memory_log import RUN, beside_of, history_of, raw_item
from tests.builders.console.recorded import recorded_items
from tests.builders.records import commands, sessions

OTHER = "runs/other"


def client_of(
    items: Sequence[Received], beside: Mapping[str, RunBeside] | None = None
) -> TestClient:
    history, _ = history_of(items)
    run = ShownRun(RUN, f" --out {RUN}", beside=beside or {})
    app = application(Console(history, ReadingProgress, run), Broadcaster(), HOST, None)
    return TestClient(app, base_url=f"http://{HOST}:8750")


@pytest.fixture(scope="module")
def client() -> TestClient:
    beside = {OTHER: beside_of(items_beside())}
    return client_of([*course_items(), *masked_items()], beside)


def page(client: TestClient, **query: str) -> Any:
    answer = client.get("/compare.json", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["page"]


def test_without_a_question_it_offers_moments_runs_and_rules(client: TestClient) -> None:
    shown = page(client)
    assert (shown["moments"], shown["beside"], shown["rules"]) == (None, None, None)
    assert shown["runs"] == [OTHER]
    assert shown["ends"][0]["step"] == STEPS
    html = client.get("/compare").text
    for label in ("two moments", "two runs", "two sets of rules"):
        assert f'aria-label="{label}"' in html
    assert f'href="/compare?with={shown["ends"][1]["moment"].replace(":", "%3A")}"' in html


def test_two_moments_stand_beside_each_other_in_both_forms(client: TestClient) -> None:
    query = {"at": "control:200", "with": "control:100"}
    shown = page(client, **query)["moments"]
    assert (shown["before"]["moment"], shown["after"]["moment"]) == ("control:100", "control:200")
    html = client.get("/compare", params=query).text
    assert "control:100 <small>and</small> control:200" in html
    change = next(m["change"] for m in shown["metrics"] if m["name"] == "reward_mean")
    assert f'<td class="num change">{change:+.3g}</td>' in html


def test_now_can_be_compared_with_a_moment(client: TestClient) -> None:
    shown = page(client, **{"with": "control:100"})["moments"]
    assert shown["after"]["done"] == STEPS
    assert shown["after"]["moment"].startswith("control:")


def test_two_runs_are_compared_over_their_common_steps(client: TestClient) -> None:
    shown = page(client, beside=OTHER, step="8", window="5")["beside"]
    assert (shown["first"], shown["last"], shown["steps"]) == (4, 8, 5)
    html = client.get("/compare", params={"beside": OTHER, "step": "8", "window": "5"}).text
    assert f"{RUN} <small>and</small> {OTHER}" in html
    assert "later steps" in html
    assert "<code>trainer.lr</code>" in html
    clear = next(metric for metric in shown["metrics"] if metric["marked"])
    assert (clear["name"], clear["change"] > 0) == ("reward_mean", True)
    curves = client.get("/curves").text
    assert "/compare?beside=runs%2Fother" in curves


def test_rules_of_a_session_are_compared(client: TestClient) -> None:
    shown = page(client, session="s", train_inexact="1")["rules"]
    (effect,) = shown["effects"]
    assert effect["trained_more"] == MASKED["inexact_top_p"]
    html = client.get("/compare", params={"session": "s", "train_inexact": "1"}).text
    assert '<th scope="row"><code>--train-inexact</code></th>' in html
    assert "--diff --train-inexact" in html
    assert '<option value="1" selected>trained</option>' in html
    assert "/compare?session=s" in client.get("/session/s").text


def test_a_late_reward_is_read_from_the_commands_up_to_the_moment() -> None:
    end = (sessions.closed(judges=("kind",)), sessions.finalized(reason="judge_failed"))
    events = masked_items(*end)
    reward = Reward(name="kind", value=0.5, source="judge")
    late = raw_item(
        *("requests", 0, 0, events[-1].timestamp_ms + 10),
        value=encode(commands.assign_reward(reward)),
        key="s",
    )
    client = client_of([*events, late])
    asked = {"session": "s", "late_rewards": "1"}
    assert page(client, **asked)["rules"]["statuses"] == ["unrewarded", "complete"]
    early = page(client, **asked, at=f"sessions:0:{events[-1].offset}")["rules"]
    assert (early["late"], early["statuses"]) == (0, ["unrewarded", "unrewarded"])


def test_recorded_sessions_are_merged_as_their_pages_have_them() -> None:
    client = client_of(recorded_items())
    lines = client.get("/sessions.json", params={"count": "1000"}).json()["page"]["lines"]
    names = [line["row"]["session_id"] for line in lines if line["row"]["finalized_ms"]]
    assert len(names) > 40
    for name in names[::4]:
        shown = page(client, session=name, siblings="all")["rules"]
        whole = client.get("/session/" + name + ".json").json()["page"]
        assert shown["statuses"][0] == whole["status"]
        if shown["statuses"][0] != "aborted":
            assert shown["tokens"][0]["before"] == whole["tokens"]


def test_a_session_that_a_call_named_is_merged_by_its_name_too() -> None:
    client = client_of(recorded_items())
    lines = client.get("/sessions.json", params={"session": "~"}).json()["page"]["lines"]
    newest = lines[0]["row"]["session_id"]
    by_name = page(client, session=newest.partition("~")[0])["rules"]
    assert by_name == page(client, session=newest)["rules"]
    assert by_name["tokens"]


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ({"with": "yesterday"}, 400, "with=yesterday: a moment is"),
        ({"with": "control:99999"}, 404, "with=control:99999: the newest record"),
        ({"at": "control:99999", "with": "control:1"}, 404, "at=control:99999: the newest"),
        ({"beside": "runs/none"}, 404, "no run runs/none stands beside this one"),
        ({"beside": OTHER, "step": "0"}, 400, "step=0: must be between 1"),
        ({"with": "control:1", "window": "201"}, 400, "window=201: must be between 1 and 200"),
        ({"session": "nobody"}, 404, "no event opens a session nobody among the"),
        ({"session": "s", "siblings": "x"}, 400, "siblings=x: must be one of"),
    ],
)
def test_a_wrong_question_is_explained(
    client: TestClient, query: dict[str, str], status: int, reason: str
) -> None:
    answer = client.get("/compare", params=query, headers={"accept": "application/json"})
    assert answer.status_code == status
    assert reason in answer.json()["error"]
    assert reason in client.get("/compare", params=query).text
