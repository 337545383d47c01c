"""Requests for judgements: they follow from the log, wherever a reward worker begins to read it."""

import random

from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.recorded.judging.requests import JudgementKey, Over, reward_commands
from seamlessflow.recorded.judging.verdict import Rewarded, Unrewarded
from seamlessflow.schemas import records as r
from tests.builders.judging import ended_session, requested, reward_of
from tests.builders.records.sessions import claimed, finalized, refused
from tests.seed import seed


def test_an_end_that_names_judges_is_a_request_for_each_of_them_once() -> None:
    partition = requested(ended_session("kind", "brief"))

    first, second = partition.take_due()

    assert {first.key, second.key} == {JudgementKey("s", "kind"), JudgementKey("s", "brief")}
    assert first.deadline_ms == 9_000
    assert first.session is second.session and first.session.messages[-1]["content"] == "hello"
    assert list(partition.take_due()) == []


def test_an_end_without_judges_is_no_request() -> None:
    assert list(requested(ended_session()).take_due()) == []


def test_a_judge_that_has_answered_is_not_asked_by_the_next_owner() -> None:
    for answer in (reward_of("kind"), reward_of("kind", failure="prose")):
        partition = requested([*ended_session("kind", "brief"), answer])
        assert [judgement.key.judge for judgement in partition.take_due()] == ["brief"]


def test_a_session_that_has_ended_asks_for_nothing() -> None:
    partition = requested([*ended_session("kind"), finalized(reason="judge_failed")])
    assert list(partition.take_due()) == []
    assert partition.rebuild_from == (6, -1)


def test_a_judgement_is_over_with_its_reward_and_late_with_its_session() -> None:
    events = ended_session("kind", "brief")
    partition = requested(events)
    assert len(list(partition.take_due())) == 2
    offset = len(events)

    assert partition.apply(reward_of("kind"), offset) == Over([JudgementKey("s", "kind")])
    assert partition.apply(reward_of("kind", 0.0), offset + 1) == Over()
    assert partition.apply(finalized(), offset + 2) == Over([JudgementKey("s", "brief")], True)
    assert partition.keys == []


def test_events_of_an_owner_that_was_replaced_ask_for_nothing() -> None:
    *before, end = ended_session("kind")
    partition = requested([*before, claimed(2, "other"), end])
    assert list(partition.take_due()) == []


def test_the_next_owner_begins_at_the_oldest_open_session() -> None:
    events = [*ended_session("kind", session="a"), *ended_session("kind", session="b")]
    partition = requested(events, begin=100)

    assert partition.rebuild_from == (100, 1)
    partition.apply(finalized(session_id="a"), 110)
    assert partition.rebuild_from == (105, 1)
    partition.apply(finalized(session_id="b"), 111)
    assert partition.rebuild_from == (112, -1)


def test_rewards_that_the_manager_refused_are_counted() -> None:
    refusals = [
        refused(command_id="s.judge.kind", reason="session_closed"),
        refused(command_id="gone.judge.kind", session_id="gone", reason="unknown_session"),
        refused(command_id="a-turn", reason="session_closed"),
    ]
    assert requested(refusals).refused == ["session_closed", "unknown_session"]


def test_a_reward_has_one_id_whoever_sends_it_and_time_to_be_refused() -> None:
    key = JudgementKey("s", "kind")
    (rewarded,) = reward_commands(key, Rewarded(0.5), 10, 20)
    (lacking,) = reward_commands(key, Unrewarded("prose"), 11, 20)

    assert rewarded.command_id == lacking.command_id
    assert (rewarded.reward.name, rewarded.reward.value, rewarded.reward.source) == (
        "kind",
        0.5,
        JUDGE,
    )
    assert (lacking.failure, rewarded.final) == ("prose", False)
    assert rewarded.expires_at_ms > 20


def test_the_reward_of_the_session_is_sent_behind_those_of_its_turns() -> None:
    key = JudgementKey("s", "kind")
    verdict = Rewarded(0.75, {"a": 1.0, "b": 0.5})

    commands = reward_commands(key, verdict, 10, 20)

    assert [(each.command_id, each.reward.turn_id, each.reward.value) for each in commands] == [
        ("s.judge.kind.a", "a", 1.0),
        ("s.judge.kind.b", "b", 0.5),
        ("s.judge.kind", None, 0.75),
    ]
    assert [each.reward.scope for each in commands] == ["turn", "turn", "session"]
    assert {(each.reward.name, each.reward.source, each.failure) for each in commands} == {
        ("kind", JUDGE, "")
    }


def test_rewards_of_turns_do_not_end_a_judgement() -> None:
    partition = requested(ended_session("kind"))
    assert len(list(partition.take_due())) == 1
    of_turn = r.Reward(name="kind", value=1.0, scope="turn", turn_id="t", source=JUDGE)
    event = r.RewardAssigned(
        session_id="s", epoch=1, at_ms=45, command_id="s.judge.kind.t", reward=of_turn, final=False
    )
    assert partition.apply(event, 5) == Over()
    assert partition.keys == [JudgementKey("s", "kind")]


def test_wherever_owners_change_the_same_judgements_are_left() -> None:
    """A takeover at any event leaves what is due after all of them, no more and no less."""
    rng = random.Random(seed)
    for _ in range(30):
        queues = [_history(f"s{number}", rng) for number in range(4)]
        events = []
        while queues:
            queue = rng.choice(queues)
            events.append(queue.pop(0))
            queues = [queue for queue in queues if queue]
        whole = {judgement.key for judgement in requested(events).take_due()}
        place = rng.randrange(len(events) + 1)
        begin, epoch = requested(events[:place]).rebuild_from
        successor = requested(events[begin:], begin)
        successor.log.epoch = max(epoch, successor.log.epoch)
        left = {judgement.key for judgement in successor.take_due()}
        assert left == whole, f"seed {seed}"


def _history(session: str, rng: random.Random) -> list:  # type: ignore[type-arg]
    """Return a session's events up to a drawn one, with rewards that may be repeated."""
    judges = ("kind", "brief")
    events = ended_session(*judges, session=session)
    answers = [reward_of(judge, session=session) for judge in judges]
    answers = rng.sample(answers, rng.randrange(3))
    events += answers + rng.sample(answers, len(answers))
    if len(answers) == len(judges) or rng.random() < 0.2:
        events.append(finalized(session_id=session))
    return events
