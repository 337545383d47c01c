"""The back end for a gang that divides every model tensor over its ranks, with FSDP2."""

from pathlib import Path

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.model import DTYPES
from seamlessflow.trainer.backends.optimizer_state import full
from seamlessflow.trainer.backends.rank_backend import RankBackend
from seamlessflow.trainer.backends.sharded.parts import TensorParts, part_of
from seamlessflow.trainer.backends.sharded.shards import fill, is_empty


class FsdpBackend(RankBackend):
    """A `Backend` (see `backend.py`) on every rank of a gang."""

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        compute = self._settings.compute
        master = self._settings.master_dtype
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

    def _model_parts(self) -> TensorParts:
        return {name: part_of(tensor) for name, tensor in self._model.state_dict().items()}

    def _whole_weights(self) -> dict[str, torch.Tensor]:
        weights = {}
        for name, tensor in self._policy.tensors(self._model).items():
            whole = full(tensor)
            if self._gang.leads:
                weights[name] = whole.cpu()
        return weights
