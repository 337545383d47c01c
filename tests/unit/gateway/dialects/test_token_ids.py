"""Token ids of prompts and answers, which vLLM's parameter `return_token_ids` asks for."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.calls.streamed import StreamedAnswer
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.routes import DIALECTS
from seamlessflow.schemas.records import ReplyDelta, ReplyFinished
from seamlessflow.schemas.tokens import pack, unpack
from tests.builders.records import replies

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
PROMPT = [1, 2, 3]
TURN: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}
"""Names of the prompt in the dialects."""
OTHERS = {CHAT: ("prompt", "input"), COMPLETIONS: ("input", "messages"), RESPONSES: ("prompt",)}


def body(path: str, **more: Any) -> bytes:
    asked = {name: value for name, value in TURN.items() if name not in OTHERS[path]}
    return orjson.dumps({"model": "m", "return_token_ids": True, **asked, **more})


def answer(*ids: int, **more: Any) -> ReplyFinished:
    fields = {"token_ids": pack(ids), "prompt_ids": pack(PROMPT), "completion_tokens": len(ids)}
    return replies.answer("ab", **{**fields, **more})


def delta(offset: int, text: str, *ids: int) -> ReplyDelta:
    prompt = None if offset else pack(PROMPT)
    fields = {"token_ids": pack(ids), "token_count": len(ids), "prompt_ids": prompt}
    return replies.delta(offset, text, **fields)


def whole(path: str, answers: Sequence[ReplyFinished], **more: Any) -> Any:
    dialect = DIALECTS[path]
    request = dialect.parse(body(path, **more), 4)
    return orjson.loads(dialect.completion("t", 1, request, answers))


def streamed(path: str, *sent: tuple[int, Any], **more: Any) -> list[Any]:
    """Return the events of a stream of these replies, each with the number of its choice."""
    dialect = DIALECTS[path]
    request = dialect.parse(body(path, stream=True, **more), 4)
    made = StreamedAnswer(request, lambda turn: dialect.events(turn, 1, request), dialect.waiting)
    data = b"".join(made.write_reply(choice, reply) for choice, reply in sent)
    lines = [line for line in data.split(b"\n") if line.startswith(b"data: {")]
    return [orjson.loads(line.removeprefix(b"data: ")) for line in lines]


def streamed_ids(events: Sequence[Any], choice: int = 0) -> list[int]:
    parts = [part for event in events for part in event["choices"] if part["index"] == choice]
    return [token for part in parts for token in part.get("token_ids", ())]


def test_chat_names_the_prompt_beside_the_choices_and_the_answer_in_each() -> None:
    read = whole(CHAT, [answer(4, 5), answer(6)], n=2)
    assert read["prompt_token_ids"] == PROMPT
    assert [choice["token_ids"] for choice in read["choices"]] == [[4, 5], [6]]


def test_completions_name_both_in_each_choice() -> None:
    read = whole(COMPLETIONS, [answer(4, 5), answer(6)], n=2)
    assert [choice["prompt_token_ids"] for choice in read["choices"]] == [PROMPT, PROMPT]
    assert [choice["token_ids"] for choice in read["choices"]] == [[4, 5], [6]]
    assert "prompt_token_ids" not in read


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_response_names_both_beside_its_output(stream: bool) -> None:
    if stream:
        events = streamed(RESPONSES, (0, delta(0, "ab", 4)), (0, answer(4, 5, token_offset=1)))
        assert "token_ids" not in events[0]["response"]
        read = events[-1]["response"]
    else:
        read = whole(RESPONSES, [answer(4, 5)])
    assert (read["prompt_token_ids"], read["token_ids"]) == (PROMPT, [4, 5])


def test_the_first_chunk_of_a_chat_has_the_prompt_and_the_others_the_next_tokens() -> None:
    sent = [(0, delta(0, "a", 4)), (0, delta(1, "", 5)), (0, answer(4, 5, 6, token_offset=2))]
    first, *others = streamed(CHAT, *sent)
    assert first["prompt_token_ids"] == PROMPT
    assert "token_ids" not in first["choices"][0]
    assert [event["choices"][0]["token_ids"] for event in others] == [[4], [5], [6], []]
    assert not any("prompt_token_ids" in event for event in others)


def test_each_streamed_choice_has_its_own_tokens() -> None:
    sent = [(1, delta(0, "a", 7)), (0, delta(0, "a", 4)), (1, answer(7, 8)), (0, answer(4, 5))]
    for path in (CHAT, COMPLETIONS):
        events = streamed(path, *sent, n=2)
        assert (streamed_ids(events, 0), streamed_ids(events, 1)) == ([4, 5], [7, 8])


def test_the_first_chunk_of_each_streamed_completion_has_the_prompt() -> None:
    sent = [(0, delta(0, "a", 4)), (0, delta(1, "", 5)), (0, answer(4, 5, 6, token_offset=2))]
    parts = [event["choices"][0] for event in streamed(COMPLETIONS, *sent)]
    assert [part["prompt_token_ids"] for part in parts] == [PROMPT, None, None, None]
    assert [part["token_ids"] for part in parts] == [[4], [5], [6], []]


def test_tokens_behind_a_gap_come_with_the_end_once() -> None:
    for path in (CHAT, COMPLETIONS):
        events = streamed(
            path, (0, delta(0, "a", 4)), (0, delta(3, "d", 7)), (0, answer(4, 5, 6, 7))
        )
        assert streamed_ids(events) == [4, 5, 6, 7]


def test_an_answer_that_is_streamed_at_once_names_its_prompt_first() -> None:
    first, *_ = streamed(CHAT, (0, answer(4, 5)))
    assert first["prompt_token_ids"] == PROMPT
    first, *_ = streamed(COMPLETIONS, (0, answer(4, 5)))
    assert first["choices"][0]["prompt_token_ids"] == PROMPT


def test_an_answer_without_a_token_still_names_its_prompt() -> None:
    first, last = streamed(CHAT, (0, replies.finished(prompt_ids=pack(PROMPT), token_ids=b"")))
    assert first["prompt_token_ids"] == PROMPT
    assert last["choices"][0]["token_ids"] == []
    (only,) = streamed(COMPLETIONS, (0, replies.finished(prompt_ids=pack(PROMPT), token_ids=b"")))
    assert only["choices"][0]["prompt_token_ids"] == PROMPT


def test_a_chunk_that_is_cut_by_kinds_names_its_tokens_once() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    mixed = replies.delta(
        delta=orjson.dumps({"content": "ab", "tool_calls": [call]}),
        token_ids=pack([4, 5]),
        token_count=2,
        prompt_ids=pack(PROMPT),
    )
    _, text, called, _ = streamed(CHAT, (0, mixed), (0, answer(4, 5, token_offset=2)))
    assert (text["choices"][0]["token_ids"], called["choices"][0]["token_ids"]) == ([4, 5], [])


def test_a_retry_that_joined_a_turn_without_ids_gets_null_for_them() -> None:
    joined = replies.answer()
    assert whole(CHAT, [joined])["choices"][0]["token_ids"] is None
    events = streamed(CHAT, (0, joined))
    assert [event["choices"][0].get("token_ids") for event in events] == [None] * 3


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
def test_log_probs_alone_name_no_ids_and_ids_alone_no_log_probs(path: str) -> None:
    asked = DIALECTS[path].parse(body(path, return_token_ids=False), 4)
    read = DIALECTS[path].completion("t", 1, asked, [answer(4, 5)])
    assert not asked.wants_token_ids and b"token_ids" not in read
    asked = DIALECTS[path].parse(body(path), 4)
    assert asked.wants_token_ids and not asked.wants_logprobs
    with pytest.raises(ApiError, match="return_token_ids must be true or false"):
        DIALECTS[path].parse(body(path, return_token_ids=1), 4)


def test_ids_of_any_size_are_written_as_they_are() -> None:
    ids = [0, 2**31 - 1]
    assert unpack(pack(ids)) == whole(CHAT, [answer(*ids)])["choices"][0]["token_ids"]
