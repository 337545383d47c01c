"""One conversation in each dialect, whole and streamed: the same tokens, masks and log-probs."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seamlessflow.demo.model import flat, imitate, make_model
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Sampling
from seamlessflow.trainer.data.chains import chains
from tests.builders.gateway.conversing import DIALECTS, POLICY, QUESTIONS, SYSTEM, Door
from tests.e2e.running_system import TINY, RunningSystem, running_system

pytestmark = pytest.mark.kafka

ANSWERS = ("Red, green, blue.", "Rot 😀 grün, blau.")
STEPS = 20
"""Enough to learn two answers, and few enough that the model is not quite sure of them."""
CLOSE = 1e-5
"""Log-probs of one text may differ so far, by the other rows of an engine's pass."""


def taught(directory: Path) -> Path:
    """Write a model that answers both questions so; what it says has no broken characters."""
    make_model(directory, seed=0)
    renderer = Renderer.load(directory, TINY)
    first, second = (renderer.encode(f"{answer}<|im_end|>") for answer in ANSWERS)
    opening = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTIONS[0]}]
    between = f"\n<|im_start|>user\n{QUESTIONS[1]}<|im_end|>\n<|im_start|>assistant\n"
    prompts = renderer.render(opening), renderer.encode(between)
    ids, targets = flat([(prompts[0], False), (first, True), (prompts[1], False), (second, True)])
    batch = torch.tensor([ids]), torch.tensor([targets])
    imitate(directory, lambda _: batch, lambda step, steps, loss: None, STEPS, episodes=1)
    return directory


@pytest.fixture(scope="module")
def system(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSystem]:
    with running_system(broker, tmp_path_factory.mktemp("dialects")) as made:
        made.model = taught(tmp_path_factory.mktemp("model"))
        made.renderer = TINY
        made.overrides = Sampling()
        # Greedy answers are equal, and their tokens are trained only so.
        made.train_inexact = True
        made.publish_weights(0, seed=0)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.start_worker("w0")
        made.give_role("w0", 0)
        made.await_ready()
        yield made


def conversed(system: RunningSystem, dialect: str, streamed: bool) -> r.Trajectory:
    """Return the trajectory of the conversation in a dialect; its answers are as taught."""
    name = f"{dialect}-{uuid.uuid4().hex[:8]}"
    opened = system.admin("/sessions", session_id=name, policy=POLICY)
    assert opened.status_code == 201, opened.text
    door = Door(opened.json()["base_url"], opened.json()["api_key"])
    assert DIALECTS[dialect](door, streamed) == list(ANSWERS)
    return system.end(name)


@pytest.fixture(scope="module")
def by_chat(system: RunningSystem) -> r.Trajectory:
    return conversed(system, "chat", streamed=False)


def without_ids(trajectory: r.Trajectory) -> r.Trajectory:
    """Return the trajectory without ids, times, places on the log and log-probs."""
    turns: dict[str, str] = {}
    nodes = tuple(
        replace(node, turn_id=turns.setdefault(node.turn_id, f"turn {len(turns)}"), log_offset=0)
        for node in trajectory.nodes
    )
    return replace(
        trajectory,
        session_id="",
        group_id="",
        nodes=nodes,
        logprobs=b"",
        partition=0,
        first_offset=0,
        last_offset=0,
        opened_at_ms=0,
        closed_at_ms=0,
        finalized_at_ms=0,
    )


def assert_close(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(ours, theirs, atol=CLOSE)


STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@STREAMED
@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - {"completions"}))
def test_a_conversation_is_the_same_trajectory_in_each_dialect_of_messages(
    system: RunningSystem, by_chat: r.Trajectory, dialect: str, streamed: bool
) -> None:
    trajectory = conversed(system, dialect, streamed)
    assert without_ids(trajectory) == without_ids(by_chat)
    ours, theirs = (np.frombuffer(each.logprobs, "<f4") for each in (trajectory, by_chat))
    assert_close(ours, theirs)


@STREAMED
@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_request_has_the_same_prompt_and_trained_tokens_in_each_dialect(
    system: RunningSystem, by_chat: r.Trajectory, dialect: str, streamed: bool
) -> None:
    """A plain prompt writes the token that ended an answer itself, so there it is a prompt's."""
    trajectory = conversed(system, dialect, streamed)
    ours, theirs = (
        [chain.tokens for chain in chains(each, POLICY, chaining="per_request").chains]
        for each in (trajectory, by_chat)
    )
    assert len(ours) == len(theirs) == len(ANSWERS)
    for request, wanted in zip(ours, theirs, strict=True):
        assert request.ids_T.tolist() == wanted.ids_T.tolist()
        assert request.trained_T.tolist() == wanted.trained_T.tolist()
        trained_T = wanted.trained_T
        assert_close(request.logprobs_T[trained_T], wanted.logprobs_T[trained_T])


def test_every_sampled_token_of_it_is_trained(by_chat: r.Trajectory) -> None:
    sampled = [node for node in by_chat.nodes if node.origin == "policy"]
    assert [node.finish_reason for node in sampled] == ["stop", "stop"]
    assert by_chat.loss_mask.count(1) == sum(node.length for node in sampled) > 30
    assert np.frombuffer(by_chat.logprobs, "<f4").min() < -0.01
    assert by_chat.match_rules == {"root": 1, "extend": 1}
