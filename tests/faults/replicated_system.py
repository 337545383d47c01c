"""Gateway, manager and scripted workers on three brokers, and one session after the other."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import openai
import orjson
from confluent_kafka.admin import AdminClient

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.cluster import BrokerCluster
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.topics import SESSIONS
from tests.builders.own_topics import SMALL
from tests.e2e.running_system import POLICY, RunningSystem, running_system
from tests.waiting import until

BUSY = 0
"""Partition of `sessions` that has all sessions."""
_RETRIES = 20
_TIMEOUT_S = 20
_ANSWER_S = 120
_SPEED = {"SEAMLESSFLOW_ROLLOUT__SCRIPTED__TOKENS_PER_SECOND": "30"}
_TOKENS = "60"


@dataclass
class ReplicatedSystem:
    """The system, its brokers, and the ids of sessions of one partition."""

    cluster: BrokerCluster
    system: RunningSystem
    finished: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def leader(self) -> Broker:
        """Return the broker that leads the busy partition now."""
        admin = AdminClient({"bootstrap.servers": self.cluster.settings.bootstrap_servers})
        name = self.system.kafka.topic_prefix + SESSIONS.name
        return self.cluster.brokers[
            admin.list_topics(name, timeout=60).topics[name].partitions[BUSY].leader - 1
        ]

    def in_sync(self) -> int:
        """Return how many brokers have all of the busy partition."""
        admin = AdminClient({"bootstrap.servers": self.cluster.settings.bootstrap_servers})
        name = self.system.kafka.topic_prefix + SESSIONS.name
        return len(admin.list_topics(name, timeout=60).topics[name].partitions[BUSY].isrs)

    def begin(self, calls: ThreadPoolExecutor) -> tuple[str, "Future[str]"]:
        """Begin a session of one streamed turn; return it and its text once it samples."""
        ids = (f"s-{number}" for number in self._numbers)
        partitions = SMALL[SESSIONS.name].partitions
        session = next(name for name in ids if partition_of(session_name(name), partitions) == BUSY)
        opened = self.system.admin("/sessions", session_id=session, policy=POLICY)
        body = opened.raise_for_status().json()
        text = calls.submit(_streamed, body["base_url"], body["api_key"])
        self.system.expect(r.TurnProgressed, lambda record: record.session_id == session)
        return session, text

    def _called(self, session: str, call: str) -> bool:
        """Make a call of the session API; return False if it must be made again."""
        body: dict[str, float] = {"value": 1.0} if call == "reward" else {}
        answer = self.system.admin(f"/sessions/{session}/{call}", **body)
        if answer.status_code not in (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.GATEWAY_TIMEOUT):
            answer.raise_for_status()
        return answer.is_success

    def end(self, session: str, text: "Future[str]") -> None:
        """Wait for the whole answer; close the session; compare its trajectory."""
        said = self.system.expect(r.TurnCompleted, lambda record: record.session_id == session)
        assert text.result(_ANSWER_S) == orjson.loads(said.message)["content"]
        for call in ("reward", "close"):
            until(lambda call=call: self._called(session, call), call, _ANSWER_S)  # type: ignore[misc]
        trajectory = self.system.expect(r.Trajectory, lambda record: record.session_id == session)
        assert (trajectory.status, trajectory.turns) == ("complete", 1)
        self.finished.append(session)


def _streamed(base_url: str, api_key: str) -> str:
    client = openai.OpenAI(
        base_url=base_url, api_key=api_key, timeout=_TIMEOUT_S, max_retries=_RETRIES
    )
    chunks = client.chat.completions.create(
        model=POLICY, messages=[{"role": "user", "content": "key 7"}], stream=True
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@contextmanager
def replicated_system(directory: Path) -> Iterator[ReplicatedSystem]:
    """Yield the system with a worker in the rollout role."""
    with (
        BrokerCluster(directory / "kafka", 3, short_lived=True) as cluster,
        running_system(cluster.settings, directory) as system,
    ):
        system.publish_weights(0, seed=1)
        system.start_gateway()
        system.start("manager", "seamlessflow.consumers.trajectories")
        system.start(
            "w0",
            "seamlessflow.producers.rollout",
            SEAMLESSFLOW_ROLLOUT__WORKER="w0",
            SEAMLESSFLOW_ROLLOUT__POLICY=POLICY,
            SEAMLESSFLOW_ROLLOUT__ENGINE="scripted",
            SEAMLESSFLOW_ROLLOUT__SCRIPTED__TOKENS=_TOKENS,
            **_SPEED,
        )
        system.await_ready()
        system.give_role("w0", 0)
        yield ReplicatedSystem(cluster, system)
