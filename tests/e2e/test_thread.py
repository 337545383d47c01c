"""One thread through everything: an unmodified client, real Kafka, a real engine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from tests.e2e.parity import assert_parity
from tests.e2e.running_system import POLICY, RunningSystem, client_of, running_system

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def flow(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningSystem, Path]]:
    with running_system(broker, tmp_path_factory.mktemp("flow")) as made:
        weights = made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        for worker in ("w0", "w1"):
            made.start_worker(worker)
        made.give_role("w0", 0)
        made.give_role("w1", 1)
        made.await_ready()
        yield made, weights


def test_a_conversation_is_recorded_token_for_token(flow: tuple[RunningSystem, Path]) -> None:
    """Holds invariant I3."""
    made, weights = flow
    client = client_of(made, "talk")
    messages: list[dict[str, object]] = [{"role": "user", "content": "key 7"}]
    for _ in range(2):
        answer = client.chat.completions.create(
            model=POLICY,
            messages=messages,  # type: ignore[arg-type]
            max_tokens=24,
        )
        messages.append(answer.choices[0].message.model_dump(exclude_none=True))
        messages.append({"role": "user", "content": "again"})

    trajectory = made.end("talk")

    assert trajectory.turns == 2
    assert_parity(weights, trajectory)


def test_streamed_text_is_the_text_of_the_whole(flow: tuple[RunningSystem, Path]) -> None:
    made, _ = flow
    client = client_of(made, "stream")

    chunks = list(
        client.chat.completions.create(
            model=POLICY,
            messages=[{"role": "user", "content": "key 7"}],
            max_tokens=64,
            stream=True,
        )
    )

    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    completed = made.expect(r.TurnCompleted, lambda record: record.session_id == "stream")
    assert (orjson.loads(completed.message)["content"] or "") == streamed
    assert made.end("stream").turns == 1


def test_a_worker_killed_in_mid_turn_costs_the_agent_only_time(
    flow: tuple[RunningSystem, Path],
) -> None:
    made, weights = flow
    client = client_of(made, "killed")
    stream = client.chat.completions.create(
        model=POLICY,
        messages=[{"role": "user", "content": "key 7"}],
        max_tokens=400,
        seed=1,  # an answer that is long, each time
        stream=True,
    )
    first = made.expect(r.TurnDispatched, lambda record: record.session_id == "killed")
    made.expect(r.TurnProgressed, lambda record: record.session_id == "killed")
    os.kill(made.processes[first.worker].pid, signal.SIGKILL)
    made.lose(first.worker, first.incarnation)

    finish = [c.choices[0].finish_reason for c in stream if c.choices][-1]

    trajectory = made.end("killed")
    assert finish in ("stop", "length", "tool_calls")
    assert_parity(weights, trajectory)
