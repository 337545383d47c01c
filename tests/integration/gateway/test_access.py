"""Keys, sessions and the paths without a turn: real Kafka, a real gateway, a scripted manager."""

from typing import Any

import anthropic
import httpx
import openai
import orjson
import pytest

from seamlessflow.schemas.json_form import to_json
from seamlessflow.schemas.records import (
    AssignReward,
    CloseSession,
    DescribeSession,
    OpenSession,
    RequestTurn,
)
from tests import http
from tests.builders.gateway.scripted_manager import (
    USER,
    GatewayProcess,
    ScriptedManager,
)
from tests.builders.records.forks import forked
from tests.waiting import PATIENCE_S


def test_a_key_that_was_not_given_out_is_refused(gateway: GatewayProcess) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-no", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model="m", messages=[USER])
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_an_expired_key_is_refused_in_the_shape_of_the_vendor(gateway: GatewayProcess) -> None:
    key = gateway.keys.session_key("s", end_ms=0)
    with (
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="expired at") as refused,
    ):
        client.chat.completions.create(model="m", messages=[USER])
    assert refused.value.code == "session_key_expired"
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key=key, max_retries=0) as other,
        pytest.raises(anthropic.AuthenticationError, match="expired at"),
    ):
        other.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "a"}])


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["policy"]


def test_a_model_is_known_by_its_name(client: openai.OpenAI) -> None:
    assert client.models.retrieve("policy").id == "policy"
    with pytest.raises(openai.NotFoundError, match="there is no model 'org/other'") as refused:
        client.models.retrieve("org/other")
    assert refused.value.code == "model_not_found"


def test_a_session_is_opened_used_rewarded_and_closed(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    with httpx.Client(base_url=gateway.url, headers=gateway.admin, timeout=PATIENCE_S) as admin:
        opened = admin.post(
            "/sessions",
            json={
                "session_id": session,
                "policy": "p",
                "task_id": "t",
                "group_id": "g",
                "sample": 1,
                "group_size": 8,
                "pinned_version": 2,
                "metadata": {"a": "b"},
                "max_age_s": 60,
            },
        )
        assert opened.status_code == 201
        access = opened.json()
        with openai.OpenAI(base_url=access["base_url"], api_key=access["api_key"]) as client:
            answer = client.chat.completions.create(model="m", messages=[USER])
        reward = {"value": 0.5, "name": "quality", "turn": answer.id, "final": False}
        assert admin.post(f"/sessions/{session}/reward", json=reward).status_code == 200
        close = {"status": "truncated", "reason": "turns", "await_reward_s": 1.5}
        assert admin.post(f"/sessions/{session}/close", json=close).status_code == 200
    command = manager.await_command(OpenSession, session)
    assert (command.policy, command.sample, command.pinned_version) == ("p", 1, 2)
    assert (command.metadata, command.max_age_ms) == ({"a": "b"}, 60_000)
    assert command.expires_at_ms - command.issued_at_ms == 10_000  # 5 s before the gateway's 504
    assigned = manager.await_command(AssignReward, session)
    turn = manager.await_command(RequestTurn, session)
    assert (assigned.reward.turn_id, assigned.reward.scope) == (turn.turn_id, "turn")
    assert (assigned.reward.value, assigned.final) == (0.5, False)
    closed = manager.await_command(CloseSession, session)
    assert (closed.status, closed.await_reward_ms) == ("truncated", 1500)


@pytest.mark.parametrize("done", ["reward", "close"])
def test_what_is_done_by_name_is_answered_with_the_session_s_own_id(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, done: str
) -> None:
    manager.ids[session] = f"{session}~1"
    path = f"{gateway.url}/sessions/{session}/{done}"
    answer = http.post(
        path,
        headers=gateway.admin,
        json={"value": 1} if done == "reward" else {},
    )
    assert answer.json() == {"session_id": f"{session}~1"}


@pytest.mark.parametrize("end", ["", "/"])
def test_a_session_is_described_to_an_administrator_and_to_its_own_agent(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, end: str
) -> None:
    path = f"{gateway.url}/sessions/{session}{end}"
    for headers in (gateway.admin, gateway.bearing(session)):
        answer = http.get(path, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"status": "open"})
    assert manager.await_command(DescribeSession, session, 2).reply is not None


def test_a_session_is_not_described_to_others(gateway: GatewayProcess, session: str) -> None:
    path = f"{gateway.url}/sessions/{session}"
    assert http.get(path, headers=gateway.bearing("another")).status_code == 403
    assert http.get(path).status_code == 401
    assert http.post(path, headers=gateway.admin).status_code == 405


def test_a_session_without_a_name_gets_one(gateway: GatewayProcess) -> None:
    opened = http.post(f"{gateway.url}/sessions", headers=gateway.admin, json={"policy": "p"})
    access = opened.json()
    assert gateway.keys.session_of(access["api_key"].encode()) == access["session_id"]


def test_a_call_repeated_with_its_key_opens_no_other_session(
    gateway: GatewayProcess, manager: ScriptedManager
) -> None:
    def opening(key: str) -> httpx.Response:
        headers = {**gateway.admin, "idempotency-key": key}
        return http.post(f"{gateway.url}/sessions", headers=headers, json={"policy": "p"})

    first, again, other = opening("k"), opening("k"), opening("l")
    assert first.json() == again.json()

    assert first.status_code == again.status_code == 201
    named = [
        gateway.keys.session_of(answer.json()["api_key"].encode()) for answer in (first, again)
    ]
    assert named == [first.json()["session_id"], again.json()["session_id"]]
    assert named[0] == named[1] != other.json()["session_id"]
    sent = manager.await_command(OpenSession, first.json()["session_id"], 2)
    assert sent.idempotency_key == "k"


@pytest.mark.parametrize(("done", "kind"), [("reward", AssignReward), ("close", CloseSession)])
def test_the_key_of_a_session_call_goes_with_its_command(
    gateway: GatewayProcess,
    manager: ScriptedManager,
    session: str,
    done: str,
    kind: type[AssignReward | CloseSession],
) -> None:
    path, body = f"{gateway.url}/sessions/{session}/{done}", {"value": 1}
    headers = {**gateway.admin, "idempotency-key": "k"}
    http.post(path, headers=headers, json=body if done == "reward" else {})
    assert manager.await_command(kind, session).idempotency_key == "k"
    too_long = http.post(path, headers={**headers, "idempotency-key": "k" * 257}, json={})
    assert too_long.status_code == 400


def test_the_session_interface_says_why_it_refuses(gateway: GatewayProcess, session: str) -> None:
    with httpx.Client(base_url=gateway.url, headers=gateway.admin, timeout=PATIENCE_S) as admin:
        refused = admin.post("/sessions", json={"policy": "unknown"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "unknown_policy"
        wrong = admin.post("/sessions", json={"policy": "p", "sample": -1})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] == "sample"
        assert admin.post("/sessions", json={"policy": "p", "typo": 1}).status_code == 400
        assert admin.post("/sessions", content=b"{").status_code == 400
        assert admin.post(f"/sessions/{session}/reward", json={}).status_code == 400
        nan = admin.post(f"/sessions/{session}/reward", content=b'{"value": NaN}')
        assert nan.status_code == 400
    headers = gateway.bearing(session)
    for path in (f"/sessions/{session}/reward", f"/sessions/{session}/close", "/sessions"):
        assert http.post(gateway.url + path, headers=headers, json={}).status_code == 403
        assert http.post(gateway.url + path, json={}).status_code == 401


def test_a_session_begins_with_a_forked_prefix(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    fork = orjson.loads(to_json(forked()))
    path, body = f"{gateway.url}/sessions", {"session_id": session, "policy": "p"}
    opened = http.post(path, headers=gateway.admin, json={**body, "fork": fork})
    assert opened.status_code == 201
    assert manager.await_command(OpenSession, session).fork == forked()

    wrongs: list[object] = [fork | {"mode": "x"}, fork | {"hash": "!"}, fork | {"typo": 1}, []]
    for wrong in wrongs:
        refused = http.post(path, headers=gateway.admin, json={**body, "fork": wrong})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"].startswith("fork")
    large = fork | {"appended": ["A" * 200_000]}
    assert http.post(path, headers=gateway.admin, json={"fork": large}).status_code == 413


def test_the_admin_key_may_speak_for_a_session(gateway: GatewayProcess, session: str) -> None:
    body = {"model": "m", "messages": [USER]}
    path = f"{gateway.url}/sessions/{session}/v1/chat/completions"
    assert http.post(path, headers=gateway.admin, json=body).status_code == 200
    assert http.post(path, headers=gateway.bearing("other"), json=body).status_code == 403


def test_unknown_paths_and_methods_are_refused(gateway: GatewayProcess) -> None:
    assert http.get(f"{gateway.url}/v2").status_code == 404
    assert http.get(f"{gateway.url}/sessions/x/other").status_code == 404
    assert http.get(f"{gateway.url}/v1/chat/completions").status_code == 405
    refused = http.post(f"{gateway.url}/health")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/v1/messages", "/v1/messages"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/sessions/s/responses", "/sessions/s/v1/responses"),
        ("/sessions/", "/sessions"),
        ("/v1/v1beta/models/m:generateContent", "/v1beta/models/m:generateContent"),
    ],
)
def test_an_unknown_path_close_to_another_is_answered_with_that(
    gateway: GatewayProcess, path: str, meant: str
) -> None:
    refused = http.post(gateway.url + path, json={})
    assert refused.status_code == 404
    assert f"did you mean {meant}?" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/v1/responses/input_tokens", "/v1/messages/batches", "/v1beta/models/m:predict"]
)
def test_a_method_that_is_not_here_is_no_path(gateway: GatewayProcess, path: str) -> None:
    refused = http.post(gateway.url + path, json={})
    assert refused.status_code == 404
    assert "did you mean" not in refused.json()["error"]["message"]


def test_a_client_with_a_wrong_base_url_learns_which_is_right(
    gateway: GatewayProcess, session: str
) -> None:
    key = gateway.keys.session_key(session)
    hello: Any = {"model": "m", "messages": [USER]}
    with (
        openai.OpenAI(base_url=gateway.url, api_key=key) as client,
        pytest.raises(openai.NotFoundError, match="did you mean /v1/chat/completions"),
    ):
        client.chat.completions.create(**hello)
    with (
        anthropic.Anthropic(base_url=f"{gateway.url}/v1", api_key=key) as other,
        pytest.raises(anthropic.NotFoundError, match="did you mean /v1/messages"),
    ):
        other.messages.create(**hello, max_tokens=1)


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
def test_a_head_is_a_get_without_its_body(gateway: GatewayProcess, path: str) -> None:
    with httpx.Client(base_url=gateway.url, timeout=PATIENCE_S) as client:
        for _ in range(2):
            answer = client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")


def test_it_tells_how_it_is(gateway: GatewayProcess) -> None:
    assert http.get(f"{gateway.url}/health").json() == {"status": "alive"}
    assert http.get(f"{gateway.url}/ready").json() == {"status": "ready"}
    metrics = http.get(f"{gateway.url}/metrics").text
    assert 'seamlessflow_gateway_requests_total{route="ready",status="200"}' in metrics
    assert "process_cpu_seconds_total" in metrics
