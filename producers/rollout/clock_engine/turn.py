"""A turn of the clock engine: its request, and the answer that time will bring. Pure."""

from dataclasses import dataclass

from seamlessflow.infra.device_model.batch import ModelledTurn
from seamlessflow.producers.rollout.clock_engine.answers import Answer, Answers
from seamlessflow.producers.rollout.engine.contract import ChunkSpan, FinishReason, TokenChunk
from seamlessflow.producers.rollout.engine.made_up import logprobs, most_likely
from seamlessflow.producers.rollout.engine.request import Request, last_chunk


@dataclass(slots=True, eq=False, kw_only=True)
class ClockTurn(ModelledTurn):
    """A turn that waits or runs. `sent` is the length of its completion as it was delivered."""

    request: Request
    answer: Answer
    answers: Answers
    sent: int
    held: tuple[int, ...] = ()
    """Blocks of the prefix cache that it uses."""

    @classmethod
    def of(cls, request: Request, answers: Answers, limit: int) -> "ClockTurn":
        """Return the turn of a request that is not finished before its start."""
        answer = answers.to(request, limit)
        return cls(
            context=len(request.tokens),
            left=answer.length - request.completed,
            computed=request.computed,
            request=request,
            answer=answer,
            answers=answers,
            sent=request.completed,
        )

    @property
    def tokens(self) -> bytes:
        """All its tokens at its end."""
        rest = self.answers.tokens(self.answer, self.request.completed, self.answer.length)
        return self.request.tokens.tobytes() + rest

    def chunk(self, end: int, version: int, reason: FinishReason | None = None) -> TokenChunk:
        """Return what was sampled since the last chunk, up to `end`."""
        start, self.sent = self.sent, end
        if reason is not None and end == start:
            return last_chunk(start, reason)
        sampling = self.request.sampling
        ids = self.answers.tokens(self.answer, start, end)
        count, temperature = sampling.top_logprobs, sampling.temperature
        top = most_likely(ids, count, temperature) if count else ()
        span = ChunkSpan(start, version)
        return TokenChunk(start, ids, logprobs(end - start, temperature), (span,), reason, *top)
