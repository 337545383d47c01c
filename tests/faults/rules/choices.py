"""Checks of choices of tasks, as `control` and `arms` have them. Pure; yields what is wrong."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.faults.rules.settings import GROUP_SIZE, LEAST
from tests.properties.arms.plain_figures import PlainRules, plain_figures, trained_steps

FELL_BACK = "fell_back"
RULES = PlainRules(memory=0.99, own_memory=0.8)
_FADED = ("passed", "failed")
_COUNTED = (
    r.SchedulerClaimed,
    r.GroupAdmitted,
    r.GroupReady,
    r.GroupDropped,
    r.WeightsPublished,
    r.StepSkipped,
)
"""Records of which statistics are a fold."""


def decided(control: Sequence[Record]) -> list[Record]:
    """Return the records without decisions of schedulers that were replaced before them."""
    newest, kept = 0, []
    for record in control:
        if isinstance(record, r.SchedulerClaimed):
            newest = max(newest, record.epoch)
        if not isinstance(record, r.GroupAdmitted) or record.epoch >= newest:
            kept.append(record)
    return kept


def admission_faults(control: Sequence[Record]) -> Iterator[str]:
    """Yield tasks that were admitted while a group of theirs was under way, and strange terms."""
    under_way: dict[str, str] = {}
    seen: set[str] = set()
    trained: dict[str, int] = {}
    """Version of the step of each group."""
    for record in decided(control):
        match record:
            case r.GroupAdmitted() if record.group_id not in seen:
                seen.add(record.group_id)
                other = next((g for g, task in under_way.items() if task == record.task_id), None)
                if other is not None and FELL_BACK not in record.sampler_figures:
                    yield f"{record.group_id} has task {record.task_id}, which {other} has"
                if not LEAST <= record.group_size <= GROUP_SIZE:
                    yield f"{record.group_id} has {record.group_size} samples"
                under_way[record.group_id] = record.task_id
            case r.GroupDropped():
                under_way.pop(record.group_id, None)
            case r.StepCommitted():
                trained |= {group.group_id: record.version for group in record.groups}
            case r.WeightsPublished():
                for name in [name for name in under_way if name in trained]:
                    if trained[name] <= record.version:
                        del under_way[name]


def arm_faults(
    control: Mapping[int, Record],
    arms: Sequence[r.ArmSnapshot],
    policies: Sequence[str],
    newest: int = 3,
) -> Iterator[str]:
    """Yield arms whose figures are not those of a plain fold of `control` up to their offset.

    `control` has records by offset. Of the last record of each arm the `newest` offsets are looked
    at: a plain fold takes long.
    """
    last = {snapshot.arm: snapshot for snapshot in sorted(arms, key=_age)}
    offsets = Counter(snapshot.control_offset for snapshot in last.values())
    for offset in sorted(offsets)[-newest:]:
        before = (record for place, record in sorted(control.items()) if place <= offset)
        log = [record for record in before if isinstance(record, _COUNTED)]
        plain = plain_figures(log, policies, RULES)
        step = trained_steps(log, policies)
        for snapshot in last.values():
            if snapshot.control_offset == offset:
                yield from _arm_faults(snapshot, plain.get(snapshot.arm), step)


def _age(snapshot: r.ArmSnapshot) -> tuple[int, int]:
    return snapshot.epoch, snapshot.control_offset


def _arm_faults(
    snapshot: r.ArmSnapshot, plain: Mapping[str, object] | None, step: int
) -> Iterator[str]:
    if plain is None:
        yield f"{snapshot.arm} has no admission"
        return
    # Its counts are as of its last result, the plain ones as of now. Those of a past version of an
    # opponent do not fade with steps.
    memory = 1.0 if snapshot.arm.startswith("past@") else RULES.memory
    left = memory ** max(0, step - snapshot.at_step)
    for name, figure in plain.items():
        recorded = getattr(snapshot, name)
        shown = recorded * left if name in _FADED else recorded
        if shown != pytest.approx(figure):
            yield f"{snapshot.arm} has {name} {shown}, not {figure}"
