"""The gang with the shortest predicted step, chosen from workers that differ in speed. Pure.

A step trains some work on the gang and rolls other work out. Each device in the gang trains an
equal part, and all members wait for the slowest. While the gang trains, the others roll out. The
closed form (`scheduler/state/accounts/closed_form.py`) gives the time, with headroom for training.
The strategies `bidirectional` and `adaptive` call it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView
from seamlessflow.scheduler.decisions.speeds import Speed
from seamlessflow.scheduler.decisions.strategies.wanted import Wanted, device_sum, roll_out, train
from seamlessflow.scheduler.state.accounts.closed_form import (
    DISAGGREGATED,
    MULTIPLEXED,
    TRAINING,
    Split,
    StepWork,
    step_limits,
)

HEADROOM = 1.1
"""Factor by which training should be faster than rollout, since lengths vary by step."""
HYSTERESIS = 0.95
"""Share of the last gang's predicted step time below which another gang is taken."""


@dataclass(frozen=True, slots=True)
class Team:
    """A possible gang: the first workers in an order, and their combined speeds."""

    members: Sequence[WorkerView]
    count: int
    devices: int
    slowest: float
    """Each device's training speed, limited by the slowest worker."""
    rollout: float

    @property
    def names(self) -> frozenset[str]:
        """Its workers' names."""
        return frozenset(worker.name for worker in self.members[: self.count])

    def split(self, everyone: float) -> Split:
        """Return the speeds if this team trains, and all workers roll out at `everyone`."""
        return Split(everyone=everyone, gang=self.rollout, train=self.devices * self.slowest)


@dataclass(frozen=True, slots=True)
class Choice:
    """The gang, and the figures that decided for it."""

    gang: frozenset[str]
    figures: Mapping[str, float]


def choose(snapshot: Snapshot, speeds: Mapping[str, Speed], work: StepWork) -> Choice | None:
    """Return the gang with the shortest predicted step, or None if too few workers can train.

    `work` uses the same unit as `speeds`; role changes take the measured time. The last gang is
    taken again unless another is clearly better. A gang that trains or was just assigned stays.
    """
    able = [worker for worker in snapshot.workers if "train" in worker.able]
    least = snapshot.gang_size or 1
    if not able or device_sum(able) < least:
        return None
    held = _team([worker for worker in able if worker.name in snapshot.gang], speeds)
    whole = held is not None and held.count == len(snapshot.gang)
    if held is not None and whole and is_settled(snapshot):
        return Choice(held.names, {})
    everyone = sum(
        speeds[worker.name].rollout for worker in snapshot.workers if "rollout" in worker.tags
    )
    costs = snapshot.costs
    work = replace(work, switch=costs.to_train or 0.0, back=costs.to_rollout or 0.0)

    def predicted(team: Team) -> float:
        return predicted_step_ms(team.split(everyone), work, snapshot.lag)

    best = min(
        (team for order in _orders(able, speeds) for team in _prefixes(order, speeds, least)),
        key=predicted,
    )
    last = _team([worker for worker in able if worker.name in snapshot.last_gang], speeds)
    chosen = best
    if last is not None and last.count == len(snapshot.last_gang) and last.devices >= least:
        chosen = best if predicted(best) < HYSTERESIS * predicted(last) else last
    return Choice(
        chosen.names,
        {
            "predicted_step_ms": predicted(chosen),
            "predicted_training_ms": chosen.split(everyone).training(work),
            "devices": chosen.devices,
        },
    )


def shortest_step(snapshot: Snapshot, speeds: Mapping[str, Speed], work: StepWork) -> list[Wanted]:
    """Want training by the gang with the shortest predicted step, and rollout by all others."""
    choice = choose(snapshot, speeds, work) or Choice(frozenset(), {})
    reason = "the step is shortest with these workers"
    return [
        *train(snapshot, choice.gang, reason, choice.figures),
        *roll_out(snapshot, snapshot.workers, choice.gang),
    ]


def is_settled(snapshot: Snapshot) -> bool:
    """Return True if the current gang trains, or took training for the batch that waits."""
    taken = [snapshot.present[name].acquired_ms for name in snapshot.gang]
    return snapshot.under_way or any(at is None or at > snapshot.ended_ms for at in taken)


def predicted_step_ms(split: Split, work: StepWork, lag: int) -> float:
    """Return the shorter of two step times: the gang rolls out between steps, or always trains.

    It goes back to rollout only if that pays (`gates.py`).
    """
    if split.everyone <= 0:  # then only training differs
        return step_limits(MULTIPLEXED, split, work, 1)[TRAINING]
    moves = _with_headroom(step_limits(MULTIPLEXED, split, work, lag))
    return min(moves, _with_headroom(step_limits(DISAGGREGATED, split, work, lag)))


def _with_headroom(limits: Mapping[str, float]) -> float:
    # A list, since there are as many possible gangs as workers.
    return max([HEADROOM * limits[name] if name == TRAINING else limits[name] for name in limits])


def _orders(
    able: Sequence[WorkerView], speeds: Mapping[str, Speed]
) -> Iterator[Sequence[WorkerView]]:
    """Yield the workers in order: all, then without the slowest kind, then without the next."""
    best = sorted(able, key=lambda worker: (-speeds[worker.name].ratio, worker.name))
    for limit in sorted({speeds[worker.name].train for worker in able}):
        yield [worker for worker in best if speeds[worker.name].train >= limit]


def _prefixes(
    order: Sequence[WorkerView], speeds: Mapping[str, Speed], least: int
) -> Iterator[Team]:
    devices = 0
    slowest = float("inf")
    rollout = 0.0
    for count, worker in enumerate(order, start=1):
        speed = speeds[worker.name]
        devices += worker.devices
        slowest = min(slowest, speed.train)
        rollout += speed.rollout if "rollout" in worker.tags else 0.0
        if devices >= least:
            yield Team(order, count, devices, slowest, rollout)


def _team(workers: Sequence[WorkerView], speeds: Mapping[str, Speed]) -> Team | None:
    """Return all these workers as a team, or None if there are none."""
    team = None
    for team in _prefixes(workers, speeds, 1):  # noqa: B007 # the last one has them all
        pass
    return team
