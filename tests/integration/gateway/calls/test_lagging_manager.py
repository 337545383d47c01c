"""A manager that answers late, or not for a while: what its gateway holds, and who gets what."""

import threading
from concurrent.futures import ThreadPoolExecutor

import openai

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record, RequestTurn
from tests import http
from tests.builders.gateway.scripted_manager import (
    DEADLINE_S,
    USER,
    GatewayProcess,
    ScriptedManager,
    finished,
    gateway_process,
)
from tests.waiting import until

PLACES, AGENTS, TRIES = 3, 5, 20
BODY = {"model": "m", "messages": [USER]}
COUNTED = "seamlessflow_gateway_requests_total"


class LaggingManager:
    """A script that keeps the turns of some sessions until it is told to catch up."""

    def __init__(self, manager: ScriptedManager, sessions: list[str]) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._kept: list[RequestTurn] | None = []
        for session in sessions:
            manager.scripts[session] = self._script

    def catch_up(self) -> None:
        """Answer all that was kept, in its order, and from now on at once."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        for turn in kept:
            self._manager.send(turn.reply, finished(turn, "late"))

    def _script(self, turn: RequestTurn) -> list[Record]:
        with self._lock:
            if self._kept is None:
                return [finished(turn, "hello")]
            self._kept.append(turn)
            return []


def ask(gateway: GatewayProcess, session: str) -> str | None:
    """Call as an agent does, with the tries and times of OpenAI's client."""
    key = gateway.keys.session_key(session)
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, timeout=DEADLINE_S, max_retries=TRIES
    ) as client:
        answer = client.chat.completions.create(model="m", messages=[USER])
    return answer.choices[0].message.content


def metrics(gateway: GatewayProcess) -> dict[str, float]:
    lines = http.get(f"{gateway.url}/metrics", timeout=DEADLINE_S).text.splitlines()
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def in_flight(gateway: GatewayProcess) -> float:
    return metrics(gateway)["seamlessflow_gateway_in_flight"]


def answers(gateway: GatewayProcess, status: int) -> float:
    """Return how many calls of agents got this status."""
    wanted = (f'{COUNTED}{{route="/v1/chat/completions"', f'status="{status}"')
    counts = metrics(gateway).items()
    return sum(value for name, value in counts if all(part in name for part in wanted))


def full(gateway: GatewayProcess, session: str) -> bool:
    """Return True if a call is refused for want of a place, with the time to come again."""
    path, headers = f"{gateway.url}/v1/chat/completions", gateway.bearing(session)
    answer = http.post(path, headers=headers, json=BODY, timeout=DEADLINE_S)
    return (answer.status_code, answer.headers.get("retry-after")) == (429, "1")


def test_a_manager_that_lags_fills_the_places_and_all_goes_on_once_it_caught_up(
    prefixed: KafkaSettings, manager: ScriptedManager, session: str
) -> None:
    sessions = [f"{session}-{number}" for number in range(AGENTS)]
    lagging = LaggingManager(manager, sessions)
    held = []
    with (
        gateway_process(prefixed, max_in_flight=PLACES, turn_timeout_s=1) as gateway,
        ThreadPoolExecutor(AGENTS) as pool,
    ):
        calls = [pool.submit(ask, gateway, name) for name in sessions]
        try:
            until(lambda: in_flight(gateway) == PLACES, "all places to be taken", 20)
            assert full(gateway, "other")

            def past_their_deadline() -> bool:
                held.append(in_flight(gateway))
                return answers(gateway, 504) >= PLACES

            until(past_their_deadline, "the calls of the first agents", 20)
        finally:
            lagging.catch_up()
        assert {call.result(DEADLINE_S) for call in calls} <= {"late", "hello"}
        until(lambda: in_flight(gateway) == 0, "all places to be free", 20)
        assert answers(gateway, 429) > 1
        assert answers(gateway, 200) >= AGENTS
    assert max(held) <= PLACES
