"""One request as the vLLM engine holds it, and the chunks that events of an answer become. Pure.

A request may be sent several times: a pause ends what is under way in the server, and going on is a
new call with all tokens so far. A text under a grammar cannot go on so, since the server follows a
grammar from its beginning only: its tokens are held until all of them are there, and a call that
was ended is begun anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from producers.rollout.engine.contract import ChunkSpan, FinishReason, TokenChunk
from producers.rollout.engine.errors import SamplingUnsupported
from producers.rollout.engine.request import Request
from producers.rollout.vllm_engine.protocol import AnswerInvalid, TokenEvent, generate


@dataclass(eq=False, slots=True)
class VllmRequest:
    """`tokens`: the prompt and all that was given to the caller, or to the engine before."""

    request: Request
    tokens: list[int]
    calls: int = 0
    held: list[TokenEvent] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request) -> "VllmRequest":
        """One that was not sent yet."""
        return cls(request, request.tokens.tolist())

    @property
    def request_id(self) -> str:
        """The caller's name for it."""
        return self.request.request_id

    @property
    def completed(self) -> int:
        """Length of the completion."""
        return len(self.tokens) - self.request.prompt_length

    def check(self, vocabulary: int, limit: int, seeds: bool) -> None:
        """Raises `RequestInvalid` and its kinds; `seeds`: whether the server may be given one."""
        self.request.check(vocabulary, limit, schemas=True)
        sampling = self.request.sampling
        if sampling.seed is not None and not seeds:
            reason = "this engine cannot draw by a seed: vLLM on a CPU does not survive it"
            raise SamplingUnsupported(self.request_id, reason)
        if sampling.json_schema is not None and self.completed:
            reason = "this engine cannot go on with a text that follows a JSON schema"
            raise SamplingUnsupported(self.request_id, reason)

    def next_call(self, limit: int, salt: str) -> bytes:
        """The body of a call for the rest. Every call has an id that none had before."""
        self.calls += 1
        self.held.clear()
        return generate(
            f"{self.request_id}.{self.calls}",
            self.tokens,
            self.completed,
            limit - len(self.tokens),
            self.request.sampling,
            salt,
        )

    def add_events(self, events: Sequence[TokenEvent], version: int) -> TokenChunk | None:
        """The chunk for new events, if there is something to say now.

        A call that was aborted leaves the request as it is after the tokens that came.
        """
        reason = finish_reason(events, version)
        if self.request.sampling.json_schema is not None:
            self.held += events
            events = () if reason in (None, "abort") else self.held
        return self._chunk(events, version, None if reason == "abort" else reason)

    def _chunk(
        self, events: Sequence[TokenEvent], version: int, finish: FinishReason | None
    ) -> TokenChunk | None:
        ids = b"".join([event.token_ids for event in events])
        if not ids and finish is None:
            return None
        start = self.completed
        self.tokens += memoryview(ids).cast("i").tolist()
        return TokenChunk(
            start,
            ids,
            b"".join([event.logprobs for event in events]),
            (ChunkSpan(start, version),) if ids else (),
            finish,
            b"".join([event.top_ids for event in events]),
            b"".join([event.top_logprobs for event in events]),
        )


def finish_reason(events: Sequence[TokenEvent], version: int) -> FinishReason | None:
    """How a call ended, if it did.

    Raises `AnswerInvalid` for an end that is none, and if other weights than `version` sampled.
    """
    for event in events:
        if event.finish_reason is None:
            continue
        if set(event.versions) - {str(version)}:
            raise AnswerInvalid(f"tokens of the versions {event.versions}, loaded is {version}")
        if event.finish_reason not in get_args(FinishReason):
            raise AnswerInvalid(f"the finish reason {event.finish_reason}")
        return cast(FinishReason, event.finish_reason)
    return None
