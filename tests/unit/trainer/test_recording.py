"""A recording that cannot be trained is refused with the reason."""

from dataclasses import replace

import pytest

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.recording import Survey
from tests.builders.trainer.trajectories import masked_whole, one_turn

SESSION = one_turn("g.0.0")
FOREIGN = replace(
    SESSION,
    tokenizer_hash="",
    nodes=(SESSION.nodes[0], replace(SESSION.nodes[1], origin="foreign")),
)


def survey(*sessions: Trajectory, train_foreign: bool = False) -> Survey:
    summary = Survey("tiny", "h", train_foreign)
    for offset, session in enumerate(sessions):
        summary.apply(Received("trajectories", offset % 2, offset, 0, None, (), session))
    return summary


def test_a_recording_of_the_policy_and_tokenizer_is_good_and_its_ends_are_known() -> None:
    summary = survey(SESSION, SESSION, SESSION)
    assert (summary.fault(), summary.last) == ("", {0: 2, 1: 1})
    assert survey(FOREIGN, train_foreign=True).fault() == ""


@pytest.mark.parametrize(
    ("sessions", "reason"),
    [
        ([], "it is empty"),
        (
            [replace(SESSION, policy="other")],
            "no session of it is of the policy tiny, but of other",
        ),
        (
            [SESSION, replace(SESSION, tokenizer_hash="x")],
            "1 of 2 sessions have the tokenizer_hash x",
        ),
        ([FOREIGN], "all 3 tokens that could be trained are of another system"),
        ([masked_whole(SESSION, "inexact")], "no token of it may be trained"),
    ],
)
def test_what_cannot_be_trained_is_named(sessions: list[Trajectory], reason: str) -> None:
    assert reason in survey(*sessions).fault()
