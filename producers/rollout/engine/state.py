"""The state of an engine (paused, asleep, failed) and the calls that it allows.

The same in all engines (torch, scripted, vLLM).
"""

from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid


class EngineState:
    """Flags that the engine's own thread changes and any thread reads. `error` is set for good."""

    def __init__(self) -> None:
        self.paused = False
        self.asleep = False
        self.error: str | None = None

    def fail(self, reason: str) -> None:
        """Mark the engine as failed; it stays paused."""
        self.error = reason
        self.paused = True

    def require_working(self, call: str) -> None:
        """Raise `EngineStateInvalid` if the engine has failed. So do all checks below."""
        if self.error is not None:
            raise EngineStateInvalid(call, f"failed ({self.error})")

    def require_awake(self, call: str) -> None:
        """Raise `EngineStateInvalid` also if the engine is asleep."""
        self.require_working(call)
        if self.asleep:
            raise EngineStateInvalid(call, "asleep")

    def require_paused(self, call: str) -> None:
        """Raise `EngineStateInvalid` also if the engine is running, awake or not."""
        self.require_working(call)
        if not self.paused:
            raise EngineStateInvalid(call, "running")

    def require_loadable(self) -> None:
        """Raise `EngineStateInvalid` unless the engine is paused and awake."""
        self.require_paused("load_weights")
        self.require_awake("load_weights")
