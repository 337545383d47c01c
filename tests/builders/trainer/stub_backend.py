"""A trainer back end without a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.backends.backend import StepInput


class StubBackend:
    """A back end whose weights are a text."""

    dtype = "float32"

    def __init__(self, text: str = "w0") -> None:
        self.text = text

    def train(self, step: StepInput) -> Mapping[str, float]:
        return {}

    def remember(self, version: int) -> None:
        pass

    def remembered(self) -> Sequence[int]:
        return ()

    def write_weights(self, directory: Path) -> None:
        (directory / "model.safetensors").write_text(self.text)
        (directory / "config.json").write_text('{"from": "backend"}')

    def save(self, directory: Path) -> None:
        (directory / "weights.safetensors").write_text(self.text)

    def load(self, directory: Path | None, version: int) -> None:
        pass

    def rest(self) -> None:
        pass

    def acquire(self) -> None:
        pass

    def release(self) -> int:
        return 0
