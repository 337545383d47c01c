"""Trained tokens, compared step by step with a log that goes on."""

import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES
from seamlessflow.trainer.data.chains import chains
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.steps.trained import Header, file_name, write_trained
from tests.builders.auditing.audited_log import AuditedLog
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.session_builder import SessionBuilder

TOKENS = (3, 4, 5)


def events(session: str = "s", group: str = "g", tokens: Iterable[int] = TOKENS) -> list[Record]:
    fields: dict[str, Any] = {"session_id": session}
    return [
        sessions.opened(**fields, group_id=group),
        sessions.started(**fields),
        sessions.dispatched(**fields),
        sessions.completed(ids(*tokens), **fields),
        sessions.closed(**fields),
        sessions.finalized(**fields),
    ]


def train(directory: Path, step: int, *logs: list[Record], version: int = 0) -> r.StepCommitted:
    """Write the file of a step that trains these sessions; return its commit."""
    version = version or step + 1
    built = [trajectory(SessionBuilder().apply(*log).session, 0) for log in logs]
    trained_chains = [chain for session in built for chain in chains(session, "p").chains]
    batches = pack(trained_chains, 64, "padded")
    lineage = "a" if version == step + 1 else "b"
    tokens = sum(len(batch) for batch in batches)
    header = Header(step=step, version=version, lineage=lineage, policy="p", tokens=tokens)
    sha256 = write_trained(directory, header, [(trained_chains, batches)])
    members = [
        r.StepGroup(group_id=session.group_id, sessions=(session.session_id,)) for session in built
    ]
    counts = Counter[str]()
    for chain in trained_chains:
        counts[chain.session_id] += chain.trained()
    fields: dict[str, Any] = {"trained_tokens": counts, "trained_sha256": sha256}
    return control.committed(step, members, lineage=lineage, version=version, **fields)


def rewrite(directory: Path, alter: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Change the lines of the file of the first step."""
    path = directory / file_name(0, 1)
    lines = [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    alter(lines)
    path.write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, lines)) + b"\n"))


def recorded(*log: Record) -> Record:
    return trajectory(SessionBuilder().apply(*log).session, 0)


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
    [violation] = log.details("tokens")
    assert violation.startswith("control[0]@1: step 1, session s, turn a, token 1: id 9, log-prob")


def test_a_step_without_its_file_is_a_violation(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(control.committed(0)).settle()
    assert log.details("tokens")[0].startswith("control[0]@0: step 1, version 1, has no file")


def test_a_session_in_two_steps_is_a_violation_also_in_a_later_round(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(*admitted("g"), *events(), train(tmp_path, 0, events()))
    log.settle().put(train(tmp_path, 1, events())).settle()

    assert "session s is trained in step 2 and in an earlier one" in log.details("tokens")[0]


def test_a_step_executed_again_is_compared_with_what_it_trained_before(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(*admitted("g"), *events(), train(tmp_path, 0, events()))
    log.settle().put(train(tmp_path, 0, events(), version=2)).settle()
    assert log.counts("tokens") == (6, 0, 0, 0)

    log.put(train(tmp_path, 0, events(tokens=(3, 9, 5)), version=3)).settle()
    assert log.counts("tokens") == (6, 0, 3, 0)


def begun_with(**reuse: int) -> r.LineageStarted:
    settings = orjson.dumps({"trainer": {"reuse": reuse}})
    return r.LineageStarted(at_ms=0, policy="", lineage="a", step=0, settings=settings)


def train_again(directory: Path, step: int, reused: int, log: list[Record]) -> r.StepCommitted:
    commit = train(directory, step, log)
    return replace(commit, groups=tuple(replace(group, reused=reused) for group in commit.groups))


def test_a_session_that_is_trained_again_by_plan_is_compared_each_time(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path).put(begun_with(groups=1, max_staleness=2), *admitted("g"))
    log.put(*events(), train(tmp_path, 0, events())).settle()
    log.put(train_again(tmp_path, 1, 1, events())).settle()
    assert log.counts("tokens") == (6, 0, 0, 0)

    log.put(train_again(tmp_path, 2, 2, events(tokens=(3, 9, 5)))).settle()
    [violation] = log.details("tokens")
    assert "step 3, session s, turn a, token 1: id 9, log-prob" in violation


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
    [violation] = log.details("tokens")
    assert violation.startswith("control[0]@1: step 2, session t, turn a, token 1: id 9, log-prob")


def test_only_sessions_of_another_system_may_be_marked_as_foreign(tmp_path: Path) -> None:
    commit = train(tmp_path, 0, events())
    marked = replace(commit, groups=(replace(commit.groups[0], foreign=("s",)),))
    original = recorded(*events())
    assert isinstance(original, r.Trajectory)
    imported = replace(
        original,
        nodes=tuple(
            replace(node, origin="foreign") if node.origin == "policy" else node
            for node in original.nodes
        ),
    )

    assert (
        AuditedLog(tmp_path, recorded=True).put(imported, marked).settle().details("tokens") == []
    )
    live = AuditedLog(tmp_path).put(*admitted("g"), *events())
    for log in (AuditedLog(tmp_path, recorded=True).put(original), live):
        [violation] = log.put(marked).settle().details("tokens")
        assert "session s is marked as foreign, but all of it was sampled here" in violation


def test_a_trained_session_that_was_never_recorded_is_a_violation(tmp_path: Path) -> None:
    log = AuditedLog(tmp_path, recorded=True).put(train(tmp_path, 0, events())).settle()
    assert log.counts("tokens") == (0, 0, 0, 3)

    log = AuditedLog(tmp_path, recorded=True).cut(TRAJECTORIES.name)
    assert log.put(train(tmp_path, 0, events())).settle().counts("tokens") == (0, 0, 3, 0)


def evaluated(session: str = "e") -> list[Record]:
    opened = sessions.opened(session_id=session, purpose="eval", group_id="round")
    return [opened, *events(session)[1:]]


def two_trained(directory: Path) -> tuple[AuditedLog, r.StepCommitted]:
    """Return a log with two trained sessions and one of an evaluation, and the commit of both."""
    both = events(), events("t", "h")
    log = AuditedLog(directory).put(*admitted("g", "h"), *both[0], *both[1], *evaluated())
    return log, train(directory, 0, *both)


NOT_COMMITTED = "step 1: its file is not the one that it committed"
LEFT_OUT = "step 1: its file has 0 tokens of session t, and it committed 3"
OF_EVALUATION = "step 1: its file has session e, which is in none of its groups"


def leave_out(lines: list[dict[str, Any]]) -> None:
    del lines[2]


def leave_out_and_count(lines: list[dict[str, Any]]) -> None:
    leave_out(lines)
    lines[0]["tokens"] -= 3


def add_evaluation(lines: list[dict[str, Any]]) -> None:
    lines.append({**lines[1], "session": "e"})


def put_evaluation_in_place(lines: list[dict[str, Any]]) -> None:
    lines[2]["session"] = "e"


@pytest.mark.parametrize(
    ("alter", "shown"),
    [
        (leave_out, LEFT_OUT),
        (leave_out_and_count, LEFT_OUT),
        (add_evaluation, OF_EVALUATION),
        (put_evaluation_in_place, OF_EVALUATION),
        (lambda lines: lines[1].update(advantage=0.25), NOT_COMMITTED),
        (lambda lines: lines[1].update(advantage=[1.0, 1.0, 0.5]), NOT_COMMITTED),
        (lambda lines: lines[1].update(temperature=0.5), NOT_COMMITTED),
        (lambda lines: lines.insert(1, lines.pop()), NOT_COMMITTED),
        (lambda lines: lines[0].update(tokens=7), "its file has 6 tokens, and its first line says"),
        (lambda lines: lines[2].pop("ids"), "cannot be read: "),
    ],
)
def test_a_file_that_is_not_what_its_step_committed_is_a_violation(
    alter: Callable[[list[dict[str, Any]]], Any], shown: str, tmp_path: Path
) -> None:
    log, commit = two_trained(tmp_path)
    rewrite(tmp_path, alter)
    violations = log.put(commit).settle().details("tokens")
    assert any(shown in violation for violation in violations), violations


def test_a_file_that_was_only_packed_anew_is_none(tmp_path: Path) -> None:
    log, commit = two_trained(tmp_path)
    path = tmp_path / file_name(0, 1)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))
    assert log.put(commit).settle().counts("tokens") == (6, 0, 0, 0)


@pytest.mark.parametrize("length", [0, 7, 60])
def test_a_file_that_was_cut_is_a_violation(length: int, tmp_path: Path) -> None:
    log, commit = two_trained(tmp_path)
    path = tmp_path / file_name(0, 1)
    path.write_bytes(path.read_bytes()[:length])
    assert "cannot be read" in log.put(commit).settle().details("tokens")[0]


@pytest.mark.parametrize(
    ("alter", "shown"),
    [
        (leave_out, "its file has 3 tokens, and its first line says 6"),
        (add_evaluation, OF_EVALUATION),
    ],
)
def test_a_step_of_an_earlier_release_is_held_against_what_it_recorded(
    alter: Callable[[list[dict[str, Any]]], None], shown: str, tmp_path: Path
) -> None:
    log, commit = two_trained(tmp_path)
    rewrite(tmp_path, alter)
    earlier = replace(commit, trained_tokens={}, trained_sha256="")
    violations = log.put(earlier).settle().details("tokens")
    assert any(shown in violation for violation in violations), violations


def test_a_session_is_trained_in_the_group_in_which_it_was_opened(tmp_path: Path) -> None:
    of_evaluation = train(tmp_path, 0, evaluated())
    members = (replace(of_evaluation.groups[0], group_id="g"),)
    log = AuditedLog(tmp_path).put(*admitted("g"), *evaluated())
    log.put(replace(of_evaluation, groups=members)).settle()
    [violation] = log.details("tokens")
    assert violation.endswith("step 1: session e is of no training, and stands in group g")

    elsewhere = AuditedLog(tmp_path).put(*admitted("g", "h"), *events(group="h"))
    commit = train(tmp_path, 0, events(group="g"))
    [violation] = elsewhere.put(commit).settle().details("tokens")
    assert violation.endswith("step 1: session s is of group h, and stands in group g")
