"""A worker with the clock engine: new weights in the middle of a turn, and a role that goes."""

from pathlib import Path

import pytest

from infra.device_model.settings import DeviceModelSection
from infra.weights.manifest import Manifest, publish
from producers.rollout.engines import ClockEngines
from producers.rollout.settings import ClockSection, RolloutSection
from schemas import records as r
from schemas.tokens import unpack
from tests.builders.rollout.rollout_system import RolloutSystem

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
    directory, digest = publish(root, facts, filled, False)
    system.publish("policy-clock", version, directory, digest)


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
    system.wait(r.TurnProgressed, lambda one: one.turn_id == "t-clock")
    published(system, tmp_path, 1)
    done = system.completed("t-clock")

    assert len(unpack(done.token_ids)) + done.token_offset == TOKENS
    spans = [
        span.version_max
        for one in system.outputs("t-clock")
        if isinstance(one, r.TurnProgressed | r.TurnCompleted)
        for span in one.spans
    ]
    assert (spans[0], spans[-1]) == (0, 1)
    assert done.finish_reason == "stop"

    assignment = system.assign("clock", "train")
    released = system.wait(r.RoleReleased, lambda one: one.assignment == assignment)
    assert released.free_bytes > 1e9
    published(system, tmp_path, 2)
    assert system.serve("clock", 7).version == 2
