"""Deltas that the manager merged, or a fast engine sampled at once, reach clients one at a time."""

import random
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest

from seamlessflow.consumers.trajectories.bus.held_replies import Addressed, HeldReplies
from seamlessflow.producers.gateway.calls.streamed import StreamedAnswer, delta_parts
from seamlessflow.producers.gateway.routes import DIALECTS
from seamlessflow.schemas.records import Record
from tests.builders.gateway.bodies import BODIES
from tests.builders.records import replies

TEXTS = ("reasoning_content", "content")
CALLS = [
    {"id": f"call_t_{n}", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    for n in range(3)
]
MORE = {"index": 0, "function": {"arguments": "}"}}
RAW = ("/v1/completions", "/inference/v1/generate")
STREAMING = [path for path in BODIES if path not in RAW and ":generate" not in path]


def parts(delta: dict[str, Any]) -> list[Any]:
    return [orjson.loads(part) for part in delta_parts(orjson.dumps(delta))]


@pytest.mark.parametrize(
    "delta",
    [
        {},
        {"content": "a"},
        {"reasoning_content": "a"},
        {"tool_calls": [{"index": 0, **CALLS[0]}]},
        {"tool_calls": [MORE]},
        {"content": 'she wrote "tool_calls": and "reasoning_content":'},
    ],
)
def test_a_delta_of_one_kind_stays_as_it_is(delta: dict[str, Any]) -> None:
    written = orjson.dumps(delta)
    assert list(delta_parts(written)) == [written]


def test_a_delta_of_all_kinds_is_cut_in_the_order_of_sampling() -> None:
    begun = [{"index": n, **call} for n, call in enumerate(CALLS)][1:]
    whole = {"content": "b", "reasoning_content": "a", "tool_calls": [MORE, *begun]}
    assert parts(whole) == [
        {"tool_calls": [MORE]},
        {"reasoning_content": "a"},
        {"content": "b"},
        {"tool_calls": [begun[0]]},
        {"tool_calls": [begun[1]]},
    ]


def test_an_empty_member_makes_no_part() -> None:
    call = {"index": 0, **CALLS[0]}
    assert parts({"content": "", "reasoning_content": "a", "tool_calls": [call]}) == [
        {"reasoning_content": "a"},
        {"tool_calls": [call]},
    ]


def events(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each event, or of each element of an array."""
    if data.lstrip().startswith(b"[") or data.lstrip().startswith(b","):
        yield from orjson.loads(data)
        return
    for block in data.split(b"\n\n"):
        for line in block.split(b"\n"):
            if line.startswith(b"data: {"):
                yield orjson.loads(line.removeprefix(b"data: "))


def kinds(event: dict[str, Any]) -> list[str]:
    """Return the kinds that an event of any dialect brings, a call as its id."""
    names: list[str] = []
    for choice in event.get("choices", ()):
        added = choice["delta"]
        names += [name for name in TEXTS if added.get(name)]
        names += [call["id"] for call in added.get("tool_calls", ())]
    for candidate in event.get("candidates", ()):
        for part in candidate["content"]["parts"]:
            if part.get("text"):
                names.append(TEXTS[0] if part.get("thought") else TEXTS[1])
            elif "functionCall" in part:
                names.append(part["functionCall"]["id"])
    match event.get("type"):
        case "response.reasoning_text.delta":
            names.append(TEXTS[0])
        case "response.output_text.delta":
            names.append(TEXTS[1])
        case "response.output_item.added" if "call_id" in event["item"]:
            names.append(event["item"]["call_id"])
    match event.get("delta"):
        case {"type": "thinking_delta"}:
            names.append(TEXTS[0])
        case {"type": "text_delta"}:
            names.append(TEXTS[1])
    if event.get("content_block", {}).get("type") == "tool_use":
        names.append(event["content_block"]["id"])
    return names


def merged(sent: list[Record]) -> list[Record]:
    """Return the replies as a manager sends them that stood still before it read their events."""
    held = HeldReplies()
    out = [addressed for reply in sent for addressed in held.add(Addressed(0, reply, ()))]
    return [addressed.reply for addressed in [*out, *held.release()]]


def answer_in(steps: list[dict[str, Any]]) -> list[Record]:
    """Return the replies of an answer that was sampled in these steps, one token each."""
    sent: list[Record] = [
        replies.delta(number, None, token_count=1, delta=orjson.dumps(step))
        for number, step in enumerate(steps)
    ]
    message = {name: "".join(step.get(name, "") for step in steps) for name in TEXTS}
    end = replies.answer(
        message={**message, "tool_calls": CALLS},
        token_offset=len(steps),
        finish_reason="tool_calls",
    )
    return [*sent, end]


STEPS: list[dict[str, Any]] = [
    {"reasoning_content": "h"},
    {"reasoning_content": "m"},
    {"content": "let me"},
    {"content": " see"},
    *({"tool_calls": [{"index": n, **call}]} for n, call in enumerate(CALLS)),
]


def fast(rng: random.Random) -> list[dict[str, Any]]:
    """Return the steps of an engine that samples several tokens at once."""
    cuts = sorted({0, len(STEPS), *(rng.randint(0, len(STEPS)) for _ in range(2))})
    together: list[dict[str, Any]] = []
    for start, end in pairwise(cuts):
        step: dict[str, Any] = {}
        for part in STEPS[start:end]:
            for name, value in part.items():
                step[name] = step[name] + value if name in step else value
        together.append(step)
    return together


@pytest.mark.parametrize("path", STREAMING)
def test_no_event_of_any_dialect_has_two_kinds_or_two_calls(path: str, rng: random.Random) -> None:
    dialect = DIALECTS[path]
    body = {**BODIES[path], "stream": True}
    body.pop("n", None)
    if "generationConfig" in body:
        body["generationConfig"] = {"thinkingConfig": {"includeThoughts": True}}
    asked = dialect.parse(orjson.dumps(body), 1)
    for _ in range(40):
        sent = answer_in(rng.choice([STEPS, fast(rng)]))
        stood_still = rng.random() < 0.7
        answer = StreamedAnswer(asked, lambda turn: dialect.events(turn, 1, asked), b"")
        data = b"".join(
            answer.write_reply(0, reply)  # type: ignore[arg-type]
            for reply in (merged(sent) if stood_still else sent)
        )
        brought = [kinds(event) for event in events(data)]
        assert all(len(names) <= 1 for names in brought)
        order = [kind for names in brought for kind in names]
        assert list(dict.fromkeys(order)) == [*TEXTS, *(str(call["id"]) for call in CALLS)]


def test_logprobs_of_tokens_that_came_together_are_sent_once() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "logprobs": True}
    dialect = DIALECTS["/v1/chat/completions"]
    asked = dialect.parse(orjson.dumps({**body, "stream": True}), 1)
    together = replies.delta(
        token_count=2,
        delta=orjson.dumps({"reasoning_content": "a", "content": "b"}),
        token_ids=struct.pack("<2i", 1, 2),
        logprobs=struct.pack("<2f", -1, -2),
    )
    answer = StreamedAnswer(asked, lambda turn: dialect.events(turn, 1, asked), b"")
    data = answer.write_reply(0, together)
    assert data.count(b'"token_id:1"') == data.count(b'"token_id:2"') == 1
