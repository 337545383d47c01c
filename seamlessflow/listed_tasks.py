"""Tasks that an environment package lists, as a file of JSON lines in the run's directory.

A setting that names a task file may say `environment:` instead. Settings behind that word replace
those in `agents.settings`, for example `environment:seed=7&size=50`. The file's name has a digest
of everything that decides the tasks, so a resumed run reads the same file.
"""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.variables import SettingPath
from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from seamlessflow.producers.agents.environments.listing import write_tasks
from seamlessflow.producers.agents.environments.venvs import environment_spec
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.read_paths import LISTED

FOLDER = "listed_tasks"
"""Folder for the files, in the run's directory."""
_NAMES_TASKS = ("tasks", "sets", "map", "where", "held_back")
"""Evaluation settings that choose tasks."""


class ListedTasks(NamedTuple):
    """Tasks that an environment lists for a setting."""

    setting: SettingPath
    text: str
    file: Path
    for_evaluation: bool


class NotListed(SeamlessFlowError):
    """An environment lists no tasks, or there is no environment."""

    lasting = True


def listed_file(text: str, agents: AgentsSection, out: Path) -> Path:
    """Return the file with the tasks that `text` stands for; make it if it is missing.

    It prints a long listing's progress to standard error. Raises `NotListed`, and `OSError` if the
    file cannot be written.
    """
    if not agents.environment:
        raise NotListed(f"{text!r} stands for tasks of agents.environment, which is not set")
    changes = {
        name: value
        for name, value in _settings(text.removeprefix(LISTED)).items()
        if name not in agents.settings or agents.settings[name] != value
    }
    try:
        log_file = out / "logs" / "environment.log"
        chosen = agents.model_copy(update={"settings": {**agents.settings, **changes}})
        spec = environment_spec(chosen, os.environ, log_file)
        target = out / FOLDER / f"{_name(spec, changes)}.jsonl"
        if not target.exists():
            print(f"{spec.name} starts, to list its tasks", file=sys.stderr, flush=True)
            count = asyncio.run(write_tasks(spec, target, _shown, changes))
            _shown(count)
    except SeamlessFlowError as error:
        raise NotListed(_last_line(error)) from error
    return target


def on_tasks(sections: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the sections with this text as the only tasks for evaluation.

    The section's `k` stays if the section has `samples`. Without them, `k` is for sets that have
    their own samples.
    """
    section = sections.get("evaluation") or {}
    left_out = _NAMES_TASKS if "samples" in section else (*_NAMES_TASKS, "k")
    terms = {name: value for name, value in section.items() if name not in left_out}
    return {**sections, "evaluation": {**terms, "tasks": text}}


def trained_faults(listed: Iterable[ListedTasks]) -> Iterator[Fault]:
    """Yield a fault for each evaluation that shares tasks with the training despite other settings.

    For example, seeds 7 and 8 share tasks if an environment counts up from its seed. An evaluation
    with the training's own settings has the same tasks on purpose.
    """
    named = list(listed)
    files = {tasks.file for tasks in named if not tasks.for_evaluation}
    others = [tasks for tasks in named if tasks.for_evaluation and tasks.file not in files]
    if not others:
        return
    trained = {task for file in files for task in _draws(file)}
    for tasks in others:
        draws = list(_draws(tasks.file))
        shared = sum(task in trained for task in draws)
        if shared:
            count = f"{shared:,} of its {len(draws):,} tasks are trained on"
            remedy = "choose a seed beyond those of the training, such as its seed plus its size"
            yield Fault(tasks.setting, f"{tasks.text}: {count}: {remedy}")


def _draws(file: Path) -> Iterator[str]:
    """Yield each task's `drawn_from`; its id, if the environment does not say more."""
    with file.open("rb") as lines:
        for line in lines:
            task = json.loads(line)
            yield str(task.get("drawn_from", task.get("id")))


def _settings(query: str) -> Mapping[str, Any]:
    return {name: _value(text) for name, text in parse_qsl(query, keep_blank_values=True)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _name(spec: EnvironmentSpec, changes: Mapping[str, Any]) -> str:
    """Return a file name with a digest of what decides the tasks: adapter, Python and settings."""
    facts = [
        spec.adapter.read_text(encoding="utf-8"),
        str(spec.python),
        json.dumps([spec.settings, changes], sort_keys=True),
    ]
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    return f"{Path(spec.name).stem}-{digest}"


def _shown(count: int) -> None:
    print(f"{count:,} tasks listed", file=sys.stderr, flush=True)


def _last_line(error: SeamlessFlowError) -> str:
    """Return the error's last line, which is the point of a traceback."""
    first, *lines = str(error).splitlines()
    return f"{first.partition(': Traceback')[0]}: {lines[-1].strip()}" if lines else first
