"""The function that starts a torch engine in tests."""

from collections.abc import Callable

from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine

StartEngine = Callable[..., TorchEngine]
