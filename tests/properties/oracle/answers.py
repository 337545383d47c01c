"""The replies to agents compared with the log: complete, without a gap, word for word."""

from collections.abc import Mapping

import numpy as np
import orjson

from seamlessflow.schemas import records as r
from tests.builders.trajectories.oracle import ExpectedTurn
from tests.properties.oracle.sessions import LoggedSession
from tests.properties.simulation.gateway import Call, Gateway


def check_answers(gateway: Gateway, sessions: Mapping[str, LoggedSession]) -> None:
    """Check that every call has ended, and that every answer is what the log accepted."""
    for call in gateway.calls.values():
        assert call.end is not None, f"I8: nobody answered {call.command}"
        if call.answer is not None:
            session = sessions[call.answer.session_id].session
            turn = session.turn(call.answer.turn_id)
            ended = turn is not None and turn.end
            assert turn is not None and ended == "completed", (
                f"answered, but not completed: {ended}"
            )
            _check_answer(call.answer, turn)
            if turn.started.stream:
                _check_stream(call, call.answer)


def _check_answer(answer: r.ReplyFinished, turn: ExpectedTurn) -> None:
    completed, sampled = turn.outputs[-1], turn.sampled
    assert isinstance(completed, r.TurnCompleted)
    assert answer.message == completed.message, "the agent was told another message"
    assert answer.completion_tokens == len(sampled)
    if answer.token_ids is not None and answer.logprobs is not None:
        ids = np.frombuffer(answer.token_ids, "<i4").tolist()
        logprobs = np.frombuffer(answer.logprobs, "<f4").tolist()
        assert list(zip(ids, logprobs, strict=True)) == [
            (sample.token, sample.logprob) for sample in sampled
        ], "the agent was told other tokens"


def _check_stream(call: Call, answer: r.ReplyFinished) -> None:
    reached, ids = 0, b""
    for delta in call.deltas:
        assert delta.token_offset == reached, "a gap in what was streamed"
        reached += delta.token_count
        ids += delta.token_ids or b""
    # A retry that joins an ended turn may first get that turn's answer to an earlier call again:
    # its offset is that of the earlier call, and the gateway completes it from the whole message.
    joined = call.waits_for != call.command.command_id  # type: ignore[attr-defined]
    assert joined or answer.token_offset <= reached, "a gap before the end"
    if answer.token_ids is not None:
        assert answer.token_ids.startswith(ids)
    parts = [delta.delta for delta in call.deltas] + [call.rest]
    assert answer.message is not None
    assert _joined(parts) == _shown(orjson.loads(answer.message)), "streamed otherwise than told"


def _joined(parts: list[bytes | None]) -> dict[str, object]:
    text = {"content": "", "reasoning_content": ""}
    calls: dict[int, dict[str, str]] = {}
    for part in filter(None, parts):
        delta = orjson.loads(part)
        for name in text:
            text[name] += delta.get(name) or ""
        for call in delta.get("tool_calls") or ():
            entry = calls.setdefault(call["index"], {"name": "", "arguments": "", "id": ""})
            entry["id"] += call.get("id", "")
            for name, value in call["function"].items():
                entry[name] += value
    return {**text, "calls": [calls[index] for index in sorted(calls)]}


def _shown(message: Mapping[str, object]) -> dict[str, object]:
    calls = [
        {"id": call["id"], **call["function"]}
        for call in message.get("tool_calls") or ()  # type: ignore[attr-defined]
    ]
    return {
        "content": message.get("content") or "",
        "reasoning_content": message.get("reasoning_content") or "",
        "calls": calls,
    }
