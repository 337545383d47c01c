"""Makes a trajectory manager out of its settings, and runs it."""

from collections.abc import Callable
from uuid import uuid4

from consumers.trajectories.bus.connections import connect
from consumers.trajectories.manager import Manager
from consumers.trajectories.matching.renderers import Renderers
from consumers.trajectories.settings import ManagerSettings
from infra.telemetry.metrics import Metrics
from infra.telemetry.tracing import metrics_export, telemetry


def serve(settings: ManagerSettings, stopping: Callable[[], bool]) -> None:
    """Serves until `stopping`; raises what makes going on impossible."""
    name = f"manager-{settings.manager.slot}-{uuid4().hex[:8]}"
    traces, metrics = telemetry(settings.telemetry, "manager", name), Metrics()
    export = metrics_export(settings.telemetry, metrics, "manager", name)
    try:
        manager = Manager(
            name, settings.manager, connect(settings, name), Renderers(), traces, metrics
        )
        manager.run(stopping)
    finally:
        traces.close()
        if export is not None:
            export.close()
