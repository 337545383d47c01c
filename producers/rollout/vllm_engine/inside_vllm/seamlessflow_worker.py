"""The part that runs inside vLLM's worker processes, in their environment (see `launch.py`).

It imports nothing from this project. `--worker-extension-cls` makes vLLM import this module in each
worker; that registers the weight transfer engine which `--weight-transfer-config` names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)


class Extension:
    """Base class that vLLM adds to its worker; for it, vLLM imports this module."""

    _weight_update_active: bool
    finish_weight_update: Callable[[], None]
    """Both are attributes of vLLM's worker."""

    def end_open_update(self) -> None:
        """End an update that a killed process left open, so that the next one can begin.

        To begin an update while one is open is an error. After it, an engine's ranks answer out of
        turn.
        """
        if self._weight_update_active:
            self.finish_weight_update()


@dataclass
class Nothing(WeightTransferInitInfo):  # type: ignore[misc]
    """The init info, which is empty: each version says where it is."""


@dataclass
class Staged(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The update info: a version that is complete on this host and checked by its manifest."""

    directory: str


class StagedWeights(WeightTransferEngine[Nothing, Staged]):  # type: ignore[misc]
    """Weight transfer where each rank reads its part of a staged version. Between start and finish
    the model has no weights: no request may be sampled, and by the finish no tensor may be missing.
    """

    init_info_cls = Nothing
    update_info_cls = Staged

    def init_transfer_engine(self, init_info: Nothing) -> None:
        pass

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":  # torch has no accelerator there, and raises
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: Staged) -> None:
        # The loader reads the model that its configuration names, as in vLLM's own reload.
        self.model_config.model = update_info.directory
        self.model_config.model_weights = ""
        self.model_config.revision = None
        loader: Any = get_model_loader(self.vllm_config.load_config)
        self.model.load_weights(loader.get_all_weights(self.model_config, self.model))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        # On a CPU a matrix product uses a packed copy of its weight. An output layer tied to the
        # input embedding has no tensor in the files. So vLLM 0.32 keeps its old copy.
        for module in self.model.modules():
            if type(module).__name__ == "ParallelLMHead" and hasattr(module, "cpu_linear"):
                module.quant_method.process_weights_after_loading(module)

    def shutdown(self) -> None:
        pass


WeightTransferEngineFactory.register_engine("seamlessflow", StagedWeights)
