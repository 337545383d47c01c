"""The back end on a gang's rank, however the gang divides the model.

The leader sends each of its calls to the other ranks, which do the same in `follow`. Each rank
trains its share. It writes and reads its rows in weights and checkpoints, so all ranks must reach
those directories. The leader gathers a model only if publishing it needs a conversion.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from transformers import PreTrainedModel

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.host import device_named
from seamlessflow.infra.network.line import Line
from seamlessflow.trainer.backends.backend import NO_STEP, Computing, StepInput, unmeasured
from seamlessflow.trainer.backends.calls import Arrays, GangCall, GangCallName, Reply
from seamlessflow.trainer.backends.failures import GradientNorms, PassFailures
from seamlessflow.trainer.backends.gang import GangRank
from seamlessflow.trainer.backends.meeting import Meeting
from seamlessflow.trainer.backends.sharded.parts import TensorParts
from seamlessflow.trainer.backends.sharded.tensor_files import ModelFiles, model_files
from seamlessflow.trainer.backends.sharded.together import GangSaves, check, failure, words
from seamlessflow.trainer.backends.step_message import (
    answer,
    answered,
    asked,
    collected,
    dealt,
    from_arrays,
    question,
    shares,
    to_arrays,
)
from seamlessflow.trainer.backends.token_sums import TokenSums
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.settings import TrainerSection

_Share = TypeVar("_Share")
_log = logging.getLogger(__name__)
_ELSEWHERE = "the loss of another rank failed, which rank 0 explains"


class RankBackend(TorchBackend, ABC):
    """A `Backend` (see `backend.py`) on every rank of a gang.

    A subclass implements `_placed`, `_model_parts` and `_whole_weights`. If several ranks train the
    same share, it also overrides `_copies`.
    """

    def __init__(
        self,
        model_directory: Path,
        settings: TrainerSection,
        way: Meeting | Line,
        computing: Computing = unmeasured,
        stopping: Stopping = never,
    ) -> None:
        """Wait for all ranks: rank 0 at the meeting, others on their line to it. Load the model.

        Raise `ModelUnusable`, `WorkersAbsent` and `LineLost`, the last two at once when `stopping`.
        """
        device = torch.device(device_named(settings.device, torch.cuda.is_available))
        self._gang = GangRank(settings.rank, settings.ranks, way, device, stopping)
        self._ranks = settings.ranks
        super().__init__(model_directory, settings, computing)
        self._saves = GangSaves(self._gang.lines, self._snapshots, self._gang.leads)

    def annotate(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column]
    ) -> AnnotatedColumns:
        mine, *others = self._repeated(dealt(batches, self._ranks // self._copies))
        with self._gang.exchange():
            call = GangCall(name=GangCallName.ANNOTATE)
            self._gang.send(call, [question(share, columns) for share in others])
            annotated = super().annotate(mine, columns)
            further = [answered(arrays, columns, len(mine)) for arrays in self._answers()]
        return collected([annotated, *further], columns, len(batches))

    def train(self, step: StepInput) -> dict[str, float]:
        total = sum(len(batch) for batch in step.micro_batches)
        mine, *others = self._repeated(shares(step, self._ranks // self._copies))
        with self._gang.exchange():
            call = GangCall(name=GangCallName.TRAIN)
            self._gang.send(call, [to_arrays(share, total) for share in others])
            return self._train(mine, total)

    def remember(self, version: int) -> None:
        self._call(GangCall(name=GangCallName.REMEMBER, version=version))
        super().remember(version)

    def write_weights(self, directory: Path) -> None:
        with self._gang.exchange():
            self._call(GangCall(name=GangCallName.WRITE, path=str(directory)))
            self._write(directory)

    def snapshot(self) -> None:
        self._call(GangCall(name=GangCallName.SNAPSHOT))
        super().snapshot()

    def save(self, directory: Path) -> None:
        self._saves.save(directory)
        self._policy.save(directory)

    def load(self, directory: Path | None, version: int) -> None:
        path = "" if directory is None else str(directory)
        self._call(GangCall(name=GangCallName.LOAD, path=path, version=version))
        super().load(directory, version)

    def rest(self, step: int = NO_STEP) -> None:
        self._call(GangCall(name=GangCallName.REST, step=step))

    def follow(self) -> int:
        """Do what the leader asks until it rests. For the other ranks; raise if the leader ends.

        Each branch in `_obey` makes the same collective calls as the leader's method; else the
        ranks block.
        """
        with self._gang.exchange():
            while (called := self._gang.receive())[0].name is not GangCallName.REST:
                self._obey(*called)
        return called[0].step

    def interrupt(self) -> None:
        """Wait, for a while, until this rank's part of a checkpoint is written."""
        self._saves.finish()

    def close(self) -> None:
        """Leave the gang."""
        self._gang.close()

    def _merged(self, sums: TokenSums) -> TokenSums:
        # Each rank waits for the slowest here.
        self._computing(False)
        merged = sums.merged(self._gang.summed, self._gang.largest)
        self._computing(True)
        return merged

    def _shared(self, failures: PassFailures, norms: GradientNorms) -> PassFailures:
        # The norms are those of all ranks already.
        raised = bool(self._gang.largest(torch.tensor([float(bool(failures.reason))])).item())
        if norms.finite and not raised:
            return failures
        if self._gang.leads:
            others = map(PassFailures.from_arrays, self._answers())
            return failures.with_others(others)
        self._gang.reply(Reply(), failures.to_arrays())
        return replace(failures, reason=failures.reason or _ELSEWHERE) if raised else failures

    def _summed(self, values: torch.Tensor) -> torch.Tensor:
        return self._gang.summed(values)

    def _obey(self, call: GangCall, arrays: Arrays) -> None:
        """Do this rank's part in the leader's call."""
        match call.name:
            case GangCallName.LOAD:
                super().load(call.directory, call.version)
            case GangCallName.ANNOTATE:
                self._gang.reply(Reply(), answer(super().annotate(*asked(arrays))))
            case GangCallName.TRAIN:
                self._train(*from_arrays(arrays))
            case GangCallName.REMEMBER:
                super().remember(call.version)
            case GangCallName.WRITE:
                self._write(Path(call.path))
            case GangCallName.SNAPSHOT:
                super().snapshot()

    def _write(self, directory: Path) -> None:
        """Write this rank's part of the model. All ranks must call it; if one fails, all end."""
        files = self._model_files
        whole = self._whole_weights() if files is None else {}  # a call of all ranks

        def write() -> None:
            if files is not None:
                files.write(directory, self._model_parts(), self._gang.leads)
            elif self._gang.leads:
                self._policy.write(self._published, whole, directory)

        failed = failure(write)
        if self._gang.leads:
            check(failed, [reply.error for reply, _ in self._gang.replies()], directory)
        else:
            self._gang.reply(Reply(error=words(failed)), {})
            check(failed, (), directory)

    @cached_property
    def _model_files(self) -> ModelFiles | None:
        """A published model's files.

        None for an adapter, which is small, and for files that only whole tensors can make.
        """
        if self._settings.adapter.used:
            return None
        files = model_files(self._published, self.dtype)
        if files is None and self._gang.leads:
            name = self._model.name_or_path
            _log.warning("%s: rank 0 gathers all of it to publish it, it needs a conversion", name)
        return files

    @property
    def _published(self) -> PreTrainedModel:
        """The model as it is published; its tensors may have no memory."""
        return self._model

    @abstractmethod
    def _model_parts(self) -> TensorParts:
        """Return this rank's part of each model tensor."""

    @abstractmethod
    def _whole_weights(self) -> dict[str, torch.Tensor]:
        """Return all weights as whole tensors on the host.

        All ranks must call it; ranks other than the leader may return none.
        """

    @property
    def _copies(self) -> int:
        """Return how many consecutive ranks train the same share."""
        return 1

    def _repeated(self, shares: Sequence[_Share]) -> list[_Share]:
        """Return each rank's share."""
        return [share for share in shares for _ in range(self._copies)]

    def _answers(self) -> list[Arrays]:
        """Wait for all other ranks' replies; return the arrays for each other share."""
        replies = self._gang.replies()[self._copies - 1 :: self._copies]
        return [arrays for _, arrays in replies]

    def _call(self, call: GangCall) -> None:
        """Send a call without arrays to the others."""
        with self._gang.exchange():
            self._gang.send(call, [{}] * (self._ranks - 1))
