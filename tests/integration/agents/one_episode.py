"""One task, run against a scripted gateway."""

import time

from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.producers.agents.beginnings import Beginnings
from seamlessflow.producers.agents.episode import Episodes
from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.harness.agent import Agent
from seamlessflow.producers.agents.harness.callables import Callback, CallThreads
from seamlessflow.producers.agents.play import UserCode, WatchedRun
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.producers.agents.stalls import Leftovers
from seamlessflow.schemas.records import Task
from tests.builders.records.tasks import task
from tests.integration.agents.scripted_gateway import (
    Answering,
    ScriptedGateway,
    accepting,
    on_uvloop,
)

SESSION = "run-7.2.1"


THREADS = CallThreads()


NO_TRACES = telemetry(TelemetrySettings(), "agents", "test")


def a_task(limit_s: float = 30) -> Task:
    now = round(time.time() * 1000)
    identity = {"task_id": "t1", "group_id": "run-7", "sample": 2, "attempt": 1, "group_size": 4}
    return task(
        policy="default",
        **identity,
        metadata={"level": "3"},
        payload=b'{"prompt":"key 7"}',
        issued_at_ms=now,
        deadline_ms=now + round(limit_s * 1000),
    )


def run(
    agent: Agent,
    task: Task | None = None,
    answering: Answering = accepting,
    judge: Callback | None = None,
    watched: WatchedRun | None = None,
    beginnings: Beginnings | None = None,
    **settings: object,
) -> ScriptedGateway:
    """Run the task; return the gateway with its calls."""
    section = AgentsSection.model_validate({"name": "tester", **settings})

    async def main() -> ScriptedGateway:
        async with ScriptedGateway(answering).serving() as gateway:
            client = GatewayClient(gateway.url, "admin", section.call_limit_s)
            metrics = Metrics()
            left = Leftovers("agents", 1, report=print, give_up=print, metrics=metrics)
            code, instruments = UserCode(agent, judge, THREADS), Instruments(NO_TRACES, metrics)
            episodes = Episodes(section, code, client, instruments, left, watched, beginnings)
            try:
                await episodes.run(task or a_task())
            finally:
                await episodes.close()
        return gateway

    return on_uvloop(main())


def closed(gateway: ScriptedGateway) -> tuple[object, object]:
    last = gateway.calls[-1]
    assert last.path == f"/sessions/{SESSION}/close"
    return last.body["status"], last.body["cause"]
