"""A run as `control` has it: steps, hashes of their weights, settings, and its machine. Pure.

Settings can be replaced by other values for an ablation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from seamlessflow.infra.errors import SeamlessFlowError, SettingsRejected
from seamlessflow.infra.faults import faults
from seamlessflow.infra.plain_yaml import read_yaml
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.variables import SettingPath
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.recovery.control_state import Commit, ControlState
from seamlessflow.trainer.recovery.resume import surviving
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import CHOOSING, differences, without_settings


class RunNotRepeatable(SeamlessFlowError):
    """A run that lacks something needed to execute its steps again."""

    lasting = True

    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(f"the run cannot be trained again: {missing}")


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step in the surviving lineage."""

    step: int
    commit: Commit | None
    """Its groups and sessions; None if it was skipped."""
    trains: int
    """Version of the weights that it trained."""
    lineage: str
    """Lineage that executed it; for a skipped step, the previous step's lineage."""
    tensors_hash: str = ""
    """Hash over the tensors that it made; empty if it was skipped."""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The steps behind the newest weights, and the state of `control` that dates their tokens."""

    lineages: Sequence[r.LineageStarted]
    """Lineages of its steps, the oldest first, each with its settings."""
    first_hash: str
    """Hash over the initial weights' tensors."""
    steps: Sequence[RecordedStep]
    control_state: ControlState

    def sessions(self) -> dict[str, str]:
        """Return by session id the lineage that trained it; stored groups are left out."""
        return {
            session: step.lineage
            for step in self.steps
            if step.commit is not None
            for name, members in step.commit.groups.items()
            # A stored group is in the step that trained it first, or comes from another log.
            if name not in step.commit.pools
            for session in members
        }


def recorded_run(policy: str, log: Iterable[tuple[int, Record]]) -> RecordedRun:
    """Return a policy's run from the records on `control` with their offsets.

    Raises `RunNotRepeatable`.
    """
    state = ControlState(policy)
    commits: list[r.StepCommitted] = []
    lineages: dict[str, r.LineageStarted] = {}
    published: dict[int, r.WeightsPublished] = {}
    completed: dict[tuple[str, int], r.StepCompleted] = {}
    skipped: set[int] = set()
    for offset, record in log:
        state.apply(record, offset)
        match record:
            case r.LineageStarted() if record.policy == policy:
                lineages[record.lineage] = record
            case r.StepCommitted() if record.policy in ("", policy):
                commits.append(record)
            case r.StepSkipped() if record.policy in ("", policy):
                skipped.add(record.step)
            case r.WeightsPublished() if record.policy == policy:
                published.setdefault(record.version, record)
            case r.StepCompleted():
                completed[record.lineage, record.step] = record
    kept = surviving(commits)
    of_steps = _of_steps(kept, lineages)
    first = published.get(min(published, default=0))
    steps: list[RecordedStep] = []
    version = first.version if first else 0
    lineage = kept[0].lineage
    for number in range(kept[-1].step + 1):
        commit = next((candidate for candidate in kept if candidate.step == number), None)
        if commit is None:
            if number not in skipped:
                raise RunNotRepeatable(f"{step_name(number)} is not recorded")
            steps.append(RecordedStep(number, None, version, lineage))
            continue
        lineage = commit.lineage
        weights = published.get(commit.version)
        done = completed.get((lineage, number))
        tensors = weights.tensors_hash if weights else ""
        figures = done.metrics if done else {}
        made = Commit.from_record(commit)
        steps.append(RecordedStep(number, made, version, lineage, tensors, figures))
        version = commit.version
    return RecordedRun(of_steps, first.tensors_hash if first else "", steps, state)


def check_methods(run: RecordedRun, present: Mapping[str, Sequence[r.StepMethod]]) -> None:
    """Raise `RunNotRepeatable` if a step's method has another version in this release.

    `present`: the methods under each lineage's settings, without the kinds in `CHOOSING`.
    """
    for step in run.steps:
        methods = step.commit.methods if step.commit else ()
        recorded = without_settings(each for each in methods if each.kind not in CHOOSING)
        if differing := differences(recorded, without_settings(present[step.lineage])):
            raise RunNotRepeatable(
                f"{step_name(step.step)} was trained with other methods than this release has: "
                f"{'; '.join(differing)}; the release that trained it repeats it, and --set "
                "executes it with these"
            )


class _RecordedSettings(TrainerSettings):
    """Settings from a record only: nothing from the environment may enter them."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,
        **more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def recorded_settings(
    lineage: r.LineageStarted, kafka: KafkaSettings, replaced: Sequence[str] = ()
) -> TrainerSettings:
    """Return the settings with which a lineage was trained; `replaced` are like `a.b=value`.

    They are for one device, whatever device and rank the recorded process had. Raises
    `SettingsRejected`.
    """
    sections = orjson.loads(lineage.settings)
    sections["trainer"] |= {"threads": lineage.threads or None}
    for option in replaced:
        _replace(sections, option)
    try:
        return _RecordedSettings(**sections, kafka=kafka)
    except ValidationError as error:
        first = faults(error, _RecordedSettings)[0]
        raise SettingsRejected("--set", first.line(_dotted)) from error


def settings_by_path(lineage: r.LineageStarted) -> Mapping[str, Any]:
    """Return a lineage's recorded settings by path."""
    return dict(_flat("", orjson.loads(lineage.settings)))


def changed_settings(before: r.LineageStarted, after: r.LineageStarted) -> Mapping[str, str]:
    """Return the settings in which two lineages differ, by path, as `old -> new`."""
    old = settings_by_path(before)
    new = settings_by_path(after)
    return {
        name: f"{old.get(name)} -> {new.get(name)}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def _of_steps(
    kept: Sequence[r.StepCommitted], lineages: Mapping[str, r.LineageStarted]
) -> list[r.LineageStarted]:
    """Return the steps' lineages, after a check that their settings are recorded."""
    if not kept:
        raise RunNotRepeatable("no step of it is committed")
    names = list(dict.fromkeys(commit.lineage for commit in kept))
    for name in names:
        if name not in lineages:
            raise RunNotRepeatable(
                f"the settings of lineage {name} are not recorded; releases since 0.1.0 record them"
            )
    first = lineages[names[0]]
    if first.step:
        raise RunNotRepeatable(f"its first lineage went on behind step {first.step}")
    return [lineages[name] for name in names]


def _dotted(path: SettingPath) -> str:
    return ".".join(map(str, path))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the settings within a section, each with its path."""
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from _flat(f"{path}.{name}" if path else name, inner)


def _replace(sections: dict[str, Any], option: str) -> None:
    path, equals, value = option.partition("=")
    *parents, name = path.split(".")
    place: Any = sections
    for parent in parents:
        place = place.get(parent) if isinstance(place, dict) else None
    if not equals or not isinstance(place, dict) or name not in place:
        names = sorted(place) if isinstance(place, dict) else sorted(sections)
        reason = f"{option} is not NAME=VALUE of a recorded setting; there are {', '.join(names)}"
        raise SettingsRejected("--set", reason)
    place[name] = _value(option, value)


def _value(option: str, text: str) -> Any:
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise SettingsRejected("--set", f"{option}: {error}") from error
