"""A rollout worker in a thread, whose engine gives each session the answers that were set.

Everything else is as in a run: it has a role, writes tokens to the log, and parses messages.
"""

import threading
from types import TracebackType
from typing import Self

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.infra.settings import KafkaSettings, TelemetrySettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.bootstrap import build
from seamlessflow.producers.rollout.engine.contract import Engine, SamplingParams
from seamlessflow.producers.rollout.scripted_engine import Script, ScriptedEngine
from seamlessflow.producers.rollout.settings import RolloutSection, RolloutSettings
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.tryout.policy import JsonObject

WORKER = "w0"
_ASKED: JsonObject = {"role": "user", "content": "?"}
_NOTHING_SAID = "I have nothing to say."
_LONGEST_BEGUN = 256
"""Most tokens of its answer that a prompt may already have: a forced call's opening."""
_END_S = 30.0


class SaidAnswers:
    """Answers in tokens, by session. For several threads."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._lock = threading.Lock()
        self._ids: dict[str, bytes] = {}
        self._otherwise = renderer.encode(_NOTHING_SAID)

    def say(self, session_id: str, message: JsonObject, tools: list[JsonObject]) -> str:
        """Answer a session's next turns with this message.

        Return why the policy's template cannot write the message; empty if it can. If it cannot,
        only the message's text is said.
        """
        reason = ""
        with self._lock:
            try:
                ids = self._renderer.answer([_ASKED, message], tools or None)
            except RendererError as error:
                reason = str(error)
                ids = self._renderer.encode(message["content"] or _NOTHING_SAID)
            self._ids[session_name(session_id)] = ids
        return reason

    def script(self, prompt: bytes, sampling: SamplingParams) -> Script:
        """Return a request's script: the part of the answer that its prompt lacks."""
        with self._lock:
            ids = self._ids.get(sampling.session, self._otherwise)
        rest = ids[_begun(prompt, ids) :] or self._otherwise
        return Script(rest, len(rest) // TOKEN_BYTES)


class SpeakingWorker:
    """A worker in this process. A context manager, which ends it."""

    def __init__(self, kafka: KafkaSettings, policy: str, answers: SaidAnswers) -> None:
        settings = RolloutSettings(
            kafka=kafka, rollout=RolloutSection(worker=WORKER, policy=policy, engine="scripted")
        )
        self.error: BaseException | None = None
        """Fault that ended it."""
        self._stop = threading.Event()
        traces = telemetry(TelemetrySettings(), "rollout", WORKER)
        self._process = build(
            settings, traces, Metrics(), _SpeakingEngines(answers), self._stop.is_set
        )
        self._thread = threading.Thread(target=self._run, name=WORKER, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            self._process.run(self._stop)
        except BaseException as error:  # `TryoutSystem.check` raises it
            self.error = error


class _SpeakingEngines:
    """Its engine's factory, which reads no weights."""

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self, answers: SaidAnswers) -> None:
        self._answers = answers

    def verify(self, weights: PublishedWeights) -> None:
        """Accept all weights: none is read."""

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        """Return an engine."""
        usual = parser.encode(_NOTHING_SAID)
        script = Script(usual, len(usual) // TOKEN_BYTES)
        return ScriptedEngine(script, weights.version, choose=self._answers.script)


def _begun(prompt: bytes, answer: bytes) -> int:
    """Return how many bytes of an answer stand at the prompt's end."""
    longest = min(len(prompt), len(answer), _LONGEST_BEGUN * TOKEN_BYTES)
    sizes = range(longest, 0, -TOKEN_BYTES)
    return next((size for size in sizes if prompt.endswith(answer[:size])), 0)
