"""Restarts after the engine was lost: the same process, a new engine, a new incarnation.

The turns under way were handed back by then and continue from their tokens, here or elsewhere. Only
for vLLM, which has a process of its own. After a failure of an engine in this process, the rest of
the process cannot be trusted either. Its supervisor then starts another one.
"""

import logging
import threading
import time
from collections import deque

from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.producers.rollout.bootstrap import observed
from seamlessflow.producers.rollout.engine.errors import EngineError
from seamlessflow.producers.rollout.engines import engine_factory
from seamlessflow.producers.rollout.process import EngineBroke
from seamlessflow.producers.rollout.settings import RolloutSettings
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS

_TOPICS = (PROMPTS, SESSIONS, CONTROL, FLEET)
WITHIN_S = 600.0
_log = logging.getLogger(__name__)


class Restarts:
    """A limit of `most` restarts in any `within_s` seconds."""

    def __init__(self, most: int, within_s: float = WITHIN_S) -> None:
        self._most = most
        self._within_s = within_s
        self._times_s: deque[float] = deque()

    def allow(self, now_s: float) -> bool:
        """Return True, and count it, if one more restart is allowed now."""
        while self._times_s and self._times_s[0] <= now_s - self._within_s:
            self._times_s.popleft()
        if len(self._times_s) >= self._most:
            return False
        self._times_s.append(now_s)
        return True


def serve(settings: RolloutSettings, stop: threading.Event) -> None:
    """Run a rollout process until `stop` is set. Raises the error that ends it for good."""
    mine = settings.rollout
    # First: a wrong setting shows at once, also where Kafka is waited for.
    engines = engine_factory(settings)
    find_cluster(settings.kafka, _TOPICS, stop.is_set)
    restarts = Restarts(mine.vllm.restarts if mine.engine == "vllm" else 0)
    while True:
        try:
            with observed(settings, engines, stop.is_set) as process:
                process.run(stop)
            return
        except (EngineBroke, EngineError) as error:
            if stop.is_set() or not restarts.allow(time.monotonic()):
                raise
            _log.warning("starting a new engine: %s", error)
