"""Full checkpoints: all that a trainer needs to go on as if it had not been stopped.

A directory `checkpoint-<version>` has the back end's files (safetensors) and `state.json`. That
file has the weights' origin, the state folded from `control` up to an offset, and a SHA-256 for
each other file. It also has a low-water offset for each partition of `trajectories`: all earlier
sessions are trained or dropped. No pickle. The newest complete checkpoint counts; steps committed
after it are executed again.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seamlessflow.infra.disk import remove_directory, whole_directory
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.weights.manifest import sha256
from seamlessflow.infra.weights.versions import inside
from seamlessflow.schemas.topics import TRAJECTORIES
from seamlessflow.trainer.data.packing import Layout
from seamlessflow.trainer.data.reuse import UsedGroup, UsedSession
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import Origin

STATE = "state.json"
_PREFIX = "checkpoint-"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's content besides the back end's files."""

    origin: Origin
    offsets: Mapping[int, int]
    """Next offset to read in each partition of `trajectories`."""
    control_state: ControlState
    epoch: int
    """The newest scheduler's epoch on `control`."""
    log: str = ""
    """Cluster and topic prefix that the offsets belong to."""
    directory: Path | None = None
    """The checkpoint's directory; None if it stands for the initial model."""
    partitions: int = TRAJECTORIES.partitions
    """Partition count of `trajectories` in the cluster."""
    reusable: Sequence[UsedGroup] = ()
    """Groups from earlier steps that may be trained again."""
    layout: Layout = "auto"
    """Layout that its steps use."""
    pools: Mapping[str, Any] = field(default_factory=dict)
    """Content that only the pools of stored sessions have, and no topic
    (`trainer/mixing/pools.py`)."""

    @property
    def first_offsets(self) -> dict[int, int]:
        """Return the first offset to read in each partition of `trajectories`."""
        return {number: self.offsets.get(number, BEGINNING) for number in range(self.partitions)}


class CheckpointForeign(SeamlessFlowError):
    """A checkpoint from another log, whose offsets and groups mean nothing in this one."""

    lasting = True

    def __init__(self, directory: str, log: str, asked: str) -> None:
        self.directory = directory
        self.log = log
        self.asked = asked
        super().__init__(
            f"{directory} belongs to the log {log}, this run to {asked}: "
            "set trainer.checkpoints_dir (or data_dir) to another directory"
        )


def initial(policy: str, log: str) -> Checkpoint:
    """Return a new run's checkpoint: the initial model and the log's start."""
    return Checkpoint(Origin(), {}, ControlState(policy), -1, log)


def write(root: Path, checkpoint: Checkpoint, save: Callable[[Path], None], keep: int) -> Path:
    """Write a checkpoint and delete all but the newest `keep`; return its directory.

    `save` writes the back end's files into the directory that it gets.
    """
    target = root / f"{_PREFIX}{checkpoint.origin.version:08d}"
    with whole_directory(target) as draft:
        save(draft)
        files = {path.name: sha256(path) for path in sorted(draft.iterdir())}
        (draft / STATE).write_text(json.dumps(_to_json(checkpoint) | {"files": files}, indent=1))
    for path in _directories(root)[keep:]:
        remove_directory(path)
    # Drafts that a killed process left.
    for draft in root.glob(f".{_PREFIX}*"):
        remove_directory(draft)
    return target


def newest(root: Path, policy: str, log: str) -> Checkpoint:
    """Return the newest complete checkpoint, or `initial` if there is none.

    `log` is this run's cluster and topic prefix. Raises `CheckpointForeign`, and `PathOutside` for
    a checkpoint with files in other directories.
    """
    directories = _directories(root)
    for directory in directories:
        try:
            checkpoint = _read(directory)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s is not complete, trying an older one: %s", directory, error)
            continue
        if checkpoint.log != log:
            raise CheckpointForeign(str(directory), checkpoint.log, log)
        return checkpoint
    if directories:
        text = "no checkpoint in %s is complete: all recorded steps are executed again, from the"
        _log.warning(f"{text} initial model", root)
    return initial(policy, log)


def _directories(root: Path) -> list[Path]:
    """Return all checkpoints' directories, newest first. Raises `PathOutside`."""
    return sorted((inside(root, path.name) for path in root.glob(f"{_PREFIX}[0-9]*")), reverse=True)


def _to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "origin": asdict(checkpoint.origin),
        "offsets": {str(partition): at for partition, at in checkpoint.offsets.items()},
        "history": checkpoint.control_state.to_json(),
        "epoch": checkpoint.epoch,
        "log": checkpoint.log,
        "reusable": [asdict(group) for group in checkpoint.reusable],
        "layout": checkpoint.layout,
        "pools": checkpoint.pools,
    }


def _read(directory: Path) -> Checkpoint:
    values = json.loads((directory / STATE).read_bytes())
    for name, digest in values["files"].items():
        if sha256(inside(directory, name)) != digest:
            raise ValueError(f"{name} has another SHA-256 than recorded")
    return Checkpoint(
        Origin(**values["origin"]),
        {int(partition): at for partition, at in values["offsets"].items()},
        ControlState.from_json(values["history"]),
        values["epoch"],
        values["log"],
        directory,
        reusable=[_used_group(**group) for group in values["reusable"]],
        # Earlier releases padded by default and recorded no layout here.
        layout=values.get("layout", "padded"),
        pools=values.get("pools", {}),
    )


def _used_group(sessions: Sequence[Mapping[str, Any]], **values: Any) -> UsedGroup:
    return UsedGroup(**values, sessions=tuple(UsedSession(**session) for session in sessions))
