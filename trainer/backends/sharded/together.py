"""Files that a gang's ranks write together, and the answers by which rank 0 learns the outcome.

A publication is a gang's call like others (`gang.py`). A checkpoint is written while the gang
computes, and torch's process group belongs to the thread that computes. So each other rank has a
thread that takes rank 0's order to write and answers it, on the meeting's lines. Called by the back
ends.
"""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Queue

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.line import Line, LineLost
from seamlessflow.trainer.backends.optimizer_state import save_state
from seamlessflow.trainer.backends.sharded.parts import FileParts

_COPY_S = 600.0
"""Longest wait for this rank's snapshot, once rank 0 has taken its own."""
_LAST_S = 20.0
"""Longest wait of an ending rank until its part of a checkpoint is written."""


class RankWriteFailed(SeamlessFlowError):
    """A rank that did not write its part of a directory, which is therefore not complete."""

    lasting = False

    def __init__(self, rank: int, directory: str, reason: str) -> None:
        self.rank = rank
        self.directory = directory
        self.reason = reason
        super().__init__(f"rank {rank} did not write its part of {directory}: {reason}")


class GangSaves:
    """A gang's checkpoints, made from its ranks' snapshots, oldest first."""

    def __init__(self, lines: Sequence[Line], snapshots: Queue[FileParts], leads: bool) -> None:
        """Start the thread that writes what rank 0 orders, on each other rank (not `leads`).

        `lines`: rank 0's lines to the other ranks, in rank order; on any other rank, its line to
        rank 0. `snapshots` has this rank's unwritten ones.
        """
        self._lines = lines
        self._snapshots = snapshots
        self._leads = leads
        self._lost = False
        if not leads:
            threading.Thread(target=self._obey, name="checkpoint", daemon=True).start()

    def save(self, directory: Path) -> None:
        """Have all ranks write their parts of a checkpoint. For rank 0.

        Raise `RankWriteFailed`, also for a rank that has ended, and this rank's error.
        """
        for line in self._lines:
            with suppress(LineLost):  # then there is no answer either
                line.send(str(directory))
        failed = failure(partial(self._written, directory))
        # Wait for all answers, so that no rank writes any more when this is over.
        check(failed, [_answer(line) for line in self._lines], directory)

    def finish(self) -> None:
        """Wait, for a while, until this rank has written its snapshots; rank 0 does not wait."""
        if self._leads:
            return
        done = self._snapshots.all_tasks_done
        with done:
            done.wait_for(lambda: self._lost or not self._snapshots.unfinished_tasks, _LAST_S)

    def _obey(self) -> None:
        (line,) = self._lines
        try:
            while True:
                order = partial(self._written, Path(line.receive(math.inf)))
                line.send(words(failure(order)))
        except LineLost:
            # The thread that computes notices the end of rank 0 at its next exchange.
            done = self._snapshots.all_tasks_done
            with done:
                self._lost = True
                done.notify_all()

    def _written(self, directory: Path) -> None:
        # The order may come before the call in which this rank takes its snapshot.
        files = self._snapshots.get(timeout=_COPY_S)
        try:
            save_state(directory, files, self._leads)
        finally:
            self._snapshots.task_done()


def failure(work: Callable[[], None]) -> Exception | None:
    """Do work that other ranks do also; return its error, so that all ranks learn of it."""
    try:
        work()
    except Exception as error:
        return error
    return None


def words(failed: Exception | None) -> str:
    """Return an error as an answer to rank 0; empty if there is none."""
    return "" if failed is None else f"{type(failed).__name__}: {failed}"


def check(failed: Exception | None, reasons: Sequence[str], directory: Path) -> None:
    """Raise this rank's own error, or `RankWriteFailed` for the first other rank's."""
    if failed is not None:
        raise failed
    for rank, reason in enumerate(reasons, 1):
        if reason:
            raise RankWriteFailed(rank, str(directory), reason)


def _answer(line: Line) -> str:
    try:
        return str(line.receive())
    except LineLost as error:
        return str(error)
