"""Hosting of several workers in one rollout process, for modelled devices.

Each worker is what it is in a process of its own, with its incarnation, Kafka clients, engine and
main loop, in a thread. If one worker fails, the process ends, and with it all its workers.
"""

import threading
from collections.abc import Sequence

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.producers.rollout.restarts import serve
from seamlessflow.producers.rollout.settings import RolloutSettings


def serve_all(settings: RolloutSettings, stop: threading.Event) -> None:
    """Serve all workers of the settings until `stop` is set.

    Raises what `serve` raises of a single one; a thread's error reaches `infra/process.py`.
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
    """Return the settings of each worker of a process. Raises `SettingsRejected`."""
    mine = settings.rollout
    if mine.hosted and mine.engine != "clock":
        reason = "an engine with a device has its process to itself; only clock shares one"
        raise SettingsRejected("SEAMLESSFLOW_ROLLOUT__HOSTED", reason)
    alone = mine.model_copy(update={"hosted": ()})
    others = [alone.model_copy(update=dict(changes)) for changes in mine.hosted]
    return [settings.model_copy(update={"rollout": section}) for section in (alone, *others)]
