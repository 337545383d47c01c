"""One request to the vLLM engine, and the chunks that its answers' events become. Pure.

A request may be sent several times. A pause ends the call, and a new call with all tokens so far
continues it. A text under a grammar cannot be continued this way: the server follows a grammar only
from its beginning. Its tokens are held back until all have arrived. After a pause its call begins
anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from seamlessflow.producers.rollout.engine.contract import ChunkSpan, FinishReason, TokenChunk
from seamlessflow.producers.rollout.engine.errors import SamplingUnsupported
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.producers.rollout.vllm_engine.protocol import AnswerInvalid, TokenEvent, generate
from seamlessflow.schemas.tokens import unpack


@dataclass(eq=False, slots=True)
class VllmRequest:
    """A live request; `tokens` is the prompt and the completion delivered so far.

    `held` are events from the current call that wait for its end.
    """

    request: Request
    tokens: list[int]
    calls: int = 0
    held: list[TokenEvent] = field(default_factory=list)

    @classmethod
    def from_request(cls, request: Request) -> "VllmRequest":
        """Return a request that was not sent yet."""
        return cls(request, request.tokens.tolist())

    @property
    def request_id(self) -> str:
        """The caller's id for it."""
        return self.request.request_id

    @property
    def computed(self) -> int:
        """Count of its tokens so far whose keys and values an engine computed before."""
        sampled_here = len(self.tokens) - len(self.request.tokens)
        return len(self.tokens) - 1 if sampled_here else self.request.computed

    @property
    def completed(self) -> int:
        """The completion's length."""
        return len(self.tokens) - self.request.prompt_length

    def check(self, vocabulary: int, limit: int, seeds: bool) -> None:
        """Raise `RequestInvalid` or a subclass; `seeds` is true if the server accepts a seed."""
        self.request.check(vocabulary, limit, schemas=True)
        sampling = self.request.sampling
        if sampling.seed is not None and not seeds:
            reason = "this engine cannot sample by a seed: vLLM on a CPU does not survive it"
            raise SamplingUnsupported(self.request_id, reason)
        if sampling.json_schema is not None and self.completed:
            reason = "this engine cannot go on with a text that follows a JSON schema"
            raise SamplingUnsupported(self.request_id, reason)

    def next_call(self, limit: int, salt: str, adapter: str | None = None) -> bytes:
        """Return the body of a call for the rest, under an id that no call had before."""
        self.calls += 1
        self.held.clear()
        return generate(
            f"{self.request_id}.{self.calls}",
            self.tokens,
            self.completed,
            limit - len(self.tokens),
            self.request.sampling,
            salt,
            adapter,
        )

    def add_events(self, events: Sequence[TokenEvent], version: int) -> TokenChunk | None:
        """Add new events; return the chunk to deliver now, or None.

        An aborted call's end gives no finish reason: another call continues the request.
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
        self.tokens += unpack(ids)
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
    """Return how a call ended, or None if it goes on.

    Raises `AnswerInvalid` for an unknown reason, and if other weights than `version` sampled.
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
