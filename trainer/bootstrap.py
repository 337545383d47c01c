"""A trainer's assembly from its settings and from records.

No other module joins its parts.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from seamlessflow.infra.clock import Stopping, never, now_ms
from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.infra.telemetry.instruments import Instruments, instruments
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.schemas.records import ProgressStalled, TrainerHeartbeat
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.data.rules import BatchLimits
from seamlessflow.trainer.link import GangBackend
from seamlessflow.trainer.loop import Loop
from seamlessflow.trainer.metrics.sinks import open_sinks
from seamlessflow.trainer.metrics.trackers import DecodeText
from seamlessflow.trainer.mixing.topics import opened_pools
from seamlessflow.trainer.recording import source_kafka, surveyed
from seamlessflow.trainer.recovery import checkpoint
from seamlessflow.trainer.recovery.checkpoint import Checkpoint
from seamlessflow.trainer.recovery.recorded_log import check_kept, read_recorded
from seamlessflow.trainer.recovery.resume import (
    Resume,
    changes,
    layout_of_run,
    lineage_started,
    recorded_sections,
    resume_from,
)
from seamlessflow.trainer.roles.gang import GangWatch
from seamlessflow.trainer.roles.parts import Heartbeat, ProcessParts, TrainerStatus, Wake, Work
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import step_methods
from seamlessflow.trainer.steps.dataloader import Dataloader
from seamlessflow.trainer.steps.inputs import batch_rules, laid_out
from seamlessflow.trainer.steps.one_step import StepRunner
from seamlessflow.trainer.steps.publication import (
    FirstWeights,
    Publication,
    announce,
    first_weights,
)
from seamlessflow.trainer.steps.reports import Reports
from seamlessflow.trainer.steps.sequence import StepSequence

_JOIN_S = 600.0
"""Time for the first rank to load the model and connect."""
_log = logging.getLogger(__name__)


@contextmanager
def observed(settings: TrainerSettings, stopping: Stopping) -> Iterator[Loop]:
    """Yield a trainer whose traces and metrics go where the settings say."""
    with instruments(settings, "trainer", settings.run.policy) as made:
        yield build(settings, made, stopping)


def build(settings: TrainerSettings, instruments: Instruments, stopping: Stopping = never) -> Loop:
    """Return a trainer that has read the records and announced its gang's weights.

    Settings that cannot work are refused before anything is announced. Raises `GangAbsent`.
    """
    rules = batch_rules(settings)
    publication = Publication(settings)
    publication.check_model()
    publication.check_rendering()
    log = f"{find_cluster(settings.kafka, (CONTROL, FLEET), stopping).id}/{_prefixes(settings)}"
    newest = _newest(settings, log, stopping)
    left = _left(settings, publication, newest, stopping)
    mixing, pools = opened_pools(settings, publication.tokenizer_hash, newest.pools, stopping)
    instance = uuid.uuid4().hex[:12]
    gang = GangBackend(settings.trainer.host, instance)
    process = _process(settings, newest, gang, instance, instruments, stopping)
    control_state = newest.control_state
    resume = resume_from(control_state, newest.origin, uuid.uuid4().hex[:12], newest.reusable)
    _log_resume(resume)
    process, first = _joined(process, publication, gang, newest, resume, stopping)
    settings = process.settings
    if detail := changes(resume, step_methods(settings)):
        _warn_of_changes(process, detail)
    process.status.state = "ready"
    dataloader = Dataloader(
        first.resume,
        control_state,
        settings.run.policy,
        rules,
        _limits(settings),
        now_ms(),
        left=left,
        follow=settings.trainer.follow,
        mixing=mixing,
        # With roles, a session belongs to one policy; the others have no part in its group.
        policies=() if settings.run.roles else settings.run.policies,
    )
    runner = StepRunner(settings, gang, publication, process.producer, instruments.traces, now_ms)
    sinks = open_sinks(settings, instruments.metrics, recorded_sections(settings))
    reports = Reports(settings.trainer, sinks, _decoder(settings.policy.model))
    return Loop(
        process=process,
        sessions=_sessions_thread(process, newest.first_offsets, instruments.metrics, stopping),
        control_state=control_state,
        dataloader=dataloader,
        pools=pools,
        gang=gang,
        steps=StepSequence(process, newest, first.resume, dataloader, runner, reports),
        reports=reports,
    )


def _warn_of_changes(process: ProcessParts, detail: str) -> None:
    _log.warning("%s", detail)
    at_ms = now_ms()
    process.send(ProgressStalled(at_ms=at_ms, what="other methods", detail=detail, since_ms=at_ms))


def _joined(
    process: ProcessParts,
    publication: Publication,
    gang: GangBackend,
    newest: Checkpoint,
    resume: Resume,
    stopping: Stopping,
) -> tuple[ProcessParts, FirstWeights]:
    """Wait for the gang, let it load the checkpoint, and announce the weights to roll out with.

    Return the process, now with the layout for all its steps, and the weights.
    """
    try:
        gang.connect(_JOIN_S, stopping)
        named = process.settings.trainer.layout
        layout = layout_of_run(named, newest.layout, gang.layout)
        settings = laid_out(process.settings, layout)
        _log.info("chains become micro-batches by layout %s", layout)
        gang.load(newest.directory, newest.origin.version)
        root = settings.weights_dir
        state = newest.control_state
        first = first_weights(publication, root, state, resume, gang)
        lineage = lineage_started(settings, first.resume, gang.machine, now_ms())
        announce(first, publication, process.producer, now_ms(), lineage, stopping)
        # The ranks return from `follow` now: none keeps its device before it has the role.
        gang.rest()
    except BaseException:
        gang.close()
        process.give_up()
        raise
    return replace(process, settings=settings), first


def _prefixes(settings: TrainerSettings) -> str:
    """Return the topics' prefix, and the recording's prefix if the trainer learns from one."""
    prefix = settings.kafka.topic_prefix
    source = settings.trainer.source_prefix
    return prefix if source is None else f"{prefix} of {source}"


def _newest(settings: TrainerSettings, log: str, stopping: Stopping) -> Checkpoint:
    """Return the newest checkpoint, after a check that the topics still have all later records."""
    source = source_kafka(settings)
    partitions = find_cluster(source, (TRAJECTORIES,), stopping).partitions[TRAJECTORIES.name]
    newest = checkpoint.newest(settings.checkpoints_dir, settings.run.policy, log)
    with_partitions = replace(newest, partitions=partitions)
    check_kept(settings.kafka, with_partitions, stopping, source)
    return with_partitions


def _limits(settings: TrainerSettings) -> BatchLimits:
    run = settings.run
    pacing = settings.pacing
    return BatchLimits(
        run.groups_per_step,
        run.lag,
        pacing.refill,
        settings.window,
        pacing.max_attempts,
        pacing.extra_count(run.groups_per_step),
        pacing.redundancy,
    )


def _left(
    settings: TrainerSettings, publication: Publication, newest: Checkpoint, stopping: Stopping
) -> dict[int, int] | None:
    """Return a recording's last offset in each partition that still has unread records.

    None if the sessions are live.
    """
    if settings.trainer.source_prefix is None:
        return None
    last = surveyed(settings, publication.tokenizer_hash, stopping).last
    first = newest.first_offsets
    return {number: at for number, at in last.items() if first.get(number, at) <= at}


def _sessions_thread(
    process: ProcessParts, offsets: Mapping[int, int], metrics: Metrics, stopping: Stopping
) -> ReaderThread:
    """Return the thread that will read `trajectories` from `offsets` (by partition)."""
    settings = process.settings
    inbox = process.inbox
    name = f"{_client_id(settings)}-sessions"
    letters = DeadLetters(settings.kafka, process.producer, stopping)
    sessions = Reader(
        source_kafka(settings), name, rules=ReadingRules(bury=letters.bury, folds=True)
    )
    metrics.watch(sessions)
    sessions.assign({(TRAJECTORIES.name, number): at for number, at in offsets.items()})
    return ReaderThread("trainer sessions", sessions, inbox.put, inbox.fail)


def _process(
    settings: TrainerSettings,
    newest: Checkpoint,
    gang: GangBackend,
    instance: str,
    instruments: Instruments,
    stopping: Stopping,
) -> ProcessParts:
    """Return the process's parts, with its heartbeat started and `control` read.

    Ranks find the gang's address in the heartbeat. All records on `control` are folded into the
    state in `newest`.
    """
    producer = Producer(settings.kafka, _client_id(settings), trace=instruments.traces.send)
    watch = GangWatch(newest.epoch, settings.run.policy)
    status = TrainerStatus()
    heartbeat = Heartbeat(
        settings.trainer,
        producer,
        lambda: _heartbeat(settings, gang, instance, status),
        lambda: None,
        now_ms,
    )
    heartbeat.start()
    name = f"{_client_id(settings)}-control"
    control = Reader(settings.kafka, name, rules=ReadingRules(folds=True), stopping=stopping)
    instruments.metrics.watch(control)
    inbox = Inbox[Wake]()
    try:
        read_recorded(settings.kafka, control, newest.control_state, watch, stopping)
    except BaseException:
        gang.close()
        heartbeat.close()
        producer.close()
        raise
    # A gang that broke before this process began is not the gang that this process joins.
    watch.broken_by = ""
    return ProcessParts(
        settings=settings,
        producer=producer,
        gang=watch,
        status=status,
        heartbeat=heartbeat,
        control=ReaderThread("trainer control", control, inbox.post, inbox.fail),
        inbox=inbox,
        work=Work(lambda: inbox.post(Wake())),
        now_ms=now_ms,
    )


def _heartbeat(
    settings: TrainerSettings, gang: GangBackend, instance: str, status: TrainerStatus
) -> TrainerHeartbeat:
    return TrainerHeartbeat(
        policy=settings.run.policy,
        trainer=instance,
        address=gang.address,
        token=gang.token,
        state=status.state,
        step=status.step,
        at_ms=now_ms(),
        release=this_release().version,
        ending=status.ending,
    )


def _decoder(model: Path) -> DecodeText:
    """Return a function that decodes token ids. It reads the model's tokenizer at its first use."""

    @cache
    def tokenizer() -> Tokenizer:
        return Tokenizer.load(model)

    return lambda ids: tokenizer().decode(ids)


def _client_id(settings: TrainerSettings) -> str:
    return f"trainer-{settings.run.policy}"


def _log_resume(resume: Resume) -> None:
    if resume.origin.step or resume.again:
        _log.info(
            "resuming at step %d with version %d; %d recorded steps are executed again",
            resume.origin.step,
            resume.origin.version,
            len(resume.again),
        )
