"""Refusals of forks that no session can begin with."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.recorded.fork.copying import RecordedOn, forked_prefix
from seamlessflow.schemas.records import CommandRefused, ForkedPrefix, SessionOpened
from seamlessflow.schemas.topics import SESSIONS
from tests.builders.records.commands import open_session
from tests.builders.trajectories.conversation import recorded
from tests.builders.trajectories.decisions import WEIGHTS, context, fleet_with

FORK = forked_prefix(recorded().session, "c", RecordedOn(5))


def test_a_session_opens_with_the_whole_prefix_in_one_event() -> None:
    (event,) = decide(None, open_session(fork=FORK), context()).events

    assert isinstance(event, SessionOpened)
    assert event.fork == FORK


def with_prompt(**changes: Any) -> ForkedPrefix:
    assert FORK.prompt is not None
    return replace(FORK, prompt=replace(FORK.prompt, **changes))


@pytest.mark.parametrize(
    ("fork", "status", "detail"),
    [
        (replace(FORK, tokenizer_hash="old"), 409, "tokenizer and renderer old, policy 'p' has t"),
        (with_prompt(policy="q"), 409, "policy 'q' answered turn c of module '', and here 'p'"),
        (replace(FORK, length=10_000_000), 422, "10000000 tokens, the context holds"),
        (with_prompt(messages=(b"x" * SESSIONS.max_record_bytes,)), 413, "too many"),
        (with_prompt(ids=b"123"), 422, "3 bytes are no whole number"),
        (with_prompt(ids=b"1234"), 422, "not those of the recorded prompt"),
        (with_prompt(parent_end=9), 422, "9 tokens of a turn with 3"),
        (with_prompt(parent=7), 422, "contradicts itself"),
        (replace(FORK, mode="backwards"), 422, "mode 'backwards'"),
        (replace(FORK, prompt=None, turns=()), 422, "with 0 turns"),
    ],
)
def test_a_fork_is_refused_with_the_reason(fork: ForkedPrefix, status: int, detail: str) -> None:
    (event,) = decide(None, open_session(fork=fork), context()).events

    assert isinstance(event, CommandRefused)
    assert (event.status, event.reason) == (status, "fork_refused")
    assert detail in event.detail


def test_the_policy_of_the_module_that_was_asked_decides() -> None:
    fleet = fleet_with("w")
    fleet.apply(replace(WEIGHTS, policy="q"), 0)
    command = open_session(fork=with_prompt(policy="q", module="m"), policies={"m": "q"})

    (event,) = decide(None, command, context(fleet)).events

    assert isinstance(event, SessionOpened)
