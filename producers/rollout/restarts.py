"""Coming back after the engine was lost: the same process, a new engine, a new incarnation.

Turns under way were handed back by then and go on from their tokens, here or elsewhere. Only for an
engine in a process of its own: after an engine in this process failed, what else is in this process
cannot be trusted, and whoever supervises it starts another.
"""

import logging
import threading
import time
from collections import deque

from producers.rollout.bootstrap import observed
from producers.rollout.engine.errors import EngineError
from producers.rollout.process import EngineBroke
from producers.rollout.settings import RolloutSettings

WITHIN_S = 600.0
_log = logging.getLogger(__name__)


class Restarts:
    """Allows `most` restarts in any `within_s` seconds."""

    def __init__(self, most: int, within_s: float = WITHIN_S) -> None:
        self._most = most
        self._within_s = within_s
        self._times_s: deque[float] = deque()

    def again(self, now_s: float) -> bool:
        """Whether one more is allowed now; if so it is counted."""
        while self._times_s and self._times_s[0] <= now_s - self._within_s:
            self._times_s.popleft()
        if len(self._times_s) >= self._most:
            return False
        self._times_s.append(now_s)
        return True


def serve(settings: RolloutSettings, stop: threading.Event) -> None:
    """A worker until `stop` is set. Raises what ends it for good."""
    mine = settings.rollout
    restarts = Restarts(mine.vllm.restarts if mine.engine == "vllm" else 0)
    while True:
        try:
            with observed(settings) as worker:
                worker.run(stop)
            return
        except (EngineBroke, EngineError) as error:
            if stop.is_set() or not restarts.again(time.monotonic()):
                raise
            _log.warning("the engine is started anew: %s", error)
