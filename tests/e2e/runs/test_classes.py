"""A class of workers is killed at once and comes back, and a worker leaves: sessions lose nothing.

The engines are scripted: every answer is the same, so one that misses or repeats a token shows.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from infra.settings import KafkaSettings
from schemas import records as r
from tests.e2e.running_system import DEADLINE_S, POLICY, RunningSystem, running_system

pytestmark = pytest.mark.kafka
TAGS = {"a0": "hw:A", "a1": "hw:A", "b0": "hw:B"}
CLASS_A = ("a0", "a1")
SESSIONS = 6
TOKENS = 80
RATE = 25
"""Tokens a second: an answer lasts long enough to be cut in the middle."""


@pytest.fixture
def flow(broker: KafkaSettings, tmp_path: Path) -> Iterator[RunningSystem]:
    """Yield a system of two workers of one class and one of another."""
    with running_system(broker, tmp_path) as made:
        made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "consumers.trajectories")
        serve(made, dict.fromkeys(TAGS, ""))
        made.await_ready()
        yield made


def serve(made: RunningSystem, workers: Mapping[str, str]) -> None:
    """Start workers, of which these incarnations are lost, and give them the rollout role."""
    for worker in workers:
        made.start(
            worker,
            "producers.rollout",
            SEAMLESSFLOW_ROLLOUT__WORKER=worker,
            SEAMLESSFLOW_ROLLOUT__TAGS=f'["rollout", "{TAGS[worker]}"]',
            SEAMLESSFLOW_ROLLOUT__POLICY=POLICY,
            SEAMLESSFLOW_ROLLOUT__ENGINE="scripted",
            SEAMLESSFLOW_ROLLOUT__SCRIPTED__TEXT="one two three ",
            SEAMLESSFLOW_ROLLOUT__SCRIPTED__TOKENS=str(TOKENS),
            SEAMLESSFLOW_ROLLOUT__SCRIPTED__TOKENS_PER_SECOND=str(RATE),
        )
    slots = {worker: slot for slot, worker in enumerate(TAGS)}
    for worker, lost in workers.items():
        made.give_role(worker, slots[worker], lost)


def answer(made: RunningSystem, session_id: str, tags: str) -> str:
    """Open a session that asks for these tags, and return the text of its one turn."""
    opened = made.admin(
        "/sessions", session_id=session_id, policy=POLICY, metadata={"worker_tags": tags}
    ).raise_for_status()
    client = openai.OpenAI(
        base_url=opened.json()["base_url"], api_key=opened.json()["api_key"], timeout=DEADLINE_S
    )
    said = client.chat.completions.create(
        model=POLICY, messages=[{"role": "user", "content": "go"}], max_tokens=2 * TOKENS
    )
    return said.choices[0].message.content or ""


def begun(made: RunningSystem, sessions: Sequence[str]) -> list[r.TurnDispatched]:
    """Wait until all sessions sample; return their dispatches."""
    found = []
    for name in sessions:
        made.expect(r.TurnProgressed, lambda one, of=name: one.session_id == of)  # type: ignore[misc]
        found.append(made.expect(r.TurnDispatched, lambda one, of=name: one.session_id == of))  # type: ignore[misc]
    return found


def ended(made: RunningSystem, texts: dict[str, Future[str]]) -> list[r.Trajectory]:
    """Wait for all answers, which are all the same; return the trajectories."""
    assert len({text.result() for text in texts.values()}) == 1
    found = [made.end(name) for name in texts]
    assert len({one.tokens for one in found}) == 1
    assert {one.turns for one in found} == {1}
    return found


def asked(
    made: RunningSystem, agents: ThreadPoolExecutor, name: str, tags: str
) -> dict[str, Future[str]]:
    names = [f"{name}-{number}" for number in range(SESSIONS)]
    return {one: agents.submit(answer, made, one, tags) for one in names}


def test_a_class_of_workers_is_lost_and_comes_back_and_a_worker_leaves(
    flow: RunningSystem,
) -> None:
    with ThreadPoolExecutor(SESSIONS) as agents:
        texts = asked(flow, agents, "lost", "hw:A")
        placed = begun(flow, list(texts))
        assert {one.worker for one in placed} == set(CLASS_A)
        assert {one.reason for one in placed} == {"first, to hw:A"}
        for worker in CLASS_A:
            os.kill(flow.processes[worker].pid, signal.SIGKILL)
        for worker in CLASS_A:
            flow.processes[worker].wait(DEADLINE_S)
        killed = {one.worker: one.incarnation for one in placed}
        for worker, incarnation in killed.items():
            flow.lose(worker, incarnation)
        whole = ended(flow, texts)
        # On a busy machine some may have had their answer when the last one began.
        moved = [one.session_id for one in whole if one.interrupted_turns]
        assert moved
        for name in moved:
            again = flow.expect(
                r.TurnDispatched,
                lambda one, of=name: (one.session_id, one.worker) == (of, "b0"),  # type: ignore[misc]
            )
            assert again.reason == "worker_lost, spilled over from hw:A"
            assert again.from_offset > 0

        serve(flow, killed)
        texts = asked(flow, agents, "back", "hw:A!")
        placed = begun(flow, list(texts))
        assert {one.worker for one in placed} == set(CLASS_A)
        flow.processes["a0"].send_signal(signal.SIGTERM)
        left = ended(flow, texts)

    assert flow.processes["a0"].wait(DEADLINE_S) == 0
    handed_back = flow.expect(r.RoleReleased).handed_back
    assert handed_back == sum(one.interrupted_turns for one in left) > 0
    assert left[0].tokens == whole[0].tokens
