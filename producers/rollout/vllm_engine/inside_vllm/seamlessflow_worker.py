"""The part that runs inside vLLM's worker processes, in their environment (see `launch.py`).

Imports nothing of this project and nothing of vLLM: vLLM makes the class a base of its worker, and
`/collective_rpc` calls its methods.
"""

from typing import Any


class PolicyReload:
    """The method that loads new weights in a running server."""

    model_runner: Any
    """An attribute of vLLM's worker."""

    def reload_policy(self, weights_path: str) -> None:
        """Reload all weights, also the copy that vLLM 0.32 forgets on a CPU.

        On a CPU a matrix product uses a packed copy of its weight. An output layer that is tied to
        the input embedding has no tensor in the files, so vLLM's own reload keeps its old copy.
        """
        self.model_runner.reload_weights(weights_path=weights_path)
        for module in self.model_runner.get_model().modules():
            if type(module).__name__ == "ParallelLMHead" and hasattr(module, "cpu_linear"):
                module.quant_method.process_weights_after_loading(module)
