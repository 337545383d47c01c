"""Verification that each trained token was sampled, and was trained again only by plan.

It compares every line in `trained/` with the raw events on `sessions`. Id and policy version must
be equal, and the log-prob equal to the bit. To stay independent, it uses neither the trajectory
manager's fold nor the trajectories. It shares with the trainer only the file format.

After a crash, steps are executed again. Only steps that led to the newest weights count. A step
marks each group that it trains again by plan with how many steps trained it before. Each token in
such a group may be in it once more. `_N`: the tokens in one file. Called at a run's end.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.sampled_tokens import SampledFold, SampledTokens, tokens_of
from seamlessflow.recorded.audit.stored import (
    ELSEWHERE,
    all_prefixes,
    elsewhere,
    stored_names,
    stored_sessions,
)
from seamlessflow.recorded.audit.trained_tokens import (
    BROKEN,
    FileFault,
    TrainedFile,
    TrainedTokens,
    step_files,
    trained_tokens,
)
from seamlessflow.schemas.arrays import Int64s
from seamlessflow.schemas.records import LineageStarted, StepCommitted
from seamlessflow.schemas.tokens import shown_step, step_name
from seamlessflow.schemas.topics import CONTROL, SESSIONS, Topic

MOST_DEVIATIONS = 5
"""Most deviations that are listed for each kind."""

_OFFSET_BITS = 32
_COUNTED = (LineageStarted, StepCommitted)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A trained token that differs from the log, or that was trained again."""

    step: int
    session: str
    turn: str
    offset: int
    what: str

    def __str__(self) -> str:
        where = (
            f"{step_name(self.step)}, session {self.session}, turn {self.turn}, token {self.offset}"
        )
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The check's result; `tokens_checked` counts every token in every line."""

    tokens_checked: int
    mismatches: int
    """Tokens that are not on the log, or with another id, log-prob or version."""
    trained_twice: int
    """Tokens that stand more than once in the files, counting only steps that count."""
    steps_missing: tuple[int, ...] = ()
    """Committed steps that have no file."""
    wrong_marks: tuple[str, ...] = ()
    """Sentences about groups and sessions marked with a wrong number of earlier steps."""
    wrong_files: tuple[str, ...] = ()
    """Sentences about files that differ from what their steps committed."""
    deviations: tuple[Deviation, ...] = ()
    """The first few deviations."""

    @property
    def clean(self) -> bool:
        """True if the check found no fault."""
        wrong_tokens = self.mismatches or self.trained_twice
        return not (wrong_tokens or self.steps_missing or self.wrong_marks or self.wrong_files)


def verify(
    settings: KafkaSettings, trained_dir: Path, skipped: Skipped, stopping: Stopping = never
) -> Verification:
    """Check the files in `trained_dir` against the log as it is now.

    Unreadable records are counted in `skipped`. Raises `KafkaUnavailable`, also once `stopping`.
    """

    def read(topic: Topic) -> Iterator[Received]:
        return read_topic(settings, topic, skipped, stopping=stopping)

    # `control` before `sessions`: in a live run, the tokens of its steps are then on the log.
    control = [item.record for item in read(CONTROL) if isinstance(item.record, _COUNTED)]
    steps = surviving_steps([record for record in control if isinstance(record, StepCommitted)])
    fold = SampledFold()
    for item in read(SESSIONS):
        fold.apply(item.partition, item.record)
    names = frozenset[str]().union(*map(elsewhere, steps))
    stored = stored_sessions(settings, all_prefixes(control), names, skipped, stopping)
    fold.sessions.update(stored)
    faults: list[FileFault] = []
    files = (file for _, file in step_files(trained_dir, steps, faults))
    verification = compare(steps, files, tokens_of(fold.sessions))
    wrong_files = tuple(map(str, faults))
    return replace(verification, wrong_marks=tuple(wrong_marks(steps)), wrong_files=wrong_files)


def surviving_steps(commits: Sequence[StepCommitted]) -> list[StepCommitted]:
    """Return the steps behind each policy's newest weights, oldest first.

    `commits` is in log order.
    """
    of_policies: dict[str, list[StepCommitted]] = {}
    for commit in commits:
        of_policies.setdefault(commit.policy, []).append(commit)
    return [step for steps in of_policies.values() for step in _surviving(steps)]


def _surviving(commits: Sequence[StepCommitted]) -> list[StepCommitted]:
    by_lineage: dict[str, dict[int, StepCommitted]] = defaultdict(dict)
    parents: dict[str, str] = {}
    for commit in commits:
        by_lineage[commit.lineage][commit.step] = commit
        parents[commit.lineage] = commit.parent_lineage
    kept: dict[int, StepCommitted] = {}
    lineage = commits[-1].lineage if commits else ""
    # From the newest lineage to its oldest ancestor, keep the steps before those kept so far.
    while lineage:
        first = min(kept, default=None)
        steps = by_lineage[lineage]
        kept |= {step: made for step, made in steps.items() if first is None or step < first}
        lineage = parents.pop(lineage, "")
    return [kept[step] for step in sorted(kept)]


def wrong_marks(steps: Iterable[StepCommitted]) -> Iterator[str]:
    """Yield a sentence for each group or session whose mark is not its number of earlier steps.

    `steps`: the surviving ones, each policy's in order.
    """
    before: Counter[tuple[str, str]] = Counter()
    trained: Counter[tuple[str, str]] = Counter()
    """Steps that trained each session."""
    for step in steps:
        for group in step.groups:
            count = before[step.policy, group.group_id]
            if group.reused and group.reused != count:
                yield (
                    f"{step_name(step.step)} marks group {group.group_id} as trained by "
                    f"{group.reused} steps before it, and {count} did"
                )
            for each in group.replaced:
                if each.uses != (count := trained[step.policy, each.by]):
                    yield (
                        f"{step_name(step.step)} marks session {each.by} as trained by {each.uses} "
                        f"steps before it, and {count} did"
                    )
        before.update((step.policy, group.group_id) for group in step.groups)
        trained.update((step.policy, name) for name in step.trained_tokens)


def planned(step: StepCommitted) -> frozenset[str]:
    """Return the sessions that a step trains again by plan, including stored ones."""
    again = (name for group in step.groups if group.reused for name in group.sessions)
    return stored_names(step).union(again)


def compare(
    steps: Iterable[StepCommitted], files: Iterable[TrainedFile], sampled: SampledTokens
) -> Verification:
    """Compare the files of `steps` with `sampled`; other steps' files do not count."""
    missing = {(step.step, step.version, step.lineage): step for step in steps}
    comparison = _Comparison(sampled, dict(sampled.numbers))
    for header, runs, _ in files:
        name = (header.step, header.version, header.lineage)
        if name in missing:
            # A second file of the step does not count.
            step = missing.pop(name)
            tokens = trained_tokens(header.step, runs)
            comparison.add_step(tokens, planned(step), elsewhere(step))
    return comparison.result(tuple(sorted(step for step, _, _ in missing)))


@dataclass(slots=True)
class _Comparison:
    """Findings in the files that were compared so far."""

    sampled: SampledTokens
    numbers: dict[tuple[str, str], int]
    """Numbers for the turns on the log, followed by turns that only files contain."""
    mismatches: int = 0
    keys: list[Int64s] = field(default_factory=list)
    """Each token's turn number and offset as one integer, an array for each file."""
    files: list[TrainedTokens] = field(default_factory=list)
    deviations: list[Deviation] = field(default_factory=list)
    again: int = 0
    """Count of turns that steps trained again by plan."""

    def add_step(
        self, trained: TrainedTokens, again: Collection[str], others: Collection[str]
    ) -> None:
        """Compare one more step's tokens; the step trains the sessions in `again` again by plan.

        `others`: sessions from other logs, whose versions do not count here.
        """
        names = ((run.session, run.turn) for run in trained.runs)
        turns = [self.numbers.setdefault(name, len(self.numbers)) for name in names]
        turns_N = np.array(turns, np.int64)[trained.runs_N]
        places_N = self.sampled.places(turns_N, trained.offsets_N)
        others_N = np.array([run.session in others for run in trained.runs], np.bool_)[
            trained.runs_N
        ]
        versions_N = self.sampled.versions_T[places_N]
        known_N = np.where(
            others_N, trained.versions_N == ELSEWHERE, versions_N == trained.versions_N
        )
        # In another log, a session's sampler may have left no log-probs.
        unscored_N = others_N & np.isnan(self.sampled.logprob_bits_T[places_N].view(np.float32))
        equal_N = self.sampled.logprob_bits_T[places_N] == trained.logprob_bits_N
        wrong_N = (
            ~known_N
            | ((versions_N < 0) & ~others_N)
            | (self.sampled.ids_T[places_N] != trained.ids_N)
            | ~(equal_N | unscored_N)
        )
        self.mismatches += int(np.count_nonzero(wrong_N))
        keys_N = self._keys(trained, turns, again)[trained.runs_N]
        self.keys.append((keys_N << _OFFSET_BITS) + trained.offsets_N)
        self.files.append(trained)
        for token in np.flatnonzero(wrong_N)[: MOST_DEVIATIONS - len(self.deviations)].tolist():
            what = self._difference(trained, token, int(places_N[token]))
            self.deviations.append(_deviation(trained, token, what))

    def _keys(self, trained: TrainedTokens, turns: Sequence[int], again: Collection[str]) -> Int64s:
        """Return a number for each run's turn.

        A session in `again` gets numbers that only this step has.
        """
        numbers: dict[int, int] = {}
        for run, turn in zip(trained.runs, turns, strict=True):
            if run.session in again:
                numbers.setdefault(turn, -1 - self.again - len(numbers))
        self.again += len(numbers)
        return np.array([numbers.get(turn, turn) for turn in turns], np.int64)

    def result(self, steps_missing: tuple[int, ...]) -> Verification:
        """Return the findings in all files."""
        keys = np.concatenate([np.zeros(0, np.int64), *self.keys])
        unique, counts = np.unique(keys, return_counts=True)
        twice = unique[counts > 1]
        return Verification(
            tokens_checked=len(keys),
            mismatches=self.mismatches,
            trained_twice=len(twice),
            steps_missing=steps_missing,
            deviations=(*self.deviations, *map(self._repeated, twice[:MOST_DEVIATIONS].tolist())),
        )

    def _difference(self, trained: TrainedTokens, token: int, place: int) -> str:
        version = int(trained.versions_N[token])
        if version == BROKEN:
            return "the lists of its line differ in length"
        if place == self.sampled.nowhere:
            return "no completed turn on the log has it"
        logprob = trained.logprob_bits_N[token].view(np.float32)
        logged = self.sampled.describe(place)
        return f"id {trained.ids_N[token]}, log-prob {logprob!s}, version {version}; log: {logged}"

    def _repeated(self, key: int) -> Deviation:
        places = [
            (trained, token)
            for trained, keys in zip(self.files, self.keys, strict=True)
            for token in np.flatnonzero(keys == key).tolist()
        ]
        steps = ", ".join(str(shown_step(trained.step)) for trained, _ in places)
        return _deviation(*places[0], f"trained {len(places)} times, in steps {steps}")


def _deviation(trained: TrainedTokens, token: int, what: str) -> Deviation:
    run = trained.runs[int(trained.runs_N[token])]
    return Deviation(trained.step, run.session, run.turn, int(trained.offsets_N[token]), what)
