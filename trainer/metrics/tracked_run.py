"""The run as trackers of experiments show it: its name, its settings, and where its id is kept."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run of a tracker, which a trainer that is started again goes on with."""

    name: str
    parameters: Mapping[str, str]
    """Settings by their place in the configuration, such as `trainer.loss.kl`."""
    id_file: Path
    """File with the run's id at the tracker, once there is one."""

    def known_id(self) -> str:
        """Return the id of an earlier start, or nothing."""
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
