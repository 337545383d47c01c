"""The role's keeper: has the device make the moves that `roles.py` decides on, and writes their
outcomes to `control`.

Main loop only. Turns are handed back as soon as the role is to be given up, before the engine
sleeps.
"""

import logging
from dataclasses import dataclass, field

from seamlessflow.infra.telemetry.tracing import Span, Telemetry
from seamlessflow.infra.weights.manifest import WeightsInvalid
from seamlessflow.infra.worker.activity import Activity, PhaseTimes
from seamlessflow.infra.worker.roles import new_incarnation
from seamlessflow.infra.worker.updates import UpdateLine, UpdateRule
from seamlessflow.producers.rollout.roles import announcements as records
from seamlessflow.producers.rollout.roles.announcements import AnnouncedState
from seamlessflow.producers.rollout.roles.device import RolloutDevice
from seamlessflow.producers.rollout.roles.moves import (
    Acquire,
    Acquired,
    Load,
    Loaded,
    MoveFailed,
    NotStarted,
    Outcome,
    Paused,
    Preload,
    Preloaded,
    Rejoin,
    Release,
    Released,
)
from seamlessflow.producers.rollout.roles.reporter import Reporter
from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.producers.rollout.turns.serving import Service, Serving
from seamlessflow.schemas.records import Record

_log = logging.getLogger(__name__)
_FIRST_WEIGHTS_MS = 300_000
_LOOK_AGAIN_MS = 5_000


@dataclass(slots=True)
class AwaitedWeights:
    """The wait of a process without an engine, whose first weights could not be read. Pure.

    A trainer that starts writes lost weights again, under a new number, once it has loaded its
    checkpoint. A process that ended meanwhile would use up its restarts.
    """

    since_ms: int | None = None
    """When weights could not be read for the first time; None: that did not happen."""
    again_ms: int = 0
    """When the same weights are tried again."""

    def may_come(self, error: Exception, now_ms: int) -> bool:
        """Note that weights could not be read; return True if whole ones may still come."""
        if not isinstance(error, WeightsInvalid) or error.lasting:
            return False
        if self.since_ms is None:
            self.since_ms = now_ms
        self.again_ms = now_ms + _LOOK_AGAIN_MS
        return now_ms - self.since_ms < _FIRST_WEIGHTS_MS


@dataclass(eq=False)
class RoleKeeper:
    """The link between the decisions (`RolloutRoles`), the device and the turns (`Serving`)."""

    _roles: RolloutRoles
    _serving: Serving
    _device: RolloutDevice
    _reporter: Reporter
    _telemetry: Telemetry
    _updates: UpdateRule
    _handed_back: int = 0
    _loading: Span | None = None
    _awaited: AwaitedWeights = field(default_factory=AwaitedWeights)

    @property
    def name(self) -> str:
        """Worker and incarnation."""
        return f"{self._roles.worker} ({self._roles.incarnation})"

    @property
    def state(self) -> AnnouncedState:
        """The state that the heartbeat reports."""
        if self._loading is not None:
            return "paused"
        if self._roles.held is not None:
            return "ready"
        return "starting" if self._moving or not self._roles.joined else "asleep"

    @property
    def activity(self) -> Activity:
        """Return the activity that counts from now on."""
        # While the files of new weights are checked, turns are still sampled.
        if self._moving and (self._loading is not None or self._serving.service is None):
            return "loading"
        if self._serving.running:
            return "decoding"
        return "idle" if self._roles.held is not None else "none"

    @property
    def _moving(self) -> bool:
        """True during a move that takes the worker's time: the device may be the trainer's."""
        return self._roles.busy and not isinstance(self._roles.under_way, Preload)

    @property
    def gone(self) -> bool:
        """True if the process was asked to end and holds no role, engine memory or move.

        It does not wait for a first engine that is still being built: no record announced it.
        """
        roles = self._roles
        waits = roles.awake or (roles.busy and roles.loaded is not None)
        return roles.leaving and not waits

    def apply(self, record: Record) -> None:
        """Fold in a record from `control` or `fleet`."""
        self._roles.apply(record)
        self._updates.line.apply(record)

    def leave(self, now_ms: int) -> None:
        """Give up the role for good and hand back all turns: the process is asked to end."""
        self._roles.leave()
        self._handed_back += self._serving.leave("shutdown", now_ms)

    def begin_move(self, now_ms: int) -> None:
        """Begin the next move, if one is due."""
        move = self._roles.next_move()
        if move is None or (isinstance(move, Load) and not self._may_load(move, now_ms)):
            self._serving.begin_overdue(now_ms, loads=move is not None or self._roles.busy)
            return
        if isinstance(move, Rejoin):
            self._rejoin()
            return
        again = isinstance(move, Acquire) and move.weights == self._roles.unusable
        if again and now_ms < self._awaited.again_ms:
            return
        _log.info("%s begins", type(move).__name__)
        times = PhaseTimes()
        if isinstance(move, Release):
            reason = "shutdown" if self._roles.leaving else "preempted"
            self._handed_back += self._serving.leave(reason, now_ms)
            times.end("hand back")
        self._roles.begin(move)
        self._device.begin(move, times)

    def conclude(self, outcome: Outcome, now_ms: int) -> None:
        """Act on what the device reports on a move. Raises a failed move's error."""
        match outcome:
            case Acquired():
                outcome.times.end("report")
                self._serve(outcome, now_ms)
            case Paused(move):
                self._pause(move, now_ms)
            case Preloaded(move):
                _log.info("version %d was read ahead", move.weights.version)
                self._roles.loaded_weights(move)
            case Loaded():
                self._resume(outcome, now_ms)
            case Released():
                outcome.times.end("report")
                self._released(outcome, now_ms)
            case NotStarted(move, error):
                if not (self._roles.reject(move) or self._may_wait(error, now_ms)):
                    raise error
                _log.warning("version %d is not loaded: %s", move.weights.version, error)
            case MoveFailed(_, error):
                raise error

    def _may_wait(self, error: Exception, now_ms: int) -> bool:
        """Return True if there is no engine yet, and whole weights may still come."""
        return self._roles.loaded is None and self._awaited.may_come(error, now_ms)

    def _may_load(self, move: Load, now_ms: int) -> bool:
        """Return True if it is the worker's turn to load, or its role is assigned anew."""
        roles = self._roles
        serving = self._serving
        if roles.held is not roles.wanted or roles.loaded is None:
            return True
        return self._updates.may_load(
            roles.worker,
            move.weights.version,
            behind=move.weights.version - roles.loaded,
            idle=not serving.running,
            needed=serving.waits,
            now_ms=now_ms,
        )

    def _serve(self, outcome: Acquired, now_ms: int) -> None:
        if not self._roles.acquired(outcome.move):
            return  # given up meanwhile: the next move frees the device again
        policy = outcome.move.policy
        version = outcome.move.weights.version
        if policy.policy != self._updates.line.policy:
            self._updates.line = UpdateLine(policy.policy)
        # Before the announcement: with it the manager sends turns.
        self._serving.service = Service(
            outcome.engine, outcome.parser, policy.policy, policy.max_context, version
        )
        self._serving.adopt(version, now_ms)
        _log.info(
            "role rollout acquired in %d ms: %s version %d, slot %d",
            outcome.times.total_ms,
            policy.policy,
            version,
            outcome.move.slot,
        )
        self._reporter.announce(records.role_acquired(self._roles, outcome, now_ms))

    def _pause(self, move: Load, now_ms: int) -> None:
        self._loading = self._telemetry.root("load weights", version=move.weights.version)
        self._serving.adopt(move.weights.version, now_ms)
        running = len(self._serving.running)
        self._reporter.announce(records.generation_paused(self._roles, running, now_ms))

    def _resume(self, outcome: Loaded, now_ms: int) -> None:
        if self._loading is not None:
            self._loading.end()
            self._loading = None
        self._roles.loaded_weights(outcome.move)
        if self._serving.service is not None:
            self._serving.service.parser = outcome.parser
        self._reporter.announce(records.weights_loaded(self._roles, outcome, now_ms))
        self._reporter.announce(records.generation_resumed(self._roles, outcome, now_ms))

    def _released(self, outcome: Released, now_ms: int) -> None:
        record = records.role_released(self._roles, outcome, self._handed_back, now_ms)
        self._roles.released()
        _log.info(
            "role rollout released in %d ms, %d turns handed back",
            outcome.times.total_ms,
            self._handed_back,
        )
        self._reporter.announce(record)
        self._handed_back = 0

    def _rejoin(self) -> None:
        lost = self._roles.incarnation
        self._roles.renew(new_incarnation())
        _log.warning(
            "the scheduler declared %s lost; continuing as %s", lost, self._roles.incarnation
        )
        self._serving.admission = self._serving.admission.renewed(self._roles.incarnation)
        self._reporter.rejoin()
