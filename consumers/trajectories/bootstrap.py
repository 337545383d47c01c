"""Construction of a trajectory manager from its settings."""

from collections.abc import Callable
from uuid import uuid4

from consumers.trajectories.bus.connections import connect
from consumers.trajectories.manager import Manager
from consumers.trajectories.matching.renderers import Renderers
from consumers.trajectories.settings import ManagerSettings
from infra.telemetry.metrics import Metrics
from infra.telemetry.metrics_export import metrics_export
from infra.telemetry.tracing import telemetry


def serve(settings: ManagerSettings, stopping: Callable[[], bool]) -> None:
    """Run a manager until `stopping()` is true. Raises what `Manager.run` raises."""
    # The member's name outlives a restart; the rest distinguishes its lives.
    member = settings.manager.slot
    name = f"manager-{member}-{uuid4().hex[:8]}"
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
