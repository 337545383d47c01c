"""The back end of a gang that divides the model by Megatron-core: tensor parallel by data parallel.

The gang, its messages, losses and metrics are those of `RankBackend`; what differs is the model,
how gradients are summed, and that ranks of one model train the same share. Checkpoints are whole
tensors by Hugging Face's names, as the other back ends write them, so any of these can go on from
one, with another number of ranks too. (Megatron-core's own format has a pickle in it.)
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.megatron.rank_groups import RankGroups
from seamlessflow.trainer.backends.megatron.shard_keeping import ShardKeeping
from seamlessflow.trainer.backends.megatron.sharded_model import ShardedModel
from seamlessflow.trainer.backends.model import DTYPES
from seamlessflow.trainer.backends.rank_backend import RankBackend
from seamlessflow.trainer.backends.sharded.parts import Parts
from seamlessflow.trainer.backends.token_sums import TokenSums


class MegatronBackend(RankBackend):
    """A `Backend` (see `backend.py`) on every rank of a gang."""

    _model: ShardedModel

    def gradients(self, step: StepInput) -> Iterator[Mapping[str, Tensor]]:
        """Yield gradients of whole Hugging Face tensors. All ranks must call it."""
        for shards in super().gradients(step):
            for leaf in self._model.leaves:
                self._keeping.summed(leaf, shards[leaf.name]).div_(self._ranks)
            yield self._model.whole_tensors(shards)

    def close(self) -> None:
        """Leave the gang."""
        self._groups.close()
        super().close()

    @property
    def _copies(self) -> int:
        return self._settings.megatron.tensor_parallel

    @cached_property
    def _groups(self) -> RankGroups:
        return RankGroups(self._copies)

    @cached_property
    def _keeping(self) -> ShardKeeping:
        return ShardKeeping(self._groups, self._ranks, self._settings.optimizer.clip_norm)

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        return ShardedModel(model, self._groups, DTYPES[self._settings.compute])

    @property
    def _published(self) -> PreTrainedModel:
        return self._model.unsharded()

    def _model_parts(self) -> Parts:
        return self._model.parts(self._parameters)

    def _whole_weights(self) -> dict[str, Tensor]:
        return {
            name: tensor.cpu()
            for name, tensor in self._model.whole_tensors(self._parameters).items()
        }

    def _summed(self, values: Tensor) -> Tensor:
        return self._groups.sum_data(values)  # ranks of one model have the same values

    def _autocast(self) -> AbstractContextManager[object]:
        return nullcontext()  # the model itself computes in the settings' type

    def _merged(self, sums: TokenSums) -> TokenSums:
        # Ranks of one model have the same sums.
        self._computing(False)
        merged = sums.merged(self._groups.sum_data, self._groups.largest_data)
        self._computing(True)
        return merged
