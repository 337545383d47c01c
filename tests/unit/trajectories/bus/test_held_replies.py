"""Merging of a turn's replies that are read together."""

from dataclasses import replace
from struct import pack
from typing import Any

import orjson
import pytest

from seamlessflow.consumers.trajectories.bus.held_replies import Addressed, HeldReplies
from seamlessflow.schemas.records import Record, ReplyFinished
from tests.builders.records.replies import answered, delta, finished, tensor


def end(offset: int, text: str) -> ReplyFinished:
    return finished(token_offset=offset, delta=orjson.dumps({"content": text}), message=b"{}")


def sent(*replies: Record) -> list[Any]:
    """Return the replies that a gateway gets after these were read together."""
    held = HeldReplies()
    at_once = [addressed for reply in replies for addressed in held.add(Addressed(1, reply, ()))]
    return [addressed.reply for addressed in (*at_once, *held.release())]


def test_parts_that_follow_each_other_are_one() -> None:
    assert sent(delta(0, "ab"), delta(2, "c"), delta(3, "de")) == [delta(0, "abcde")]


def test_a_part_alone_is_sent_as_it_is() -> None:
    assert sent(delta(7, "ab")) == [delta(7, "ab")]


def test_nothing_is_sent_twice() -> None:
    held = HeldReplies()
    assert held.add(Addressed(1, delta(0, "a"), ())) == []
    assert len(held.release()) == 1
    assert held.release() == []


def test_the_end_takes_up_what_came_just_before() -> None:
    assert sent(delta(0, "ab"), delta(2, "c"), end(3, "d")) == [end(0, "abcd")]


def test_a_failure_comes_behind_what_was_said() -> None:
    failed = finished(status=503, reason="worker_lost")
    assert sent(delta(0, "ab"), delta(2, "c"), failed) == [delta(0, "abc"), failed]


def test_an_end_that_does_not_follow_stands_alone() -> None:
    whole = replace(end(0, ""), delta=None)  # to a retry, which gets it from the message
    assert sent(delta(0, "ab"), whole) == [delta(0, "ab"), whole]


def test_what_a_retry_is_told_again_stays_behind_what_went_before() -> None:
    joined = answered("retry", turn_id="t")
    replies = sent(delta(4, "e"), joined, delta(0, "ab"), delta(2, "cd"))
    assert replies == [delta(4, "e"), joined, delta(0, "abcd")]


@pytest.mark.parametrize("other", [{"gateway": "h"}, {"turn_id": "u"}])
def test_other_turns_and_gateways_get_their_own(other: dict[str, str]) -> None:
    assert sent(delta(0, "a"), delta(1, "b", **other)) == [delta(0, "a"), delta(1, "b", **other)]


def test_a_sign_of_life_is_part_of_what_it_follows() -> None:
    assert sent(delta(0, "ab"), delta(2, "")) == [delta(0, "ab")]


def test_tokens_log_probs_and_likeliest_tokens_stay_together() -> None:
    top = tensor("topk_ids", from_token=1, to_token=2, data=b"1234")
    first = delta(0, "a", token_ids=pack("<i", 5), logprobs=pack("<f", -1.0))
    second = delta(1, "b", token_ids=pack("<i", 6), logprobs=pack("<f", -2.0), tensors=(top,))
    (reply,) = sent(first, second)
    assert (reply.token_ids, reply.logprobs) == (pack("<2i", 5, 6), pack("<2f", -1.0, -2.0))
    assert reply.tensors == (top,)


def test_reasoning_then_content_then_calls_are_one() -> None:
    def call(number: int) -> dict[str, object]:
        return {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}

    parts: list[dict[str, object]] = [
        {"reasoning_content": "why"},
        {"content": "so", "reasoning_content": "!"},
        {"tool_calls": [call(0)]},
        {"tool_calls": [call(1)]},
    ]
    replies = [delta(n, "x", delta=orjson.dumps(part)) for n, part in enumerate(parts)]
    (reply,) = sent(*replies)
    assert orjson.loads(reply.delta) == {
        "reasoning_content": "why!",
        "content": "so",
        "tool_calls": [call(0), call(1)],
    }


@pytest.mark.parametrize("later", [b'{"reasoning_content":"b"}', b'{"new":"b"}'])
def test_what_would_be_written_in_another_order_stays_apart(later: bytes) -> None:
    replies = [delta(0, "a"), delta(1, "b", delta=later)]
    assert sent(*replies) == replies


def test_what_may_be_a_repeat_comes_behind_and_stays_as_it_is() -> None:
    held = HeldReplies()
    for reply in (delta(2, "c"), delta(3, "d")):
        held.add(Addressed(1, reply, ()))
    again = [
        addressed.reply
        for n in range(2)
        for addressed in held.pass_through(Addressed(1, delta(n, "x"), ()))
    ]
    assert again == [delta(2, "cd"), delta(0, "x"), delta(1, "x")]
