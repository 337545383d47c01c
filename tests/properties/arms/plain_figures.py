"""Statistics by arm in a second, plain form: lists of events, looked through for each figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


@dataclass(frozen=True)
class PlainRules:
    """Rules of counting."""

    memory: float = 0.9
    own_memory: float = 0.7
    pool_memory: float = 0.97
    game_memory: float = 0.99
    passes: float = 1.0


@dataclass(frozen=True)
class PlainResult:
    """Result of a group."""

    step: int
    """Trained step at which it came."""
    passed: int
    counted: int
    all_equal: bool
    turns: Sequence[int]
    """Turns of the sessions that passed."""


@dataclass
class PlainArm:
    """Everything that happened to an arm, in order."""

    pool: bool = False
    """True if it is a pool of tasks, which forgets less at each result."""
    opponent: bool = False
    """True for an opponent, which forgets game by game and not step by step."""
    choices: list[Mapping[str, float]] = field(default_factory=list)
    results: list[PlainResult] = field(default_factory=list)

    def faded(self, numbers: Sequence[int], now: int, rules: PlainRules) -> float:
        """Return the sum of a number of each result, with what is left of it at a step."""
        total = 0.0
        steps = [*(result.step for result in self.results), now]
        for place, number in enumerate(numbers):
            weight = 1.0
            for earlier, later in zip(steps[place:], steps[place + 1 :], strict=False):
                for _ in range(earlier, later):
                    weight *= 1 if self.opponent else rules.memory
            for result in self.results[place + 1 :]:
                weight *= self._kept(result, rules)
            total += number * weight
        return total

    def _kept(self, result: PlainResult, rules: PlainRules) -> float:
        """Return what is left of earlier numbers behind a result."""
        if not self.opponent:
            return rules.pool_memory if self.pool else rules.own_memory
        left = 1.0
        for _ in range(result.counted):
            left *= rules.game_memory
        return left

    def figures(self, now: int, rules: PlainRules) -> Mapping[str, object]:
        """Return all figures as of a trained step."""
        results = self.results
        newest = results[-1] if results else PlainResult(0, 0, 0, False, ())
        in_a_row = 0
        for result in reversed(results):
            if not result.all_equal:
                break
            in_a_row += 1
        merged: dict[str, float] = {}
        for choice in self.choices:
            merged.update(choice)
        return {
            "passed": self.faded([result.passed for result in results], now, rules),
            "failed": self.faded([r.counted - r.passed for r in results], now, rules),
            "draws": len(self.choices),
            "ready": len(results),
            "won": sum(result.passed == result.counted for result in results),
            "lost": sum(result.passed == 0 for result in results),
            "equal": in_a_row,
            "last_passed": newest.passed,
            "last_counted": newest.counted,
            "longest": max((turn for result in results for turn in result.turns), default=0),
            "figures": merged,
        }


def plain_figures(
    log: Sequence[Record], policies: Sequence[str], rules: PlainRules
) -> Mapping[str, Mapping[str, object]]:
    """Return the figures of each arm behind a log, by the arm's name."""
    arms: dict[str, PlainArm] = {}
    for place, record in enumerate(log):
        if not isinstance(record, r.GroupAdmitted) or not _counts(log, place):
            continue
        for name in _names(record):
            new = PlainArm(not name.startswith("task:"), name.startswith("past@"))
            arm = arms.setdefault(name, new)
            arm.choices.append(record.sampler_figures)
    # Results in the order of the log: what fades depends on it.
    for place, record in enumerate(log):
        if isinstance(record, r.GroupReady):
            admission = _admission_of(log, place, policies)
            result = None if admission is None else _result(log, place, policies, rules)
            if admission is not None and result is not None:
                for name in _names(admission):
                    arms[name].results.append(result)
    now = trained_steps(log, policies)
    return {name: arm.figures(now, rules) for name, arm in arms.items()}


def _names(record: r.GroupAdmitted) -> list[str]:
    names = [f"task:{record.task_id}"]
    source = f"{record.split}/forks" if record.parent_session else record.split
    for name in (f"source:{source}", *record.arms):
        if name not in names:
            names.append(name)
    return names


def _counts(log: Sequence[Record], place: int) -> bool:
    """Return whether an admission is of a drawn task, in its time, and the first of its group."""
    record = log[place]
    assert isinstance(record, r.GroupAdmitted)
    before = log[:place]
    newest = max((c.epoch for c in before if isinstance(c, r.SchedulerClaimed)), default=0)
    again = any(
        isinstance(earlier, r.GroupAdmitted)
        and earlier.group_id == record.group_id
        and _counts(log, number)
        for number, earlier in enumerate(before)
    )
    drawn = record.purpose in ("train", "explore") and not record.explored
    return drawn and record.epoch >= newest and not again


def _admission_of(
    log: Sequence[Record], place: int, policies: Sequence[str]
) -> r.GroupAdmitted | None:
    """Return the admission of the group whose first result is at this place."""
    name = getattr(log[place], "group_id", "")
    begun = next(
        (
            number
            for number, record in enumerate(log[:place])
            if isinstance(record, r.GroupAdmitted)
            and record.group_id == name
            and _counts(log, number)
        ),
        None,
    )
    if begun is None:
        return None
    dropped_by = set()
    for record in log[begun:place]:
        if isinstance(record, r.GroupReady) and record.group_id == name:
            return None
        if isinstance(record, r.GroupDropped) and record.group_id == name:
            dropped_by.add(record.policy)
    if len(dropped_by) == max(1, len(policies)):
        return None
    admission = log[begun]
    assert isinstance(admission, r.GroupAdmitted)
    return admission


def _result(
    log: Sequence[Record], place: int, policies: Sequence[str], rules: PlainRules
) -> PlainResult | None:
    record = log[place]
    assert isinstance(record, r.GroupReady)
    step = trained_steps(log[:place], policies)
    if record.returns:
        passed = [value for value in record.returns if value >= rules.passes]
        turns = [
            turn
            for turn, value in zip(record.turns, record.returns, strict=False)
            if value >= rules.passes
        ]
        count = len(record.returns)
        equal = count > 1 and len(set(record.returns)) == 1
        return PlainResult(step, len(passed), count, equal, turns)
    if record.passed is None or not record.sessions:
        return None
    count = len(record.sessions)
    return PlainResult(step, record.passed, count, count > 1 and record.reward_std == 0, ())


def trained_steps(log: Sequence[Record], policies: Sequence[str]) -> int:
    """Return the trained steps of the first policy behind a log."""
    first = [*policies, ""][0]
    newest = [
        place
        for place, record in enumerate(log)
        if isinstance(record, r.WeightsPublished) and record.policy == first
    ]
    if not newest:
        return 0
    published = log[newest[-1]]
    assert isinstance(published, r.WeightsPublished)
    skipped = {
        record.step
        for record in log[: newest[-1]]
        if isinstance(record, r.StepSkipped) and record.policy == first
    }
    return published.step - sum(step < published.step for step in skipped)
