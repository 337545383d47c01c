"""The assembly of a training process from its settings. No other module joins its parts."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from seamlessflow.infra.clock import Stopping, never, now_ms
from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.network.line import Line
from seamlessflow.infra.telemetry.instruments import process_metrics
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.weights.from_trainer.chosen import weights_service
from seamlessflow.infra.worker.activity import ActivityAccount
from seamlessflow.infra.worker.roles import new_incarnation, of_worker
from seamlessflow.schemas.records import WorkerHeartbeat, WorkerJoined
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.topics import CONTROL, FLEET
from seamlessflow.trainer.backends.backend import NO_STEP, Computing, LocalBackend
from seamlessflow.trainer.backends.calls import Hello
from seamlessflow.trainer.backends.clock_backend import ClockBackend
from seamlessflow.trainer.backends.meeting import Coming, Meeting, gang_facts
from seamlessflow.trainer.ranks.addresses import LIMIT_S, admitted, connected
from seamlessflow.trainer.ranks.further import WorkerDevices
from seamlessflow.trainer.ranks.loop import RankLoop
from seamlessflow.trainer.ranks.process import RankProcess, TrainerDevice
from seamlessflow.trainer.ranks.service import RankService
from seamlessflow.trainer.roles.gang import GangWatch
from seamlessflow.trainer.roles.parts import Heartbeat, TrainerStatus, Wake, Work
from seamlessflow.trainer.roles.roles import TrainerRoles
from seamlessflow.trainer.settings import TrainerSettings

_POLL_S = 0.2


@contextmanager
def observed(settings: TrainerSettings, stopping: Stopping) -> Iterator[RankLoop]:
    """Yield a training process whose metrics go where the settings say."""
    with process_metrics(settings, "trainer", settings.trainer.worker) as metrics:
        yield build(settings, metrics, stopping)


def build(settings: TrainerSettings, metrics: Metrics, stopping: Stopping = never) -> RankLoop:
    """Return a training process that has joined its gang and loaded the weights.

    Raises `TrainerAbsent`, `TrainerGone`, `ModelUnusable`, `RankRefused` and `WorkersAbsent`.
    """
    meeting = _meeting(settings, stopping)
    process = _process(settings, metrics, meeting, stopping)
    try:
        devices = worker_devices(
            settings,
            lambda: meeting or _way(process, stopping),
            process.inbox.fail,
            stopping,
            process.note_computing,
        )
    except BaseException:
        if meeting is not None:
            meeting.close()
        _give_up(process)
        raise
    if meeting is not None:
        process.gang.met = meeting.met
    try:
        _read_to_end(process, stopping)
        service = _service(process, devices.backend, stopping)
        follow = _following(devices, service)
        # Take part in loading, and in writing the first weights if the trainer asks for that.
        follow()
        devices.release()
    except BaseException:
        devices.close()
        _give_up(process)
        raise
    return RankLoop(
        process=process,
        device=TrainerDevice(process, devices),
        follow=follow,
        service=service,
        end=devices.close,
    )


def worker_devices(
    settings: TrainerSettings,
    find_way: Callable[[], Meeting | Line | None],
    lost: Callable[[BaseException], None],
    stopping: Stopping,
    computing: Computing,
) -> WorkerDevices:
    """Return the worker's devices; `lost` gets the error if one of its further ranks ends.

    `find_way` returns the gang's meeting for rank 0, else the line to rank 0; None without a gang.
    It may wait for rank 0. `computing` is called only for the first rank. Raises `ModelUnusable`,
    for a clock `ModelTooLarge`, and `WorkersAbsent` and `LineLost`.
    """
    if settings.trainer.backend == "clock" and (way := find_way()) is not None:
        clock = ClockBackend(settings, way, computing, stopping)
        return WorkerDevices(settings.trainer.rank, (), "", lambda: clock, lost)
    # Not at the top: a clock needs no torch, which takes seconds to import.
    from seamlessflow.trainer.ranks.torch_devices import torch_devices

    # After the import, so that a gang's workers import at the same time, not one after another.
    return torch_devices(settings, find_way(), lost, stopping, computing)


def _read_to_end(process: RankProcess, stopping: Stopping) -> None:
    """Fold `control` up to its present end, at which the gang has met.

    `WorkerJoined` is left out. Such records show processes that were met, or their earlier lives,
    and must not break the gang.
    """
    # The reader's thread has not begun yet. Heartbeats of the trainer are for `connected`.
    reader = process.control.reader
    control = (CONTROL.name, 0)
    fleet = (FLEET.name, 0)
    reader.pause([fleet], on=True)
    end = reader.ends([control])[control]
    deadline = time.monotonic() + LIMIT_S
    while reader.position(control) < end and not stopping() and time.monotonic() < deadline:
        for received in reader.poll(_POLL_S):
            if not isinstance(received.record, WorkerJoined):
                process.fold(received.record)
    reader.pause([fleet], on=False)


def _give_up(process: RankProcess) -> None:
    if process.weights is not None:
        process.weights.close()
    process.give_up()


def _following(devices: WorkerDevices, service: RankService | None) -> Callable[[], int]:
    def follow() -> int:
        with devices.following():
            if service is None:
                return devices.backend.follow()
            service.serve()
            return NO_STEP

    return follow


def _service(process: RankProcess, backend: LocalBackend, stopping: Stopping) -> RankService | None:
    """Return the service for the trainer's calls; None if another worker has the first rank."""
    settings = process.settings
    if settings.trainer.rank > 0:
        return None

    def hello(token: str) -> Hello:
        return Hello(
            token=token,
            worker=settings.trainer.worker,
            machine=backend.machine,
            dtype=backend.dtype,
            layout=backend.layout,
        )

    reader = process.control.reader
    channel = connected(reader, process.fold, settings.run.policy, hello, stopping)
    service = RankService(process, backend, channel, process.wake)
    service.start()
    return service


def _meeting(settings: TrainerSettings, stopping: Stopping) -> Meeting | None:
    """Return the gang's meeting; None if another worker has it, or there is no gang."""
    trainer = settings.trainer
    if trainer.backend == "torch" or trainer.rank > 0:
        return None
    return Meeting(trainer.host, gang_facts(settings), stopping)


def _way(process: RankProcess, stopping: Stopping) -> Line | None:
    """Return the line to the gang's rank 0; None without a gang."""
    settings = process.settings
    trainer = process.settings.trainer
    if trainer.backend == "torch":
        return None
    coming = Coming(
        worker=trainer.worker,
        rank=trainer.rank,
        devices=max(1, len(trainer.devices)) if trainer.backend == "clock" else 1,
        facts=gang_facts(settings),
        incarnation=process.roles.incarnation,
    )
    # A separate reader: the process's reader leaves out other workers' heartbeats.
    name = f"trainer-{trainer.worker}-gang"
    with closing(Reader(settings.kafka, name, stopping=stopping)) as reader:
        reader.assign({(FLEET.name, 0): BEGINNING})
        line, leader = admitted(reader, settings.run.policy, coming, stopping)
    process.gang.met = {leader.worker: leader.incarnation}
    return line


def _process(
    settings: TrainerSettings, metrics: Metrics, meeting: Meeting | None, stopping: Stopping
) -> RankProcess:
    """Return the process, which sends heartbeats from now on."""
    trainer = settings.trainer
    name = f"trainer-{settings.trainer.worker}"
    find_cluster(settings.kafka, (CONTROL, FLEET), stopping)
    producer = Producer(settings.kafka, name)
    roles = TrainerRoles(trainer.worker, new_incarnation())
    status = TrainerStatus()
    activity = ActivityAccount(trainer.worker, "train", now_ms())
    wanted = of_worker(trainer.worker)
    options: dict[str, Any] = {"enable.partition.eof": True, "stopping": stopping}
    reader = Reader(
        settings.kafka, f"{name}-control", rules=ReadingRules(folds=True, wanted=wanted), **options
    )
    metrics.watch(reader)
    # Before the first heartbeat, so that no assignment to this incarnation is missed.
    control = (CONTROL.name, 0)
    reader.assign({control: reader.ends([control])[control], (FLEET.name, 0): BEGINNING})
    weights = weights_service(settings.weights, settings.weights_dir, trainer.host)
    heartbeat = Heartbeat(
        trainer,
        producer,
        lambda: _heartbeat(settings, roles, status, meeting, weights.address if weights else ""),
        lambda: activity.report(roles.incarnation, now_ms()),
        now_ms,
    )
    heartbeat.start()
    inbox = Inbox[Wake]()
    return RankProcess(
        settings=settings,
        producer=producer,
        gang=GangWatch(policy=settings.run.policy),
        roles=roles,
        status=status,
        activity=activity,
        weights=weights,
        heartbeat=heartbeat,
        control=ReaderThread("trainer control", reader, inbox.post, inbox.fail),
        inbox=inbox,
        work=Work(lambda: inbox.post(Wake())),
        now_ms=now_ms,
    )


def _heartbeat(
    settings: TrainerSettings,
    roles: TrainerRoles,
    status: TrainerStatus,
    meeting: Meeting | None,
    weights_address: str,
) -> WorkerHeartbeat:
    trainer = settings.trainer
    return WorkerHeartbeat(
        worker=roles.worker,
        incarnation=roles.incarnation,
        process="train",
        tags=trainer.tags,
        role="train" if roles.held else "none",
        assignment=roles.assignment,
        state=status.state,
        version=status.version,
        policy=settings.run.policy,
        hardware=settings.hardware,
        at_ms=now_ms(),
        release=this_release().version,
        devices=trainer.devices if len(trainer.devices) > 1 else (),
        rendezvous=meeting.place if meeting is not None and meeting.open else "",
        weights_address=weights_address,
    )
