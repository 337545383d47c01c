"""Tokens that a later step trains again by plan, and tokens that are trained twice by mistake."""

from dataclasses import replace
from typing import Any

from seamlessflow.recorded.audit.sampled_tokens import sampled_tokens
from seamlessflow.recorded.audit.verify import compare, wrong_marks
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import StepGroup
from tests.builders.auditing.trained_files import WHOLE_TURN, commit_of, file, run
from tests.builders.records import control, sessions

GROUP: dict[str, Any] = {"group_id": "g-0", "sessions": (sessions.SESSION,)}


def test_a_token_of_a_group_that_a_step_trains_again_by_plan_may_be_in_it_once_more() -> None:
    """Holds invariant I6."""
    first, second = file(run([3, 4])), file(run([3]), step=1, version=2)
    commit, again = (
        replace(commit_of(trained_file), groups=(StepGroup(**GROUP, reused=reused),))
        for reused, trained_file in enumerate((first, second))
    )
    table = sampled_tokens((0, event) for event in WHOLE_TURN)

    assert compare([commit, again], [first, second], table).clean
    assert compare([commit, replace(again, groups=())], [first, second], table).trained_twice == 1
    twice = file(run([3]), run([3]), step=1, version=2)
    assert compare([commit, again], [first, twice], table).trained_twice == 1
    other = file(run([9]), step=1, version=2)
    assert compare([commit, again], [first, other], table).mismatches == 1


def test_a_mark_of_reuse_must_be_the_number_of_steps_before_it() -> None:
    def step(number: int, reused: int, policy: str = "p") -> r.StepCommitted:
        group = StepGroup(**GROUP, reused=reused)
        return control.committed(number, [group], policy=policy)

    assert list(wrong_marks([step(0, 0), step(1, 1), step(2, 2)])) == []
    assert list(wrong_marks([step(0, 0), step(1, 0)])) == [], "its tokens are found twice"
    assert list(wrong_marks([step(0, 0), step(1, 2)])) == [
        "step 2 marks group g-0 as trained by 2 steps before it, and 1 did"
    ]
    assert len(list(wrong_marks([step(0, 0), step(1, 1, policy="other")]))) == 1
