"""Shared groups that become sessions of a pool, and the reasons why others do not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seamlessflow.recorded.share.content import MOST_BYTES, SharedSession, canonical
from seamlessflow.recorded.share.examining import (
    LeftOut,
    Reason,
    TakingRules,
    signed_content,
    trajectories_of,
)
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.chains import ELSEWHERE
from seamlessflow.trainer.data.sessions import ValidSession, is_foreign, is_unscored
from seamlessflow.trainer.mixing.stored import StoredRules, left_out, stored_session
from tests.builders.records.control import dropped
from tests.builders.shared_groups import (
    OURS,
    STRANGERS,
    TASK,
    TASKS,
    THEIRS,
    answered,
    content_of,
    record_of,
    renderer,
    rules,
    value_of,
)

THINKING: list[dict[str, Any]] = [
    {"role": "user", "content": "key 7"},
    {"role": "assistant", "content": "code 3", "reasoning_content": "it is 3"},
    {"role": "user", "content": "again"},
    {"role": "assistant", "content": "code 4", "reasoning_content": "it is 4"},
]


def taken(value: bytes, by: TakingRules | None = None) -> list[Trajectory]:
    by = by or rules()
    return trajectories_of(signed_content(value, by), "team.shared[0]@7", by)


def texts(session: ValidSession) -> list[tuple[str, str]]:
    """Return the whole text of each chain, and that of its trained tokens."""
    return [
        (
            renderer().decode(chain.tokens.ids_T.astype("<i4").tobytes()),
            renderer().decode(chain.tokens.ids_T[chain.tokens.trained_T].astype("<i4").tobytes()),
        )
        for chain in session.chains
    ]


def in_a_pool(trajectory: Trajectory) -> ValidSession:
    """Return what a step trains of it, behind the log."""
    logged = decode(encode(trajectory))
    assert isinstance(logged, Trajectory)
    stored = StoredRules("p", ONE_REWARD, renderer().hash)
    assert left_out(logged, stored) == ""
    assert is_foreign(logged)
    assert is_unscored(logged)
    session = stored_session("pool", logged, stored, 0, 0)
    assert isinstance(session, ValidSession), session
    return session


def test_a_taken_session_is_trained_on_its_answers_alone() -> None:
    (made,) = taken(value_of(content_of()))
    session = in_a_pool(made)
    ((whole, trained),) = texts(session)
    code = answered().messages[-1]["content"]
    assert trained.count("<|im_end|>") == 2
    assert "<tool_call>" in trained
    assert code in trained
    assert "tool_response" in whole
    assert "tool_response" not in trained
    (chain,) = session.chains
    versions_T = chain.tokens.versions_T[chain.tokens.trained_T]
    assert (versions_T == ELSEWHERE).all()
    assert np.isnan(chain.tokens.logprobs_T[chain.tokens.trained_T]).all()


def test_the_judge_alone_rewards_and_their_rewards_count_for_nothing() -> None:
    wrong = (*answered().messages[:-1], {"role": "assistant", "content": "no idea"})
    group = content_of(replace(answered(), messages=wrong, reward=1.0), answered(reward=0.0))
    assert [in_a_pool(made).reward for made in taken(value_of(group))] == [0.0, 1.0]


def test_a_taken_session_names_task_group_signer_place_and_provenance() -> None:
    group = content_of(answered(), answered(reward=0.0), run="theirs", unknown="left out")
    first, second = taken(value_of(group))
    assert first.task_id == TASK
    assert first.group_id == second.group_id
    assert (first.sample, second.sample, first.group_size) == (0, 1, 2)
    assert first.session_id != second.session_id
    assert first.tokenizer_hash == renderer().hash
    assert first.metadata["signer"] == "theirs"
    assert first.metadata["foreign_place"] == "team.shared[0]@7"
    assert first.metadata["foreign_run"] == "theirs"
    assert "foreign_unknown" not in first.metadata
    again = taken(value_of(group))
    assert [made.session_id for made in again] == [first.session_id, second.session_id]


def test_a_session_whose_template_drops_thinking_has_a_branch_for_each_answer() -> None:
    group = content_of(SharedSession(tuple(THINKING), 1.0))
    (made,) = taken(value_of(group), rules(lambda task, text: 1))
    first, second = texts(in_a_pool(made))
    assert "it is 3" in first[1]
    assert "it is 3" not in second[0]
    assert "code 4" in second[1]
    assert "code 3" not in second[1]


def test_a_groups_own_key_is_known() -> None:
    assert signed_content(value_of(content_of(), OURS), rules()).signer == ""
    assert signed_content(value_of(content_of()), rules()).signer == "theirs"


TOO_LONG = content_of(SharedSession(({"role": "user", "content": "x" * MOST_BYTES},), 1.0))
OTHER_TABLE = replace(content_of(), task={**TASKS[TASK], "table": [0]})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.MALFORMED),
        (b"garbage", Reason.MALFORMED),
        (value_of(content_of())[:-1], Reason.MALFORMED),
        (encode(dropped()), Reason.MALFORMED),
        (value_of(TOO_LONG), Reason.TOO_LARGE),
        (value_of(b"x" * (MOST_BYTES + 1)), Reason.TOO_LARGE),
        (value_of(content_of(), signature=b""), Reason.UNSIGNED),
        (value_of(content_of(), signer=""), Reason.UNSIGNED),
        (value_of(content_of(), STRANGERS), Reason.UNKNOWN_SIGNER),
        (value_of(content_of(), signer="\0"), Reason.UNKNOWN_SIGNER),
        (value_of(content_of(), STRANGERS, signer=THEIRS.public), Reason.WRONG_SIGNATURE),
        (value_of(content_of(), signature=b"x"), Reason.WRONG_SIGNATURE),
        (
            value_of(content_of(), content=content_of(run="other").encode()),
            Reason.WRONG_SIGNATURE,
        ),
        (value_of(content_of(), STRANGERS, signer=OURS.public), Reason.WRONG_SIGNATURE),
        (value_of(b"{}"), Reason.MALFORMED),
        (value_of(b"[" * 100_000), Reason.MALFORMED),
        (value_of(content_of(SharedSession((), 1.0))), Reason.MALFORMED),
        (value_of(content_of(SharedSession(({"role": "robot"},), 1.0))), Reason.MALFORMED),
        (value_of(content_of(SharedSession(tuple(THINKING) * 40, 1.0))), Reason.MALFORMED),
        (
            value_of(content_of(SharedSession(answered().messages, 1.0, ({"x": 1},)))),
            Reason.MALFORMED,
        ),
        (value_of(replace(content_of(), task={"id": "unknown"})), Reason.UNKNOWN_TASK),
        (value_of(OTHER_TABLE), Reason.UNKNOWN_TASK),
    ],
)
def test_what_is_left_out_has_its_reason(value: bytes, reason: Reason) -> None:
    with pytest.raises(LeftOut) as left:
        taken(value)
    assert left.value.reason == reason, left.value
    assert str(left.value).startswith(reason)
    assert len(str(left.value)) <= 200


def raising(task: object, text: str) -> float:
    raise RuntimeError("no answer \ud800")


def ending(task: object, text: str) -> float:
    raise SystemExit(1)


@pytest.mark.parametrize(
    "judging",
    [
        raising,
        ending,
        lambda task, text: None,
        lambda task, text: "1",
        lambda task, text: float("nan"),
        lambda task, text: 10**400,
        lambda task, text: 10**5000,
        lambda task: 1.0,
    ],
)
def test_whatever_a_judge_does_leaves_out_its_group_alone(judging: Any) -> None:
    with pytest.raises(LeftOut) as left:
        taken(value_of(content_of()), rules(judging))
    assert left.value.reason == Reason.JUDGE_FAILED
    assert str(left.value).encode()


@pytest.mark.parametrize("value", [True, 1, np.float32(1)])
def test_any_number_is_a_reward(value: Any) -> None:
    (made,) = taken(value_of(content_of()), rules(lambda task, text: value))
    assert made.rewards[0].value == 1.0


def test_a_judge_sees_the_runs_own_task_and_no_call_changes_that_of_the_next() -> None:
    seen = []

    def changing(task: dict[str, Any], text: str) -> float:
        seen.append((dict(task), text))
        task.clear()
        return 1.0

    group = replace(content_of(answered(), answered()), task={"id": TASK, "hint": "theirs"})
    taken(value_of(group), rules(changing))
    assert seen == [(TASKS[TASK], answered().text)] * 2


def test_nothing_is_read_before_its_signature_is_right() -> None:
    forged = record_of(canonical({"deep": 1}), STRANGERS, signer=THEIRS.public)
    with pytest.raises(LeftOut) as left:
        signed_content(encode(forged), rules(read=raising))
    assert left.value.reason == Reason.WRONG_SIGNATURE
