"""Whether an engine runs, stands, sleeps or has failed, and what may be asked of it then.

The same in all engines (torch, scripted, vLLM).
"""

from producers.rollout.engine.errors import EngineStateInvalid


class EngineState:
    """Changed by the engine's own thread alone; any may read it. `error` is set for good."""

    def __init__(self) -> None:
        self.paused = False
        self.asleep = False
        self.error: str | None = None

    def fail(self, reason: str) -> None:
        """The engine is of no more use."""
        self.error = reason
        self.paused = True

    def require_working(self, call: str) -> None:
        """Raises `EngineStateInvalid` once it has failed, as all of these do."""
        if self.error is not None:
            raise EngineStateInvalid(call, f"failed ({self.error})")

    def require_awake(self, call: str) -> None:
        """Not asleep."""
        self.require_working(call)
        if self.asleep:
            raise EngineStateInvalid(call, "asleep")

    def require_paused(self, call: str) -> None:
        """Paused, awake or not."""
        self.require_working(call)
        if not self.paused:
            raise EngineStateInvalid(call, "running")

    def require_loadable(self) -> None:
        """Paused and awake, so that it can take new weights."""
        self.require_paused("load_weights")
        self.require_awake("load_weights")
