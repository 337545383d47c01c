"""Trackers of experiments: their libraries, and the run that they show.

A library is imported only if a setting asks for it. A run has a name, settings, and a file that
keeps its id.
"""

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.infra.errors import SeamlessFlowError


class SinkUnavailable(SeamlessFlowError):
    """A sink that is set, but whose library is not installed."""

    lasting = True

    def __init__(self, setting: str, package: str) -> None:
        self.setting = setting
        self.package = package
        super().__init__(f"{setting} is set, but {package} is not installed: pip install {package}")


def imported(module: str, setting: str, package: str) -> Any:
    """Return a module. Raise `SinkUnavailable`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkUnavailable(setting, package) from error


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run of a tracker; a trainer that is started again goes on with it."""

    name: str
    parameters: Mapping[str, str]
    """Settings by their place in the configuration, such as `trainer.loss.kl`."""
    id_file: Path
    """File with the run's id at the tracker, once there is one."""

    def known_id(self) -> str:
        """Return the id of an earlier start; empty without one."""
        return self.id_file.read_text("utf-8").strip() if self.id_file.is_file() else ""

    def keep_id(self, run_id: str) -> None:
        """Keep the id for the next start."""
        self.id_file.write_text(run_id, encoding="utf-8")


def flattened(sections: Mapping[str, Any]) -> Mapping[str, str]:
    """Return settings by their dotted names; lists, and empty sections, as JSON."""
    return dict(_leaves("", sections))


def _leaves(place: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{place}.{name}" if place else name, inner)
    else:
        yield place, value if isinstance(value, str) else json.dumps(value)
