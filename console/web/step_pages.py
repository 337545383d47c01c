"""Pages for optimizer steps, from the log and the files with trained tokens. Any thread."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from seamlessflow.console.log.first_prompts import first_prompts
from seamlessflow.console.log.index import Cut
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.models.course import CompletedStep
from seamlessflow.console.views.step import StepPage, StepQuery, StepRecords, step_page
from seamlessflow.console.views.unusual import BEFORE
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.audit.trained_tokens import FileFault, step_files
from seamlessflow.recorded.trace.row import of_kind
from seamlessflow.schemas.records import GroupReady, StepCommitted, TurnStarted
from seamlessflow.schemas.tokens import step_name
from seamlessflow.schemas.topics import CONTROL
from seamlessflow.trainer.steps.trained import TrainedRun

_MOST_DROPS = 200
_PLACE = (CONTROL.name, 0)


class StepNotOnLog(SeamlessFlowError):
    """An optimizer step about which nothing is on the log, up to the moment that is shown."""

    lasting = True

    def __init__(self, step: str, policy: str, policies: Sequence[str]) -> None:
        of_policy = f" of policy {policy}" if policy else ""
        others = f"; policies: {', '.join(policies)}" if len(policies) > 1 else ""
        super().__init__(f"no {step}{of_policy} is committed at this moment{others}")


class StepPages:
    """A log's steps; `trained`: directory with the run's trained tokens, if it is known."""

    def __init__(self, run_log: RunLog, trained: Path | None) -> None:
        self._run_log = run_log
        self._trained = trained

    def page(self, cut: Cut, place: str, policy: str, query: StepQuery) -> StepPage:
        """Return a step's page, by its number from 1. Raises `StepNotOnLog`."""
        course = self._run_log.course
        end = self._run_log.control_end(cut)
        mine = course.of_policy(policy, end)
        policy = mine.policy
        steps = mine.steps
        step = int(place) - 1 if place.isascii() and place.isdigit() and len(place) < 12 else -1
        commits = list(of_kind(self._read(course.commits(policy, step, end)), StepCommitted))
        completed = next((row for row in steps if row.step == step), None)
        if not commits and completed is None:
            shown = step_name(step) if step >= 0 else f"step {place}"
            raise StepNotOnLog(shown, policy, mine.policies)
        earlier = [row for row in steps if row.step < step][-BEFORE:]
        groups = self._groups([commit for commit, _ in commits[-1:]], end)
        return step_page(
            StepRecords(
                policy=policy,
                step=step,
                completed=completed,
                metrics=course.metrics(completed) if completed is not None else {},
                commits=commits,
                groups=groups,
                drops=self._drops(steps, step, commits, end),
                runs=self._runs([commit for commit, _ in commits[-1:]]),
                last=max((row.step for row in steps), default=step),
                before=[course.metrics(row) for row in earlier],
                prompts=self._prompts(cut, groups),
            ),
            query,
        )

    def _groups(self, commits: Sequence[StepCommitted], end: int) -> dict[str, list[Received]]:
        names = [group.group_id for commit in commits for group in commit.groups]
        offsets = {name: self._run_log.course.group(name, end) for name in names}
        every = self._read([offset for numbers in offsets.values() for offset in numbers])
        items = {item.offset: item for item in every}
        return {
            name: [items[offset] for offset in numbers if offset in items]
            for name, numbers in offsets.items()
        }

    def _prompts(
        self, cut: Cut, groups: Mapping[str, Sequence[Received]]
    ) -> dict[str, TurnStarted]:
        """Return the first turn of each group's first session."""
        groups_ready = [
            ready
            for items in groups.values()
            for ready, _ in of_kind(items, GroupReady)
            if ready.sessions and ready.first_offsets
        ]
        asked = {ready.sessions[0]: ready.first_offsets[0] for ready in groups_ready}
        turns = first_prompts(self._run_log, cut, asked)
        return {
            ready.group_id: turns[ready.sessions[0]]
            for ready in groups_ready
            if ready.sessions[0] in turns
        }

    def _drops(
        self,
        steps: Sequence[CompletedStep],
        step: int,
        commits: Sequence[tuple[StepCommitted, Received]],
        end: int,
    ) -> list[Received]:
        """Return the drops between the previous step's commit and the step's own."""
        before = next((row for row in reversed(steps) if row.step < step), None)
        earlier = self._run_log.course.commits(before.policy, before.step, end) if before else ()
        begin = earlier[-1] if earlier else 0
        last = commits[-1][1].offset if commits else end
        return self._read(self._run_log.course.drops(begin, last)[:_MOST_DROPS])

    def _runs(self, commits: Sequence[StepCommitted]) -> Sequence[TrainedRun] | None:
        if self._trained is None:
            return None
        faults: list[FileFault] = []
        files = step_files(self._trained, commits, faults)
        return next((file.runs for _, file in files), None)

    def _read(self, offsets: Sequence[int]) -> list[Received]:
        items = self._run_log.records([(_PLACE, offset) for offset in offsets])
        return [self._run_log.decoder.decoded(item) for item in items]
