"""The assembly of a trainer process from its settings and from what is recorded.

No other module joins its parts.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Never

from infra.clock import now_ms
from infra.inbox import Inbox
from infra.kafka.dead_letters import DeadLetters
from infra.kafka.outage import Stopping, never
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.kafka.start.cluster import find_cluster
from infra.telemetry.metrics import Metrics
from infra.telemetry.output import MetricsOutput
from infra.telemetry.tracing import Telemetry, telemetry
from infra.worker.activity import ActivityAccount
from infra.worker.roles import new_incarnation
from schemas.topics import CONTROL, FLEET, TRAJECTORIES
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.backends.torch_backend import TorchBackend
from trainer.follower import Follower
from trainer.loop import Loop
from trainer.metrics.sinks import open_sinks
from trainer.recording.survey import source_kafka, surveyed
from trainer.recovery import checkpoint
from trainer.recovery.checkpoint import Checkpoint
from trainer.recovery.control_log import read_recorded
from trainer.recovery.lineage import lineage_started
from trainer.recovery.low_water import check_kept
from trainer.recovery.resume import Resume, resume_from
from trainer.roles.device import TrainerDevice
from trainer.roles.heartbeat import Heartbeat, TrainerStatus
from trainer.roles.process import TrainerProcess
from trainer.roles.roles import TrainerRoles
from trainer.settings import TrainerSettings
from trainer.steps.dataloader import BatchLimits, Dataloader
from trainer.steps.first_weights import announce, first_weights
from trainer.steps.inputs import batch_rules
from trainer.steps.one_step import StepRunner
from trainer.steps.publication import Publication
from trainer.steps.reports import Reports
from trainer.steps.sequence import StepSequence
from trainer.work import Work

_log = logging.getLogger(__name__)


@contextmanager
def observed(settings: TrainerSettings, stopping: Stopping) -> Iterator[Loop | Follower]:
    """Yield a trainer whose traces and metrics go where the settings say."""
    name = settings.trainer.worker
    prefix, metrics = settings.kafka.topic_prefix, Metrics()
    traces = telemetry(settings.telemetry, "trainer", name, prefix)
    output = MetricsOutput(settings, metrics, "trainer", name)
    try:
        yield build(settings, traces, metrics, stopping)
    finally:
        traces.close()
        output.close()


def build(
    settings: TrainerSettings, traces: Telemetry, metrics: Metrics, stopping: Stopping = never
) -> Loop | Follower:
    """Return a trainer that has read what is recorded, loaded its weights and announced them.

    Settings that cannot work are refused before anything is announced.
    """
    rules, publication = batch_rules(settings), Publication(settings)
    publication.check_rendering()
    log = f"{find_cluster(settings.kafka, (CONTROL, FLEET), stopping).id}/{_prefixes(settings)}"
    if settings.trainer.rank > 0:
        return _follower(settings, log, traces, metrics, stopping)
    found = _newest(settings, log, stopping)
    left = _left(settings, publication, found, stopping)
    process = _process(settings, found, traces, metrics, stopping)
    control_state = found.control_state
    resume = resume_from(control_state, found.origin, uuid.uuid4().hex[:12])
    _log_resume(resume)
    kind = {"torch": TorchBackend, "fsdp2": FsdpBackend}[settings.trainer.backend]
    backend = kind(settings.policy.model, settings.trainer)
    backend.load(found.directory, found.origin.version)
    first = first_weights(publication, settings.weights_dir, control_state, resume, backend)
    lineage = lineage_started(settings, first.resume, backend.machine, now_ms())
    announce(first, publication, process.producer, now_ms(), lineage, stopping)
    # Followers return from `follow` now, and no rank keeps its device before it has the role.
    backend.rest()
    backend.release()
    dataloader = Dataloader(
        first.resume,
        control_state,
        settings.run.policy,
        rules,
        _limits(settings),
        now_ms(),
        left=left,
        follow=settings.trainer.follow,
    )
    runner = StepRunner(settings, backend, publication, process.producer, traces, now_ms)
    reports = Reports(settings.trainer, open_sinks(settings, metrics))
    return Loop(
        process=process,
        sessions=_sessions_thread(process, found.first_offsets, metrics, stopping),
        control_state=control_state,
        dataloader=dataloader,
        device=TrainerDevice(process, backend),
        steps=StepSequence(process, found, first.resume, dataloader, runner, reports),
        reports=reports,
    )


def _prefixes(settings: TrainerSettings) -> str:
    """Return the prefix of the topics, and that of a recording which is trained."""
    own, source = settings.kafka.topic_prefix, settings.trainer.source_prefix
    return own if source is None else f"{own} of {source}"


def _newest(settings: TrainerSettings, log: str, stopping: Stopping) -> Checkpoint:
    """Return the newest checkpoint, after checking that the topics still have what follows it."""
    source = source_kafka(settings)
    partitions = find_cluster(source, (TRAJECTORIES,), stopping).partitions[TRAJECTORIES.name]
    newest = checkpoint.newest(settings.checkpoints_dir, settings.run.policy, log)
    found = replace(newest, partitions=partitions)
    check_kept(settings.kafka, found, stopping, source)
    return found


def _limits(settings: TrainerSettings) -> BatchLimits:
    run, pacing = settings.run, settings.pacing
    return BatchLimits(
        run.groups_per_step, run.lag, pacing.refill, settings.window, pacing.max_attempts
    )


def _left(
    settings: TrainerSettings, publication: Publication, found: Checkpoint, stopping: Stopping
) -> dict[int, int] | None:
    """Return the last offset of each partition of a recording that is not read to there.

    None if the sessions are live.
    """
    if settings.trainer.source_prefix is None:
        return None
    last = surveyed(settings, publication.tokenizer_hash, stopping).last
    first = found.first_offsets
    return {number: at for number, at in last.items() if first.get(number, at) <= at}


def _sessions_thread(
    process: TrainerProcess, offsets: Mapping[int, int], metrics: Metrics, stopping: Stopping
) -> ReaderThread:
    """Return the thread that will read `trajectories` from `offsets` (by partition)."""
    settings, inbox = process.settings, process.inbox
    name = f"{_client_id(settings)}-sessions"
    letters = DeadLetters(settings.kafka, process.producer, stopping)
    sessions = Reader(source_kafka(settings), name, bury=letters.bury, folds=True)
    metrics.watch(sessions)
    sessions.assign({(TRAJECTORIES.name, number): at for number, at in offsets.items()})
    return ReaderThread("trainer sessions", sessions, inbox.put, inbox.fail)


def _follower(
    settings: TrainerSettings, log: str, traces: Telemetry, metrics: Metrics, stopping: Stopping
) -> Follower:
    initial = checkpoint.initial(settings.run.policy, log)
    process = _process(settings, initial, traces, metrics, stopping)
    backend = FsdpBackend(settings.policy.model, settings.trainer)
    # Take part in the leader's `load` and, if it writes the first weights, in that.
    backend.follow()
    backend.release()
    return Follower(process=process, device=TrainerDevice(process, backend), backend=backend)


def _process(
    settings: TrainerSettings,
    found: Checkpoint,
    traces: Telemetry,
    metrics: Metrics,
    stopping: Stopping,
) -> TrainerProcess:
    """Start the heartbeat, then fold all that `control` holds into the state of `found`."""
    producer = Producer(settings.kafka, _client_id(settings), trace=traces.send)
    roles = TrainerRoles(settings.trainer.worker, new_incarnation())
    found.restore_roles(roles)
    status, activity = TrainerStatus(), ActivityAccount(settings.trainer.worker, "train", now_ms())
    heartbeat = Heartbeat(settings, producer, roles, status, activity, now_ms)
    heartbeat.start()
    name = f"{_client_id(settings)}-control"
    control = Reader(settings.kafka, name, folds=True, stopping=stopping)
    metrics.watch(control)
    inbox = Inbox[Never]()
    try:
        read_recorded(settings.kafka, control, found.control_state, roles, stopping)
    except BaseException:
        heartbeat.close()
        producer.close()
        raise
    # A gang that broke before this process began is not the one it will belong to.
    roles.broken_by = ""
    return TrainerProcess(
        settings=settings,
        producer=producer,
        roles=roles,
        status=status,
        activity=activity,
        heartbeat=heartbeat,
        control=ReaderThread("trainer control", control, inbox.post, inbox.fail),
        inbox=inbox,
        work=Work(),
        now_ms=now_ms,
    )


def _client_id(settings: TrainerSettings) -> str:
    return f"trainer-{settings.trainer.worker}"


def _log_resume(resume: Resume) -> None:
    if resume.origin.step or resume.again:
        _log.info(
            "resuming at step %d with version %d; %d recorded steps are executed again",
            resume.origin.step,
            resume.origin.version,
            len(resume.again),
        )
