"""Runs inside vLLM's worker processes, in their environment: `vllm_launch.py` puts it there.

Imports nothing of this project, and nothing of vLLM either: vLLM makes the class a base of its
worker, and `/collective_rpc` calls its methods.
"""

from typing import Any


class PolicyReload:
    """New weights in a running server."""

    model_runner: Any
    """vLLM's."""

    def reload_policy(self, weights_path: str) -> None:
        """`reload_weights`, and what it leaves out on a CPU (vLLM 0.32).

        There a matrix product uses a packed copy of its weight. An output layer that is tied to the
        input embedding has no tensor of its own in the files, so its copy would stay an old one.
        """
        self.model_runner.reload_weights(weights_path=weights_path)
        for module in self.model_runner.get_model().modules():
            if type(module).__name__ == "ParallelLMHead" and hasattr(module, "cpu_linear"):
                module.quant_method.process_weights_after_loading(module)
