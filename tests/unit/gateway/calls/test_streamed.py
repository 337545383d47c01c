import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.calls.streamed import StreamedAnswer, missing
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.openai_chat.request import parse
from seamlessflow.producers.gateway.dialects.openai_chat.response import ChatEvents
from seamlessflow.producers.gateway.dialects.openai_shape import KEEP_ALIVE
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import CommandAnswered, ReplyFinished, TokenTensor
from tests.builders.records import replies
from tests.builders.records.replies import delta

IDS: dict[str, Any] = {"gateway": "g", "session_id": "s", "turn_id": "t"}
CALL = {"id": "call_t_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def request(**more: Any) -> CanonicalRequest:
    messages = [{"role": "user", "content": "x"}]
    return parse(orjson.dumps({"model": "m", "messages": messages, "stream": True, **more}), 4)


def streamed(asked: CanonicalRequest | None = None) -> StreamedAnswer:
    asked = asked or request()
    return StreamedAnswer(asked, lambda turn_id: ChatEvents(turn_id, 1, asked), KEEP_ALIVE)


def finish(text: str, offset: int = 0, rest: str | None = None) -> ReplyFinished:
    last = None if rest is None else orjson.dumps({"content": rest})
    return replies.answer(text, token_offset=offset, delta=last, completion_tokens=len(text))


def text(data: bytes, choice: int = 0) -> str:
    """Return the text of a choice that a client reads from events."""
    read = ""
    for line in data.split(b"\n\n"):
        if line.startswith(b"data: {"):
            for part in orjson.loads(line[6:])["choices"]:
                read += (part["delta"].get("content") or "") if part["index"] == choice else ""
    return read


def test_a_delta_without_tokens_is_a_keep_alive() -> None:
    answer = streamed()
    held = delta()

    before, begun, between = (
        answer.write_reply(0, held),
        answer.write_reply(0, delta(0, "a")),
        answer.write_reply(0, held),
    )

    assert before == between == b": keep-alive\n\n"
    assert text(begun) == "a"


def test_an_answer_bears_the_id_of_the_turn_that_a_retry_joined() -> None:
    joined = replace(delta(0, "a"), turn_id="earlier")

    data = streamed().write_reply(0, joined)

    assert b'"id":"chatcmpl-earlier"' in data


def test_deltas_in_order_make_the_message() -> None:
    answer = streamed()
    data = answer.write_reply(0, delta(0, "ab")) + answer.write_reply(0, delta(2, "c"))
    data += answer.write_reply(0, finish("abcd", 3, "d"))
    assert text(data) == "abcd"
    assert answer.complete and data.endswith(b"data: [DONE]\n\n")


def test_a_repeated_delta_is_not_sent_again() -> None:
    answer = streamed()
    assert answer.write_reply(0, delta(0, "ab"))
    assert answer.write_reply(0, delta(0, "ab")) == b""
    assert answer.write_reply(0, delta(0, "a")) == b""
    assert answer.repeated == 2
    assert text(answer.write_reply(0, delta(2, "c"))) == "c"


def test_behind_a_gap_the_rest_comes_with_the_end() -> None:
    answer = streamed()
    data = answer.write_reply(0, delta(0, "ab")) + answer.write_reply(0, delta(4, "e"))
    data += answer.write_reply(0, delta(2, "cd")) + answer.write_reply(0, finish("abcdef", 5, "f"))
    assert text(data) == "abcdef"


def test_a_call_that_joined_a_finished_turn_gets_all_of_it() -> None:
    answer = streamed()
    assert text(answer.write_reply(0, finish("abc"))) == "abc"
    answer = streamed()
    assert text(answer.write_reply(0, finish("abc", 2, "c"))) == "abc"


def test_a_delta_that_overlaps_what_was_sent_waits_for_the_end() -> None:
    answer = streamed()
    data = answer.write_reply(0, delta(0, "ab")) + answer.write_reply(0, delta(1, "bc"))
    data += answer.write_reply(0, finish("abcd", 3, "d"))
    assert text(data) == "abcd"


def test_a_delta_without_text_moves_on_and_sends_nothing() -> None:
    answer = streamed()
    empty = delta(token_count=1)
    assert answer.write_reply(0, empty) == b""
    assert text(answer.write_reply(0, delta(1, "b"))) == "b"


def test_any_order_and_repetition_of_replies_gives_the_whole_text(rng: random.Random) -> None:
    for _ in range(300):
        whole = "".join(rng.choice("abc") for _ in range(rng.randint(1, 12)))
        cuts = sorted({0, len(whole), *(rng.randint(0, len(whole)) for _ in range(3))})
        parts = [delta(a, whole[a:b]) for a, b in pairwise(cuts)]
        replies = [reply for reply in parts for _ in range(rng.randint(0, 2))]
        if rng.random() < 0.3:
            rng.shuffle(replies)
        last = cuts[-2]
        answer = streamed()
        data = b"".join(answer.write_reply(0, reply) for reply in replies[: rng.randint(0, 9)])
        data += answer.write_reply(0, finish(whole, last, whole[last:]))
        assert text(data) == whole


def test_choices_are_streamed_side_by_side() -> None:
    answer = streamed(request(n=2))
    data = answer.write_reply(1, delta(0, "x")) + answer.write_reply(0, delta(0, "a"))
    data += answer.write_reply(1, finish("xy", 1, "y"))
    assert not answer.complete
    data += answer.write_reply(1, finish("xy", 1, "y")) + answer.write_reply(
        0, finish("ab", 1, "b")
    )
    assert (text(data, 0), text(data, 1)) == ("ab", "xy")
    assert answer.complete and data.count(b"[DONE]") == 1


def test_the_last_logprobs_are_those_that_were_not_sent() -> None:
    answer = streamed(request(logprobs=True))
    scores: dict[str, Any] = {
        "token_ids": struct.pack("<3i", 1, 2, 3),
        "logprobs": struct.pack("<3f", -1, -2, -3),
    }
    first = {name: value[:4] for name, value in scores.items()}
    answer.write_reply(0, delta(token_count=1, **first))
    ended = replies.answer("", token_offset=1, **scores)
    data = answer.write_reply(0, ended)
    assert data.count(b"token_id:") == 2
    assert b"token_id:1" not in data


def test_the_last_likeliest_tokens_are_those_that_were_not_sent() -> None:
    answer = streamed(request(logprobs=True, top_logprobs=1))
    scores: dict[str, Any] = {
        "token_ids": struct.pack("<3i", 1, 2, 3),
        "logprobs": struct.pack("<3f", -1, -2, -3),
    }
    first = {name: value[:4] for name, value in scores.items()}
    answer.write_reply(0, delta(token_count=1, **first))
    likeliest = [
        TokenTensor(
            name=name, from_token=start, to_token=end, dtype="", data=struct.pack(form, *values)
        )
        for start, end, count in ((0, 1, 1), (1, 3, 2))
        for name, form, values in (
            ("topk_ids", f"<{count}i", range(11 + start, 11 + end)),
            ("topk_logprobs", f"<{count}f", [-0.5] * count),
        )
    ]
    data = answer.write_reply(
        0,
        replies.answer(
            "",
            token_offset=1,
            tensors=tuple(likeliest),
            **scores,
        ),
    )
    assert b"token_id:11" not in data
    assert b"token_id:12" in data and b"token_id:13" in data


@pytest.mark.parametrize(
    "failure",
    [
        ReplyFinished(**IDS, status=504, reason="deadline", detail="too late"),
        CommandAnswered(gateway="g", session_id="s", command_id="t", status=504, reason="deadline"),
    ],
)
def test_a_failure_is_raised_with_its_status(failure: ReplyFinished | CommandAnswered) -> None:
    with pytest.raises(ApiError) as error:
        streamed().write_reply(0, failure)
    assert (error.value.status, error.value.code) == (504, "deadline")


def lacking(message: dict[str, Any], *deltas: dict[str, Any]) -> Any:
    rest = missing(orjson.dumps(message), [orjson.dumps(d) for d in deltas])
    return None if rest is None else orjson.loads(rest)


@pytest.mark.parametrize(
    ("deltas", "rest"),
    [
        ([], {"reasoning_content": "hm", "content": "ab", "tool_calls": [{"index": 0, **CALL}]}),
        (
            [{"reasoning_content": "hm"}, {"content": "a"}],
            {"content": "b", "tool_calls": [{"index": 0, **CALL}]},
        ),
        (
            [
                {"reasoning_content": "hm"},
                {"content": "ab"},
                {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f"}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
            ],
            {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        ),
    ],
)
def test_what_is_missing_is_the_message_without_what_was_sent(
    deltas: Sequence[dict[str, Any]], rest: dict[str, Any]
) -> None:
    message = {
        "role": "assistant",
        "content": "ab",
        "reasoning_content": "hm",
        "tool_calls": [CALL],
    }
    assert lacking(message, *deltas) == rest
    assert lacking(message, *deltas, rest) is None


def test_nothing_follows_a_whole_answer() -> None:
    answer = streamed()
    answer.write_reply(0, finish("ab", rest="ab"))

    assert answer.write_reply(0, delta(2, "c")) == b""
    assert answer.write_reply(0, delta()) == b""
