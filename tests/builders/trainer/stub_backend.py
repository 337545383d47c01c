"""A trainer back end without a model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seamlessflow.trainer.backends.backend import NO_STEP, Machine, StepInput
from seamlessflow.trainer.data.chains import AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import Layout, MicroBatch


class StubBackend:
    """A back end whose weights are a text."""

    dtype = "float32"
    layout: Layout = "padded"
    machine = Machine("cpu none", 1, "0")

    def __init__(self, text: str = "w0") -> None:
        self.text = text

    def annotate(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column]
    ) -> AnnotatedColumns:
        return {name: [np.zeros(len(batch), np.float32) for batch in batches] for name in columns}

    def train(self, step: StepInput) -> Mapping[str, float]:
        return {}

    def remember(self, version: int) -> None:
        pass

    def remembered(self) -> Sequence[int]:
        return ()

    def write_weights(self, directory: Path) -> None:
        text = self.text.encode()
        facts = {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, len(text)]}
        header = json.dumps({"text": facts}).encode()
        length = len(header).to_bytes(8, "little")
        (directory / "model.safetensors").write_bytes(length + header + text)
        (directory / "config.json").write_text('{"from": "backend"}')

    def snapshot(self) -> None:
        pass

    def save(self, directory: Path) -> None:
        (directory / "weights.safetensors").write_text(self.text)

    def load(self, directory: Path | None, version: int) -> None:
        pass

    def rest(self, step: int = NO_STEP) -> None:
        pass

    def follow(self) -> int:
        return NO_STEP

    def interrupt(self) -> None:
        pass

    def acquire(self) -> None:
        pass

    def release(self) -> int:
        return 0
