"""An engine's probe: the questions in `questions.py`, asked with a deadline.

Called from the device thread while nothing else is sampled. It asks six short requests once the
engine is built, and one after the engine woke up or got other weights.
"""

import threading
import time
from collections.abc import Sequence

from seamlessflow.producers.rollout.engine.contract import Engine, TokenChunk
from seamlessflow.producers.rollout.engine.errors import EngineError, RequestInvalid
from seamlessflow.producers.rollout.probe import questions
from seamlessflow.producers.rollout.probe.answers import (
    EngineProbeFailed,
    EngineUnanswering,
    ProbeAnswer,
    Question,
    read,
)
from seamlessflow.schemas.tokens import pack

SHORT = 2
"""Tokens in the one answer after a wake-up or other weights."""


class EngineProbe:
    """A probe; `deadline_s` is for all questions together.

    `tolerance` None stands for the engine's own, `Engine.logprob_tolerance`.
    """

    def __init__(self, deadline_s: float, tolerance: float | None = None) -> None:
        self._deadline_s = deadline_s
        self._tolerance = tolerance

    def whole(self, engine: Engine, prompt: bytes, version: int) -> None:
        """Ask an engine that was just built all questions. Raises `EngineProbeFailed`.

        For a wrong answer, the error is lasting: another engine of its kind would give it too.
        """
        try:
            self._ask_all(engine, prompt, version)
        except EngineUnanswering:
            raise
        except EngineProbeFailed as error:
            error.lasting = True
            raise

    def short(self, engine: Engine, prompt: bytes, version: int) -> None:
        """Ask an engine that woke up or has other weights one question. Raises as `whole` does, but
        no lasting error: a new engine may be right again.
        """
        question = questions.greedy(prompt, SHORT)
        (answer,) = _Asking(engine, version, self._deadline_s).answers([question])
        questions.check_full(question, answer)

    def _ask_all(self, engine: Engine, prompt: bytes, version: int) -> None:
        asking = _Asking(engine, version, self._deadline_s)
        tolerance = engine.logprob_tolerance if self._tolerance is None else self._tolerance
        first = [questions.greedy(prompt), questions.sampled(prompt)]
        greedy, sampled = firsts = asking.answers(first)
        for question, answer in zip(first, firsts, strict=True):
            questions.check_full(question, answer)
            questions.check_likely(question, answer, tolerance)
        again = [
            questions.continued(prompt, greedy),
            questions.scored_again(prompt, sampled),
            questions.stopped(prompt, greedy),
        ]
        continued, scored, stopped = asking.answers(again)
        questions.check_full(again[0], continued)
        questions.check_same(again[0], greedy, continued, tolerance)
        questions.check_full(again[1], scored)
        questions.check_distribution(again[1], sampled, scored, tolerance)
        questions.check_stopped(again[2], stopped)
        aborted = questions.aborted(prompt)
        questions.check_aborted(aborted, asking.aborted(aborted))


class _Asking:
    def __init__(self, engine: Engine, version: int, deadline_s: float) -> None:
        self._engine = engine
        self._version = version
        self._deadline_s = deadline_s
        self._ends_at = time.monotonic() + deadline_s
        # A wrong version would make every answer wrong: better to report it as such.
        if (loaded := engine.health().version) != version:
            raise EngineProbeFailed("health", "version", version, loaded)

    def answers(self, questions: Sequence[Question]) -> list[ProbeAnswer]:
        """Ask all questions at once; return the answers in their order."""
        asked = [_Listener(question) for question in questions]
        for listener in asked:
            self._submit(listener)
        answers = [self._answer(listener) for listener in asked]
        for question, answer in zip(questions, answers, strict=True):
            if answer.reason == "abort":
                raise EngineUnanswering(question.name, "finish_reason", "an answer", answer.reason)
        return answers

    def aborted(self, question: Question) -> ProbeAnswer:
        """Return the answer to a question that is aborted while the engine is paused."""
        listener = _Listener(question)
        # Paused, or a fast engine would finish before the abort.
        self._engine.pause("keep")
        self._submit(listener)
        self._engine.abort(listener.request_id)
        answer = self._answer(listener)
        self._engine.resume()
        return answer

    def _submit(self, listener: "_Listener") -> None:
        question = listener.question
        completion = pack(question.completion)
        try:
            self._engine.submit(
                listener.request_id,
                question.prompt,
                completion,
                question.sampling,
                listener.on_chunk,
            )
        except EngineError as error:
            refused = isinstance(error, RequestInvalid)
            kind = EngineProbeFailed if refused else EngineUnanswering
            raise kind(question.name, "submit", "taken", error) from error

    def _answer(self, listener: "_Listener") -> ProbeAnswer:
        if not listener.ended.wait(max(0.0, self._ends_at - time.monotonic())):
            self._engine.abort(None)
            expected = f"one within {self._deadline_s:g} s"
            got = f"{len(listener.chunks)} chunks"
            raise EngineUnanswering(listener.question.name, "finish_reason", expected, got)
        return read(listener.question, listener.chunks, self._version)


class _Listener:
    """The chunks of one request, kept until its end."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.request_id = f"probe/{question.name}"
        self.chunks: list[TokenChunk] = []
        self.ended = threading.Event()

    def on_chunk(self, chunk: TokenChunk) -> None:
        self.chunks.append(chunk)
        if chunk.finish_reason is not None:
            self.ended.set()
