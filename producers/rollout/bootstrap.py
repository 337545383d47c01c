"""Bootstrap of a rollout process from its settings: the one place where its parts are joined."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.infra.clock import Stopping, never, now_ms
from seamlessflow.infra.device_model.presets import hardware_named
from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.infra.kafka.producer import OnDelivery, Producer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.telemetry.instruments import instruments
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.infra.worker.roles import Senders, new_incarnation
from seamlessflow.infra.worker.tags import SHARED
from seamlessflow.infra.worker.updates import UpdateLine, UpdateRule
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.producers.rollout.probe.asking import EngineProbe
from seamlessflow.producers.rollout.process import Counts, RolloutProcess, Undelivered, WorkerInbox
from seamlessflow.producers.rollout.readers import FleetReader, Interest, SlotReader
from seamlessflow.producers.rollout.roles.announcements import Facts
from seamlessflow.producers.rollout.roles.device import EngineFactory, RolloutDevice
from seamlessflow.producers.rollout.roles.keeper import RoleKeeper
from seamlessflow.producers.rollout.roles.places import HostPlaces
from seamlessflow.producers.rollout.roles.reporter import Reporter
from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.producers.rollout.settings import RolloutSettings
from seamlessflow.producers.rollout.turns.admission import Admission
from seamlessflow.producers.rollout.turns.dispatch import DispatchOutput, LiveDispatch
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.producers.rollout.turns.serving import Serving, Write
from seamlessflow.schemas.records import PolicyWeights
from seamlessflow.schemas.topics import SESSIONS, Headers

_REPORT_EVERY_S = 0.05
"""Deliveries in so much time are reported together: only their failures matter here."""


@contextmanager
def observed(
    settings: RolloutSettings, engines: EngineFactory, stopping: Stopping
) -> Iterator[RolloutProcess]:
    """Yield a process whose traces and metrics go where the settings say."""
    with instruments(settings, "rollout", settings.rollout.worker) as made:
        yield build(settings, made.traces, made.metrics, engines, stopping)


def build(
    settings: RolloutSettings,
    traces: Telemetry,
    metrics: Metrics,
    engines: EngineFactory,
    stopping: Stopping = never,
) -> RolloutProcess:
    """Return a process that has written nothing yet."""
    mine = settings.rollout
    kafka = settings.kafka
    client_id = f"rollout-{mine.worker}"
    inbox = WorkerInbox()
    producer = Producer(kafka, client_id, report_every_s=_REPORT_EVERY_S, trace=traces.send)
    shared = SHARED in mine.tags
    roles = RolloutRoles(
        mine.worker,
        new_incarnation(),
        policy=mine.policy,
        loads_asleep=engines.loads_asleep,
        shared=shared,
    )
    facts = Facts(mine.tags, mine.capacity, _hardware(settings), mine.devices)

    def undelivered(live: LiveDispatch, error: DeliveryFailed) -> None:
        inbox.post(Undelivered(live, error))

    senders = Senders()
    slot = SlotReader(kafka, f"{client_id}-slot", producer, inbox.put, inbox.fail, stopping)
    fleet = _fleet_reader(settings, inbox, senders, stopping)
    for reader in (slot.reader, fleet.reader):
        metrics.watch(reader)
    counts = Counts(metrics)
    admission = Admission(mine.worker, roles.incarnation)
    rules = UsedRules(mine.control)
    serving = Serving(admission, _writer(producer, counts), inbox.post, undelivered, traces, rules)
    probe = EngineProbe(mine.probe_deadline_s, mine.probe_tolerance)
    places = HostPlaces(settings.weights, settings.data_dir, senders.addresses)
    device = RolloutDevice(engines, load_parser, slot.follow, inbox.post, probe, places)
    reporter = Reporter(producer, roles, facts, now_ms())
    updates = UpdateRule(mine.update, settings.run.lag, UpdateLine(mine.policy))
    keeper = RoleKeeper(roles, serving, device, reporter, traces, updates)
    return RolloutProcess(
        inbox, keeper, serving, device, reporter, counts, slot, fleet, producer, now_ms
    )


def _fleet_reader(
    settings: RolloutSettings, inbox: WorkerInbox, senders: Senders, stopping: Stopping
) -> FleetReader:
    mine = settings.rollout
    interest = Interest(
        mine.worker,
        None if SHARED in mine.tags else mine.policy,
        line=mine.update.mode == "rolling",
        senders=None if settings.weights.from_trainer == "never" else senders,
    )
    client_id = f"rollout-{mine.worker}-fleet"
    return FleetReader(settings.kafka, client_id, interest, inbox.put, inbox.fail, stopping)


def load_parser(policy: PolicyWeights) -> MessageParser:
    """Return the parser that fits the policy's prompts. Raises `RendererError`, also if the
    tokenizer is not the one that the trainer published.
    """
    directory = policy.tokenizer_directory
    settings = RendererSettings.from_json(policy.renderer)
    renderer = Renderer.load(Path(directory), settings)
    renderer.check(policy.tokenizer_hash, directory)
    return renderer


def _hardware(settings: RolloutSettings) -> Mapping[str, float]:
    """Return the facts about each device: from the settings, or else from the device model."""
    mine = settings.rollout
    if mine.engine == "clock" and not mine.hardware:
        return hardware_named(settings.device_model.hardware).figures
    return mine.hardware


def _writer(producer: Producer, counts: Counts) -> Write:
    def write(
        record: DispatchOutput, partition: int, headers: Headers, on_delivery: OnDelivery
    ) -> None:
        producer.send(
            SESSIONS.name,
            record,
            key=record.session_id,
            partition=partition,
            headers=headers,
            on_delivery=on_delivery,
        )
        counts.count_record(record)

    return write
