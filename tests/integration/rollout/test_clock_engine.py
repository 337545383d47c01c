"""Workers with the clock engine: new weights in the middle of a turn, a role that goes, and weights
that roll over two processes."""

from pathlib import Path

import pytest

from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import Manifest, publish
from seamlessflow.producers.rollout.engines import ClockEngines
from seamlessflow.producers.rollout.settings import ClockSection, RolloutSection
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import unpack
from tests.builders.rollout.rollout_system import RolloutSystem, rollout_system

pytestmark = pytest.mark.kafka

TOKENS = 1000
SECTION = RolloutSection(clock=ClockSection(turn_tokens=TOKENS, spread=0, report_s=0.1))


def filled(directory: Path) -> None:
    """Write a file that no engine reads."""
    (directory / "stand-in").write_bytes(b"1")


def published(system: RolloutSystem, root: Path, version: int) -> None:
    """Publish a version of which only the hashes are read."""
    facts = Manifest(
        policy="policy-clock", version=version, optimizer_step=version, lineage="a", dtype="float32"
    )
    system.publish("policy-clock", publish(root, facts, filled, False).weights)


def wait_for_load(system: RolloutSystem, worker: str, version: int) -> None:
    system.wait(
        r.WeightsLoaded, lambda record: (record.worker, record.version) == (worker, version)
    )


def updates(system: RolloutSystem) -> list[tuple[str, str, int]]:
    """Return the pauses and loads of all workers in the order of `control`."""
    events = []
    for record in (item.record for item in system.log):
        if isinstance(record, r.GenerationPaused):
            events.append(("out", record.worker, -1))
        elif isinstance(record, r.WeightsLoaded):
            events.append(("back", record.worker, record.version))
    return events


def test_a_turn_goes_on_under_new_weights_and_weights_are_loaded_asleep(
    system: RolloutSystem, tmp_path: Path
) -> None:
    system.max_context = 4 * TOKENS
    published(system, tmp_path, 0)
    engines = ClockEngines(SECTION, DeviceModelSection(scale=0.2))
    system.start("clock", "policy-clock", engines)
    role = system.serve("clock", 7)

    asked = r.Sampling(max_tokens=2 * TOKENS)
    system.generate(role, "t-clock", stream=True, sampling=asked)
    system.wait(r.TurnProgressed, lambda record: record.turn_id == "t-clock")
    published(system, tmp_path, 1)
    done = system.completed("t-clock")

    assert len(unpack(done.token_ids)) + done.token_offset == TOKENS
    spans = [
        span.version_max
        for record in system.outputs("t-clock")
        if isinstance(record, r.TurnProgressed | r.TurnCompleted)
        for span in record.spans
    ]
    assert (spans[0], spans[-1]) == (0, 1)
    assert done.finish_reason == "stop"

    assignment = system.assign("clock", "train")
    released = system.wait(r.RoleReleased, lambda record: record.assignment == assignment)
    assert released.free_bytes > 1e9
    published(system, tmp_path, 2)
    assert system.serve("clock", 7).version == 2


def test_weights_roll_over_two_processes_of_which_one_always_serves(
    broker: KafkaSettings, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that both would be out at once if the second did not wait for the first.
    monkeypatch.setenv("SEAMLESSFLOW_DEVICE_MODEL__RATES", '{"load_s": 1}')
    policy, workers = "policy-clock", ["first", "second"]
    # Topics of its own: a worker whose role began earlier would stand in the line, too.
    with rollout_system(broker, tokenizer) as system:
        published(system, tmp_path, 0)
        for name in workers:
            system.start_process(name, policy, engine="clock", update__mode="rolling")
        # Each knows the other's place in the line: both read `control` before the first role.
        incarnations = [system.incarnation(name) for name in workers]
        for slot, (name, incarnation) in enumerate(zip(workers, incarnations, strict=True)):
            system.serve(name, slot, incarnation)
        for version in (1, 2):
            published(system, tmp_path, version)
            for name in workers:
                wait_for_load(system, name, version)

        assert updates(system) == [
            event
            for version in (1, 2)
            for name in workers
            for event in (("out", name, -1), ("back", name, version))
        ]
