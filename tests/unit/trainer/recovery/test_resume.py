"""After a restart: steps on the log are executed again, once, and nothing else."""

import json
from dataclasses import replace

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, StepGroup
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import (
    Origin,
    StepNotRecorded,
    changes,
    layout_of_run,
    resume_from,
    surviving,
)
from tests.builders.records import control


def committed(
    step: int, version: int, lineage: str = "a", parent: str = "", *groups: str
) -> r.StepCommitted:
    named = groups or (f"g-{step}",)
    members = tuple(StepGroup(group_id=name, sessions=(f"{name}.0.0",)) for name in named)
    return control.committed(step, members, version=version, lineage=lineage, parent_lineage=parent)


def admitted(group: str, purpose: str = "train") -> r.GroupAdmitted:
    return control.admitted(group, purpose=purpose, version=2, deadline_ms=50)


def ready(group: str) -> r.GroupReady:
    return control.ready(group, sessions=(f"{group}.0.1",))


def published(version: int, step: int, policy: str = "tiny") -> r.WeightsPublished:
    place = {"directory": f"/w/{version}", "manifest_sha256": "x"}
    return control.published(version, step=step, policy=policy, **place)


def folded(*records: Record) -> ControlState:
    state = ControlState("tiny")
    for offset, record in enumerate(records):
        state.apply(record, offset)
    return state


FOUR_STEPS = [published(0, 0), *(committed(step, step + 1) for step in range(4))]


def test_a_run_that_began_with_padded_steps_goes_on_with_them_unless_told_otherwise() -> None:
    assert layout_of_run("auto", before="padded", able="auto") == "padded"
    assert layout_of_run("auto", before="auto", able="auto") == "auto"
    assert layout_of_run("auto", before="auto", able="padded") == "padded"
    assert layout_of_run("tree", before="padded", able="tree") == "tree"


def test_a_first_start_has_nothing_to_do_again() -> None:
    resume = resume_from(folded(), Origin(), "a")
    assert (resume.again, resume.next_version) == ({}, 1)


def test_steps_behind_the_checkpoint_are_done_again_under_new_versions() -> None:
    resume = resume_from(folded(*FOUR_STEPS), Origin(2, 2, "a"), "b")
    assert [(step, commit and list(commit.groups)) for step, commit in resume.again.items()] == [
        (2, ["g-2"]),
        (3, ["g-3"]),
    ]
    assert resume.next_version == 5
    assert resume.settled == {"g-0", "g-1"}
    assert resume.fixed == {"g-2": ("g-2.0.0",), "g-3": ("g-3.0.0",)}


def test_after_a_second_crash_the_newest_record_of_each_step_counts() -> None:
    again = committed(2, 5, "b", "a")
    resume = resume_from(folded(*FOUR_STEPS, again), Origin(2, 2, "a"), "c")
    assert [commit and commit.version for commit in resume.again.values()] == [5, 4]
    assert resume.next_version == 6


def test_groups_recorded_as_ready_keep_their_sessions() -> None:
    resume = resume_from(
        folded(ready("g-8"), ready("g-9"), control.dropped("g-9", "expired")), Origin(), "b"
    )
    assert resume.fixed == {"g-8": ("g-8.0.1",)}
    assert "g-9" in resume.settled


def test_a_skipped_step_is_skipped_again() -> None:
    state = folded(published(0, 0), committed(0, 1), control.skipped(1), committed(2, 2))
    resume = resume_from(state, Origin(), "b")
    assert [commit and commit.version for commit in resume.again.values()] == [1, None, 2]
    assert state.steps_of == {0: 0, 1: 2, 2: 3}


def test_a_log_without_a_step_is_a_typed_error() -> None:
    with pytest.raises(StepNotRecorded) as raised:
        resume_from(folded(committed(3, 4)), Origin(2, 2, "a"), "b")
    assert raised.value.step == 2


def test_a_checkpoint_carries_the_history_and_forgets_what_is_over() -> None:
    state = folded(
        *FOUR_STEPS,
        admitted("g-4"),
        admitted("g-5"),
        admitted("g-6"),
        ready("g-5"),
        control.expired("g-6"),
        control.dropped("g-7", "expired"),
        control.skipped(4),
    )
    state.settle(2)
    back = ControlState.from_json(json.loads(json.dumps(state.to_json())))
    assert back == state
    assert back.over == {"g-0", "g-1", "g-7"}
    assert list(back.commits) == [2, 3]
    assert list(back.under_way) == ["g-4", "g-6"]
    assert resume_from(back, Origin(2, 2, "a"), "b").settled == {"g-0", "g-1", "g-7"}


def test_repeated_records_change_nothing() -> None:
    records = [
        *FOUR_STEPS,
        admitted("g-9"),
        ready("g-9"),
        control.expired("g-9"),
        control.expired("g-8"),
    ]
    once, twice = folded(*records), folded(*records, *records)
    twice.offset = once.offset
    assert twice == once


def test_groups_under_way_are_those_neither_ready_nor_over() -> None:
    state = folded(admitted("g-1"), admitted("g-2"), admitted("e", "eval"), ready("g-1"))
    assert list(state.under_way) == ["g-2"]
    state.apply(committed(0, 1, "a", "", "g-2"), 9)
    assert state.under_way == {}


def test_an_evaluation_group_is_over_when_it_is_ready() -> None:
    state = folded(admitted("e", "eval"), ready("e"), ready("e"))
    assert (state.over, state.ready) == ({"e"}, {})
    (over,) = state.rounds.values()
    assert (over.open, over.groups) == ({}, 1)


def test_weights_of_other_policies_are_not_ours() -> None:
    state = folded(published(0, 0), published(9, 9, "other"))
    assert state.published is not None and state.published.version == 0
    assert state.highest_version == 0


def test_in_the_surviving_lineage_every_group_is_in_one_step() -> None:
    log = [
        *(committed(step, step + 1) for step in range(4)),
        committed(2, 5, "b", "a"),
        committed(2, 6, "c", "a"),
        committed(3, 7, "c", "a"),
        committed(4, 8, "c", "a"),
    ]
    commits = surviving(log)
    assert [(commit.step, commit.version) for commit in commits] == [
        (0, 1),
        (1, 2),
        (2, 6),
        (3, 7),
        (4, 8),
    ]
    groups = [group.group_id for commit in commits for group in commit.groups]
    assert sorted(groups) == sorted(set(groups))
    assert surviving([]) == []


def test_steps_that_are_executed_again_with_other_methods_are_told_with_the_setting() -> None:
    grpo = r.StepMethod(kind="advantage", name="grpo")
    rloo = r.StepMethod(kind="advantage", name="rloo")
    recorded = replace(committed(3, 4), methods=(grpo,))
    resume = resume_from(folded(committed(2, 3), recorded, committed(4, 5)), Origin(2), "b")
    assert changes(resume, (grpo,)) == ""
    message = changes(resume, (rloo,))
    assert "1 recorded steps, from step 4 on" in message
    assert "advantage was grpo, is rloo (trainer.advantage, trainer.returns, " in message
    assert "new lineage b" in message
