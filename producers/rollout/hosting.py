"""Service for the workers in one rollout process. If one loses its engine, it is served anew.

A process hosts several workers only for modelled devices. Each worker has its own thread,
incarnation, Kafka clients, engine and main loop. If one worker fails, the process ends, and with it
all its workers.

A lost engine is replaced in the same process, by a new one under a new incarnation. The turns under
way were handed back by then and continue from their tokens, here or elsewhere. This is only for
vLLM, whose server is a separate process. If an engine inside this process fails, the rest of the
process cannot be trusted either. Its supervisor then starts another process.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from seamlessflow.infra.errors import SettingsRejected
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


def serve_all(settings: RolloutSettings, stop: threading.Event) -> None:
    """Serve all workers in the settings until `stop` is set.

    For a single worker, raises what `serve` raises. With several workers, each has a thread, and a
    thread's error reaches `infra/process.py`.
    """
    workers = hosted(settings)
    if len(workers) == 1:
        serve(settings, stop)
        return
    threads = [
        threading.Thread(target=serve, args=(each, stop), name=f"worker {each.rollout.worker}")
        for each in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hosted(settings: RolloutSettings) -> Sequence[RolloutSettings]:
    """Return the settings for each worker in the process. Raises `SettingsRejected`."""
    mine = settings.rollout
    if mine.hosted and mine.engine != "clock":
        reason = "an engine with a device has its process to itself; only clock shares one"
        raise SettingsRejected("SEAMLESSFLOW_ROLLOUT__HOSTED", reason)
    alone = mine.model_copy(update={"hosted": ()})
    others = [alone.model_copy(update=dict(changes)) for changes in mine.hosted]
    return [settings.model_copy(update={"rollout": section}) for section in (alone, *others)]


def serve(settings: RolloutSettings, stop: threading.Event) -> None:
    """Run a rollout process until `stop` is set. Raises the error that ends it for good."""
    mine = settings.rollout
    # First, so that a wrong setting shows at once, and not after a wait for Kafka.
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
