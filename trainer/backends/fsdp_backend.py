"""The back end of a gang: the model sharded over its ranks with FSDP2, each training its share.

The leader sends each of its calls to the other ranks, which do the same in `follow`. Only the
leader writes files, from whole tensors; all ranks read checkpoints, so all must reach their
directory.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel

from infra.kafka.outage import Stopping, never
from infra.worker.device import device_named
from trainer.backends.adapter.lora import published
from trainer.backends.backend import NO_STEP, Computing, StepInput, unmeasured
from trainer.backends.failures import GradientNorms, PassFailures
from trainer.backends.gang import Arrays, GangRank, Op
from trainer.backends.meeting.line import GangLine
from trainer.backends.meeting.meeting import Meeting
from trainer.backends.model import DTYPES
from trainer.backends.optimizer_state import full
from trainer.backends.shards import fill, is_empty
from trainer.backends.step_message import (
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
from trainer.backends.token_sums import TokenSums
from trainer.backends.torch_backend import TorchBackend
from trainer.data.credit.columns import Annotated, Column
from trainer.data.packing import MicroBatch
from trainer.settings import TrainerSection

_Share = TypeVar("_Share")
_ELSEWHERE = "the loss of another rank failed, which rank 0 explains"


class FsdpBackend(TorchBackend):
    """A `Backend` (see `backend.py`) on every rank of a gang.

    For `MegatronBackend` to override: `_copies`, and what `TorchBackend` names.
    """

    def __init__(
        self,
        model_directory: Path,
        settings: TrainerSection,
        way: Meeting | GangLine,
        computing: Computing = unmeasured,
        stopping: Stopping = never,
    ) -> None:
        """Wait for all ranks: rank 0 at the meeting, others on their line to it. Load the model.

        Raise `ModelUnusable`, and `WorkersAbsent` and `LineLost`, at once when `stopping`.
        """
        device = torch.device(device_named(settings.device, torch.cuda.is_available))
        self._gang = GangRank(settings.rank, settings.ranks, way, device, stopping)
        self._ranks = settings.ranks
        super().__init__(model_directory, settings, computing)

    def annotate(self, batches: Sequence[MicroBatch], columns: Sequence[Column]) -> Annotated:
        mine, *others = self._repeated(dealt(batches, self._ranks // self._copies))
        self._gang.send(Op.ANNOTATE, [question(share, columns) for share in others])
        own = super().annotate(mine, columns)
        further = [answered(of, columns, len(mine)) for of in self._answers()]
        return collected([own, *further], columns, len(batches))

    def train(self, step: StepInput) -> dict[str, float]:
        total = sum(len(batch) for batch in step.micro_batches)
        mine, *others = self._repeated(shares(step, self._ranks // self._copies))
        self._gang.send(Op.TRAIN, [to_arrays(share, total) for share in others])
        return self._train(mine, total)

    def remember(self, version: int) -> None:
        self._ask(Op.REMEMBER, version)
        super().remember(version)

    def write_weights(self, directory: Path) -> None:
        self._ask(Op.WRITE)
        super().write_weights(directory)

    def snapshot(self) -> None:
        self._ask(Op.SNAPSHOT)
        super().snapshot()

    def load(self, directory: Path | None, version: int) -> None:
        path = np.frombuffer(str(directory or "").encode(), np.uint8)
        message = {"version": np.array([version]), "path": path}
        self._gang.send(Op.LOAD, [message] * (self._ranks - 1))
        super().load(directory, version)

    def rest(self, step: int = NO_STEP) -> None:
        self._ask(Op.REST, step)

    def follow(self) -> int:
        """Do what the leader asks until it rests. For the other ranks; raise if it ends.

        Each branch makes the same collective calls as the leader's method; else the ranks block.
        """
        while True:
            op, arrays = self._gang.receive()
            match op:
                case Op.REST:
                    return _version(arrays)
                case Op.LOAD:
                    path = arrays["path"].tobytes().decode()
                    super().load(Path(path) if path else None, _version(arrays))
                case Op.ANNOTATE:
                    self._gang.answer(answer(super().annotate(*asked(arrays))))
                case Op.TRAIN:
                    self._train(*from_arrays(arrays))
                case Op.REMEMBER:
                    super().remember(_version(arrays))
                # Gathering needs all ranks, though only the leader keeps the result.
                case Op.WRITE:
                    self._whole_weights()
                case Op.SNAPSHOT:
                    self.state()

    def close(self) -> None:
        """Leave the gang."""
        self._gang.close()

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        compute, master = self._settings.compute, self._settings.master_dtype
        precision = MixedPrecisionPolicy(
            param_dtype=None if compute == master else DTYPES[compute], reduce_dtype=torch.float32
        )
        mesh = self._gang.mesh
        empty = is_empty(model)
        if not empty:
            model = torch.nn.Module.to(model, mesh.device_type)
        blocks = set(model._no_split_modules or ())
        for module in list(model.modules()):
            if type(module).__name__ in blocks:
                fully_shard(module, mesh=mesh, mp_policy=precision)
        fully_shard(model, mesh=mesh, mp_policy=precision)
        if empty:
            fill(model, Path(str(model.name_or_path)), torch.device(mesh.device_type))
        return model

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
        self._gang.answer(failures.to_arrays())
        return replace(failures, reason=failures.reason or _ELSEWHERE) if raised else failures

    def _summed(self, values: torch.Tensor) -> torch.Tensor:
        return self._gang.summed(values)

    def _whole_weights(self) -> dict[str, torch.Tensor]:
        """Return all weights as whole tensors on the host for the leader, nothing for others."""
        found = {}
        for name, tensor in published(self._model).items():
            whole = full(tensor)
            if self._gang.leads:
                found[name] = whole.cpu()
        return found

    @property
    def _copies(self) -> int:
        """Ranks that train the same share, which follow each other."""
        return 1

    def _repeated(self, shares: Sequence[_Share]) -> list[_Share]:
        """Return the share of each rank."""
        return [share for share in shares for _ in range(self._copies)]

    def _answers(self) -> list[Arrays]:
        """Wait for the answers of all other ranks; return one for each other share."""
        return self._gang.answers()[self._copies - 1 :: self._copies]

    def _ask(self, op: Op, version: int = 0) -> None:
        """Send a call to the others, with a version, or the number of a step."""
        self._gang.send(op, [{"version": np.array([version])}] * (self._ranks - 1))


def _version(arrays: Arrays) -> int:
    return int(arrays["version"].item())
