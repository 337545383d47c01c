"""An engine that answers with the lines of `scripts.py` instead of a model's.

Its tokens are deliberately not those that a tokenizer gives for the text: each line is split into
short pieces, as a sampler may do. Log-probs differ from token to token. So a process that tokenizes
text again, or invents a number, differs from the engine's own record (`record.py`).
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    EngineHealth,
    SamplingParams,
)
from seamlessflow.producers.rollout.engine.errors import RequestInvalid
from seamlessflow.producers.rollout.engine.request import last_chunk
from seamlessflow.producers.rollout.engine.threaded_engine import ThreadedEngine
from seamlessflow.producers.rollout.scripted_engine import Script
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.schemas.tokens import pack, unpack
from tests.agents.engine.record import append
from tests.agents.engine.turn import ActedTurn, logprobs

DEADLINE_S = 120.0
STEP_S = 0.002
MOST_TOKENS = 2**31
PIECE = 5
"""Characters that are tokenised by themselves."""

_CONTROL = re.compile(r"(</?think>|</?tool_call>)")
Act = Callable[[str], str]


class ActingEngine(ThreadedEngine):
    """An `Engine` that passes a worker's probe: the same prompt gets the same answer, also when it
    begins in the middle."""

    def __init__(self, tokenizer: Tokenizer, act: Act, record: Path, version: int) -> None:
        self._tokenizer = tokenizer
        self._act = act
        self._record = record
        self._version = version
        self._live: dict[str, ActedTurn] = {}
        self._sampled = 0
        super().__init__("acting-engine", DEADLINE_S)

    @property
    def logprob_tolerance(self) -> float:
        return 0.0

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> None:
        try:
            text = self._act(self._tokenizer.decode(unpack(prompt)))
        except LookupError as error:
            raise RequestInvalid(request_id, f"no line for this prompt: {error!r}") from error
        spelt = list(self._spelt(text))
        script = Script(pack(spelt), len(spelt))
        offset = len(completion) // 4
        end, reason = script.end(len(prompt) // 4, offset, sampling, MOST_TOKENS)
        turn = ActedTurn(
            request_id,
            prompt,
            offset,
            script.tokens(offset, end, sampling.stop_token_ids),
            logprobs(prompt, end)[4 * offset :],
            reason,
            sampling.top_logprobs,
            sampling.temperature,
            on_chunk,
        )
        self._thread.post("submit", lambda: self._begin(turn))

    def load_weights(self, directory: Path, version: int) -> None:
        self._thread.ask("load_weights", lambda: self._take(version))

    def health(self) -> EngineHealth:
        return EngineHealth(
            version=self._version,
            running=len(self._live),
            waiting=len(self._commands),
            kv_rows=0,
            kv_bytes=0,
            paused=self.state.paused,
            asleep=self.state.asleep,
            error=self.state.error,
            failed_callbacks=self.failed_callbacks,
            sampled_tokens=self._sampled,
            reused_tokens=0,
            busy_seconds=0.0,
        )

    @property
    def _has_work(self) -> bool:
        return bool(self._live)

    def _advance(self) -> None:
        for turn in list(self._live.values()):
            self._say(turn)
        time.sleep(STEP_S)

    def _say(self, turn: ActedTurn) -> None:
        chunk = turn.chunk(self._version)
        self._sampled += len(chunk.token_ids) // 4
        if chunk.finish_reason is not None:
            del self._live[turn.request_id]
            append(self._record, turn.sampled())
        self._deliver(turn.request_id, turn.on_chunk, chunk)

    def _spelt(self, text: str) -> Iterator[int]:
        for part in _CONTROL.split(text):
            if _CONTROL.fullmatch(part):
                yield from self._tokenizer.encode(part)
            else:
                for start in range(0, len(part), PIECE):
                    yield from self._tokenizer.encode(part[start : start + PIECE])

    def _begin(self, turn: ActedTurn) -> None:
        self._live.setdefault(turn.request_id, turn)

    def _abort(self, request_id: str | None) -> None:
        for each in list(self._live) if request_id is None else [request_id]:
            if (turn := self._live.pop(each, None)) is not None:
                end = last_chunk(turn.offset + turn.said, "abort")
                self._deliver(turn.request_id, turn.on_chunk, end)

    def _take(self, version: int) -> None:
        self._version = version


class ActingEngines:
    """The worker's factory of its engine; weights are only a version number."""

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self, act: Act, record: Path) -> None:
        self._act = act
        self._record = record

    def verify(self, weights: PublishedWeights) -> None:
        """Accept all weights."""

    def build(self, weights: PublishedWeights, parser: MessageParser) -> ActingEngine:
        """Return an engine with the tokenizer of the weights' directory."""
        tokenizer = Tokenizer.load(Path(weights.directory))
        return ActingEngine(tokenizer, self._act, self._record, weights.version)
