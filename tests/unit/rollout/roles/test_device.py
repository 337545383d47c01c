"""The order inside each move, and what becomes of failures."""

from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from infra.errors import SeamlessFlowError
from infra.worker.phases import PhaseTimes
from producers.rollout.engine.contract import Engine
from producers.rollout.probe.answers import EngineProbeFailed
from producers.rollout.roles.device import RolloutDevice
from producers.rollout.roles.moves import (
    Acquire,
    DeviceMove,
    Load,
    Preload,
    PublishedWeights,
    Release,
)
from producers.rollout.roles.outcomes import (
    Acquired,
    Loaded,
    MoveFailed,
    NotStarted,
    Outcome,
    Paused,
    Preloaded,
    Released,
)
from producers.rollout.turns.message_parser import MessageParser
from schemas.records import PolicyWeights, Sampling
from tests.builders.engines.manual import ManualEngine
from tests.builders.rollout.completions import LetterParser
from tests.builders.rollout.roles import policy


class Spoilt(SeamlessFlowError):
    """The files are not what was published."""


class DeviceSetup:
    """A device over a manual engine; `calls` of the engine also hold what the device did else.

    It is factory and probe at once.
    """

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self) -> None:
        self.engine = ManualEngine()
        self.spoilt: set[int] = set()
        self.untrusted: set[int] = set()
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self.device = RolloutDevice(self, self._load_parser, self._follow, self.outcomes.put, self)

    def verify(self, weights: PublishedWeights) -> None:
        self.engine.calls.append(("verify", weights.version))
        if weights.version in self.spoilt:
            raise Spoilt

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        self.engine.calls.append(("build", weights.version))
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
        return self.outcomes.get(timeout=10)

    def _load_parser(self, policy: PolicyWeights) -> LetterParser:
        self.engine.calls.append(("parser",))
        return LetterParser()

    def _follow(self, slot: int) -> int:
        self.engine.calls.append(("follow", slot))
        return 99


def acquire(version: int = 0, assignment: int = 1) -> Acquire:
    return Acquire(assignment, 4, weights(version), policy())


def weights(version: int) -> PublishedWeights:
    return PublishedWeights(version, f"v{version}", "sha")


@pytest.fixture
def setup() -> DeviceSetup:
    return DeviceSetup()


def test_the_first_role_builds_the_engine_and_then_fixes_the_slot(setup: DeviceSetup) -> None:
    outcome = setup.do(acquire())
    assert isinstance(outcome, Acquired)
    assert (outcome.slot_offset, outcome.engine) == (99, setup.engine)
    assert setup.engine.calls == [
        ("verify", 0),
        ("parser",),
        ("build", 0),
        ("whole", 0),
        ("follow", 4),
    ]
    assert list(outcome.times.by_name) == ["start", "verify", "build", "probe", "slot"]


def test_weights_are_verified_then_loaded_in_a_pause_that_keeps_the_turns(
    setup: DeviceSetup,
) -> None:
    setup.do(acquire())
    assert isinstance(setup.do(Load(weights(1), policy())), Paused)
    outcome = setup.outcomes.get(timeout=10)
    assert isinstance(outcome, Loaded)
    assert setup.engine.calls == [
        ("verify", 1),
        ("pause", "keep"),
        ("load_weights", "v1", 1),
        ("resume",),
    ]


def test_a_release_ends_the_turns_and_puts_the_engine_to_sleep(setup: DeviceSetup) -> None:
    setup.do(acquire())
    outcome = setup.do(Release(2))
    assert isinstance(outcome, Released)
    assert outcome.free_bytes == 1_234
    assert list(outcome.times.by_name) == ["start", "pause", "sleep"]
    assert setup.engine.calls == [("pause", "abort"), ("sleep",)]


def test_a_role_taken_again_wakes_the_engine_and_loads_what_is_new(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    setup.do(Release(2))
    setup.do(acquire(5))
    assert setup.engine.calls == [
        ("verify", 5),
        ("wake",),
        ("load_weights", "v5", 5),
        ("resume",),
        ("short", 5),
        ("follow", 4),
    ]
    setup.do(Release(3))
    setup.do(acquire(5))
    assert ("load_weights", "v5", 5) not in setup.engine.calls


def test_weights_loaded_ahead_are_verified_before_and_not_touched_again(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    setup.do(Release(2))
    assert isinstance(setup.do(Preload(weights(5), policy())), Preloaded)
    assert setup.engine.calls == [("verify", 5), ("load_weights", "v5", 5)]
    assert isinstance(setup.do(acquire(5)), Acquired)
    assert setup.engine.calls == [("wake",), ("resume",), ("short", 5), ("follow", 4)]


def test_weights_of_an_engine_that_loads_awake_are_verified_ahead_and_once(
    setup: DeviceSetup,
) -> None:
    setup.loads_asleep = False
    setup.do(acquire(0))
    setup.do(Release(2))
    assert isinstance(setup.do(Preload(weights(5), policy())), Preloaded)
    assert setup.engine.calls == [("verify", 5)]
    assert isinstance(setup.do(acquire(5)), Acquired)
    assert setup.engine.calls == [
        ("wake",),
        ("load_weights", "v5", 5),
        ("resume",),
        ("short", 5),
        ("follow", 4),
    ]


def test_spoilt_weights_are_not_loaded_ahead(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    setup.do(Release(2))
    setup.spoilt.add(5)
    assert isinstance(setup.do(Preload(weights(5), policy())), NotStarted)
    assert setup.engine.calls == [("verify", 5)]


def test_other_weights_under_the_same_number_are_loaded(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    other = replace(weights(0), directory="elsewhere")
    setup.do(replace(acquire(0, assignment=2), weights=other))
    assert ("load_weights", "elsewhere", 0) in setup.engine.calls


def test_a_role_confirmed_leaves_the_engine_alone(setup: DeviceSetup) -> None:
    setup.do(acquire(0, assignment=1))
    assert isinstance(setup.do(acquire(0, assignment=2)), Acquired)
    assert setup.engine.calls == [("follow", 4)]


def test_spoilt_weights_are_noticed_before_the_engine_is_touched(setup: DeviceSetup) -> None:
    setup.do(acquire())
    setup.spoilt.add(1)
    outcome = setup.do(Load(weights(1), policy()))
    assert isinstance(outcome, NotStarted)
    assert isinstance(outcome.error, Spoilt)
    assert setup.engine.calls == [("verify", 1)]


@pytest.mark.parametrize(
    ("whole", "truncating", "trained", "starts"),
    [
        (True, {"top_p": 0.9}, "train_truncated", True),
        (False, {"top_p": 0.9}, "train_truncated", False),
        (False, {"top_k": 5}, "train_truncated", False),
        (False, {"top_p": 0.9}, "train_undelivered", True),
        (False, {"top_p": 1.0, "top_k": 0}, "train_truncated", True),
        (True, {"top_p": 0.9}, "train_inexact", True),
        (False, {"top_p": 0.9}, "train_inexact", False),
        (False, {"top_p": 1.0, "top_k": 0}, "train_inexact", True),
    ],
)
def test_truncated_turns_are_trained_only_with_log_probs_of_the_whole_vocabulary(
    setup: DeviceSetup, whole: bool, truncating: dict[str, Any], trained: str, starts: bool
) -> None:
    setup.whole_vocabulary = whole
    flags: dict[str, Any] = {trained: True}
    asked = replace(policy(), overrides=Sampling(**truncating), **flags)
    outcome = setup.do(replace(acquire(), policy=asked))
    assert isinstance(outcome, Acquired if starts else NotStarted)
    if isinstance(outcome, NotStarted):
        assert "policy.top_p = 1" in str(outcome.error)


def test_an_engine_that_fails_to_load_is_never_resumed(setup: DeviceSetup) -> None:
    def fail(call: str) -> None:
        if call == "load_weights":
            raise OSError("no space")

    setup.do(acquire())
    setup.engine.before = fail
    assert isinstance(setup.do(Load(weights(1), policy())), Paused)
    outcome = setup.outcomes.get(timeout=10)
    assert isinstance(outcome, MoveFailed)
    assert isinstance(outcome.error, OSError)
    assert setup.engine.calls == [("verify", 1), ("pause", "keep")]


@pytest.mark.parametrize("again", [False, True], ids=["built", "woken"])
def test_an_engine_that_fails_its_probe_gets_no_slot(setup: DeviceSetup, again: bool) -> None:
    if again:
        setup.do(acquire(0))
        setup.do(Release(2))
    setup.untrusted.add(1)
    outcome = setup.do(acquire(1))
    assert isinstance(outcome, MoveFailed)
    assert isinstance(outcome.error, EngineProbeFailed)
    assert ("follow", 4) not in setup.engine.calls


def test_closing_ends_the_engine(setup: DeviceSetup) -> None:
    setup.do(acquire())
    setup.device.close(10)
    assert setup.engine.calls[-1] == ("close",)
