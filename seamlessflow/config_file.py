"""Reader for a run's configuration: a YAML or TOML file, with environment variables over it.

All faults are found at once. A wrong setting is left out, and its default takes its place. So a
`Reading` has a configuration to check further even if some settings are wrong. Paths that no file
system takes are faults too, and so are sections that are too large for a process.
"""

import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from seamlessflow.config import RunConfig
from seamlessflow.device_defaults import by_this_machine
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import Fault, faults
from seamlessflow.infra.json_lines import broken_place
from seamlessflow.infra.plain_yaml import read_yaml
from seamlessflow.infra.settings import from_environment, unread
from seamlessflow.infra.variables import SettingPath, place_in
from seamlessflow.infra.weights.model_hub import ModelNotFetched
from seamlessflow.listed_tasks import (
    ListedTasks,
    NotListed,
    listed_file,
    trained_faults,
)
from seamlessflow.named_models import Fetched, fetch, fetchable, hub_models
from seamlessflow.prepared_tasks import named_tasks, prepare, shared_faults
from seamlessflow.read_paths import LISTED, found_beside, is_listed, replaced, searched
from seamlessflow.scheduler.tasks.prepared.source import SourceRejected

Check = Callable[[RunConfig], Iterable[Fault]]
"""Finds what is wrong with a configuration whose values are right one by one."""

Fill = Callable[[RunConfig], RunConfig]
"""Adds the defaults that follow from devices."""

ReadTasks = Callable[[RunConfig], Collection[str]]
"""Returns the sections whose tasks a command reads, `pacing` or `evaluation`."""

_ROUNDS = 3
_MOST_SHOWN = 50
"""Most lines about wrong settings that are printed."""
_LONGEST_PATH = 4095
_LONGEST_NAME = 255
"""Longest path, and longest name in it, that Linux takes, in bytes."""
_LARGEST_SECTION = 120_000
"""Most bytes in a section's environment variable: Linux takes 131,071, with the variable's name."""


def every_task(_: RunConfig) -> Collection[str]:
    """Return every section that names tasks."""
    return ("pacing", "evaluation")


def evaluated(_: RunConfig) -> Collection[str]:
    """Return the section that names tasks for evaluation."""
    return ("evaluation",)


def no_task(_: RunConfig) -> Collection[str]:
    """Return no section: for a command that reads no tasks."""
    return ()


class ConfigRejected(SeamlessFlowError):
    """A run configuration cannot be used; `faults` has a line for each wrong setting."""

    def __init__(self, path: Path | None, faults: Sequence[str]) -> None:
        self.path = path
        self.faults = tuple(faults)
        count = f"{len(faults)} settings are" if len(faults) > 1 else "a setting is"
        more = f"\n  and {len(faults) - _MOST_SHOWN:,} more" if len(faults) > _MOST_SHOWN else ""
        lines = "".join(f"\n  {line}" for line in faults[:_MOST_SHOWN]) + more
        super().__init__(f"{path or 'configuration'}: {count} wrong:{lines}")


class FileRejected(SeamlessFlowError):
    """A run configuration's file cannot be read."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


@dataclass
class Reading:
    """Run configuration as far as it can be read, and its faults as lines."""

    config: RunConfig | None
    lines: list[str]
    sections: dict[str, Any]
    """The file's sections with environment variables over them, without wrong settings."""
    left_out: list[SettingPath] = field(default_factory=list)
    """Wrong settings that were left out; they may cause faults that are found later."""
    searched: Mapping[SettingPath, str] = field(default_factory=dict)
    """For each missing path, the places that were searched."""

    def add(self, additions: Iterable[Fault]) -> None:
        """Add a line for each fault, except faults that may follow from a setting left out."""
        self.lines += [self._line(fault) for fault in additions if not self._follows(fault)]

    def _line(self, fault: Fault) -> str:
        searched = self.searched.get(fault.path)
        return fault.line(as_written) + (f" ({searched})" if searched else "")

    def _follows(self, fault: Fault) -> bool:
        if not fault.path:  # a rule about several settings, which its text names
            return any(f"{path[0]}." in fault.text for path in self.left_out)
        return any(path[: len(fault.path)] == fault.path[: len(path)] for path in self.left_out)


def load(
    path: Path,
    check: Check | None = None,
    fill: Fill = by_this_machine,
    fetched: Fetched = Fetched.ALL,
    read_tasks: ReadTasks = every_task,
) -> RunConfig:
    """Return the configuration in a YAML or TOML file, filled by `fill` and checked by `check`.

    Relative paths to read are looked for beside the configuration file, then in the working
    directory. Paths to write are relative to the working directory. `fetched` says which files of a
    hub's models are fetched. Tasks are prepared in the sections that `read_tasks` returns. Raises
    `FileRejected`, or `ConfigRejected` with all that is wrong.
    """
    return parse(sections_of(path), path, check, fill, fetched, read_tasks)


def parse(
    values: Mapping[str, Any],
    path: Path | None = None,
    check: Check | None = None,
    fill: Fill = by_this_machine,
    fetched: Fetched = Fetched.ALL,
    read_tasks: ReadTasks = every_task,
) -> RunConfig:
    """Make the configuration from values, the environment and the defaults that `fill` adds.

    Raises `ConfigRejected`.
    """
    reading = read(values)
    if path is not None:
        reading.searched = searched(values, path.parent)
    if reading.config is not None and fetched is not Fetched.NONE:
        _fetch_models(reading, fetched)
        _prepare_tasks(reading, read_tasks(reading.config))
    if reading.config is not None:
        reading.config = fill(reading.config)
        sizes = list(_size_faults(reading.config))
        reading.add(sizes)
        if check is not None and not sizes:
            reading.add(check(reading.config))
    if reading.lines or reading.config is None:
        raise ConfigRejected(path, reading.lines)
    return reading.config


def read(values: Mapping[str, Any]) -> Reading:
    """Return what can be read from the values, with environment variables over them."""
    # A misspelt variable would be ignored in silence.
    lines = [line.strip() for line in unread()]
    variables, wrong = from_environment(RunConfig, os.environ)
    merged = _merged(values, variables)
    lines += [f"{name}: {text}" for name, text in wrong.items()]
    reading = Reading(None, lines, merged)
    for _ in range(_ROUNDS):  # a rule about several settings is checked when each is right
        try:
            reading.config = RunConfig(**deepcopy(merged))
            break
        except ValidationError as error:
            errors = faults(error, RunConfig)
            reading.add(errors)
            removed = [_leave_out(merged, fault.path) for fault in errors]
            reading.left_out += filter(None, removed)
            if not all(removed):
                break
    return reading


def _fetch_models(reading: Reading, fetched: Fetched) -> None:
    """Replace each hub model's name by the directory with its files.

    Once a setting is wrong, nothing more is fetched: each model is only checked to be fetchable.
    """
    for path, model in list(hub_models(reading.sections)):
        directory = None
        try:
            directory = fetchable(model) if reading.lines else fetch(model, fetched)
        except ModelNotFetched as error:
            reading.add([Fault(path, str(error))])
        if directory is None:  # no files that could be checked
            reading.left_out.append(path)
        else:
            reading.sections = replaced(reading.sections, path, str(directory))
            reading.config = RunConfig(**deepcopy(reading.sections))


def _prepare_tasks(reading: Reading, read_by_command: Collection[str]) -> None:
    """Replace tasks in any other form by files of JSON lines.

    Once a setting is wrong, nothing more is prepared.
    """
    _list_tasks(reading, read_by_command)
    if reading.config is None:
        return
    named = named_tasks(reading.sections, reading.config)
    reading.add(shared_faults(named))
    for tasks in named:
        if tasks.plain or tasks.section[0] not in read_by_command:
            continue
        try:
            if not reading.lines:
                reading.sections = prepare(tasks, reading.config.out, reading.sections)
                reading.config = RunConfig(**deepcopy(reading.sections))
                continue
        except SourceRejected as error:
            reading.add([Fault(tasks.setting, str(error))])
        reading.left_out.append(tasks.setting)  # no lines that could be checked


def _list_tasks(reading: Reading, read_by_command: Collection[str]) -> None:
    """Replace each text `environment:...` by a file with the tasks that the environment lists.

    If `agents.environment` is set and no tasks are named, all its tasks are taken. Once a setting
    is wrong, nothing more is listed.
    """
    config = reading.config
    if config is None:
        return
    if config.agents.environment and not config.pacing.issues and "pacing" in read_by_command:
        pacing = {**reading.sections.get("pacing", {}), "tasks": LISTED}
        reading.sections = {**reading.sections, "pacing": pacing}
    listed: list[ListedTasks] = []
    for tasks in named_tasks(reading.sections, config):
        if not is_listed(tasks.text) or tasks.section[0] not in read_by_command:
            continue
        try:
            if not reading.lines:
                file = listed_file(tasks.text, config.agents, config.out)
                reading.sections = replaced(reading.sections, tasks.setting, str(file))
                listed.append(ListedTasks(tasks.setting, tasks.text, file, tasks.for_evaluation))
                continue
        except (NotListed, OSError) as error:
            reading.add([Fault(tasks.setting, str(error))])
        reading.left_out.append(tasks.setting)  # no lines that could be checked
    reading.add(trained_faults(listed))
    if listed and not reading.lines:
        reading.config = RunConfig(**deepcopy(reading.sections))


def as_written(path: SettingPath) -> str:
    """Return a setting as the user wrote it: its variable if there is one, else its YAML path."""
    return _dotted(place_in(os.environ, path) or path)


def sections_of(path: Path) -> Mapping[str, Any]:
    """Return the sections in a YAML or TOML file; paths to read lead beside it if they exist there.

    Raises `FileRejected`.
    """
    try:
        text = path.read_text(encoding="utf-8")
        sections = tomllib.loads(text) if path.suffix == ".toml" else read_yaml(text)
    except OSError as error:
        raise FileRejected(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise FileRejected(path, f"it is not UTF-8 {broken_place(error)}") from error
    except (ValueError, yaml.YAMLError) as error:  # TOML: also a number of too many digits
        raise FileRejected(path, str(error)) from error
    if sections is None:  # nothing but comments
        return {}
    if not isinstance(sections, dict):
        raise FileRejected(path, "it is not a mapping of sections")
    return found_beside(sections, path.parent)


def _size_faults(config: BaseModel) -> Iterator[Fault]:
    """Yield a fault for each path that no disk can have, and for each section that is too large."""
    for path, value in _paths((), config):
        if why := _impossible(value):
            yield Fault(path, f"is a path that {why}")
    for name in type(config).model_fields:
        size = len(json.dumps(_plain(getattr(config, name)), default=str).encode())
        if size > _LARGEST_SECTION:
            text = f"has {size:,} bytes, more than the {_LARGEST_SECTION:,} that a process takes"
            yield Fault((name,), f"{text}: put large values into a file that your code reads")


def _dotted(path: SettingPath) -> str:
    first, *rest = path
    return str(first) + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in rest)


def _leave_out(values: dict[str, Any], path: SettingPath) -> SettingPath:
    """Remove a setting as far as it exists, or the list it is in; return the removed part."""
    above: list[dict[str, Any]] = []
    place: Any = values
    for part in path:
        if not isinstance(place, dict) or part not in place:
            break
        above.append(place)
        place = place[part]
    removed = path[: len(above)]
    if removed:
        del above[-1][str(removed[-1])]
    return removed


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {name for name in over if isinstance(over[name], dict)} & {
        name for name in under if isinstance(under[name], dict)
    }
    return {**under, **over, **{name: _merged(under[name], over[name]) for name in both}}


def _impossible(path: Path) -> str:
    """Return why no file system takes a path, empty if a file system may take it."""
    if "\0" in str(path):
        return "has a null character, which no file system takes"
    longest = max((len(name.encode()) for name in path.parts), default=0)
    if longest > _LONGEST_NAME:
        return f"has a name of {longest:,} bytes; file systems take {_LONGEST_NAME}"
    size = len(str(path).encode())
    return f"has {size:,} bytes; the system takes {_LONGEST_PATH:,}" if size > _LONGEST_PATH else ""


def _paths(path: SettingPath, value: object) -> Iterator[tuple[SettingPath, Path]]:
    """Yield each path in a section at any depth."""
    if isinstance(value, Path):
        yield path, value
    for name, inner in _members(value):
        yield from _paths((*path, name), inner)


def _members(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, BaseModel):
        yield from ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple | list):
        yield from enumerate(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="python") if isinstance(value, BaseModel) else value
