"""Answers and errors of Google's `generateContent`: whole, as events, or as a JSON array. Pure.

A response has its turn's id. Thoughts are shown only if the request asks for them. A signature
holds them in any case. It stands beside the first call or, without calls, beside the last text.

Each event is a response with what is new since the last event; the clients add them up. Text is
sent as it arrives. A call is sent as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest, call_input
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta, event, on_one_line
from seamlessflow.producers.gateway.dialects.google_content.members import signature
from seamlessflow.producers.gateway.dialects.scores import scores
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished

AnswerPart = dict[str, object]
WAITING = b"\n\n"
"""Bytes that clients skip in both streams. The vendor's own client takes a comment for an error."""
_TOO_LONG = "The input token count ({}) exceeds the maximum number of tokens allowed ({})."
_NUMBERED = "token_id:"
_RPC = "type.googleapis.com/google.rpc."
_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """Return a whole answer's body, with one candidate for each item in `answers`."""
    candidates = [_candidate(number, answer, request) for number, answer in enumerate(answers)]
    body = {"candidates": candidates, "usageMetadata": _usage(answers), **_tail(turn_id, request)}
    return orjson.dumps(body)


class ContentEvents:
    """The writer for one streamed answer; each method returns the bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._request = request
        self._tail = _tail(turn_id, request)
        self._array = request.echoed["form"] == "array"
        self._begun = False
        self._unsigned: dict[int, str] = {}
        """By choice, the thought that is not yet in a signature."""
        self._finished: list[ReplyFinished] = []

    def open(self, prompt_tokens: int) -> bytes:
        """Begin with nothing: the first event already has a candidate."""
        return b""

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write a candidate's next part: thoughts, then text, then calls."""
        read = orjson.loads(piece.delta)
        parts: list[AnswerPart] = []
        if thought := read.get("reasoning_content"):
            self._unsigned[choice] = self._unsigned.get(choice, "") + thought
            if self._request.echoed["thoughts"]:
                parts.append({"text": thought, "thought": True})
        if text := read.get("content"):
            parts.append({"text": text})
        parts += [
            {**_call_part(call), **self._signed(choice)} for call in read.get("tool_calls") or ()
        ]
        scored = self._request.wants_logprobs and piece.logprobs is not None
        if not parts and not scored:
            return WAITING
        candidate = _partial_candidate(choice, parts)
        if scored:
            most = self._request.sampling.top_logprobs
            candidate["logprobsResult"] = _logprobs_result(piece, most, piece.from_token)
        return self._event({"candidates": [candidate], **self._tail})

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End a candidate, with the token counts for all candidates that have ended."""
        self._finished.append(answer)
        candidate = _partial_candidate(choice, [{"text": "", **self._signed(choice)}])
        candidate["finishReason"] = _reason(answer)
        counts = _usage(self._finished)
        return self._event({"candidates": [candidate], "usageMetadata": counts, **self._tail})

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """End the answer."""
        return b"\n]\n" if self._array else b""

    def failed(self, error: ApiError) -> bytes:
        """End an answer that failed after it began."""
        return self._written(error_body(error)) + (b"\n]\n" if self._array else b"")

    def keep_alive(self) -> bytes:
        """Write blank lines, which every client skips."""
        return WAITING

    def _signed(self, choice: int) -> dict[str, object]:
        """Return the member that holds the thought so far, if there is any."""
        thought = self._unsigned.pop(choice, "")
        return {"thoughtSignature": signature(thought)} if thought else {}

    def _event(self, body: dict[str, object]) -> bytes:
        return self._written(orjson.dumps(body))

    def _written(self, body: bytes) -> bytes:
        if not self._array:
            return event(body)
        begin = b"\n,\r\n" if self._begun else b"["
        self._begun = True
        return begin + on_one_line(body)


def error_body(error: ApiError) -> bytes:
    """Return an error's body in Google's format.

    If a prompt is too long, the message has Google's wording, which agents look for.
    """
    message = error.message
    if error.prompt_lengths is not None:
        message = _TOO_LONG.format(*error.prompt_lengths)
    usual = "INTERNAL" if error.status >= 500 else "INVALID_ARGUMENT"
    status = _STATUSES.get(error.status, usual)
    shown: dict[str, object] = {"code": error.status, "message": message, "status": status}
    if details := list(_details(error, message)):
        shown["details"] = details
    return orjson.dumps({"error": shown})


def _tail(turn_id: str, request: CanonicalRequest) -> dict[str, object]:
    """Return the members that end an answer, or an event in a stream."""
    return {"modelVersion": request.model, "responseId": turn_id}


def _reason(answer: ReplyFinished) -> str:
    """Return why a candidate ended. A candidate with calls gets `STOP`, as at the vendor."""
    return "MAX_TOKENS" if answer.finish_reason == "length" else "STOP"


def _usage(answers: Sequence[ReplyFinished]) -> dict[str, object]:
    """Return the token counts. The prompt counts once for all candidates.

    Thought tokens are counted separately if the renderer can count them.
    """
    prompt = answers[0].prompt_tokens
    sampled = sum(answer.completion_tokens for answer in answers)
    thought = [answer.reasoning_tokens for answer in answers if answer.reasoning_tokens is not None]
    apart = sum(thought) if len(thought) == len(answers) else 0
    counts: dict[str, object] = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": sampled - apart,
        "totalTokenCount": prompt + sampled,
    }
    return counts | {"thoughtsTokenCount": apart} if apart else counts


def _call_part(call: Mapping[str, Any]) -> AnswerPart:
    """Return the part with a call."""
    function = call["function"]
    arguments = orjson.Fragment(call_input(function["arguments"]))
    return {"functionCall": {"id": call["id"], "name": function["name"], "args": arguments}}


def _logprobs_result(
    source: ChoiceDelta | ReplyFinished, most: int, from_token: int = 0
) -> dict[str, object]:
    """Return the sampled tokens' log-probs, with the `most` likeliest tokens at each place."""
    read = scores(source.token_ids, source.logprobs, source.tensors, most, from_token) or ()
    shown: dict[str, object] = {
        "chosenCandidates": [_scored(score.token, score.logprob) for score in read],
        "logProbabilitySum": sum(score.logprob for score in read),
    }
    if most:
        shown["topCandidates"] = [
            {"candidates": [_scored(token, value) for token, value in score.top]} for score in read
        ]
    return shown


def _candidate(number: int, answer: ReplyFinished, request: CanonicalRequest) -> dict[str, object]:
    read = orjson.loads(answer.message or b"{}")
    candidate: dict[str, object] = {
        "content": {"parts": _message_parts(read, request.echoed["thoughts"]), "role": "model"},
        "finishReason": _reason(answer),
        "index": number,
    }
    if request.wants_logprobs and answer.logprobs is not None:
        result = _logprobs_result(answer, request.sampling.top_logprobs)
        candidate["logprobsResult"] = result
        if count := len(result["chosenCandidates"]):  # type: ignore[arg-type]
            candidate["avgLogprobs"] = result["logProbabilitySum"] / count  # type: ignore[operator]
    return candidate


def _partial_candidate(choice: int, parts: Sequence[AnswerPart]) -> dict[str, Any]:
    return {"content": {"parts": parts, "role": "model"}, "index": choice}


def _message_parts(message: Mapping[str, Any], shows_thoughts: bool) -> list[AnswerPart]:
    calls = [_call_part(call) for call in message.get("tool_calls") or ()]
    said: AnswerPart = {"text": message.get("content") or ""}
    thought = message.get("reasoning_content")
    signed = calls[0] if calls else said
    if thought:
        signed["thoughtSignature"] = signature(thought)
    shown: list[AnswerPart] = (
        [{"text": thought, "thought": True}] if thought and shows_thoughts else []
    )
    return [*shown, *([said] if said["text"] or not calls else []), *calls]


def _details(error: ApiError, message: str) -> Iterator[dict[str, object]]:
    if error.code:
        yield {"@type": _RPC + "ErrorInfo", "reason": error.code, "domain": "seamlessflow"}
    if error.param is not None:
        violation = {"field": error.param, "description": message}
        yield {"@type": _RPC + "BadRequest", "fieldViolations": [violation]}
    if error.request_id:
        yield {"@type": _RPC + "RequestInfo", "requestId": error.request_id}


def _scored(token: str, logprob: float) -> dict[str, object]:
    token_id = int(token.removeprefix(_NUMBERED))
    return {"token": token, "tokenId": token_id, "logProbability": logprob}
