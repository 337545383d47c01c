"""Makes a trainer process out of its settings and of what is recorded: the one place that joins its
parts.
"""

import logging
import uuid
from dataclasses import dataclass

from infra.clock import now_ms
from infra.kafka.client import BEGINNING
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.kafka.topics import cluster_id
from infra.telemetry.tracing import Telemetry
from schemas.topics import TRAJECTORIES
from trainer.backends.backend import Backend, UnknownChoice
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.backends.torch_backend import TorchBackend
from trainer.data.advantages import ESTIMATORS
from trainer.data.batch import BatchRules
from trainer.data.filters import FILTERS
from trainer.follower import Follower
from trainer.inbox import Inbox
from trainer.loop import Loop
from trainer.metrics.sinks import open_sinks
from trainer.recovery import checkpoint
from trainer.recovery.checkpoint import Checkpoint
from trainer.recovery.control_log import read_recorded
from trainer.recovery.resume import Resume, resume_from
from trainer.roles.device import TrainerDevice, new_incarnation
from trainer.roles.heartbeat import Heartbeat, Vitals
from trainer.roles.roles import TrainerRoles
from trainer.roles.usage import Usage
from trainer.settings import TrainerSettings
from trainer.steps.dataloader import BatchLimits, Dataloader
from trainer.steps.first_weights import announce, first_weights
from trainer.steps.one_step import StepRunner
from trainer.steps.publication import Publication
from trainer.steps.reports import Reports
from trainer.steps.sequence import Parts, StepSequence
from trainer.work import Work

_CLUSTER_TIMEOUT_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Process:
    """What a leader and a follower have in common."""

    client_id: str
    producer: Producer
    roles: TrainerRoles
    vitals: Vitals
    usage: Usage
    heartbeat: Heartbeat
    control: Reader
    inbox: Inbox
    work: Work

    def device(self, backend: Backend) -> TrainerDevice:
        """Moves the back end to the device and away."""
        parts = self.producer, self.heartbeat, self.vitals, self.usage
        return TrainerDevice(self.roles, backend, self.work, *parts, now_ms)

    def control_thread(self) -> ReaderThread:
        """Goes on where `control` was read to."""
        return ReaderThread("trainer control", self.control, self.inbox.put, self.inbox.fail)


def build(settings: TrainerSettings, telemetry: Telemetry) -> Loop | Follower:
    """A trainer that has read what is recorded, has its weights, and has announced itself.

    A setting that cannot be is refused before anybody is told of the policy.
    """
    rules, publication = _rules(settings), Publication(settings)
    publication.check_rendering()
    log = f"{cluster_id(settings.kafka, _CLUSTER_TIMEOUT_S)}/{settings.kafka.topic_prefix}"
    if settings.trainer.rank > 0:
        return _follower(settings, log)
    resumed = checkpoint.newest(settings.checkpoints_dir, settings.run.policy, log)
    process, control_state = _process(settings, resumed), resumed.control_state
    todo = resume_from(control_state, resumed.origin, uuid.uuid4().hex[:12])
    _log_resume(todo)
    backend = _backend(settings)
    backend.load(resumed.directory, resumed.origin.version)
    first = first_weights(publication, settings.weights_dir, control_state, todo, backend)
    announce(first, publication, process.producer, now_ms())
    backend.rest()
    backend.release()
    dataloader = Dataloader(
        first.resume, control_state, settings.run.policy, rules, _limits(settings), now_ms()
    )
    parts = Parts(
        settings=settings,
        producer=process.producer,
        resume=first.resume,
        log=log,
        started_at=_started_at(resumed),
        control_state=control_state,
        roles=process.roles,
        dataloader=dataloader,
        backend=backend,
        runner=StepRunner(settings, backend, publication, process.producer, telemetry, now_ms),
        reports=Reports(settings.trainer, open_sinks(settings)),
        work=process.work,
        vitals=process.vitals,
        usage=process.usage,
        now_ms=now_ms,
    )
    return _loop(process, parts)


def _loop(process: _Process, parts: Parts) -> Loop:
    name, inbox = f"{process.client_id}-sessions", process.inbox
    sessions = Reader(parts.settings.kafka, name, dead_letters=process.producer)
    sessions.assign({(TRAJECTORIES.name, number): at for number, at in parts.started_at.items()})
    thread = ReaderThread("trainer sessions", sessions, inbox.put_when_open, inbox.fail)
    return Loop(
        inbox=inbox,
        readers=[process.control_thread(), thread],
        producer=process.producer,
        control_state=parts.control_state,
        roles=process.roles,
        dataloader=parts.dataloader,
        device=process.device(parts.backend),
        steps=StepSequence(parts),
        work=process.work,
        reports=parts.reports,
        heartbeat=process.heartbeat,
        vitals=process.vitals,
        ranks=parts.settings.trainer.ranks,
        now_ms=now_ms,
    )


def _follower(settings: TrainerSettings, log: str) -> Follower:
    process = _process(settings, checkpoint.initial(settings.run.policy, log))
    backend = FsdpBackend(settings.policy.model, settings.trainer)
    backend.follow()
    backend.release()
    return Follower(
        inbox=process.inbox,
        reader=process.control_thread(),
        producer=process.producer,
        roles=process.roles,
        device=process.device(backend),
        backend=backend,
        work=process.work,
        heartbeat=process.heartbeat,
        vitals=process.vitals,
        usage=process.usage,
        steps=settings.run.steps,
        ranks=settings.trainer.ranks,
    )


def _process(settings: TrainerSettings, resumed: Checkpoint) -> _Process:
    """Announces the process and folds what `control` holds into `resumed.control_state`."""
    client_id = f"trainer-{settings.trainer.worker}"
    producer = Producer(settings.kafka, client_id)
    roles = TrainerRoles(settings.trainer.worker, new_incarnation())
    resumed.restore_roles(roles)
    vitals, usage = Vitals(), Usage(settings.trainer.worker, now_ms())
    heartbeat = Heartbeat(settings, producer, roles, vitals, usage, now_ms)
    heartbeat.start()
    control = Reader(settings.kafka, f"{client_id}-control", dead_letters=producer)
    read_recorded(control, resumed.control_state, roles)
    roles.broken_by = ""
    return _Process(client_id, producer, roles, vitals, usage, heartbeat, control, Inbox(), Work())


def _rules(settings: TrainerSettings) -> BatchRules:
    trainer = settings.trainer
    if trainer.advantage not in ESTIMATORS:
        raise UnknownChoice("trainer.advantage", trainer.advantage, list(ESTIMATORS))
    for name in trainer.filters:
        if name not in FILTERS:
            raise UnknownChoice("trainer.filters", name, list(FILTERS))
    estimator = ESTIMATORS[trainer.advantage]
    return BatchRules(estimator, trainer.filters, trainer.on_stale, settings.run.lag)


def _limits(settings: TrainerSettings) -> BatchLimits:
    run = settings.run
    return BatchLimits(run.groups_per_step, run.lag, settings.pacing.refill, settings.window)


def _log_resume(todo: Resume) -> None:
    if todo.origin.step or todo.again:
        _log.info(
            "resuming at step %d with version %d; %d recorded steps are executed again",
            todo.origin.step,
            todo.origin.version,
            len(todo.again),
        )


def _backend(settings: TrainerSettings) -> Backend:
    kind = {"torch": TorchBackend, "fsdp2": FsdpBackend}[settings.trainer.backend]
    return kind(settings.policy.model, settings.trainer)


def _started_at(resumed: Checkpoint) -> dict[int, int]:
    """First offset to read of each partition of `trajectories`."""
    return {
        number: resumed.offsets.get(number, BEGINNING) for number in range(TRAJECTORIES.partitions)
    }
