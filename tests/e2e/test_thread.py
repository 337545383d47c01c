"""One thread through everything: an unmodified client, real Kafka, a real engine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import openai
import orjson
import pytest
import torch
from transformers import AutoModelForCausalLM

from infra.settings import KafkaSettings
from schemas import records as r
from tests.e2e.stage import POLICY, Stage, stage

pytestmark = pytest.mark.kafka
PARITY = 1e-4


@pytest.fixture(scope="module")
def flow(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stage, Path]]:
    with stage(broker, tmp_path_factory.mktemp("flow")) as made:
        weights = made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "consumers.trajectories")
        for worker in ("w0", "w1"):
            made.start_worker(worker)
        made.give_role("w0", 0)
        made.give_role("w1", 1)
        made.await_gateway()
        yield made, weights


def client_of(made: Stage, session_id: str) -> openai.OpenAI:
    opened = made.admin("/sessions", session_id=session_id, policy=POLICY)
    assert opened.status_code == 201, opened.text
    body = opened.json()
    return openai.OpenAI(base_url=body["base_url"], api_key=body["api_key"], timeout=60)


def end(made: Stage, session_id: str) -> r.Trajectory:
    made.admin(f"/sessions/{session_id}/reward", value=1.0).raise_for_status()
    made.admin(f"/sessions/{session_id}/close").raise_for_status()
    return made.expect(r.Trajectory, lambda record: record.session_id == session_id)


def plain_logprobs(weights: Path, tokens: bytes) -> npt.NDArray[np.float32]:
    """Log-prob of each token behind the first, by one plain forward pass."""
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    ids_T = torch.from_numpy(np.frombuffer(tokens, np.int32).astype(np.int64))
    with torch.inference_mode():
        logits_TV = model(ids_T[None]).logits[0]
    chosen = torch.log_softmax(logits_TV[:-1], -1).gather(1, ids_T[1:, None])
    found: npt.NDArray[np.float32] = chosen[:, 0].numpy()
    return found


def assert_parity(weights: Path, trajectory: r.Trajectory) -> None:
    """The first chain's recorded log-probs are those of a plain forward pass."""
    last = trajectory.nodes[-1]
    end = last.start + last.length
    ours = np.frombuffer(trajectory.logprobs, np.float32)[1:end]
    mask = np.frombuffer(trajectory.loss_mask, np.uint8)[1:end].astype(bool)
    plain = plain_logprobs(weights, trajectory.tokens[: 4 * end])
    assert mask.any()
    np.testing.assert_allclose(ours[mask], plain[mask], atol=PARITY)


def test_a_conversation_is_recorded_token_for_token(flow: tuple[Stage, Path]) -> None:
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

    trajectory = end(made, "talk")

    assert trajectory.turns == 2
    assert_parity(weights, trajectory)


def test_streamed_text_is_the_text_of_the_whole(flow: tuple[Stage, Path]) -> None:
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
    assert end(made, "stream").turns == 1


def test_a_worker_killed_in_mid_turn_costs_the_agent_only_time(flow: tuple[Stage, Path]) -> None:
    made, weights = flow
    client = client_of(made, "killed")
    stream = client.chat.completions.create(
        model=POLICY,
        messages=[{"role": "user", "content": "key 7"}],
        max_tokens=400,
        stream=True,
    )
    first = made.expect(r.TurnDispatched, lambda record: record.session_id == "killed")
    made.expect(r.TurnProgressed, lambda record: record.session_id == "killed")
    os.kill(made.processes[first.worker].pid, signal.SIGKILL)
    made.lose(first.worker, first.incarnation)

    finish = [c.choices[0].finish_reason for c in stream if c.choices][-1]

    trajectory = end(made, "killed")
    assert finish in ("stop", "length", "tool_calls")
    assert_parity(weights, trajectory)
