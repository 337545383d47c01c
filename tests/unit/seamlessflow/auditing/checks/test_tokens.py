"""Trained tokens, compared step by step with a log that goes on."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from consumers.trajectories.sessions.assemble import trajectory
from schemas import records as r
from schemas.records import Record
from schemas.topics import SESSIONS, TRAJECTORIES
from tests.builders.auditing.audited_log import AuditedLog
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.session_builder import SessionBuilder
from trainer.data.chains import chains
from trainer.data.packing import pack
from trainer.steps.trained import Header, write_trained

TOKENS = (3, 4, 5)


def events(session: str = "s", group: str = "g", tokens: Iterable[int] = TOKENS) -> list[Record]:
    own: dict[str, Any] = {"session_id": session}
    return [
        sessions.opened(**own, group_id=group),
        sessions.started(**own),
        sessions.dispatched(**own),
        sessions.completed(ids(*tokens), **own),
        sessions.closed(**own),
        sessions.finalized(**own),
    ]


def train(directory: Path, step: int, *of: list[Record], version: int = 0) -> r.StepCommitted:
    """Write the file of a step that trains these sessions; return its commit."""
    version = version or step + 1
    built = [trajectory(SessionBuilder().apply(*one).session, 0) for one in of]
    found = [chain for one in built for chain in chains(one, "p").chains]
    batches = pack(found, 64, "padded")
    lineage = "a" if version == step + 1 else "b"
    tokens = sum(len(batch) for batch in batches)
    header = Header(step=step, version=version, lineage=lineage, policy="p", tokens=tokens)
    write_trained(directory, header, [(found, batches)])
    members = [r.StepGroup(group_id=one.group_id, sessions=(one.session_id,)) for one in built]
    return control.committed(step, members, lineage=lineage, version=version)


def recorded(*of: Record) -> Record:
    return trajectory(SessionBuilder().apply(*of).session, 0)


def admitted(*groups: str) -> list[Record]:
    return [control.admitted(group) for group in groups]


def test_sampled_tokens_are_kept_until_they_are_trained(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(*admitted("g"), *events()).settle()
    assert log.counts("tokens") == (0, 3, 0, 0)

    log.put(train(tmp_path, 0, events())).settle()
    assert log.counts("tokens") == (3, 0, 0, 0)


def test_a_token_that_was_not_sampled_is_a_violation(tmp_path: Path) -> None:
    commit = train(tmp_path, 0, events(tokens=(3, 9, 5)))
    log = AuditedLog(tmp_path).put(*admitted("g"), *events(), commit).settle()

    assert log.counts("tokens") == (2, 0, 0, 1)
    [found] = log.details("tokens")
    assert found.startswith("control[0]@1: step 0, session s, turn a, token 1: id 9, log-prob")


def test_a_step_without_its_file_is_a_violation(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(control.committed(0)).settle()
    assert log.details("tokens")[0].startswith("control[0]@0: step 0, version 1, has no file")


def test_a_session_in_two_steps_is_a_violation_also_in_a_later_round(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(*admitted("g"), *events(), train(tmp_path, 0, events()))
    log.settle().put(train(tmp_path, 1, events())).settle()

    assert "session s is trained in step 1 and in an earlier one" in log.details("tokens")[0]


def test_a_step_executed_again_is_compared_with_what_it_trained_before(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(*admitted("g"), *events(), train(tmp_path, 0, events()))
    log.settle().put(train(tmp_path, 0, events(), version=2)).settle()
    assert log.counts("tokens") == (6, 0, 0, 0)

    log.put(train(tmp_path, 0, events(tokens=(3, 9, 5)), version=3)).settle()
    assert log.counts("tokens") == (6, 0, 3, 0)


def begun_with(**reuse: int) -> r.LineageStarted:
    settings = orjson.dumps({"trainer": {"reuse": reuse}})
    return r.LineageStarted(at_ms=0, policy="", lineage="a", step=0, settings=settings)


def train_again(directory: Path, step: int, reused: int, of: list[Record]) -> r.StepCommitted:
    commit = train(directory, step, of)
    return replace(commit, groups=tuple(replace(one, reused=reused) for one in commit.groups))


def test_a_session_that_is_trained_again_by_plan_is_compared_each_time(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(begun_with(groups=1, max_staleness=2), *admitted("g"))
    log.put(*events(), train(tmp_path, 0, events())).settle()
    log.put(train_again(tmp_path, 1, 1, events())).settle()
    assert log.counts("tokens") == (6, 0, 0, 0)

    log.put(train_again(tmp_path, 2, 2, events(tokens=(3, 9, 5)))).settle()
    [found] = log.details("tokens")
    assert "step 2, session s, turn a, token 1: id 9, log-prob" in found


def test_tokens_that_no_later_step_may_train_by_plan_are_not_kept(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(begun_with(groups=1, max_staleness=1), *admitted("g", "h", "i"))
    log.put(*events(), train(tmp_path, 0, events())).settle()
    for step, group in ((1, "h"), (2, "i")):
        log.put(*events(group, group), train(tmp_path, step, events(group, group))).settle()
    assert log.counts("tokens") == (9, 0, 0, 0)

    log.put(train_again(tmp_path, 3, 1, events())).settle()
    assert log.counts("tokens") == (9, 0, 3, 0)


def test_tokens_of_dropped_groups_and_of_evaluations_are_not_kept(tmp_path: Path) -> None:
    evaluated = [sessions.opened(session_id="e", purpose="eval"), *events("e")[1:]]
    log = AuditedLog(tmp_path).put(*admitted("g"), *events(), *evaluated).settle()
    assert log.counts("tokens")[1] == 3

    assert log.put(control.dropped("g")).settle().counts("tokens")[1] == 0


def test_no_more_tokens_are_kept_than_the_limit(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path, most_tokens=4).put(*admitted("g", "h"), *events())
    log.put(*events("t", "h")).settle()
    assert log.counts("tokens")[1] == 3

    log.put(train(tmp_path, 0, events(), events("t", "h"))).settle()
    assert log.counts("tokens") == (3, 0, 3, 0)


def test_a_session_whose_beginning_was_removed_cannot_be_checked(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(*admitted("g")).cut(SESSIONS.name)
    log.put(*events()[3:], train(tmp_path, 0, events())).settle()
    assert log.counts("tokens") == (0, 0, 3, 0)


def test_tokens_of_a_recording_are_those_of_its_trajectories(tmp_path: Path) -> None:
    began, again = sessions.interrupted(ids(3)), sessions.dispatched(dispatch=2, from_offset=1)
    rest = sessions.completed(ids(4, 5), token_offset=1, dispatch=2)
    two_nodes = [*events()[:3], began, again, rest, *events()[4:]]
    log = AuditedLog(tmp_path, recorded=True).put(
        recorded(*two_nodes), train(tmp_path, 0, two_nodes)
    )
    assert log.settle().counts("tokens") == (3, 0, 0, 0)
    assert log.report.clean

    log.put(recorded(*events("t")), train(tmp_path, 1, events("t", tokens=(3, 9, 5)))).settle()
    [found] = log.details("tokens")
    assert found.startswith("control[0]@1: step 1, session t, turn a, token 1: id 9, log-prob")


def test_only_sessions_of_another_system_may_be_marked_as_foreign(tmp_path: Path) -> None:
    commit = train(tmp_path, 0, events())
    marked = replace(commit, groups=(replace(commit.groups[0], foreign=("s",)),))
    own = recorded(*events())
    assert isinstance(own, r.Trajectory)
    imported = replace(
        own,
        nodes=tuple(
            replace(one, origin="foreign") if one.origin == "policy" else one for one in own.nodes
        ),
    )

    assert (
        AuditedLog(tmp_path, recorded=True).put(imported, marked).settle().details("tokens") == []
    )
    live = AuditedLog(tmp_path).put(*admitted("g"), *events())
    for log in (AuditedLog(tmp_path, recorded=True).put(own), live):
        [found] = log.put(marked).settle().details("tokens")
        assert "session s is marked as foreign, but all of it was sampled here" in found


def test_a_trained_session_that_was_never_recorded_is_a_violation(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path, recorded=True).put(train(tmp_path, 0, events())).settle()
    assert log.counts("tokens") == (0, 0, 0, 3)

    log = AuditedLog(tmp_path, recorded=True).cut(TRAJECTORIES.name)
    assert log.put(train(tmp_path, 0, events())).settle().counts("tokens") == (0, 0, 3, 0)
