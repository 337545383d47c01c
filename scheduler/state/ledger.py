"""The ledger of groups: the admitted groups that have not ended, each with its state.

A group is in the ledger from `GroupAdmitted` until it ends. It ends once: trained (its step's
weights are published) or dropped. Until then it holds a credit. An `eval` group holds none; it ends
when it is ready or expired. An `explore` group holds none either. It ends when it is ready. If its
returns differ, it ends when a group is admitted that samples some of its sessions again. A pure
fold over `control`. Called by `scheduler/state/state.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.scheduler.state.past import NO_VERSION
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

TRAIN = "train"
EVAL = "eval"
EXPLORE = "explore"
SMALLEST_DIFFERENCE = 1e-8
"""Largest difference between returns that count as equal, as for advantages."""
OPPONENT_ARM = "past@"
"""Prefix of an opponent arm's name; the version's number follows."""
OPPONENT_GROUP = "opponent_group"
"""A group's figure: its place, from 0, among the groups that share one drawn opponent."""
MOST_TRIES = 3
"""Number of failed groups in a row after which their task waits for a later pass."""
_FAILED = "failed"
"""Reason for groups without a session that counted."""
_FINAL = ("setting", JUDGE)
"""Causes of failed samples that are not tried again."""
NOTHING_OF_IT = "no_token"
"""Reason for a group without a token from the policy. It is no loss: it costs no replacement."""
_GroupRecord = r.GroupReady | r.SampleFailed | r.GroupExpired | r.GroupDropped | r.GroupConsumed
"""Records that change an admitted group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """The newest failed attempt at a sample."""

    attempt: int
    at_ms: int
    final: bool = False
    """True if the settings leave the sample out, so that it is not tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedGroup:
    """An admitted group that has not ended."""

    task_id: str
    purpose: str
    split: str = ""
    """Name of its task's set; empty: not recorded."""
    version: int
    admitted_ms: int
    deadline_ms: int
    size: int = 0
    """Samples that it asks for; 0: not recorded, so the task or the settings decide."""
    min_size: int = 0
    """Samples with which it may be trained at its deadline; 0: not recorded."""
    turn_limit: int = 0
    """Turns that each session may have; 0: no limit."""
    forked: bool = False
    """True if its sessions begin in the middle of another session."""
    fork_at: r.ParentPlace | None = None
    """Place in one of this run's ended sessions where they begin, or None."""
    opponent: int = NO_VERSION
    """Past version that it plays against."""
    ready: bool = False
    expired: bool = False
    trained_version: int | None = None
    """Version trained from it; its credit returns when that version is published."""
    failures: Mapping[int, FailedAttempt] = field(default_factory=dict)
    """Newest failed attempts, by sample."""
    explored: tuple[r.SeedSession, ...] = ()
    """A ready exploration's sessions."""
    seeds: tuple[r.SeedSession, ...] = ()
    """Sessions whose sampling seeds its samples take, by sample."""
    roles: tuple[r.EpisodeRole, ...] = ()
    """All roles in its episodes; empty if each episode is one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All groups that have not ended, and counts of those that have ended."""

    groups: Mapping[str, AdmittedGroup] = field(default_factory=dict)
    admitted: int = 0
    drawn: int = 0
    """Number of tasks drawn from the task source; other groups tried a task again."""
    drawn_of: Mapping[str, int] = field(default_factory=dict)
    """Number of tasks drawn from each source."""
    stage: int = 0
    """Weights stage in which the newest task was drawn."""
    stage_began: int = 0
    """Number of the stage's first draw."""
    again: tuple[str, ...] = ()
    """Tasks to try again, because their groups failed."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """Drops in a row for each such task."""
    trained: int = 0
    dropped: int = 0
    dropped_in_step: int = 0
    """Number of groups dropped since the last step ended; bounds how many are replaced."""
    opponent: int = NO_VERSION
    """Past version that the newest training group plays against."""
    opponent_groups: int = 0
    """Number of groups in a row since that version was drawn."""
    moved_ms: int = 0
    """When a group was last admitted, got ready or ended."""
    eval_version: int = -1
    eval_admitted: Mapping[str, int] = field(default_factory=dict)
    """Number of groups admitted to evaluate `eval_version`, by split."""
    explored: int = 0
    """Number of groups admitted to explore."""
    admitting: r.GroupAdmitted | None = None
    """Newest group, if its further roles' groups must still be admitted; else None."""

    @property
    def training(self) -> Mapping[str, AdmittedGroup]:
        """Training groups, which hold credits."""
        return {name: group for name, group in self.groups.items() if group.purpose == TRAIN}

    @property
    def running(self) -> int:
        """Number of training groups that are not ready."""
        return sum(not group.ready and group.purpose == TRAIN for group in self.groups.values())

    @property
    def evaluating(self) -> int:
        """Number of evaluation groups that have not ended."""
        return sum(group.purpose == EVAL for group in self.groups.values())

    @property
    def exploring(self) -> int:
        """Number of exploration groups that are not ready."""
        return sum(not group.ready for group in self.explorations.values())

    @property
    def explorations(self) -> Mapping[str, AdmittedGroup]:
        """Exploration groups; some sessions from each ready one will be sampled again."""
        return {name: group for name, group in self.groups.items() if group.purpose == EXPLORE}

    @property
    def ready(self) -> int:
        """Number of training groups that are ready and in no committed step."""
        return sum(
            group.ready and group.trained_version is None and group.purpose == TRAIN
            for group in self.groups.values()
        )


def task_arm(task_id: str) -> str:
    """Return the name of a task's arm, under which its statistics are kept."""
    return f"task:{task_id}"


def apply(ledger: Ledger, record: Record, holds: bool = True) -> Ledger:
    """Return the ledger after a `control` record; a repeated record changes nothing."""
    if isinstance(record, _GroupRecord):
        group = ledger.groups.get(record.group_id)
        return ledger if group is None else _group_changed(ledger, group, record)
    match record:
        case r.GroupAdmitted():
            return _admitted(ledger, record, holds)
        case r.StepCommitted():
            names = {group.group_id for group in record.groups}
            return _committed(ledger, names, record.version)
        case r.WeightsPublished() | r.StepCompleted():
            ended = replace(ledger, dropped_in_step=0)
            return _published(ended, record.version, record.at_ms)
        case r.StepSkipped():
            return replace(ledger, dropped_in_step=0)
    return ledger


def _admitted(ledger: Ledger, record: r.GroupAdmitted, holds: bool) -> Ledger:
    if record.group_id in ledger.groups:
        return ledger
    group = AdmittedGroup(
        task_id=record.task_id,
        purpose=record.purpose,
        split=record.split,
        version=record.version,
        admitted_ms=record.at_ms,
        deadline_ms=record.deadline_ms,
        size=record.group_size,
        min_size=record.min_group_size,
        turn_limit=record.turn_limit,
        forked=bool(record.parent_session),
        fork_at=record.fork_at,
        seeds=record.seeds,
        opponent=opponent_of(record.arms),
        roles=record.roles,
    )
    groups = {**ledger.groups, record.group_id: group} if holds else ledger.groups
    last = [record.group_id, *(role.group_id for role in record.roles if role.trained)][-1]
    admitting = None if record.group_id == last else record
    begun = replace(ledger, groups=groups, moved_ms=record.at_ms, admitting=admitting)
    if record.group_id != first_of(record.roles, record.group_id):
        return begun
    if record.purpose == EVAL:
        before = ledger.eval_admitted if record.version == ledger.eval_version else {}
        admitted = {**before, record.split: before.get(record.split, 0) + 1}
        return replace(begun, eval_version=record.version, eval_admitted=admitted)
    if record.purpose == EXPLORE:
        begun = replace(begun, explored=ledger.explored + 1)
    else:
        begun = replace(
            begun,
            admitted=ledger.admitted + 1,
            opponent=group.opponent,
            opponent_groups=int(record.sampler_figures.get(OPPONENT_GROUP, -1)) + 1,
        )
    if record.explored:  # its task was drawn for the exploration
        left = {name: each for name, each in groups.items() if name != record.explored}
        return replace(begun, groups=left)
    if record.fork_at is not None:  # offered, not drawn
        return begun
    # A task to try again was drawn before: only fresh tasks advance the draw.
    if record.task_id not in ledger.again:
        return _drawn(begun, record)
    place = ledger.again.index(record.task_id)
    return replace(begun, again=ledger.again[:place] + ledger.again[place + 1 :])


def first_of(roles: Sequence[r.EpisodeRole], group_id: str) -> str:
    """Return the first role's group, which has drawn the task; without roles the group itself."""
    return roles[0].group_id if roles else group_id


def opponent_arm(version: int) -> str:
    """Return the arm's name for a past version that groups play against."""
    return f"{OPPONENT_ARM}{version}"


def opponent_of(arms: Iterable[str]) -> int:
    """Return the past version among a group's arms, or `NO_VERSION`."""
    numbers = (arm.removeprefix(OPPONENT_ARM) for arm in arms if arm.startswith(OPPONENT_ARM))
    return next((int(number) for number in numbers if number.isdecimal()), NO_VERSION)


def source_arm(source: str) -> str:
    """Return the arm's name for all tasks from a source."""
    return f"source:{source}"


def arms_of(record: r.GroupAdmitted) -> tuple[str, ...]:
    """Return the arms that a group's result counts for; the task's arm is the first.

    A group that goes on from an ended session counts for none, because that session's result
    decided where the group begins.
    """
    if record.fork_at is not None:
        return ()
    source = source_name(record.split, bool(record.parent_session))
    return tuple(dict.fromkeys((task_arm(record.task_id), source_arm(source), *record.arms)))


def source_name(split: str, forked: bool) -> str:
    """Return the name of a task's source: its split, which forks may share with others."""
    return f"{split}/forks" if forked else split


def _drawn(ledger: Ledger, record: r.GroupAdmitted) -> Ledger:
    source = source_name(record.split, bool(record.parent_session))
    stage = int(record.sampler_figures.get("stage", 0))
    return replace(
        ledger,
        drawn=ledger.drawn + 1,
        drawn_of={**ledger.drawn_of, source: ledger.drawn_of.get(source, 0) + 1},
        stage=stage,
        stage_began=ledger.stage_began if stage == ledger.stage else ledger.drawn,
    )


def _group_changed(ledger: Ledger, group: AdmittedGroup, record: _GroupRecord) -> Ledger:
    match record:
        case r.GroupReady():
            return _ready(ledger, group, record)
        case r.SampleFailed():
            return _sample_failed(ledger, group, record)
        case r.GroupExpired():
            return _expired(ledger, group, record)
        case r.GroupDropped():
            return _dropped(ledger, group, record)
        case r.GroupConsumed():
            return _consumed(ledger, group, record)


def _ready(ledger: Ledger, group: AdmittedGroup, record: r.GroupReady) -> Ledger:
    if group.ready:
        return ledger
    if group.purpose == EVAL:
        return _ended(ledger, [record.group_id], record.at_ms)
    if group.purpose == EXPLORE and not returns_differ(record):
        return _ended(ledger, [record.group_id], record.at_ms)
    ledger = replace(ledger, moved_ms=record.at_ms)
    explored = _explored(record) if group.purpose == EXPLORE else ()
    return _with_group(ledger, record.group_id, replace(group, ready=True, explored=explored))


def returns_differ(record: r.GroupReady) -> bool:
    """Return whether two of a group's sessions have different returns."""
    returns = record.returns
    return len(returns) > 1 and max(returns) - min(returns) > SMALLEST_DIFFERENCE


def _explored(record: r.GroupReady) -> tuple[r.SeedSession, ...]:
    # A trainer from an older release gives no texts.
    texts = record.texts or ("",) * len(record.sessions)
    return tuple(
        r.SeedSession(session_id=session, text=text, value=value)
        for session, text, value in zip(record.sessions, texts, record.returns, strict=True)
    )


def _sample_failed(ledger: Ledger, group: AdmittedGroup, record: r.SampleFailed) -> Ledger:
    before = group.failures.get(record.sample)
    if before is not None and before.attempt >= record.attempt:
        return ledger
    final = record.cause in _FINAL
    failure = FailedAttempt(attempt=record.attempt, at_ms=record.at_ms, final=final)
    failures = {**group.failures, record.sample: failure}
    return _with_group(ledger, record.group_id, replace(group, failures=failures))


def _expired(ledger: Ledger, group: AdmittedGroup, record: r.GroupExpired) -> Ledger:
    if group.purpose == EVAL:
        return _ended(ledger, [record.group_id], record.at_ms)
    return _with_group(ledger, record.group_id, replace(group, expired=True))


def _dropped(ledger: Ledger, group: AdmittedGroup, record: r.GroupDropped) -> Ledger:
    ended = _ended(ledger, [record.group_id], record.at_ms)
    if group.purpose == EVAL or record.reason == NOTHING_OF_IT:
        return ended
    count = ledger.dropped_in_step + 1
    ended = replace(ended, dropped=ledger.dropped + 1, dropped_in_step=count)
    tries = ledger.tries.get(group.task_id, 0) + 1
    if record.reason != _FAILED or tries >= MOST_TRIES or not _drew(record.group_id, group):
        return ended
    return replace(
        ended, again=(*ledger.again, group.task_id), tries={**ended.tries, group.task_id: tries}
    )


def _committed(ledger: Ledger, names: set[str], version: int) -> Ledger:
    groups = {
        name: replace(group, ready=True, trained_version=version) if name in names else group
        for name, group in ledger.groups.items()
    }
    return replace(ledger, groups=groups)


def _consumed(ledger: Ledger, group: AdmittedGroup, record: r.GroupConsumed) -> Ledger:
    # After a commit, the group ends when the weights are published.
    if group.trained_version is not None:
        return ledger
    ended = _ended(ledger, [record.group_id], record.at_ms)
    return replace(ended, trained=ledger.trained + 1)


def _published(ledger: Ledger, version: int, at_ms: int) -> Ledger:
    # Credits return here and not at the commit: a group admitted in between would still be sampled
    # with the old weights.
    over = [
        name
        for name, group in ledger.groups.items()
        if group.trained_version is not None and group.trained_version <= version
    ]
    ended = _ended(ledger, over, at_ms)
    return replace(ended, trained=ledger.trained + len(over))


def _ended(ledger: Ledger, names: list[str], at_ms: int) -> Ledger:
    if not names:
        return ledger
    ended = {name: ledger.groups[name] for name in names}
    tasks = {group.task_id for name, group in ended.items() if _drew(name, group)}
    return replace(
        ledger,
        groups={name: group for name, group in ledger.groups.items() if name not in names},
        tries={task: count for task, count in ledger.tries.items() if task not in tasks},
        moved_ms=at_ms,
    )


def _drew(name: str, group: AdmittedGroup) -> bool:
    """Return whether the group's task was drawn for it."""
    return group.fork_at is None and name == first_of(group.roles, name)


def _with_group(ledger: Ledger, name: str, group: AdmittedGroup) -> Ledger:
    return replace(ledger, groups={**ledger.groups, name: group})
