"""The log of a run under rules as its checks read it, and all that they find in it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import ARMS, CONTROL, SESSIONS, TRAJECTORIES
from tests.faults.rules.choices import admission_faults, arm_faults
from tests.faults.rules.settings import GROUP_SIZE, POLICY, SAMPLER
from tests.faults.rules.steps import repeated_faults, rescue_faults, selection_faults
from tests.faults.rules.stops import controlled_texts, ending_faults


@dataclass(frozen=True)
class RecordedRules:
    """Records of a run in their order."""

    control: Mapping[int, Record]
    """By offset."""
    arms: Sequence[r.ArmSnapshot]
    controls: Mapping[str, r.TurnControl | None]
    """The rule of each turn, by its id."""
    trajectories: Sequence[r.Trajectory]

    @property
    def commits(self) -> list[r.StepCommitted]:
        return [each for each in self.control.values() if isinstance(each, r.StepCommitted)]

    @property
    def admitted(self) -> list[r.GroupAdmitted]:
        return [each for each in self.control.values() if isinstance(each, r.GroupAdmitted)]

    def faults(self) -> Iterator[str]:
        """Yield all that is not as the rules have it."""
        control = list(self.control.values())
        ready: dict[str, r.GroupReady] = {}
        for record in control:
            if isinstance(record, r.GroupReady):
                ready.setdefault(record.group_id, record)
        tasks = {record.group_id: record.task_id for record in self.admitted}
        yield from admission_faults(control)
        yield from arm_faults(self.control, self.arms, [POLICY])
        texts = controlled_texts(self.trajectories, self.controls)
        yield from (text.fault for text in texts if text.fault)
        yield from ending_faults(self.trajectories, self.controls)
        yield from repeated_faults(self.commits)
        yield from rescue_faults(self.commits, ready, tasks)
        yield from selection_faults(self.commits, ready)

    def counts(self) -> Mapping[str, int]:
        """Return how often each rule did something."""
        texts = controlled_texts(self.trajectories, self.controls)
        steps = Counter(commit.step for commit in self.commits)
        groups = [group for commit in self.commits for group in commit.groups]
        left_out = [
            name
            for commit in self.commits
            for group in commit.groups
            for name in group.sessions
            if name not in commit.trained_tokens
        ]
        return {
            "choices of the sampler": sum(each.sampler == SAMPLER for each in self.admitted),
            "groups of fewer samples": sum(each.group_size < GROUP_SIZE for each in self.admitted),
            "groups of fewer turns": sum(each.turn_limit > 0 for each in self.admitted),
            "records of arms": len(self.arms),
            "turns ended by the rule": sum(bool(each.at and not each.exempt) for each in texts),
            "exempt turns behind it": sum(bool(each.at and each.exempt) for each in texts),
            "turns that it let go on": sum(not each.at for each in texts),
            "rescued groups": sum(bool(group.replaced) for group in groups),
            "sessions without a trained token": len(left_out),
            "steps": len(steps),
            "steps executed again": sum(count > 1 for count in steps.values()),
        }


def recorded_rules(kafka: KafkaSettings) -> RecordedRules:
    """Return what is on the log now."""
    skipped = Skipped()
    control = {item.offset: item.record for item in read_topic(kafka, CONTROL, skipped)}
    arms = [item.record for item in read_topic(kafka, ARMS, skipped)]
    started = [item.record for item in read_topic(kafka, SESSIONS, skipped)]
    trajectories = [item.record for item in read_topic(kafka, TRAJECTORIES, skipped)]
    assert not skipped.notices, skipped.notices
    return RecordedRules(
        control,
        [record for record in arms if isinstance(record, r.ArmSnapshot)],
        {each.turn_id: each.control for each in started if isinstance(each, r.TurnStarted)},
        [record for record in trajectories if isinstance(record, r.Trajectory)],
    )
