"""Turns that a rule ends: processes on a real broker, and a worker that dies in the middle."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.stops import recorded_sessions, tried
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import POLICY as SAMPLED
from tests.e2e.running_system import POLICY, RunningSystem, client_of, running_system

pytestmark = pytest.mark.kafka
SCRIPT = '{"text": "code 3 ", "tokens": 400, "tokens_per_second": 100}'
SETTINGS = '{"period": 16, "times": 30, "ends": "ENDS"}'


@pytest.fixture(params=["turn", "session"])
def flow(
    broker: KafkaSettings, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[RunningSystem]:
    """Yield a system whose rule ends this, and which has two workers."""
    with running_system(broker, tmp_path) as made:
        made.publish_weights(0, seed=1)
        made.start_gateway()
        rule = {
            "SEAMLESSFLOW_ROLLOUT__CONTROL__NAME": "repetition",
            "SEAMLESSFLOW_ROLLOUT__CONTROL__SETTINGS": SETTINGS.replace("ENDS", request.param),
            "SEAMLESSFLOW_ROLLOUT__CONTROL__EXEMPT": "0",
            "SEAMLESSFLOW_ROLLOUT__CONTROL__RECORD_TOP": "20",
        }
        made.start("manager", "seamlessflow.consumers.trajectories", **rule)
        for slot, worker in enumerate(("w0", "w1")):
            start_worker(made, worker)
            made.give_role(worker, slot)
        made.await_ready()
        yield made


def start_worker(made: RunningSystem, worker: str) -> None:
    made.start(
        worker,
        "seamlessflow.producers.rollout",
        SEAMLESSFLOW_ROLLOUT__WORKER=worker,
        SEAMLESSFLOW_ROLLOUT__POLICY=POLICY,
        SEAMLESSFLOW_ROLLOUT__ENGINE="scripted",
        SEAMLESSFLOW_ROLLOUT__SCRIPTED=SCRIPT,
    )


def ask(client: openai.OpenAI) -> tuple[str, str | None]:
    """Run a streamed turn; return its text and how it ended."""
    chunks = client.chat.completions.create(
        model=POLICY, messages=[{"role": "user", "content": "key 7"}], stream=True
    )
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    return "".join(part.delta.content or "" for part in parts), parts[-1].finish_reason


def sampled(trajectory: r.Trajectory) -> bytes:
    (node,) = (node for node in trajectory.nodes if node.origin == SAMPLED)
    return trajectory.tokens[4 * node.start : 4 * (node.start + node.length)]


def ended(flow: RunningSystem, session_id: str, ends: str) -> r.Trajectory:
    if ends == "turn":
        return flow.end(session_id)
    return flow.expect(r.Trajectory, lambda record: record.session_id == session_id)


def test_a_turn_whose_worker_dies_ends_at_the_same_token(
    flow: RunningSystem, request: pytest.FixtureRequest
) -> None:
    ends: str = request.node.callspec.params["flow"]
    whole = client_of(flow, "whole").with_options(max_retries=0)
    text, reason = ask(whole)
    assert (text.startswith("code 3"), reason) == (True, "length")
    reference = ended(flow, "whole", ends)
    (node,) = (node for node in reference.nodes if node.origin == SAMPLED)
    assert (node.control, node.control_at) == ("repetition: repeats", node.length)
    assert reference.loss_mask.count(1) == node.length < 400

    disturbed = client_of(flow, "disturbed").with_options(max_retries=0)
    stream = disturbed.chat.completions.create(
        model=POLICY, messages=[{"role": "user", "content": "key 7"}], stream=True
    )
    progressed = flow.expect(r.TurnProgressed, lambda record: record.session_id == "disturbed")
    assert progressed.control_state is not None
    os.kill(flow.processes[progressed.worker].pid, signal.SIGKILL)
    flow.lose(progressed.worker, progressed.incarnation)
    parts = [chunk.choices[0] for chunk in stream if chunk.choices]
    assert "".join(part.delta.content or "" for part in parts) == text
    again = ended(flow, "disturbed", ends)
    assert again.interrupted_turns == 1
    assert sampled(again) == sampled(reference)

    if ends == "session":
        for trajectory in (reference, again):
            ending = (trajectory.status, trajectory.cause, trajectory.reason, trajectory.limit)
            assert ending == ("pruned", "policy", "repetition: repeats", "control")
        with pytest.raises(openai.ConflictError, match="repetition: repeats"):
            ask(whole)

    sessions = list(recorded_sessions(flow.kafka, Skipped(), lambda read, whole: None))
    (earlier,) = tried("repetition", [{"period": 16, "times": 15}], sessions)
    assert (earlier.turns_stopped, earlier.sessions_stopped) == (2, 2)
    assert earlier.tokens == 2 * node.length
    assert 0.4 < earlier.tokens_saved / earlier.tokens < 0.6
    assert [turn.top for session in sessions for turn in session.turns] == [20, 20]
