"""Errors that engines raise, each with the facts to act on."""

from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError


class EngineError(SeamlessFlowError):
    """Base of all an engine's errors."""


class RequestInvalid(EngineError):
    """A request that no engine can serve; nothing was queued."""

    def __init__(self, request_id: str, reason: str) -> None:
        self.request_id = request_id
        self.reason = reason
        super().__init__(f"request {request_id}: {reason}")


class PromptTooLong(RequestInvalid):
    """Prompt and completion so far are longer than the engine's context limit."""

    def __init__(self, request_id: str, length: int, limit: int) -> None:
        self.length = length
        self.limit = limit
        super().__init__(request_id, f"{length} tokens, the context limit is {limit}")


class SamplingUnsupported(RequestInvalid):
    """A request for something that this engine cannot do and another may be able to."""


def no_structured_output(request_id: str) -> SamplingUnsupported:
    """Return the refusal from an engine that cannot make its text follow a JSON schema."""
    reason = "this engine has no structured output: answers are plain text"
    return SamplingUnsupported(request_id, reason)


class EngineStateInvalid(EngineError):
    """A call that does not fit the engine's `state`: running, asleep, failed, closed."""

    def __init__(self, call: str, state: str) -> None:
        self.call = call
        self.state = state
        super().__init__(f"{call} is not possible: the engine is {state}")


class EngineTimeout(EngineError):
    """A call that the engine's thread did not run in time. It may still take effect later."""

    def __init__(self, call: str, timeout_s: float) -> None:
        self.call = call
        self.timeout_s = timeout_s
        super().__init__(f"{call} was not done within {timeout_s:g} s")


class WeightsRejected(EngineError):
    """Weights that do not fit the model. Nothing was changed; the engine stays paused."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"weights in {directory}: {reason}")


class ModelUnsupported(EngineError):
    """A model that this engine cannot run with the right distribution, or within its memory."""

    lasting = True

    def __init__(self, model_type: str, reason: str) -> None:
        self.model_type = model_type
        self.reason = reason
        super().__init__(f"model type {model_type}: {reason}")
