"""The log of a run with judges as its checks read it. Pure but for the reading."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from tests.faults.judges.settings import JUDGES, OF_TURNS, REWARD

Judged = tuple[str, str, str | None]
"""Session, judge, and turn or None."""


@dataclass(frozen=True)
class RecordedJudgements:
    """Records of a run in which agents and judges were killed."""

    rewards: Sequence[r.RewardAssigned]
    """Rewards of judges."""
    trajectories: Mapping[str, r.Trajectory]
    commits: Sequence[r.StepCommitted]

    def faults(self) -> Iterator[str]:
        """Yield all that is not as it should be."""
        counts = Counter(map(_judged, self.rewards))
        yield from (f"{key} has {count} rewards" for key, count in counts.items() if count > 1)
        for made in self.finished:
            yield from (f"{key} has no reward" for key in _expected(made) - counts.keys())
        for name in self.trained:
            yield from _wrongly_trained(name, self.trajectories.get(name))

    @property
    def finished(self) -> list[r.Trajectory]:
        """Sessions that their agents finished, and judges judged."""
        made = self.trajectories.values()
        return [each for each in made if (each.status, each.cause) == ("complete", "policy")]

    @property
    def trained(self) -> set[str]:
        """Sessions of all steps that brought tokens into the loss."""
        return {name for commit in self.commits for name in commit.trained_tokens}

    def counts(self) -> Mapping[str, int]:
        """Return what the run had."""
        made = self.trajectories.values()
        endings = Counter(f"sessions {each.status} by {each.cause}" for each in made)
        steps = {commit.step for commit in self.commits}
        counts = {
            "rewards of judges": len(self.rewards),
            "judges that gave none": sum(bool(each.failure) for each in self.rewards),
            "trained sessions": len(self.trained),
            "steps": len(steps),
        }
        return {**endings, **counts}


def recorded_judgements(kafka: KafkaSettings) -> RecordedJudgements:
    """Return what is on the log now."""
    skipped = Skipped()
    events = [item.record for item in read_topic(kafka, SESSIONS, skipped)]
    made = [item.record for item in read_topic(kafka, TRAJECTORIES, skipped)]
    control = [item.record for item in read_topic(kafka, CONTROL, skipped)]
    assert not skipped.notices, skipped.notices
    rewards = [each for each in events if isinstance(each, r.RewardAssigned)]
    return RecordedJudgements(
        [each for each in rewards if each.reward.source == JUDGE],
        {each.session_id: each for each in made if isinstance(each, r.Trajectory)},
        [each for each in control if isinstance(each, r.StepCommitted)],
    )


def _judged(event: r.RewardAssigned) -> Judged:
    return event.session_id, event.reward.name, event.reward.turn_id


def _expected(made: r.Trajectory) -> set[Judged]:
    """Return the rewards that a finished session has."""
    turns = {node.turn_id for node in made.nodes if node.origin == "policy" and node.delivered}
    of_turns = {(made.session_id, OF_TURNS, turn) for turn in turns}
    return {*of_turns, *((made.session_id, judge, None) for judge in JUDGES)}


def _wrongly_trained(name: str, made: r.Trajectory | None) -> Iterator[str]:
    """Yield why a session should not have been trained."""
    if made is None:
        yield f"{name} was trained and has no trajectory"
        return
    if (made.status, made.cause) != ("complete", "policy"):
        yield f"{name} was trained and ended as {made.status} by {made.cause}: {made.reason}"
    names = {reward.name for reward in made.rewards if reward.scope == "session"}
    if lacking := {REWARD, *JUDGES} - names:
        yield f"{name} was trained without {', '.join(sorted(lacking))}"
