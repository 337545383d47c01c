"""The device thread over a manual engine, for tests of its moves."""

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.weights.versions import PublishedWeights, version_directory
from seamlessflow.infra.worker.activity import PhaseTimes
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.probe.answers import EngineProbeFailed
from seamlessflow.producers.rollout.roles.device import RolloutDevice
from seamlessflow.producers.rollout.roles.moves import (
    Acquire,
    DeviceMove,
    Outcome,
)
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.schemas.records import PolicyWeights
from tests.builders.engines.manual import ManualEngine
from tests.builders.rollout.completions import LetterParser
from tests.builders.rollout.roles import policy


class Spoilt(SeamlessFlowError):
    """The files are not what was published."""


class DeviceSetup:
    """A device over a manual engine; `calls` of the engine also hold what the device did else.

    It is factory, probe and places at once.
    """

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self) -> None:
        self.engine = ManualEngine()
        self.spoilt: set[int] = set()
        self.untrusted: set[int] = set()
        self.while_building: Callable[[], object] = lambda: None
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self.device = RolloutDevice(
            self, self._load_parser, self._follow, self.outcomes.put, self, self
        )

    def weights(self, weights: PublishedWeights, policy: str) -> PublishedWeights:
        return weights

    def tokenizer(self, policy: PolicyWeights) -> PolicyWeights:
        return policy

    def verify(self, weights: PublishedWeights) -> None:
        self.engine.calls.append(("verify", weights.version))
        if weights.version in self.spoilt:
            raise Spoilt

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        self.engine.calls.append(("build", weights.version))
        self.while_building()
        self.engine.version = weights.version
        return self.engine

    def whole(self, engine: Engine, prompt: bytes, version: int) -> None:
        self._probe("whole", version)

    def short(self, engine: Engine, prompt: bytes, version: int) -> None:
        self._probe("short", version)

    def _probe(self, length: str, version: int) -> None:
        self.engine.calls.append((length, version))
        if version in self.untrusted:
            raise EngineProbeFailed("greedy", "version", version, 0)

    def do(self, move: DeviceMove) -> Outcome:
        """Carries a move out and forgets the calls before it."""
        self.engine.calls.clear()
        self.device.begin(move, PhaseTimes())
        return self.outcomes.get(timeout=60)

    def _load_parser(self, policy: PolicyWeights) -> LetterParser:
        self.engine.calls.append(("parser",))
        return LetterParser()

    def _follow(self, slot: int) -> int:
        self.engine.calls.append(("follow", slot))
        return 99


def acquire(version: int = 0, assignment: int = 1) -> Acquire:
    return Acquire(assignment, 4, weights(version), policy())


def weights(version: int, root: Path | None = None) -> PublishedWeights:
    directory = f"v{version}" if root is None else str(version_directory(root, version))
    return PublishedWeights(version, version, directory, "sha")


def five_versions(root: Path) -> None:
    for version in range(5):
        version_directory(root, version).mkdir()
