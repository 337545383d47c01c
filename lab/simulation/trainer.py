"""A simulation's trainer: sessions become groups, groups batches, and batches steps.

`lab/simulation/simulator.py` drives it. It writes the same records as the real one.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from seamlessflow.infra.device_model.rates import GangMember, gang_step
from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.cluster import ModelledCluster
from seamlessflow.lab.simulation.engine import SimulatedSession
from seamlessflow.lab.simulation.fleet import ControlLog, SimulatedFleet
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.scheduler.settings import RunSection
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


@dataclass(eq=False)
class SimulatedTrainer:
    """The trainer and its dataloader."""

    _run: RunSection
    _cluster: ModelledCluster
    _workload: Workload
    _agenda: Agenda
    _control: ControlLog
    _fleet: SimulatedFleet
    staleness: list[int] = field(default_factory=list)
    """Age in optimizer steps of each trained session's first token."""
    tokens: list[float] = field(default_factory=list)
    """Tokens trained in each step, prompts included."""
    ages: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """The trained sessions' sampled tokens, by age in optimizer steps."""
    recycled: float = 0.0
    """Those among them that came before a weight update during their session."""
    _version: int = 0
    _step: int = 0
    _skipped: int = 0
    _groups: dict[str, dict[int, SimulatedSession]] = field(default_factory=dict)
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Each group's sample count, and the least count with which it may be trained."""
    _ready: list[str] = field(default_factory=list)
    _batch: list[str] = field(default_factory=list)

    def react(self, record: Record) -> None:
        """React to a scheduler's record."""
        match record:
            case r.GroupAdmitted():
                self._groups[record.group_id] = {}
                self._sizes[record.group_id] = record.group_size, record.min_group_size
            case r.GroupExpired():
                self._expire(record.group_id)
            case r.ProgressStalled(what="refill"):
                self._train_or_skip(record.detail)
            case r.StepStarted():
                self._train(record)

    def collect(self, session: SimulatedSession) -> None:
        """Add a session that ended to its group; only a sample's first session counts."""
        sessions = self._groups.get(session.group)
        if sessions is None or len(sessions) == self._sizes[session.group][0]:
            return
        sessions.setdefault(session.sample, session)
        if len(sessions) == self._sizes[session.group][0]:
            self._complete(session.group)

    def _expire(self, group: str) -> None:
        sessions = self._groups.get(group)
        size, least = self._sizes[group]
        if sessions is None or len(sessions) == size:
            return
        if len(sessions) >= least:
            self._complete(group)
        else:
            self._drop(group, "expired")

    def _complete(self, group: str) -> None:
        rewards = [session.drawn.reward for session in self._groups[group].values()]
        equal = self._workload.section.drop_equal and len(set(rewards)) == 1
        if equal or self._workload.filtered(group):
            self._drop(group, "filtered")
            return
        self._ready.append(group)
        sessions = self._groups[group].values()
        self._control.append(
            r.GroupReady(
                at_ms=self._agenda.now_ms,
                group_id=group,
                reward_mean=fmean(rewards),
                reward_std=pstdev(rewards),
                version_min=self._oldest(group),
                trainable_tokens=sum(session.drawn.sampled for session in sessions),
                policy=self._run.policy,
            )
        )
        self._announce(self._run.groups_per_step)

    def _drop(self, group: str, reason: str) -> None:
        del self._groups[group]
        self._control.append(
            r.GroupDropped(
                at_ms=self._agenda.now_ms, group_id=group, reason=reason, policy=self._run.policy
            )
        )

    def _train_or_skip(self, detail: str) -> None:
        if self._ready:
            self._announce(1)
            return
        self._step += 1
        self._skipped += 1
        self._control.append(
            r.StepSkipped(
                at_ms=self._agenda.now_ms,
                step=self._step - 1,
                reason=detail,
                policy=self._run.policy,
            )
        )

    def _announce(self, least: int) -> None:
        if self._batch or len(self._ready) < least:
            return
        size = self._run.groups_per_step
        ready = sorted(self._ready, key=self._oldest)  # as `select` in trainer/data/batch.py
        self._batch = ready[:size]
        self._ready = ready[size:]
        self._control.append(
            r.BatchReady(
                at_ms=self._agenda.now_ms,
                step=self._step,
                groups=tuple(self._batch),
                trainable_tokens=sum(session.drawn.sampled for session in self._sessions()),
                policy=self._run.policy,
            )
        )

    def _train(self, started: r.StepStarted) -> None:
        models = {name: self._fleet.workers[name].model for name in started.workers}
        gang = {name: GangMember(model.rates, model.devices) for name, model in models.items()}
        devices = sum(worker.devices for worker in gang.values())
        lengths = [session.context for session in self._sessions()]
        step = gang_step(gang, devices, lengths, self._cluster.step_s)
        took_s = step.slowest_s + self._cluster.publish_s
        tokens = sum(lengths)
        self.tokens.append(tokens)
        self._fleet.add_trained(started.workers, tokens)
        self._fleet.train(step, took_s, lambda: self._commit(started.step, took_s))

    def _oldest(self, group: str) -> int:
        """Return the oldest version that sampled a first token in the group."""
        return min(session.version or 0 for session in self._groups[group].values())

    def _sessions(self) -> list[SimulatedSession]:
        return [session for group in self._batch for session in self._groups[group].values()]

    def _commit(self, step: int, took_s: float) -> None:
        self.staleness += [self._version - (session.version or 0) for session in self._sessions()]
        for session in self._sessions():
            for version, tokens in session.sampled.items():
                self.ages[self._version - version] += tokens
                if version < max(session.sampled):
                    self.recycled += tokens
        batch = self._batch
        self._batch = []
        for group in batch:
            del self._groups[group]
        self._version += 1
        self._step = step + 1
        self._append_step(step, batch, round(1000 * took_s))
        # The next batch may have become ready during the step.
        self._announce(self._run.groups_per_step)
        if self._step - self._skipped == self._run.steps:
            self._control.append(
                r.RunFinished(
                    at_ms=self._agenda.now_ms,
                    steps=self._run.steps,
                    reason="steps",
                    policy=self._run.policy,
                )
            )

    def _append_step(self, step: int, batch: list[str], took_ms: int) -> None:
        at_ms = self._agenda.now_ms
        version = self._version
        policy = self._run.policy
        append = self._control.append
        append(
            r.StepCommitted(
                at_ms=at_ms,
                step=step,
                lineage="a",
                version=version,
                groups=tuple(r.StepGroup(group_id=group) for group in batch),
                policy=policy,
            )
        )
        for group in batch:
            append(r.GroupConsumed(at_ms=at_ms, group_id=group, step=step, policy=policy))
        append(published(policy, version, at_ms))
        for usage in self._fleet.report():  # costs are folded at the step's end
            append(usage)
        append(
            r.StepCompleted(
                at_ms=at_ms,
                step=step,
                lineage="a",
                version=version,
                took_ms=took_ms,
                metrics={"publish_s": self._cluster.publish_s},
                policy=policy,
            )
        )


def published(policy: str, version: int, at_ms: int) -> r.WeightsPublished:
    """Return a new version's record, without files."""
    return r.WeightsPublished(
        at_ms=at_ms,
        policy=policy,
        version=version,
        step=version,
        lineage="a",
        directory="",
        manifest_sha256="",
    )
