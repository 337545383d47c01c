"""Makes a trainer process out of its settings and of what is recorded: the one place that joins its
parts.
"""

import logging
import time
import uuid

from infra.kafka import BEGINNING, Producer, Reader
from infra.kafka_topics import cluster_id
from infra.reading import ReaderThread
from infra.telemetry import Telemetry
from schemas.topics import TRAJECTORIES
from trainer import checkpoint
from trainer.advantages import ESTIMATORS
from trainer.backend import Backend, UnknownChoice
from trainer.batch import Rules
from trainer.checkpoint import Checkpoint
from trainer.control_log import read_recorded
from trainer.dataloader import Dataloader, Limits
from trainer.device import Device, new_incarnation
from trainer.filters import FILTERS
from trainer.first_weights import announce, first_weights
from trainer.heartbeat import Heartbeat, Vitals
from trainer.inbox import Inbox
from trainer.loop import Loop
from trainer.publication import Publication
from trainer.recovery import Plan, plan
from trainer.reports import Reports
from trainer.roles import Roles
from trainer.settings import TrainerSettings
from trainer.sinks import open_sinks
from trainer.step import StepRunner
from trainer.steps import Parts, Steps
from trainer.torch_backend import TorchBackend
from trainer.usage import Usage
from trainer.work import Work

_CLUSTER_TIMEOUT_S = 60.0
_log = logging.getLogger(__name__)


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def build(settings: TrainerSettings, telemetry: Telemetry) -> Loop:
    """A trainer that has read what is recorded, has its weights, and has announced itself."""
    rules = _rules(settings)
    log = f"{cluster_id(settings.kafka, _CLUSTER_TIMEOUT_S)}/{settings.kafka.topic_prefix}"
    resumed = checkpoint.newest(settings.checkpoints_dir, settings.run.policy, log)
    client_id = f"trainer-{settings.trainer.worker}"
    producer = Producer(settings.kafka, client_id)
    roles = Roles(settings.trainer.worker, new_incarnation())
    resumed.resume(roles)
    vitals, usage = Vitals(), Usage(settings.trainer.worker, now_ms())
    heartbeat = Heartbeat(settings, producer, roles, vitals, usage, now_ms)
    heartbeat.start()
    control = Reader(settings.kafka, f"{client_id}-control", dead_letters=producer)
    history = resumed.history
    read_recorded(control, history, roles)
    todo = plan(history, resumed.origin, uuid.uuid4().hex[:12])
    _tell(todo)
    backend = _backend(settings, resumed)
    publication = Publication(settings)
    first = first_weights(publication, settings.weights_dir, history, todo, backend)
    announce(first, publication, producer, now_ms())
    todo = first.plan
    inbox, work = Inbox(), Work()
    started_at = _started_at(resumed)
    reports = Reports(settings.trainer, open_sinks(settings))
    dataloader = Dataloader(todo, history, settings.run.policy, rules, _limits(settings), now_ms())
    steps = Steps(
        Parts(
            settings=settings,
            producer=producer,
            plan=todo,
            log=log,
            started_at=started_at,
            history=history,
            roles=roles,
            dataloader=dataloader,
            backend=backend,
            runner=StepRunner(settings, backend, publication, producer, telemetry, now_ms),
            reports=reports,
            work=work,
            vitals=vitals,
            usage=usage,
            now_ms=now_ms,
        )
    )
    sessions = Reader(settings.kafka, f"{client_id}-sessions", dead_letters=producer)
    sessions.assign({(TRAJECTORIES.name, number): at for number, at in started_at.items()})
    return Loop(
        inbox=inbox,
        readers=[
            ReaderThread("trainer control", control, inbox.put, inbox.fail),
            ReaderThread("trainer sessions", sessions, inbox.put_when_open, inbox.fail),
        ],
        producer=producer,
        history=history,
        roles=roles,
        dataloader=dataloader,
        device=Device(roles, backend, work, producer, heartbeat, vitals, usage, now_ms),
        steps=steps,
        work=work,
        reports=reports,
        heartbeat=heartbeat,
        vitals=vitals,
        now_ms=now_ms,
    )


def _rules(settings: TrainerSettings) -> Rules:
    trainer = settings.trainer
    if trainer.advantage not in ESTIMATORS:
        raise UnknownChoice("trainer.advantage", trainer.advantage, list(ESTIMATORS))
    for name in trainer.filters:
        if name not in FILTERS:
            raise UnknownChoice("trainer.filters", name, list(FILTERS))
    estimator = ESTIMATORS[trainer.advantage]
    return Rules(estimator, trainer.filters, trainer.on_stale, settings.run.lag)


def _limits(settings: TrainerSettings) -> Limits:
    run = settings.run
    return Limits(run.groups_per_step, run.lag, settings.pacing.refill, settings.window)


def _tell(todo: Plan) -> None:
    if todo.origin.step or todo.again:
        _log.info(
            "resuming at step %d with version %d; %d recorded steps are executed again",
            todo.origin.step,
            todo.origin.version,
            len(todo.again),
        )


def _backend(settings: TrainerSettings, resumed: Checkpoint) -> Backend:
    backend = TorchBackend(settings.policy.model, settings.trainer)
    if resumed.directory is not None:
        backend.load(resumed.directory)
    backend.remember(resumed.origin.version)
    return backend


def _started_at(resumed: Checkpoint) -> dict[int, int]:
    """First offset to read of each partition of `trajectories`."""
    return {
        number: resumed.offsets.get(number, BEGINNING) for number in range(TRAJECTORIES.partitions)
    }
