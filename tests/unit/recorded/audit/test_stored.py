"""Stored sessions that steps trained, against the log that they are of; faults are planted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seamlessflow.recorded.audit.sampled_tokens import SampledSession, SampledTokens, tokens_of
from seamlessflow.recorded.audit.stored import (
    ANY_AGE,
    ELSEWHERE,
    elsewhere,
    pool_prefixes,
    sampled_session,
    steps_of_own,
    stored_names,
)
from seamlessflow.recorded.audit.trained_tokens import file_faults
from seamlessflow.recorded.audit.verify import Verification, compare, wrong_marks
from seamlessflow.schemas import records as r
from tests.builders.auditing.trained_files import LOGPROB, commit_of, file, run
from tests.builders.records import control
from tests.builders.trainer.trajectories import one_turn

STORED = "old/s"
TURN = "t-0"


def recorded(**fields: Any) -> SampledSession:
    """Return a session of another log with the tokens 3, 4, 5 of version 7."""
    made = one_turn("s", version=7)
    nodes = tuple(replace(node, turn_id=TURN) for node in made.nodes)
    logprobs = np.full(5, LOGPROB, "<f4").tobytes()
    return sampled_session(replace(made, nodes=nodes, logprobs=logprobs, **fields))


def replacing(uses: int = 0, by: str = STORED, pool: str = "old") -> r.StepGroup:
    each = r.ReplacedSession(session_id="g.0", by=by, pool=pool, uses=uses)
    return r.StepGroup(group_id="g", sessions=("g.0", "g.1"), replaced=(each,))


def checked(
    group: r.StepGroup, table: SampledTokens, versions: tuple[int, ...] = (ELSEWHERE,), **line: Any
) -> Verification:
    fields = {"tokens": [3, 4, 5], "session": STORED, "turn": TURN, **line}
    made = file(run(versions=list(versions) * 3, **fields))
    return compare([replace(commit_of(made), groups=(group,))], [made], table)


def test_tokens_of_another_log_are_compared_without_their_versions() -> None:
    table = tokens_of({STORED: recorded()})
    assert checked(replacing(), table).clean
    added = r.StepGroup(group_id="old/g", sessions=(STORED,), pool="old")
    assert checked(added, table).clean
    assert checked(replacing(), table, (7,)).mismatches == 3
    assert checked(replacing(pool="own"), table).mismatches == 3


@pytest.mark.parametrize(
    "wrong", [{"tokens": [3, 9, 5]}, {"logprobs": [LOGPROB, -0.5, LOGPROB]}, {"turn": "other"}]
)
def test_a_stored_token_that_differs_from_its_log_is_a_mismatch(wrong: dict[str, Any]) -> None:
    assert checked(replacing(), tokens_of({STORED: recorded()}), **wrong).mismatches >= 1


def test_a_session_that_its_pool_lacks_is_a_mismatch() -> None:
    assert checked(replacing(), tokens_of({})).mismatches == 3


def test_without_log_probs_of_their_sampler_tokens_have_any_but_still_their_ids() -> None:
    nodes = [replace(node, turn_id=TURN) for node in one_turn("s").nodes]
    foreign = (nodes[0], replace(nodes[1], origin="foreign"))
    session = sampled_session(replace(one_turn("s"), nodes=foreign, metadata={"logprobs": "none"}))
    table = tokens_of({STORED: session})
    assert checked(replacing(), table, logprobs=[-1.0, -2.0, -3.0]).clean
    assert checked(replacing(), table, tokens=[3, 4, 6]).mismatches == 1


def test_a_stored_session_may_be_trained_in_several_steps_and_once_in_each() -> None:
    table = tokens_of({STORED: recorded()})
    line = run([3, 4, 5], session=STORED, turn=TURN, versions=[ELSEWHERE] * 3)
    files = [file(line), file(line, step=1, version=2)]
    steps = [
        replace(commit_of(made), groups=(replacing(number),)) for number, made in enumerate(files)
    ]
    assert compare(steps, files, table).clean
    twice = [file(line, line), files[1]]
    assert compare(steps, twice, table).trained_twice == 3


def test_the_uses_of_a_stored_session_must_be_the_steps_before_it() -> None:
    def step(number: int, uses: int) -> r.StepCommitted:
        return control.committed(number, [replacing(uses)], trained_tokens={STORED: 3})

    assert list(wrong_marks([step(0, 0), step(1, 1)])) == []
    assert list(wrong_marks([step(0, 0), step(1, 0)])) == [
        "step 2 marks session old/s as trained by 0 steps before it, and 1 did"
    ]


def test_a_session_of_a_file_must_be_new_or_stored() -> None:
    made = file(run([3], session=STORED, versions=[ELSEWHERE]))
    step = replace(commit_of(made), groups=(replacing(),))
    assert list(file_faults(step, made)) == []
    assert any(
        "in none of its groups" in fault
        for fault in file_faults(replace(step, groups=(replace(replacing(), replaced=()),)), made)
    )


def test_what_is_of_another_log_follows_from_the_pool() -> None:
    groups = [
        replacing(),
        replacing(by="h.0", pool="own"),
        r.StepGroup(group_id="old/k", sessions=("old/k.0",), pool="old"),
        r.StepGroup(group_id="k", sessions=("k.0",), pool="own", reused=1),
        r.StepGroup(group_id="m", sessions=("m.0",)),
    ]
    step = control.committed(0, groups)
    assert elsewhere(step) == {STORED, "old/k.0"}
    assert stored_names(step) == {STORED, "h.0", "old/k.0", "k.0"}


@pytest.mark.parametrize(
    ("replay", "prefixes", "steps"),
    [
        ("{}", {}, 0),
        ('{"name": null, "pools": {"own": {"max_staleness": 3}}}', {}, 0),
        ('{"name": "rescue", "pools": {"own": {"max_staleness": 3}}}', {}, 3),
        ('{"name": "mix", "pools": {"own": {"max_staleness": null}}}', {}, ANY_AGE),
        ('{"name": "mix", "pools": {"old": {"prefix": "before."}}}', {"old": "before."}, 0),
    ],
)
def test_pools_are_those_of_the_recorded_settings(
    replay: str, prefixes: dict[str, str], steps: int
) -> None:
    settings = f'{{"trainer": {{"replay": {replay}}}}}'.encode()
    started = r.LineageStarted(at_ms=0, policy="p", lineage="a", step=0, settings=settings)
    assert pool_prefixes(started) == prefixes
    assert steps_of_own(started) == steps
