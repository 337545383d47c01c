"""Reading of recorded sessions to count the rules that would have matched. It writes nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from seamlessflow.consumers.trajectories.matching.match import PromptRenderer
from seamlessflow.consumers.trajectories.matching.recorded import MatchSettings
from seamlessflow.consumers.trajectories.matching.renderers import Renderers
from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.match_trial import MatchCounts, MatchTrial, TrialRenderer
from seamlessflow.recorded.select.reading import Show, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.recorded.show.log import newest_weights
from seamlessflow.schemas.records import PolicyWeights, TurnStarted
from seamlessflow.schemas.topics import SESSIONS

_SHOWN_EVERY = 1_000
Change = Callable[[RendererSettings], RendererSettings]
"""Turns a renderer's recorded settings into those to try. Raises `RendererError`."""


@dataclass(slots=True)
class TrialOutcome:
    """Counts over all chosen sessions that ended."""

    events: int = 0
    sessions: int = 0
    counts: MatchCounts = field(default_factory=MatchCounts)
    skipped: Skipped = field(default_factory=Skipped)
    missing: list[str] = field(default_factory=list)
    """Names in the selection that no session has."""


def run_trial(
    kafka: KafkaSettings,
    selection: SessionSelection,
    strictness: Strictness | None,
    change: Change | None,
    show: Show,
    stopping: Stopping = never,
) -> TrialOutcome:
    """Return the counts under another strictness or, with a `change`, another renderer.

    `show` is called with two counts: further events read, and all events to read. Raises what
    `partition_bounds` and `read_partitions` raise.
    """
    renderer: TrialRenderer | None = None
    if change is not None:
        renderer = _trial_renderer(newest_weights(kafka, Skipped(), stopping), change)
    bounds = partition_bounds(kafka, selection, stopping)
    trials = {number: MatchTrial(strictness, renderer) for number in bounds}
    folds = {
        number: _refold(number, bounds[number][0], selection, trial)
        for number, trial in trials.items()
    }
    starts = {(SESSIONS.name, number): start for number, (start, _) in bounds.items()}
    ends = {(SESSIONS.name, number): end for number, (_, end) in bounds.items()}
    total = sum(end - start for start, end in bounds.values())
    outcome = TrialOutcome()
    for item in read_partitions(
        kafka,
        list(ends),
        starts=starts,
        ends=ends,
        rules=ReadingRules(folds=True),
        stopping=stopping,
    ):
        outcome.events += 1
        if outcome.events % _SHOWN_EVERY == 0:
            show(_SHOWN_EVERY, total)
        if isinstance(item.record, Unreadable):
            outcome.skipped.apply(item.topic, item.record)
            continue
        ended = folds[item.partition].apply(item.record, item.offset)
        if ended is not None:
            counts = trials[item.partition].take(ended.session_id)
            if selection.chooses(assembled(ended, item.partition)[0]):
                outcome.sessions += 1
                outcome.counts.add(counts)
    outcome.missing = selection.missing(
        set[str]().union(*(fold.matched for fold in folds.values()))
    )
    return outcome


def _refold(number: int, start: int, selection: SessionSelection, trial: MatchTrial) -> Refold:
    log = LoggedPartition(number, position=start)
    return Refold(log, selection, trial.rewrite, trial.strictness)


def _trial_renderer(policies: Mapping[str, PolicyWeights], change: Change) -> TrialRenderer:
    renderers = Renderers()

    def made(started: TurnStarted, recorded: MatchSettings) -> PromptRenderer:
        policy = policies.get(started.policy)
        if policy is None:
            raise RendererError(started.policy, "the policy is not on the topic fleet any more")
        changed = change(RendererSettings.from_json(recorded.renderer))
        settings = changed.with_options(started.template_args)
        return renderers.for_policy(replace(policy, renderer=settings.to_json()))

    return made
