"""The thread of the torch engine: it alone touches the model, the KV cache and the requests.

`run` alternates between commands and steps. Every other method is a command: `TorchEngine` posts
them, they run between steps. A step that raises is the engine's end (`error`): all requests get
their "abort" chunk, and only a new engine helps.
"""

import logging
import time
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from producers.rollout.engine.commands import CommandQueue
from producers.rollout.engine.contract import PauseMode
from producers.rollout.engine.request import Request, last_chunk
from producers.rollout.engine.state import EngineState
from producers.rollout.torch_engine.batching import Batch, Emission
from producers.rollout.torch_engine.kv_cache import KvCache

logger = logging.getLogger(__name__)


class EngineLoop:
    """The public attributes may be read from any thread, for `health`."""

    def __init__(
        self, model: PreTrainedModel, kv: KvCache, batch: Batch, commands: CommandQueue
    ) -> None:
        self.model: torch.nn.Module = model
        self.kv = kv
        self.batch = batch
        self.commands = commands
        self.device = model.device
        self.state = EngineState()
        self.failed_callbacks = 0
        self.busy_seconds = 0.0
        self._stopped = False

    def run(self) -> None:
        """Until `stop`."""
        with torch.inference_mode():
            while not self._stopped:
                try:
                    self.commands.run(wait=not self._ready())
                    if self._ready():
                        self._step()
                except Exception as error:
                    self._fail(error)

    def submit(self, request: Request) -> None:
        if self.state.error is not None:
            offset = len(request.tokens) - request.prompt_length
            self._deliver([(request, last_chunk(offset, "abort"))])
        else:
            self.batch.add(request)

    def abort(self, request_id: str | None) -> None:
        self._deliver(self.batch.abort(request_id))

    def pause(self, mode: PauseMode) -> None:
        self.state.require_working("pause")
        self.state.paused = True
        if mode == "abort":
            self.abort(None)

    def resume(self) -> None:
        self.state.require_awake("resume")
        self.state.paused = False

    def take_weights(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Copy checked tensors into the model. A copy that fails half-way is the engine's end."""
        self.state.require_loadable()
        state = self.model.state_dict()
        try:
            for name, tensor in tensors.items():
                state[name].copy_(tensor)
        except RuntimeError as error:
            self._fail(error)
            raise
        self.batch.version = version
        self.batch.slots.void()

    def sleep(self) -> int:
        """On a CPU the weights stay where they are: the host's memory is where they would go."""
        self.state.require_paused("sleep")
        if self.state.asleep:
            return 0
        self.batch.slots.void()
        freed = self.kv.release()
        if self.device.type != "cpu":
            freed += sum(parameter.nbytes for parameter in self.model.parameters())
            self.model.to("cpu")
            torch.accelerator.empty_cache()
        self.state.asleep = True
        return freed

    def wake(self) -> None:
        self.state.require_working("wake")
        self.model.to(self.device)
        self.state.asleep = False

    def stop(self) -> None:
        self._stopped = True
        self._abort_all()

    def _ready(self) -> bool:
        return self.batch.has_work and not self.state.paused and not self._stopped

    def _step(self) -> None:
        started = time.perf_counter()
        self._deliver(self.batch.step())
        self.busy_seconds += time.perf_counter() - started

    def _deliver(self, emissions: Iterable[Emission]) -> None:
        broken = []
        for request, chunk in emissions:
            try:
                request.on_chunk(chunk)
            except Exception:
                logger.exception("on_chunk of request %s failed", request.request_id)
                self.failed_callbacks += 1
                broken.append(request.request_id)
        for request_id in broken:
            self.batch.abort(request_id)  # ends it if it is live; its callback gets no more calls

    def _fail(self, error: Exception) -> None:
        logger.error("the torch engine failed", exc_info=error)
        self.state.fail(f"{type(error).__name__}: {error}")
        self._abort_all()

    def _abort_all(self) -> None:
        self.batch.slots.void()  # so that nothing here touches a device that may be broken
        self.abort(None)
