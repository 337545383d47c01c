"""Garbage on a rollout process's topics: it samples on, and buries that of its slot."""

from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS
from tests.builders.garbage import append_newer, buried, litter
from tests.builders.records import control, fleet
from tests.builders.records.prompts import generate
from tests.builders.rollout.rollout_system import RolloutSystem
from tests.waiting import until

SLOT = 12
SCRIPT: dict[str, object] = {"text": "code 3"}


def test_a_worker_goes_on_after_garbage_and_records_of_a_newer_release(
    system: RolloutSystem,
) -> None:
    litter(system.kafka, FLEET, 0, fleet.heartbeat("w9"))
    append_newer(system.kafka, FLEET, 0)
    role = system.serve_scripted("w-garbage", SLOT, SCRIPT)
    garbage = litter(system.kafka, PROMPTS, SLOT, generate())
    append_newer(system.kafka, PROMPTS, SLOT)
    for topic, record in ((CONTROL, control.lost()), (FLEET, fleet.heartbeat("w9"))):
        litter(system.kafka, topic, 0, record)
        append_newer(system.kafka, topic, 0)
    system.generate(role, "behind-garbage")

    assert system.completed("behind-garbage").worker == "w-garbage"
    until(lambda: buried(system.kafka, PROMPTS, SLOT) == garbage, "the dead letters")
    assert buried(system.kafka, CONTROL, 0) == []
