"""An export's file `manifest.json`: its terms, its bounds, and the partitions that it finished."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from seamlessflow.infra.disk import make_writable, whole_file
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.recorded.select.selection import Range, SessionSelection

_NAME = "manifest.json"


class ExportTaken(SeamlessFlowError):
    """A directory that has another export, or files that no export wrote."""

    lasting = True

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory} {reason}: name another directory")


@dataclass(frozen=True, slots=True)
class ExportTerms:
    """Everything that decides what an export's files contain, except its bounds."""

    cluster: str
    prefix: str
    form: str
    format: str
    selection: SessionSelection
    rewards: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Reward weights by policy."""

    def plain(self) -> dict[str, Any]:
        """Return the terms as JSON values."""
        chosen = {name: _plain(value) for name, value in asdict(self.selection).items()}
        weights = {
            name: dict(sorted(factors.items())) for name, factors in sorted(self.rewards.items())
        }
        settings = {name: getattr(self, name) for name in ("cluster", "prefix", "form", "format")}
        return {**settings, "selection": chosen, "rewards": weights}


@dataclass(slots=True)
class ExportManifest:
    """An export's state; written anew after each partition."""

    directory: Path
    terms: dict[str, Any]
    bounds: dict[int, Range]
    """By partition, the first offset and the one behind the last, as they were when it began."""
    finished: dict[int, dict[str, int]] = field(default_factory=dict)
    """Counts for the partitions whose files are whole."""

    @classmethod
    def begin(
        cls, directory: Path, terms: ExportTerms, bounds: Mapping[int, Range]
    ) -> "ExportManifest":
        """Return the state of the directory's export, or a new one if the directory is empty.

        Raises `ExportTaken` if the terms differ or there are other files, `DiskFull`, and
        `SettingsRejected` for a path that cannot be a directory.
        """
        make_writable(directory, "--to")
        path = directory / _NAME
        if not path.exists():
            if any(directory.iterdir()):
                raise ExportTaken(directory, "has files of something else")
            made = cls(directory, terms.plain(), dict(bounds))
            made._write()
            return made
        content = orjson.loads(path.read_bytes())
        if differing := _differing(content["terms"], terms.plain()):
            raise ExportTaken(directory, f"has an export with another {', '.join(differing)}")
        return cls(
            directory,
            content["terms"],
            {int(number): (start, end) for number, (start, end) in content["bounds"].items()},
            {int(number): counts for number, counts in content["finished"].items()},
        )

    def finish(self, partition: int, counts: dict[str, int]) -> None:
        """Note that the partition's files are whole. Raises `DiskFull`."""
        self.finished[partition] = counts
        self._write()

    def remove(self) -> None:
        """Forget the export."""
        (self.directory / _NAME).unlink()

    def _write(self) -> None:
        content = {
            "terms": self.terms,
            "bounds": {str(number): ends for number, ends in self.bounds.items()},
            "finished": {str(number): counts for number, counts in self.finished.items()},
        }
        with whole_file(self.directory / _NAME) as file:
            file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def _differing(terms: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    # An export by an earlier release has no rewards in its terms.
    return [name for name, value in wanted.items() if terms.get(name, {}) != value]


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, dict):
        return {str(name): list(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
