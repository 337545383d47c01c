"""Grouping: sessions in, ready and dropped groups out, the same however records repeat."""

from dataclasses import replace

from seamlessflow.schemas.records import GroupDropped, GroupReady, Record, SampleFailed, Trajectory
from seamlessflow.trainer.data.grouping import Grouping
from seamlessflow.trainer.data.sessions import read
from tests.builders.trainer.trajectories import one_turn


def session(
    sample: int = 0,
    attempt: int = 0,
    reward: float | None = 1.0,
    group: str = "g-0",
    size: int = 2,
    fewest: int = 1,
    **fields: object,
) -> Trajectory:
    name = f"{group}.{sample}.{attempt}"
    return one_turn(
        name,
        reward,
        group=group,
        sample=sample,
        attempt=attempt,
        group_size=size,
        min_group_size=fewest,
        **fields,  # type: ignore[arg-type]
    )


def feed(grouping: Grouping, *trajectories: Trajectory) -> list[Record]:
    return [
        record
        for number, trajectory in enumerate(trajectories)
        for record in grouping.add(read(trajectory, "tiny", 0, number), now_ms=5)
    ]


def test_a_group_is_ready_with_its_last_session() -> None:
    grouping = Grouping()
    assert feed(grouping, session(0)) == []
    (ready,) = feed(grouping, session(1, reward=0.0))
    assert ready == GroupReady(
        at_ms=5,
        group_id="g-0",
        sessions=("g-0.0.0", "g-0.1.0"),
        reward_mean=0.5,
        reward_std=0.5,
        version_min=0,
        trainable_tokens=6,
        passed=1,
        returns=(1.0, 0.0),
        turns=(1, 1),
        first_offsets=(0, 0),
        lengths=(3, 3),
    )
    assert list(grouping.ready) == ["g-0"]


def test_a_repeated_session_changes_nothing() -> None:
    """Holds invariant I4."""
    grouping = Grouping()
    assert feed(grouping, session(0), session(0)) == []
    assert grouping.ignored == {"duplicate": 1}


def test_a_spoilt_session_leaves_its_group_and_is_tried_again() -> None:
    grouping = Grouping()
    failed, ready = feed(
        grouping, session(0, cause="infrastructure"), session(0, attempt=1), session(1)
    )
    assert isinstance(failed, SampleFailed)
    assert (failed.sample, failed.attempt, failed.cause) == (0, 0, "infrastructure")
    assert isinstance(ready, GroupReady)
    assert ready.sessions == ("g-0.0.1", "g-0.1.0")


def test_a_group_ends_at_once_when_no_attempt_is_left_at_the_sample_that_it_misses() -> None:
    grouping = Grouping(attempts=2)
    first = feed(grouping, session(0), session(1, cause="environment"))
    assert [type(record) for record in first] == [SampleFailed]
    _, ready = feed(grouping, session(1, attempt=1, cause="environment"))
    assert isinstance(ready, GroupReady)
    assert ready.sessions == ("g-0.0.0",)


def test_a_group_begun_with_more_samples_is_complete_with_those_it_asks_for() -> None:
    grouping = Grouping(attempts=1, redundancy=1)
    _, ready = feed(grouping, session(0, cause="environment"), session(2), session(1))
    assert isinstance(ready, GroupReady), "however long one hangs"
    assert ready.sessions == ("g-0.1.0", "g-0.2.0")
    assert feed(grouping, session(0, attempt=1, cause="setting")) == []
    assert grouping.ignored == {"late": 1}


def test_a_group_begun_with_more_samples_waits_for_all_of_them_before_it_ends_with_fewer() -> None:
    grouping = Grouping(attempts=1, redundancy=1)
    lost = [session(sample, cause="environment") for sample in (0, 1)]
    assert [type(record) for record in feed(grouping, *lost)] == [SampleFailed] * 2
    (ready,) = feed(grouping, session(2))
    assert isinstance(ready, GroupReady)
    evaluation = [
        replace(trajectory, purpose="eval", group_id="e-0") for trajectory in (lost[0], session(1))
    ]
    assert [type(record) for record in feed(grouping, *evaluation)] == [SampleFailed, GroupReady]


def test_a_group_whose_last_session_comes_after_the_last_failure_ends_with_it() -> None:
    grouping = Grouping(attempts=1)
    failed, ready = feed(grouping, session(0, cause="environment"), session(1))
    assert isinstance(failed, SampleFailed)
    assert isinstance(ready, GroupReady)


def test_a_group_with_too_few_sessions_is_dropped_when_no_attempt_is_left() -> None:
    grouping = Grouping(attempts=1)
    *_, dropped = feed(grouping, session(0, fewest=2), session(1, fewest=2, cause="infrastructure"))
    assert isinstance(dropped, GroupDropped)
    detail = "1 sessions and no attempt left, 1 spoilt by infrastructure"
    assert (dropped.reason, dropped.detail) == ("too_few", detail)


def test_a_dropped_group_names_its_newest_failure() -> None:
    raised = [
        replace(session(sample, cause="environment"), reason=f"Traceback:\n  here\nError: {sample}")
        for sample in (1, 0)
    ]
    *_, dropped = feed(Grouping(attempts=1), *raised)
    assert isinstance(dropped, GroupDropped)
    detail = "0 sessions and no attempt left, 2 spoilt by environment: Error: 0"
    assert (dropped.reason, dropped.detail) == ("failed", detail)


def test_a_group_that_failed_entirely_is_tried_again_and_not_kept_until_its_deadline() -> None:
    grouping = Grouping(attempts=1)
    *_, dropped = feed(grouping, session(0, cause="environment"), session(1, cause="environment"))
    assert isinstance(dropped, GroupDropped)
    assert dropped.reason == "failed"


def test_a_sample_that_the_settings_leave_out_is_not_waited_for() -> None:
    grouping = Grouping(attempts=2)
    failed, ready = feed(grouping, session(0), session(1, cause="setting", status="timeout"))
    assert isinstance(failed, SampleFailed)
    assert isinstance(ready, GroupReady)
    assert ready.sessions == ("g-0.0.0",)


def test_a_restarted_trainer_reads_failed_attempts_of_open_groups_again() -> None:
    grouping = Grouping(attempts=2)
    feed(grouping, session(0, cause="environment"))
    assert [source.session_id for source in grouping.held()] == ["g-0.0.0"]


def test_the_first_valid_session_of_a_sample_counts() -> None:
    """Holds invariant I6."""
    grouping = Grouping()
    (ready,) = feed(grouping, session(0, attempt=1), session(0, attempt=0), session(1))
    assert isinstance(ready, GroupReady)
    assert ready.sessions == ("g-0.0.1", "g-0.1.0")
    assert grouping.ignored == {"sample_taken": 1}


def test_a_session_without_a_judgement_does_not_count() -> None:
    (failed,) = feed(Grouping(), session(0, reward=None, status="unrewarded"))
    assert isinstance(failed, SampleFailed) and failed.cause == "environment"
    assert failed.detail == "unrewarded: closed without the reward 'reward'; it has no other one"


def test_a_judge_that_failed_drops_the_group_whatever_its_other_sessions_are() -> None:
    grouping = Grouping()
    why = "judge kind: no reward in time"
    spoilt = replace(session(1, size=3), cause="judge", status="unrewarded", reason=why)

    failed, dropped = feed(grouping, session(0, size=3), spoilt)

    assert isinstance(failed, SampleFailed) and (failed.cause, failed.detail) == ("judge", why)
    assert isinstance(dropped, GroupDropped)
    assert (dropped.reason, dropped.detail) == ("judge_failed", why)
    assert feed(grouping, session(1, attempt=1, size=3), session(2, size=3)) == []
    assert grouping.ignored == {"late": 2}


def test_a_session_the_policy_spoilt_returns_zero() -> None:
    (ready,) = feed(Grouping(), session(0, reward=None, status="truncated", size=1))
    assert isinstance(ready, GroupReady) and ready.reward_mean == 0


def test_an_expired_group_with_enough_sessions_is_ready() -> None:
    grouping = Grouping()
    feed(grouping, session(0, size=3, fewest=2), session(1, size=3, fewest=2))
    (ready,) = grouping.expire("g-0", 9)
    assert isinstance(ready, GroupReady) and len(ready.sessions) == 2


def test_an_expired_group_with_too_few_sessions_is_dropped() -> None:
    grouping = Grouping()
    feed(grouping, session(0, size=3, fewest=2))
    (dropped,) = grouping.expire("g-0", 9)
    assert isinstance(dropped, GroupDropped) and dropped.reason == "expired"
    assert feed(grouping, session(1, size=3, fewest=2)) == []
    assert grouping.ignored == {"late": 1}


def test_an_expired_group_of_which_nothing_came_is_dropped() -> None:
    (dropped,) = Grouping().expire("g-7", 9)
    assert isinstance(dropped, GroupDropped) and dropped.group_id == "g-7"


def test_an_expired_group_of_which_all_failed_is_dropped_as_failed() -> None:
    grouping = Grouping()
    feed(grouping, session(0, cause="infrastructure"))
    (dropped,) = grouping.expire("g-0", 9)
    assert isinstance(dropped, GroupDropped) and dropped.reason == "failed"
    assert "spoilt by infrastructure" in dropped.detail


def test_advice_that_comes_too_late_changes_nothing() -> None:
    grouping = Grouping()
    feed(grouping, session(0), session(1))
    assert grouping.expire("g-0", 9) == []
    grouping.settle("g-0")
    assert grouping.expire("g-0", 9) == []


def test_an_evaluation_group_is_ready_and_never_trained() -> None:
    grouping = Grouping()
    (ready,) = feed(grouping, session(0, purpose="eval"), session(1, purpose="eval"))
    assert isinstance(ready, GroupReady)
    assert ready.prompt_tokens == (2, 2)
    assert grouping.ready == {}
    assert feed(grouping, session(1, purpose="eval")) == []


def test_an_explored_group_is_ready_with_its_texts_and_never_trained() -> None:
    grouping = Grouping(redundancy=1)
    first, second, other = (session(0, size=3), session(1, size=3), one_turn("other", group="g-0"))
    third = replace(other, sample=2, group_size=3, tokens=other.tokens[::-1])
    (ready,) = feed(
        grouping, *(replace(each, purpose="explore") for each in (first, second, third))
    )
    assert isinstance(ready, GroupReady)
    assert grouping.ready == {}
    assert ready.texts[0] == ready.texts[1] != ready.texts[2]


def test_a_session_without_a_group_is_a_group_of_its_own() -> None:
    (ready,) = feed(Grouping(), one_turn("lonely", group=""))
    assert isinstance(ready, GroupReady) and ready.group_id == "lonely"


def test_groups_that_are_over_take_no_session_after_a_restart() -> None:
    assert feed(Grouping(settled=["g-0"]), session(0, size=1)) == []


def test_a_group_recorded_as_ready_gets_the_same_sessions_again_and_is_not_reported_twice() -> None:
    grouping = Grouping(fixed={"g-0": ("g-0.1.0", "g-0.0.1")})
    assert feed(grouping, session(0), session(0, attempt=1), session(1)) == []
    members = [member.source.session_id for member in grouping.ready["g-0"].sessions]
    assert members == ["g-0.1.0", "g-0.0.1"]
    assert grouping.ignored == {"not_a_member": 1}


def test_sessions_are_held_until_their_group_is_over() -> None:
    grouping = Grouping()
    feed(grouping, session(0), session(1), session(0, group="g-1"))
    assert sorted(source.session_id for source in grouping.held()) == [
        "g-0.0.0",
        "g-0.1.0",
        "g-1.0.0",
    ]
    grouping.settle("g-0")
    assert [source.session_id for source in grouping.held()] == ["g-1.0.0"]
