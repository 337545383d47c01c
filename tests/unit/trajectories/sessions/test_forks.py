"""Sessions that begin with a copy: the tree they have, and the trajectory that comes of it."""

from dataclasses import replace

import pytest

from seamlessflow.consumers.trajectories.sessions.calls import opening_hash
from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.recorded.fork.copying import RecordedOn, forked_prefix
from seamlessflow.schemas.records import ForkedPrefix, Sampling, SessionOpened, TurnStarted
from seamlessflow.schemas.tokens import unpack
from tests.builders.records.content import ids, message
from tests.builders.records.forks import forked as recorded_fork
from tests.builders.records.sessions import opened, rewarded, started, undelivered
from tests.builders.trajectories.conversation import (
    ASKED,
    Conversation,
    calling,
    forked,
    recorded,
    result,
)
from tests.builders.trajectories.session_builder import SessionBuilder, finished

DONE = message("assistant", "done")
CHECK = message("user", "check your work")


def history_of(made: Conversation) -> tuple[bytes, ...]:
    """Return the messages before turn `c`, as an agent of the fork has them."""
    first, second = made.copied(0), made.copied(1)
    return (*ASKED, calling(first), result(first), calling(second), result(second, "more"))


def started_by(made: Conversation, turn_id: str, *messages: bytes) -> TurnStarted:
    event = made.ask(turn_id, *messages)[0]
    assert isinstance(event, TurnStarted)
    return event


def test_the_recorded_history_goes_on_behind_the_exact_tokens() -> None:
    made, source = forked(), recorded()
    turn = started_by(made, "new", *history_of(made))

    assert (turn.match_rule, turn.match_detail, turn.suffix_ids) == ("extend", "same_prompt", b"")
    assert turn.prompt_hash == source.turn("c").started.prompt_hash
    assert turn.parent_turn == made.copied(1)


def test_an_appended_message_extends_the_copied_answer() -> None:
    made = forked(behind="answer", appended=[CHECK])
    turn = started_by(made, "new", *history_of(made), DONE, CHECK)

    assert (turn.match_rule, turn.parent_turn) == ("extend", made.copied(2))
    assert made.session.tree.nodes[turn.parent_node].ids == ids(30, 31, 0)


def test_a_message_behind_the_prompt_extends_the_last_copied_turn() -> None:
    made = forked(appended=[CHECK])
    turn = started_by(made, "new", *history_of(made), CHECK)

    assert (turn.match_rule, turn.parent_turn) == ("extend", made.copied(1))
    assert turn.prompt_length == made.session.tree.nodes[4].length + 10


def test_a_first_prompt_is_a_place_as_any_other() -> None:
    made = forked("a")
    turn = started_by(made, "new", *ASKED)

    assert (turn.match_rule, turn.match_detail) == ("same", "same_prompt")
    assert turn.suffix_ids == b""


def test_only_what_is_new_is_trained_and_counted() -> None:
    made = forked()
    made.ask("new", *history_of(made))
    made.answer("new", ids(50, 51, 0), message("assistant", "better"))
    whole = finished(made)

    trained = [t for t, mask in zip(unpack(whole.tokens), whole.loss_mask, strict=True) if mask]
    assert trained == [50, 51, 0]
    assert (whole.turns, whole.match_rules, whole.masked_tokens) == (1, {"extend": 1}, {})
    assert (whole.version_min, whole.version_max, len(whole.spans)) == (0, 0, 1)
    assert not any(whole.logprobs[: 4 * whole.nodes[-1].start])


def test_the_trajectory_names_where_it_came_from_and_what_was_copied() -> None:
    made = forked()
    made.ask("new", *history_of(made))
    whole = finished(made)

    assert whole.fork is not None
    assert (whole.fork.session_id, whole.fork.turn_id, whole.fork.partition) == ("recorded", "c", 5)
    assert [node.origin for node in whole.nodes] == [
        *("prompt", "forked", "tool", "forked", "tool"),
        *("tool", "policy"),
    ]
    copied = [node for node in whole.nodes if node.origin == "forked"]
    assert {(n.masked_reason, n.match_rule, n.policy, n.delivered) for n in copied} == {
        ("forked", "forked", "p", False)
    }
    assert whole.fold_version == FOLD_VERSION


def test_a_fork_of_a_fork_copies_both_and_names_the_nearer() -> None:
    made = forked()
    made.ask("new", *history_of(made))
    made.answer("new", ids(50, 0), message("assistant", "better"))
    again = history_of(made), message("assistant", "better"), message("user", "go on")
    made.ask("last", *again[0], *again[1:])
    prefix = forked_prefix(made.session, "last", RecordedOn(5))
    second = Conversation("second", fork=prefix)

    assert prefix.origin.session_id == "fork"
    assert [turn.copied_from for turn in second.session.turns.values()] == [
        *(made.copied(0), made.copied(1), "new")
    ]


def test_a_client_that_leaves_a_copied_answer_changes_nothing() -> None:
    made = forked(mode="playback")
    made.ask("x", *ASKED)
    made.apply(undelivered(made.copied(0), session_id="fork"))

    assert finished(made).masked_tokens == {}


def test_a_beginning_that_contradicts_itself_fails_its_session_alone() -> None:
    fork = replace(forked_prefix(recorded().session, "c", RecordedOn(5)), hash=b"other")
    built = SessionBuilder().apply(opened(fork=fork), started(), rewarded())

    assert built.session.failed
    assert built.accepted == [False, False, False]


@pytest.mark.parametrize("strictness", ["exact", "arguments", "content", "ids"])
def test_the_copied_turns_are_found_by_any_strictness(strictness: Strictness) -> None:
    """The ids of the calls are others than recorded, and with `ids` they count."""
    source = Conversation("recorded", strictness=strictness)
    source.ask("a", *ASKED)
    source.answer("a", ids(10, 11, 0), calling("a"), finish_reason="tool_calls")
    source.ask("b", *ASKED, calling("a"), result("a"))
    prefix = forked_prefix(source.session, "b", RecordedOn(5))

    made = Conversation("fork", strictness=strictness, fork=prefix)
    first = made.copied(0)
    turn = started_by(made, "new", *ASKED, calling(first), result(first))

    assert (turn.match_rule, turn.match_detail) == ("extend", "same_prompt")


def test_a_repeated_call_opens_the_same_sampling_and_no_other() -> None:
    def hashed(overrides: Sampling | None) -> int | None:
        return opening_hash(opened(overrides=overrides, idempotency_key="k"))

    greedy = Sampling(temperature=0)
    assert hashed(greedy) == hashed(Sampling(temperature=0))
    assert len({hashed(greedy), hashed(None), hashed(Sampling(temperature=0.5))}) == 3


def test_a_repeated_call_opens_the_same_fork_and_no_other() -> None:
    def opening(fork: ForkedPrefix) -> SessionOpened:
        return opened(fork=fork, idempotency_key="k")

    fork = forked_prefix(recorded().session, "c", RecordedOn(5))
    built = SessionBuilder().apply(opening(fork))
    others = [
        replace(fork, mode="playback"),
        replace(fork, appended=(CHECK,)),
        forked_prefix(recorded().session, "b", RecordedOn(5)),
    ]

    assert opening_hash(built.session.opened) == opening_hash(opening(fork))
    assert opening_hash(opening(fork)) not in [opening_hash(opening(prefix)) for prefix in others]


def test_the_hash_of_a_fork_of_a_file_is_that_of_earlier_releases() -> None:
    def opening(parent_return: float | None) -> int | None:
        prefix = recorded_fork()
        origin = replace(prefix.origin, parent_return=parent_return)
        return opening_hash(opened(fork=replace(prefix, origin=origin), idempotency_key="k"))

    assert opening(None) == 3995716122010497455
    assert opening(1.0) != opening(None)
