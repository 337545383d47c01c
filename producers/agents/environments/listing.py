"""An environment's tasks, written to a file that a run reads like any other task file."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from seamlessflow.producers.agents.environments.child import (
    EnvironmentChild,
    EnvironmentSpec,
    EnvironmentUnusable,
)
from seamlessflow.producers.agents.environments.inside.host import OTHER_SETTINGS

_SHOW_EVERY = 1_000


async def write_tasks(
    spec: EnvironmentSpec,
    path: Path,
    show: Callable[[int], object],
    changes: Mapping[str, Any] | None = None,
) -> int:
    """Write a line for each task that the environment lists; return how many there are.

    The file appears whole or not at all. `show` gets the count so far. `changes`: the settings that
    differ from the run's; each task then has them. Raises `EnvironmentUnusable`, also if no task is
    listed.
    """
    more = {OTHER_SETTINGS: changes} if changes else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    child = await EnvironmentChild.open(spec, tasks=True)
    count = 0
    try:
        with draft.open("wb") as file:
            while (task := await child.listed()) is not None:
                file.write(orjson.dumps({**task, **more}) + b"\n")
                count += 1
                if count % _SHOW_EVERY == 0:
                    show(count)
        if not count:
            raise EnvironmentUnusable(f"{spec.name} lists no tasks")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        await child.close()
    return count
