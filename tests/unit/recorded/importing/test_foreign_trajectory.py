"""Trajectories of sequences that another system sampled."""

from typing import Any

import numpy as np
import pytest

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected, foreign_row
from seamlessflow.recorded.importing.foreign_trajectory import (
    ForeignRules,
    RowOrigin,
    foreign_trajectory,
)
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.data.chains import chains
from seamlessflow.trainer.data.sessions import is_unscored
from seamlessflow.trainer.recording import Survey

PRIME_RL: dict[str, Any] = {
    "prompt_ids": [1, 2],
    "completion_ids": [10, 11, 5, 12],
    "completion_mask": [True, True, False, True],
    "completion_logprobs": [-0.5, -0.25, 0.0, -1.0],
    "reward": 0.5,
}
VERL: dict[str, Any] = {
    "prompt_ids": [1, 2],
    "response_ids": [10, 11, 5, 12],
    "response_mask": [1, 1, 0, 1],
    "response_logprobs": [-0.5, -0.25, 0.0, -1.0],
    "reward_score": 0.5,
}
CHAIN: dict[str, Any] = {
    "token_ids": [1, 2, 10, 11, 5, 12],
    "mask": [False, False, True, True, False, True],
    "logprobs": [0, 0, -0.5, -0.25, 0, -1],
    "reward": 0.5,
}
TRL: dict[str, Any] = {
    "input_ids": [1, 2, 10, 11, 5, 12],
    "labels": [-100, -100, 10, 11, -100, 12],
    "logprobs": [0, 0, -0.5, -0.25, 0, -1],
    "reward": 0.5,
}
UNTRAINED = ForeignRules()
TRAINED = ForeignRules(train=True, policy="tiny", version=4)


def made(row: dict[str, Any], rules: ForeignRules = UNTRAINED) -> Trajectory:
    origin = RowOrigin("here/rows.jsonl", "rows.jsonl", "abc", 3)
    return foreign_trajectory(origin, foreign_row("here/rows.jsonl", 3, row), rules)


@pytest.mark.parametrize("row", [PRIME_RL, VERL, CHAIN, TRL])
def test_a_row_of_any_form_is_an_untrained_trajectory(row: dict[str, Any]) -> None:
    trajectory = made(row)
    assert np.frombuffer(trajectory.tokens, "<i4").tolist() == [1, 2, 10, 11, 5, 12]
    assert np.frombuffer(trajectory.logprobs, "<f4").tolist() == [0, 0, -0.5, -0.25, 0, -1]
    assert trajectory.loss_mask == bytes(6)
    assert trajectory.masked_tokens == {"foreign": 3}
    assert [node.origin for node in trajectory.nodes] == ["prompt", "foreign", "prompt", "foreign"]
    assert [node.behavior_exact for node in trajectory.nodes] == [True, False, True, False]
    assert [reward.value for reward in trajectory.rewards] == [0.5]
    assert trajectory.session_id == "foreign-abc-3"
    assert chains(trajectory, trajectory.policy).chains == ()
    assert decode(encode(trajectory)) == trajectory


@pytest.mark.parametrize("row", [PRIME_RL, VERL, CHAIN, TRL])
def test_it_is_trained_if_asked_for(row: dict[str, Any]) -> None:
    (chain,) = chains(made(row, TRAINED), "tiny").chains
    assert chain.tokens.ids_T.tolist() == [1, 2, 10, 11, 5, 12]
    assert chain.tokens.trained_T.tolist() == [False, False, True, True, False, True]
    assert chain.tokens.logprobs_T.tolist() == [0, 0, -0.5, -0.25, 0, -1]
    assert chain.tokens.versions_T[chain.tokens.trained_T].tolist() == [4, 4, 4]


def test_temperatures_and_versions_of_tokens_are_kept() -> None:
    columns = {"temperatures": [1, 1, 0.5, 0.5, 1, 2], "versions": [-1, -1, 6, 7, -1, 7]}
    (chain,) = chains(made({**CHAIN, **columns}, TRAINED), "tiny").chains
    assert chain.tokens.temperatures_T[chain.tokens.trained_T].tolist() == [0.5, 0.5, 2]
    assert chain.tokens.versions_T[chain.tokens.trained_T].tolist() == [6, 7, 7]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"completion_mask": [True]}, "completion_mask has 1 entries for 4 tokens"),
        ({"completion_logprobs": [0.0]}, "completion_logprobs has 1 entries for 4 tokens"),
        ({"completion_logprobs": [float("nan")] * 4}, "a number that is not finite"),
        ({"completion_ids": [1, 2.5, 3, 4]}, "completion_ids has something else than whole"),
        ({"completion_ids": [1, "a", 3, 4]}, "completion_ids has something else than whole"),
        ({"completion_ids": [1, [2], 3, 4]}, "completion_ids is not a list of numbers"),
        ({"completion_ids": [1, 2**31, 3, 4]}, "completion_ids has a number that is no int32"),
        ({"completion_ids": [1, -2, 3, 4]}, "a token id is negative"),
        ({"completion_mask": [0, 1, 2, 1]}, "completion_mask has something else than 0 and 1"),
        ({"prompt_ids": None}, "prompt_ids is missing"),
        ({"prompt_ids": "ab"}, "prompt_ids is no list"),
        ({"reward": "high"}, "reward is no number"),
        ({"completion_ids": None}, "it has none of the columns token_ids, completion_ids"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ForeignRowRejected) as caught:
        made({**PRIME_RL, **change})
    assert str(caught.value).startswith("here/rows.jsonl, row 3: ")
    assert reason in str(caught.value)


def test_labels_must_be_the_tokens() -> None:
    with pytest.raises(ForeignRowRejected, match="not that of input_ids"):
        made({**TRL, "labels": [-100, -100, 9, 11, -100, 12]})


def test_a_row_of_several_versions_must_say_which_token_is_of_which() -> None:
    several = {**PRIME_RL, "version_min": 2, "version_max": 3}
    with pytest.raises(ForeignRowRejected, match="of the versions 2 to 3, and it has no column"):
        made(several, ForeignRules(train=True))
    size = len(PRIME_RL["prompt_ids"]) + len(PRIME_RL["completion_ids"])
    assert made({**several, "versions": [3] * size}, ForeignRules(train=True))
    assert made(several, ForeignRules(train=True, version=3))
    assert made(several, ForeignRules())


def test_what_is_trained_needs_log_probs_and_versions() -> None:
    with pytest.raises(ForeignRowRejected, match="no log-probs"):
        made({**PRIME_RL, "completion_logprobs": None}, TRAINED)
    with pytest.raises(ForeignRowRejected, match="no policy versions"):
        made(PRIME_RL, ForeignRules(train=True))
    assert made({**PRIME_RL, "completion_logprobs": None}).metadata["logprobs"] == "none"
    assert made({**PRIME_RL, "version_min": 2, "version_max": 2}, ForeignRules(train=True))


def test_rows_without_both_are_trained_if_they_are_for_a_pool() -> None:
    row = {**PRIME_RL, "completion_logprobs": None}
    trajectory = made(row, ForeignRules(train=True, unscored=True))
    assert any(trajectory.loss_mask)
    assert is_unscored(trajectory)
    survey = Survey("foreign", "", train_foreign=True)
    survey.apply(Received("trajectories", 0, 0, 0, None, (), trajectory))
    assert "name the prefix in trainer.replay.pools" in survey.fault()


@pytest.mark.parametrize("named", [{"status": "aborted"}, {"cause": "infrastructure"}])
def test_a_session_that_failed_by_no_fault_of_the_policy_is_no_sample_of_its_group(
    named: dict[str, str],
) -> None:
    spoilt = made({**CHAIN, **named, "group_id": "g"}, TRAINED)

    assert spoilt.cause != "policy"
    assert spoilt.group_id == spoilt.session_id
    assert made({**CHAIN, "group_id": "g"}, TRAINED).group_id == "g"
