"""The trainer's calls, carried out by its gang's first rank.

Calls come from the channel's thread and are carried out in the work thread, one after the other.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue

from seamlessflow.infra.disk import room_for
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.backends.backend import Backend, UpdateFailed
from seamlessflow.trainer.backends.calls import Arrays, GangCall, GangCallName, GangMessage, Reply
from seamlessflow.trainer.backends.step_message import answer, asked, from_arrays
from seamlessflow.trainer.link import Channel
from seamlessflow.trainer.ranks.process import RankProcess
from seamlessflow.trainer.roles.gang import TrainerGone

_QUIET_S = 6 * 3600.0
"""Longest time between two calls of a step, in which the trainer settles with Kafka."""


class StepWithoutRole(SeamlessFlowError):
    """A step that came when the worker no longer had the role for it."""

    lasting = False

    def __init__(self, worker: str) -> None:
        self.worker = worker
        super().__init__(f"worker {worker} has no role to train under")


@dataclass(eq=False)
class RankService:
    """The calls that have come and must still be carried out."""

    _process: RankProcess
    _backend: Backend
    _channel: Channel
    _wake: Callable[[], None]
    """Called for each call that comes, from the channel's thread."""
    finished: bool = False
    """True once the trainer has said that the run is over."""
    ended: bool = False
    """True once the trainer has said that it ends before the run is over."""
    lost: str = ""
    """Reason why no more calls come; empty while they may, and if the run is over."""
    failure: UpdateFailed | None = None
    """The error of an update that failed; the trainer ends after it."""
    _calls: Queue[tuple[GangCall, Arrays] | None] = field(default_factory=Queue)

    def start(self) -> None:
        """Begin to receive."""
        self._channel.start(self._deliver, self._end)

    @property
    def asked(self) -> bool:
        """Return whether calls wait."""
        return not (self._calls.empty() or self.finished or self.lost)

    def serve(self) -> None:
        """Carry out calls until the trainer rests.

        Raises `TrainerGone`, and the error of a call after sending it as the reply.
        """
        while True:
            try:
                item = self._calls.get(timeout=_QUIET_S)
            except queue.Empty as error:
                raise TrainerGone(f"no call in {_QUIET_S:g} s") from error
            if item is None:
                if self.finished:
                    return
                raise TrainerGone(self.lost)
            call, arrays = item
            if call.name is GangCallName.REST:
                self._backend.rest(call.step)
                return
            self._carry_out(call, arrays)

    def close(self) -> None:
        """End the connection; a `serve` that waits for a call then ends."""
        self._channel.close()

    def _carry_out(self, call: GangCall, arrays: Arrays) -> None:
        try:
            metrics, returned = self._result(call, arrays)
        except UpdateFailed as error:
            # Set before the reply, since the trainer ends when it gets the reply.
            self.failure = error
            reply = Reply(number=call.number, error=error.reason, chains=error.chains)
            self._reply(reply, {})
            raise
        except Exception as error:
            self._reply(Reply(number=call.number, error=f"{type(error).__name__}: {error}"), {})
            raise
        remembered = tuple(self._backend.remembered())
        self._reply(Reply(number=call.number, metrics=metrics, remembered=remembered), returned)

    def _result(self, call: GangCall, arrays: Arrays) -> tuple[Mapping[str, float], Arrays]:
        """Return the reply's metrics and arrays."""
        process = self._process
        backend = self._backend
        path = Path(call.path)
        match call.name:
            case GangCallName.ANNOTATE:
                self._enter()
                return {}, answer(backend.annotate(*asked(arrays)))
            case GangCallName.TRAIN:
                return self._train(arrays), {}
            case GangCallName.REMEMBER:
                backend.remember(call.version)
                process.status.version = call.version
            case GangCallName.LOAD:
                backend.load(call.directory, call.version)
                process.status.version = call.version
            case GangCallName.WRITE:
                self._note_loading()
                with room_for(path, path):
                    backend.write_weights(path)
            case GangCallName.SNAPSHOT:
                self._note_loading()
                backend.snapshot()
            case GangCallName.SAVE:
                with room_for(path, path):
                    backend.save(path)
        return {}, {}

    def _note_loading(self) -> None:
        if self._process.roles.held is not None:
            self._process.enter("training", "loading")

    def _save(self, call: GangCall) -> None:
        """Write a checkpoint beside all other calls, so that no device waits for the disk."""
        try:
            self._carry_out(call, {})
        except Exception as error:  # the loop raises it and ends the process
            self._process.inbox.fail(error)

    def _enter(self) -> None:
        """Begin a step, or go on with it. Raise `StepWithoutRole`."""
        if self._process.roles.held is None:
            raise StepWithoutRole(self._process.roles.worker)
        self._process.enter("training", "waiting")

    def _train(self, arrays: Arrays) -> Mapping[str, float]:
        self._enter()
        step, total = from_arrays(arrays)
        metrics = self._backend.train(step)
        self._process.activity.add_tokens(total)
        return metrics

    def _reply(self, reply: Reply, arrays: Arrays) -> None:
        try:
            self._channel.send(reply, arrays)
        except OSError as error:
            raise TrainerGone(str(error)) from error

    def _deliver(self, message: GangMessage, arrays: Arrays) -> None:
        if not isinstance(message, GangCall):
            return
        match message.name:
            case GangCallName.FINISH:
                self.finished = True
            case GangCallName.END:
                self.ended = True
                self._end("it was asked to end")
            case GangCallName.SAVE:
                threading.Thread(
                    target=self._save, args=[message], name="checkpoint", daemon=True
                ).start()
            case _:
                self._calls.put((message, arrays))
                self._wake()

    def _end(self, reason: str) -> None:
        if not self.finished:
            self.lost = self.lost or reason or "the connection ended"
        self._calls.put(None)
        self._wake()
