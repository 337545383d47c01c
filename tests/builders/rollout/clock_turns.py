"""Requests, answers and batches of the clock engine, at a time that a test sets."""

from collections import defaultdict
from collections.abc import Iterable

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.infra.device_model.settings import LengthsSection
from seamlessflow.producers.rollout.clock_engine.answers import AnswerLengths, Answers
from seamlessflow.producers.rollout.clock_engine.batch import ClockBatch
from seamlessflow.producers.rollout.engine.contract import SamplingParams, TokenChunk
from seamlessflow.producers.rollout.engine.request import Request, RequestChunk
from seamlessflow.schemas.tokens import pack, unpack

STOP = 99
TEXT = (11, 12, 13, 14, 15)
LIMIT = 10**6


def answers(tokens: float = 8, spread: float = 0) -> Answers:
    """Return answers of so many tokens in the mean, the stop token included."""
    section = LengthsSection(turn_tokens=tokens, spread=spread)
    return Answers(pack(TEXT), AnswerLengths(section))


def request(
    name: str = "one",
    prompt: Iterable[int] = (1, 2, 3),
    completion: Iterable[int] = (),
    stops: tuple[int, ...] = (STOP,),
    max_tokens: int = 1000,
    computed: int = 0,
    seed: int = 0,
) -> Request:
    """Return a request whose chunks are not called back."""
    sampling = SamplingParams(max_tokens, stop_token_ids=stops)
    arguments = name, pack(tuple(prompt)), pack(tuple(completion)), sampling
    return Request.from_bytes(*arguments, seed, _ignore, computed)


class ClockedTurns:
    """A clock batch whose pass takes a second for each row, and what it emitted, by request."""

    def __init__(self, rates: Rates, tokens: float = 8, report_s: float = 100.0) -> None:
        self.batch = ClockBatch(rates, answers(tokens), 1, LIMIT, report_s)
        self.chunks: defaultdict[str, list[tuple[float, TokenChunk]]] = defaultdict(list)
        self.now_s = 0.0
        self.batch.resume(0.0)

    def add(self, new_request: Request) -> None:
        self.take(self.batch.add(new_request, self.now_s))

    def run(self, until_s: float) -> None:
        """Advance from event to event, as the engine's thread does, and then to the time."""
        while (next_s := self.batch.state.next_s) <= until_s:
            self.now_s = max(self.now_s, next_s)
            self.take(self.batch.advance(self.now_s))
        self.now_s = until_s
        self.take(self.batch.advance(until_s))

    def update(self, version: int, took_s: float) -> None:
        """Pause, load weights and resume."""
        self.take(self.batch.pause(self.now_s))
        self.batch.version = version
        self.batch.forget()
        self.now_s += took_s
        self.batch.resume(self.now_s)

    def take(self, emissions: Iterable[RequestChunk]) -> None:
        for owner, chunk in emissions:
            self.chunks[owner.request_id].append((round(self.now_s, 6), chunk))

    def tokens(self, name: str) -> tuple[int, ...]:
        """Return all tokens that a request got."""
        return tuple(unpack(b"".join(chunk.token_ids for _, chunk in self.chunks[name])))

    def ends_s(self, *names: str) -> list[float]:
        """Return when these requests ended."""
        return [at_s for name in names for at_s, chunk in self.chunks[name] if chunk.finish_reason]


def _ignore(chunk: TokenChunk) -> None:
    """Do nothing."""
