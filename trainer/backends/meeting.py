"""The meeting of a gang's ranks: rank 0 waits for the others, checks them, and lets all begin.

Rank 0 listens on a free port of `trainer.host`. Its worker's heartbeat on `fleet` has the address,
and a worker's first rank gives it to the worker's further ranks. Each rank sends its number, its
devices and its run's facts. All ranks must have the same facts: else they would train on without
notice of the difference. A rank that ends after the meeting is not replaced: all ranks meet again.
"""

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.addresses import address_of, connect_to, listener_on
from seamlessflow.infra.network.line import LOOK_S, Line, LineLost
from seamlessflow.infra.user_functions import source_sha256
from seamlessflow.infra.weights.model_hub import HubModel
from seamlessflow.schemas.releases import this_release
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.sinks import SinkSettings

JOIN_S = 600.0
"""Limit for the ranks to find each other."""
_HELLO_S = 10.0
OWN = {
    "worker",
    "tags",
    "hardware",
    "host",
    "devices",
    "rank",
    "device",
    "threads",
    "weights_dir",
    "trained_dir",
    "checkpoints_dir",
    "heartbeat_s",
    "usage_s",
    *SinkSettings.model_fields,
}
"""Settings in which a gang's workers may differ."""
_MODELS = {"reference", "teacher", "critic.model"}
_NAMED = 3
_log = logging.getLogger(__name__)
GangFacts = Mapping[str, str]
"""A short text for each name."""


class WorkersAbsent(SeamlessFlowError):
    """A gang whose workers did not come together in time."""

    lasting = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the gang did not meet: {reason}")


class RankRefused(SeamlessFlowError):
    """A rank that belongs to another run than the gang's rank 0."""

    lasting = True

    def __init__(self, rank: int, reason: str) -> None:
        self.rank = rank
        self.reason = reason
        super().__init__(f"rank {rank} is of another run than rank 0 of its gang: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """A process's first message at the meeting."""

    worker: str
    rank: int
    """Number of the first device that the process speaks for."""
    devices: int
    """Devices that it speaks for: all those of a clock's worker, else one."""
    facts: GangFacts
    incarnation: str = ""
    """Incarnation of the worker's training process; empty for its further ranks."""


class Meeting:
    """The place where rank 0 waits."""

    def __init__(self, host: str, facts: GangFacts, stopping: Stopping = never) -> None:
        """Listen on a free port of `host`. Raises `OSError`."""
        self.host = host
        self._facts = facts
        self._stopping = stopping
        self._listener = listener_on(host)
        self._listener.settimeout(LOOK_S)
        self.place = address_of(host, self._listener.getsockname()[1])
        """The meeting's address, host:port."""
        self.open = True
        """False once the gang has met."""
        self.met: Mapping[str, str] = {}
        """Incarnations of the training processes, by worker, once all have come."""

    def begin(self, others: int, word: str = "") -> Sequence[Line]:
        """Wait for the ranks with the `others` devices, send each the word, and return their lines.

        The lines are in rank order. Raises `WorkersAbsent`, at once when stopping.
        """
        deadline = time.monotonic() + JOIN_S
        arrived: dict[int, tuple[Coming, Line]] = {}
        while (devices := sum(coming.devices for coming, _ in arrived.values())) < others:
            if self._stopping() or time.monotonic() > deadline:
                came_to = f"came to {self.place}, where rank 0 waits"
                raise WorkersAbsent(f"{devices} of {others} other devices {came_to}")
            self._admit(arrived)
            # A rank that has ended meanwhile starts again, and then comes to the meeting again.
            for rank in [rank for rank, (_, line) in arrived.items() if line.lost]:
                arrived.pop(rank)[1].close()
        lines = [arrived[rank][1] for rank in sorted(arrived)]
        self.met = {
            coming.worker: coming.incarnation
            for coming, _ in arrived.values()
            if coming.incarnation
        }
        for line in lines:
            line.send(word)
        self.close()
        return lines

    def close(self) -> None:
        """Listen no more."""
        self.open = False
        self._listener.close()

    def _admit(self, arrived: dict[int, tuple[Coming, Line]]) -> None:
        """Note the next process that comes, if it belongs to the gang."""
        try:
            line = Line(self._listener.accept()[0])
        except TimeoutError:
            return
        with suppress(LineLost):
            coming = _coming(line.receive(_HELLO_S, self._stopping))
            if coming is not None:
                reason = differences(self._facts, coming.facts)
                line.send(reason)
                if not reason:
                    if coming.rank in arrived:
                        arrived[coming.rank][1].close()
                    arrived[coming.rank] = (coming, line)
                    return
                _log.error("%s of %s", RankRefused(coming.rank, reason), coming.worker)
        line.close()


def came(place: str, coming: Coming) -> Line:
    """Return the line to rank 0, which has admitted this process.

    Raises `OSError` and `LineLost` if no rank 0 waits there, and `RankRefused`.
    """
    line = Line(connect_to(place, _HELLO_S))
    try:
        line.send(asdict(coming))
        if reason := str(line.receive(_HELLO_S)):
            raise RankRefused(coming.rank, reason)
    except BaseException:
        line.close()
        raise
    return line


def begun(line: Line, stopping: Stopping = never) -> str:
    """Wait until all ranks are there; return rank 0's word. Raises `LineLost`."""
    return str(line.receive(JOIN_S, stopping))


def gang_facts(settings: TrainerSettings) -> GangFacts:
    """Return a rank's facts: its run, its release, the model, and the trainer's settings.

    A model's path counts by the model's content, since paths may differ between machines. The
    user's own functions count by content, too. Raises `FunctionUnusable`.
    """
    trainer = settings.trainer.model_dump(mode="json", exclude=OWN)
    chosen = {
        f"trainer.{name}": _content(Path(value)) if value and name in _MODELS else str(value)
        for name, value in _flat(trainer)
    }
    sources = {
        f"the file of {name}": source_sha256(name)[:12] for name in settings.trainer.user_functions
    }
    return (
        chosen
        | sources
        | {
            "release": this_release().version,
            "kafka.topic_prefix": settings.kafka.topic_prefix,
            "run.policy": settings.run.policy,
            "policy.model": _content(settings.policy.model),
        }
    )


def differences(mine: GangFacts, other: GangFacts) -> str:
    """Return the first few differences between two ranks' facts; empty if there are none.

    A fact that only one rank has comes from another release.
    """
    names = [name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name)]
    shown = [
        f"{name} is {other.get(name, 'unknown')}, not {mine.get(name, 'unknown')}"
        for name in sorted(names)[:_NAMED]
    ]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return "; ".join([*shown, *more])


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _content(directory: Path) -> str:
    """Return 12 hex digits from a model's configuration, tokenizer, weight file names and sizes.

    A hub model's name and commit follow, since its weights may change while their sizes stay.
    """
    digest = hashlib.sha256()
    for path in (directory / "config.json", directory / "tokenizer.json"):
        digest.update(path.read_bytes() if path.is_file() else b"none")
    for path in sorted(directory.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
    model = HubModel.of_snapshot(directory)
    return digest.hexdigest()[:12] + (f" of {model}" if model else "")


def _coming(said: Any) -> Coming | None:
    """Return a process's first message; None if another program sent it."""
    if not isinstance(said, Mapping):
        return None
    try:
        coming = Coming(**said)
    except TypeError:
        return None
    numbers = isinstance(coming.rank, int) and isinstance(coming.devices, int)
    texts = isinstance(coming.worker, str) and isinstance(coming.incarnation, str)
    return coming if numbers and texts and isinstance(coming.facts, Mapping) else None
