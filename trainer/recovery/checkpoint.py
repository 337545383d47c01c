"""Full checkpoints: all that a trainer needs to go on as if it had not been stopped.

A directory `checkpoint-<version>` with the files of the back end (safetensors) and `state.json`:
where the weights come from, the low-water offset of each partition of `trajectories` (everything
before it is trained or given up), what `control` said up to an offset, and the SHA-256 of the other
files. No pickle. The newest one that is whole counts; what was committed behind it is executed
again.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.errors import SeamlessFlowError
from infra.kafka.client import BEGINNING
from infra.weights.manifest import sha256
from infra.weights.whole_directory import remove, whole_directory
from schemas.topics import TRAJECTORIES
from trainer.recovery.control_state import ControlState
from trainer.recovery.resume import Origin
from trainer.roles.roles import TrainerRoles

STATE = "state.json"
_PREFIX = "checkpoint-"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint holds besides the back end's files."""

    origin: Origin
    offsets: Mapping[int, int]
    """Next offset to read of each partition of `trajectories`."""
    control_state: ControlState
    epoch: int
    """Newest scheduler heard of."""
    rollout_holds: bool
    """Whether the worker's rollout process had the device."""
    log: str = ""
    """Cluster and topic prefix that the offsets are of."""
    directory: Path | None = None
    """Where it lies; None for the one that stands for the initial model."""

    @property
    def first_offsets(self) -> dict[int, int]:
        """The offset of each partition of `trajectories` to begin reading at."""
        numbers = range(TRAJECTORIES.partitions)
        return {number: self.offsets.get(number, BEGINNING) for number in numbers}

    def restore_roles(self, roles: TrainerRoles) -> None:
        """Puts back what `control` said about the worker's roles."""
        roles.epoch, roles.rollout_holds = self.epoch, self.rollout_holds


class CheckpointForeign(SeamlessFlowError):
    """The checkpoint belongs to another log; its offsets and groups mean nothing in this one."""

    def __init__(self, directory: str, log: str, asked: str) -> None:
        self.directory = directory
        self.log = log
        self.asked = asked
        super().__init__(
            f"{directory} is of the log {log}, this run's is {asked}: "
            "set trainer.checkpoints_dir (or data_dir) to another directory"
        )

    def __reduce__(self) -> tuple[type["CheckpointForeign"], tuple[str, str, str]]:
        return CheckpointForeign, (self.directory, self.log, self.asked)


def initial(policy: str, log: str) -> Checkpoint:
    """What a run without a checkpoint goes on from: the initial model and the start of the log."""
    return Checkpoint(Origin(), {}, ControlState(policy), -1, False, log)


def write(root: Path, checkpoint: Checkpoint, save: Callable[[Path], None], keep: int) -> Path:
    """Writes a checkpoint, `save` the back end's part of it; deletes all but the newest `keep`."""
    target = root / f"{_PREFIX}{checkpoint.origin.version:08d}"
    with whole_directory(target) as draft:
        save(draft)
        files = {path.name: sha256(path) for path in sorted(draft.iterdir())}
        (draft / STATE).write_text(json.dumps(_to_json(checkpoint) | {"files": files}, indent=1))
    for path in _directories(root)[keep:]:
        remove(path)
    for draft in root.glob(f".{_PREFIX}*"):
        remove(draft)
    return target


def newest(root: Path, policy: str, log: str) -> Checkpoint:
    """The newest checkpoint that is whole; `initial` where there is none.

    `log` is the cluster and topic prefix of this run. Raises `CheckpointForeign`.
    """
    for directory in _directories(root):
        try:
            found = _read(directory)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s is not whole, an older one is taken: %s", directory, error)
            continue
        if found.log != log:
            raise CheckpointForeign(str(directory), found.log, log)
        return found
    return initial(policy, log)


def _directories(root: Path) -> list[Path]:
    """Newest first."""
    return sorted(root.glob(f"{_PREFIX}[0-9]*"), reverse=True)


def _to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "origin": asdict(checkpoint.origin),
        "offsets": {str(partition): at for partition, at in checkpoint.offsets.items()},
        "history": checkpoint.control_state.to_json(),
        "epoch": checkpoint.epoch,
        "rollout_holds": checkpoint.rollout_holds,
        "log": checkpoint.log,
    }


def _read(directory: Path) -> Checkpoint:
    values = json.loads((directory / STATE).read_bytes())
    for name, digest in values["files"].items():
        if sha256(directory / name) != digest:
            raise ValueError(f"{name} was changed")
    return Checkpoint(
        Origin(**values["origin"]),
        {int(partition): at for partition, at in values["offsets"].items()},
        ControlState.from_json(values["history"]),
        values["epoch"],
        values["rollout_holds"],
        values["log"],
        directory,
    )
