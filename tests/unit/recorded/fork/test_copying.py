"""Beginnings of recorded sessions, copied exactly."""

from dataclasses import replace

import orjson
import pytest
import xxhash

from seamlessflow.recorded.fork.copying import NotForkable, RecordedOn, forked_prefix
from seamlessflow.schemas.forks import history, of_session
from seamlessflow.schemas.records import ForkedPrefix, Media, TurnStarted
from seamlessflow.schemas.tokens import unpack
from tests.builders.records.content import ids, message
from tests.builders.trajectories.conversation import ASKED, Conversation, calling, recorded, result

LOG = RecordedOn(5, "cluster", "prefix.")


def tokens(fork: ForkedPrefix) -> bytes:
    """Return the ids before the place of a fork that plays nothing back."""
    whole = b""
    for turn in fork.turns:
        whole += turn.prompt.ids + turn.ids
    return whole + (fork.prompt.ids if fork.prompt else b"")


def test_a_prefix_has_the_exact_tokens_and_messages_of_the_chosen_prompt() -> None:
    session = recorded().session
    fork = forked_prefix(session, "c", LOG)

    node = session.tree.nodes[session.turns["c"].prompt_node]
    path = session.tree.path(node.node_id, node.length)
    assert tokens(fork) == path
    assert (fork.length, fork.hash) == (len(path) // 4, xxhash.xxh3_128_digest(path))
    assert [turn.prompt.turn_id for turn in fork.turns] == ["a", "b"]
    assert history(fork) == [*ASKED, calling("a"), result("a"), calling("b"), result("b", "more")]


def test_a_prefix_names_the_place_that_it_was_copied_from() -> None:
    origin = forked_prefix(recorded().session, "b", LOG).origin

    assert (origin.cluster, origin.topic_prefix, origin.partition) == ("cluster", "prefix.", 5)
    assert (origin.session_id, origin.turn_id, origin.behind) == ("recorded", "b", "prompt")
    assert origin.offset == 104


def test_a_prefix_may_end_behind_an_answer_with_a_message_appended() -> None:
    check = message("user", "check your work")
    fork = forked_prefix(recorded().session, "c", LOG, behind="answer", appended=[check])

    assert fork.prompt is None
    assert unpack(fork.turns[-1].ids) == [30, 31, 0]
    assert history(fork)[-2:] == [message("assistant", "done"), check]


def test_a_playback_has_all_completed_turns_before_also_those_beside_the_path() -> None:
    made = recorded()
    made.ask("title", message("user", "give it a title"))
    made.answer("title", ids(40, 0), message("assistant", "notes"))
    done = message("assistant", "done")
    before = history(forked_prefix(made.session, "c", LOG))
    made.ask("d", *before, done, message("user", "more"))

    played = forked_prefix(made.session, "d", LOG, mode="playback")
    middle = forked_prefix(made.session, "d", LOG)

    assert [turn.prompt.turn_id for turn in played.turns] == ["a", "b", "c", "title"]
    assert [turn.prompt.turn_id for turn in middle.turns] == ["a", "b", "c"]
    assert history(played) == history(middle)
    assert played.length == middle.length


def test_a_forced_beginning_of_the_answer_is_not_copied() -> None:
    made = Conversation("recorded")
    tools = orjson.dumps([{"type": "function", "function": {"name": "f"}}])
    made.ask("a", *ASKED, tool_choice="f", tools=tools)

    fork = forked_prefix(made.session, "a", LOG)

    assert unpack(tokens(fork)) == [1, 2]


def test_a_copied_turn_knows_its_forced_beginning_so_that_a_fork_of_the_fork_leaves_it_out() -> (
    None
):
    made = Conversation("recorded")
    tools = orjson.dumps([{"type": "function", "function": {"name": "f"}}])
    forced = made.ask("a", *ASKED, tool_choice="f", tools=tools)[0]
    assert isinstance(forced, TurnStarted) and forced.prefill
    made.answer("a", ids(3, 0), message("assistant", "done"))
    made.ask("b", *ASKED, message("assistant", "done"), message("user", "more"))

    fork = forked_prefix(made.session, "b", LOG, mode="playback")
    again = Conversation("fork", fork=fork)

    assert fork.turns[0].prompt.prefill == forced.prefill
    assert again.session.turns[again.copied(0)].started.prefill == forced.prefill


def test_ids_of_turns_and_calls_become_those_of_the_new_session() -> None:
    fork = forked_prefix(recorded().session, "c", LOG)
    session, other = of_session(fork, "one"), of_session(fork, "other")

    first = session.turns[0].prompt.turn_id
    assert history(session)[2:4] == [calling(first), result(first)]
    assert first != other.turns[0].prompt.turn_id
    assert [turn.ids for turn in session.turns] == [turn.ids for turn in fork.turns]


def test_a_turn_whose_answer_calls_tools_is_no_end() -> None:
    with pytest.raises(NotForkable, match="tool calls without a result: call_b_0"):
        forked_prefix(recorded().session, "b", LOG, behind="answer", appended=[ASKED[1]])


def test_a_prompt_that_leaves_out_a_result_is_no_place() -> None:
    made = recorded()
    made.ask("d", *ASKED, calling("a"), message("user", "never mind"))

    with pytest.raises(NotForkable, match="call_a_0"):
        forked_prefix(made.session, "d", LOG)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mode": "playback", "behind": "answer"}, "plays back"),
        ({"mode": "playback", "appended": [ASKED[1]]}, "plays back"),
        ({"behind": "answer"}, "append a message"),
        ({"mode": "backwards"}, "unknown kind"),
    ],
)
def test_kinds_of_forks_that_there_are_not_are_refused(
    changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(NotForkable, match=reason):
        forked_prefix(recorded().session, "c", LOG, **changes)  # type: ignore[arg-type]


def test_unknown_turns_failed_sessions_running_answers_and_media_are_refused() -> None:
    made = recorded()
    with pytest.raises(NotForkable, match="no such turn"):
        forked_prefix(made.session, "x", LOG)

    made.ask("d", *ASKED)
    with pytest.raises(NotForkable, match="it is running"):
        forked_prefix(made.session, "d", LOG, behind="answer", appended=[ASKED[1]])

    turn = made.turn("a")
    picture = Media(sha256="", uri="", mime="image/png", start=0, end=1)
    turn.started = replace(turn.started, media=(picture,))
    with pytest.raises(NotForkable, match="turn a has 1 media"):
        forked_prefix(made.session, "b", LOG)

    made.session.failed = True
    with pytest.raises(NotForkable, match="the session failed"):
        forked_prefix(made.session, "c", LOG)
