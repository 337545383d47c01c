"""A step whose sequences are requests: what it has in common with one of merged chains."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.credit import Chaining
from seamlessflow.trainer.data.advantages import ESTIMATORS
from seamlessflow.trainer.data.batch import Batch, Prepared, prepare
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.packing import Layout
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.mixing.stored import stored_session
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.inputs import batch_rules
from seamlessflow.trainer.stored import OWN
from tests.builders.trainer.chains import forked_sessions
from tests.builders.trainer.compared_steps import Sessions, made_sessions, trained
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.models import open_tiny, write_tiny
from tests.builders.trainer.stored_sessions import STORED_RULES
from tests.builders.trainer.trajectories import Run, trajectory

TURN_RATIOS = {"surrogate": "gspo", "ratio_level": "turn"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def assert_equal_steps(model: Path, sessions: Sessions, layout: Layout, **more: Any) -> None:
    wanted, gradients = trained(model, sessions, layout, **more)
    loss, computed = trained(model, sessions, layout, chains="per_request", **more)
    assert loss == pytest.approx(wanted, rel=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(computed[name], gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_mean_over_tokens_has_equal_loss_and_gradient(model: Path, layout: Layout) -> None:
    assert_equal_steps(model, made_sessions(open_tiny(model)), layout)


@pytest.mark.parametrize("loss", [{}, TURN_RATIOS], ids=["tokens", "turns"])
@pytest.mark.parametrize("seed", range(3))
def test_so_it_has_for_sessions_that_fork(model: Path, seed: int, loss: dict[str, Any]) -> None:
    assert_equal_steps(model, forked_sessions(seed), "auto", loss=loss)


def test_a_mean_over_sequences_is_that_of_sessions_of_one_request(model: Path) -> None:
    loss = {"aggregation": "sequence_mean"}
    sessions = made_sessions(open_tiny(model))
    alone = [[request for session in group for request in requests(session)] for group in sessions]
    wanted, gradients = trained(model, alone, "padded", loss=loss)
    loss_of_requests, computed = trained(model, sessions, "padded", loss=loss, chains="per_request")
    merged, _ = trained(model, sessions, "padded", loss=loss)
    assert loss_of_requests == pytest.approx(wanted, rel=1e-5)
    assert abs(merged - wanted) > 1e-3 * abs(wanted)
    for name, gradient in gradients.items():
        torch.testing.assert_close(computed[name], gradient, atol=1e-6, rtol=1e-5)


def requests(session: Trajectory) -> Iterator[Trajectory]:
    """Yield each of the two requests of a session as a session of its own."""
    answer = session.nodes[1]
    end = answer.start + answer.length
    yield replace(
        session,
        session_id=f"{session.session_id}a",
        tokens=session.tokens[: 4 * end],
        logprobs=session.logprobs[: 4 * end],
        loss_mask=session.loss_mask[:end],
        nodes=session.nodes[:2],
        spans=tuple(span for span in session.spans if span.start < end),
    )
    mask = bytes(end) + session.loss_mask[end:]
    yield replace(session, session_id=f"{session.session_id}b", loss_mask=mask)


@pytest.mark.parametrize("advantage", ESTIMATORS)
def test_each_token_has_its_advantage_of_merged_chains(advantage: str) -> None:
    for group in forked_sessions(seed=4):
        merged, requests = (
            credits_of(prepared(group, advantage, chaining)) for chaining in get_args(Chaining)
        )
        assert requests == pytest.approx(merged, abs=1e-6)


LENGTHS = {"merged": [25], "per_request": [14, 25]}
"""Lengths of the chains of `two_turns`."""


def two_turns(name: str) -> Trajectory:
    runs = [
        Run(range(10), "prompt"),
        Run(range(4), "policy", "t0", 0, 10),
        Run(range(6), "tool", "t1", 1, 4),
        Run(range(5), "policy", "t1", 2, 6),
    ]
    return trajectory(runs, f"{name}.0.0", group=name)


@pytest.mark.parametrize("chaining", get_args(Chaining))
def test_the_dataloader_reads_sessions_by_the_setting(chaining: Chaining) -> None:
    settings = TrainerSettings(trainer={"chains": chaining})
    feed = FedDataloader(rules=batch_rules(settings))
    for offset, name in enumerate(("a", "b")):
        feed.loader.add(two_turns(name), 0, offset, now_ms=0)
    batch = feed.next()
    assert isinstance(batch, Batch)
    assert [len(chain) for chain in batch.counted()] == 2 * LENGTHS[chaining]


@pytest.mark.parametrize("pool", [OWN, "expert"])
@pytest.mark.parametrize("chaining", get_args(Chaining))
def test_stored_sessions_are_read_by_it_too(chaining: Chaining, pool: str) -> None:
    rules = replace(STORED_RULES, chaining=chaining)
    made = stored_session(pool, two_turns("a"), rules, 0, 0)
    assert isinstance(made, ValidSession)
    assert [len(chain) for chain in made.chains] == LENGTHS[chaining]
    assert not made.divided


def prepared(group: Any, advantage: str, chaining: Chaining) -> Prepared:
    trainer = {"advantage": advantage, "returns": {"discount": 0.5}, "chains": chaining}
    rules = batch_rules(TrainerSettings(trainer=trainer))
    sessions = [read(session, "tiny", 0, 0, chaining=rules.chaining) for session in group]
    valid = tuple(session for session in sessions if isinstance(session, ValidSession))
    return prepare(Group("g", valid), StepClock({}, now=0), rules)


def credits_of(group: Prepared) -> dict[tuple[str, int, int], float]:
    """Return the advantage of each trained token, by session, turn and place in the turn."""
    credit = {}
    for chain in group.chains:
        tokens = chain.tokens
        columns = tokens.turns_T, tokens.offsets_T, tokens.advantages_T, tokens.trained_T
        for turn, offset, advantage, is_trained in zip(*columns, strict=True):
            if is_trained:
                credit[chain.session_id, int(turn), int(offset)] = float(advantage)
    return credit
