"""Requests to vLLM's `/inference/v1/generate`, and its answers: ids in, ids out. Pure.

Only this file knows their form. An answer is a stream of server-sent events: JSON objects with new
tokens, then one with the usage, then `[DONE]`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.schemas.tokens import TOKEN_BYTES

GENERATE = "/inference/v1/generate"
UNLIKELY = -9999.0
"""The log-probability that the server reports for a probability of 0, or NaN."""

_SEEDS = 2**63
_DATA = b"data: "
_END = b"[DONE]"


class AnswerInvalid(SeamlessFlowError):
    """An answer that the protocol does not allow, or the server's report of its own failure."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        super().__init__(f"vLLM answered {answer}")


class RequestRefused(SeamlessFlowError):
    """A request that asks for something the server does not do; it serves others."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"vLLM refused a request: {reason}")


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A stream's event: new tokens, and with the last ones how the stream ended.

    `versions` comes with the last tokens: labels of the weights that sampled the stream.
    `cached_tokens` comes with the usage: how many prompt tokens' KV was there.
    """

    token_ids: bytes = b""
    logprobs: bytes = b""
    top_ids: bytes = b""
    top_logprobs: bytes = b""
    finish_reason: str | None = None
    versions: tuple[str, ...] = ()
    cached_tokens: int = 0

    @property
    def count(self) -> int:
        """The token count."""
        return len(self.token_ids) // TOKEN_BYTES


def generate(
    request_id: str,
    tokens: list[int],
    completed: int,
    room: int,
    sampling: SamplingParams,
    salt: str,
    adapter: str | None = None,
) -> bytes:
    """Return the body of a call that continues `tokens`; `completed` of them were sampled before.

    `room` is how many more fit into the context. Every parameter is given: a server may take others
    from its model's `generation_config.json`. `salt` keeps its KV apart from other weights' KV.
    `adapter` names an adapter that the server has loaded; None: its model's own weights.
    """
    parameters: dict[str, Any] = {
        "max_tokens": min(sampling.max_tokens - completed, room),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": True,
        "detokenize": False,
        # The sampled token counts among them: ask for one more.
        "logprobs": sampling.top_logprobs + 1 if sampling.top_logprobs else 0,
    }
    if sampling.seed is not None:
        parameters["seed"] = (sampling.seed + completed) % _SEEDS
    if sampling.json_schema is not None:
        parameters["structured_outputs"] = {"json": sampling.json_schema}
    body = {
        "request_id": request_id,
        "token_ids": tokens,
        "sampling_params": parameters,
        "cache_salt": salt,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return orjson.dumps(body if adapter is None else {**body, "model": adapter})


class EventSplitter:
    """Splitter that divides a stream into events, however its bytes were cut on the way."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the data of each event that is now complete, except the end mark."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if event.startswith(_DATA) and event != _DATA + _END:
                yield event[len(_DATA) :]


def token_event(event: bytes, top_logprobs: int) -> TokenEvent:
    """Return the parsed event. Raises `AnswerInvalid`, `RequestRefused`."""
    try:
        answer = orjson.loads(event)
        if "error" in answer:
            raise _failure(answer["error"])
        if not answer["choices"]:
            details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
            return TokenEvent(cached_tokens=details.get("cached_tokens") or 0)
        return _tokens(answer["choices"][0], top_logprobs)
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError) as error:
        shown = event[:200].decode(errors="replace")
        raise AnswerInvalid(f"{shown} ({type(error).__name__}: {error})") from error


def explanation(status: int, body: bytes) -> str:
    """Return the reason that an HTTP error's body gives."""
    try:
        answer = orjson.loads(body)
        return str(answer.get("error", {}).get("message") or answer.get("detail") or answer)
    except (orjson.JSONDecodeError, AttributeError):
        return f"{status} {body[:200].decode(errors='replace')}"


def _failure(error: Mapping[str, Any]) -> SeamlessFlowError:
    """Return the error that an event reports: the request's fault, or the server's."""
    reason = str(error["message"])
    return RequestRefused(reason) if 400 <= error["code"] < 500 else AnswerInvalid(reason)


def _tokens(choice: Mapping[str, Any], top_logprobs: int) -> TokenEvent:
    ids: list[int] = choice["token_ids"] or []
    entries: list[Mapping[str, Any]] = (choice["logprobs"] or {"content": []})["content"]
    if [entry["token_id"] for entry in entries] != ids:
        raise AnswerInvalid(f"{len(ids)} tokens with log-probabilities of {len(entries)}")
    logprobs = [entry["logprob"] for entry in entries]
    if any(logprob <= UNLIKELY for logprob in logprobs):
        raise AnswerInvalid("a token that its model gives no probability: the weights are broken")
    top = [_top(entry, top_logprobs) for entry in entries] if top_logprobs else []
    return TokenEvent(
        np.array(ids, "<i4").tobytes(),
        np.array(logprobs, "<f4").tobytes(),
        np.array([[token for token, _ in row] for row in top], "<i4").tobytes(),
        np.array([[logprob for _, logprob in row] for row in top], "<f4").tobytes(),
        choice["finish_reason"],
        tuple(span["version"] for span in choice["weight_versions"] or ()),
    )


def _top(entry: Mapping[str, Any], count: int) -> list[tuple[int, float]]:
    """Return the most likely tokens, most likely first."""
    # The server lists the sampled token first, even if it is not among the most likely.
    rows = {each["token_id"]: each["logprob"] for each in entry["top_logprobs"]}
    likely = sorted(rows.items(), key=lambda row: -row[1])[:count]
    if len(likely) < count:
        raise AnswerInvalid(f"{len(likely)} likely tokens of {count}")
    return likely
