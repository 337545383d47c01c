"""Factories for engines, one for each value of `rollout.engine`."""

import shutil
from pathlib import Path

from seamlessflow.infra.device_model.presets import hardware_named, model_named
from seamlessflow.infra.device_model.settings import DeviceModelSection, worker_rates
from seamlessflow.infra.errors import SeamlessFlowError, SettingsRejected
from seamlessflow.infra.process import collect_seldom
from seamlessflow.infra.weights.adapter import BaseModel
from seamlessflow.infra.weights.manifest import Manifest, verify
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.clock_engine.answers import AnswerLengths, Answers
from seamlessflow.producers.rollout.clock_engine.engine import ClockEngine, ClockEngineSettings
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.roles.device import EngineFactory
from seamlessflow.producers.rollout.scripted_engine import Script, ScriptedEngine
from seamlessflow.producers.rollout.settings import RolloutSection, RolloutSettings, VllmSection
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.producers.rollout.vllm_engine.engine import VllmEngine

ENGINE_DEADLINE_S = 120.0
"""Time limit for a call to the engine's thread; loading a model is not such a call."""


class WeightsUnsupported(SeamlessFlowError):
    """Published weights that this engine cannot load: their kind, or their version."""

    lasting = True

    def __init__(self, weights: PublishedWeights, reason: str) -> None:
        self.weights = weights
        self.reason = reason
        super().__init__(f"version {weights.version} in {weights.directory}: {reason}")


class TorchEngines:
    """Factory for engines that sample from the policy in this process."""

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self, settings: RolloutSection) -> None:
        self._settings = settings
        self._check = WeightsCheck()

    def verify(self, weights: PublishedWeights) -> None:
        """See `WeightsCheck`."""
        self._check.verify(weights)

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        """Load the model. Raises `ModelUnsupported`."""
        # Not at the top: torch takes seconds to import, and a scripted worker needs none.
        from seamlessflow.producers.rollout.torch_engine.engine import (
            TorchEngine,
            TorchEngineSettings,
        )

        torch = self._settings.torch
        settings = TorchEngineSettings(
            device=torch.device,
            dtype=torch.dtype,
            max_length=torch.max_length,
            max_running=self._settings.capacity,
            max_rows=self._settings.capacity + torch.kept_prefixes,
            kv_bytes=torch.kv_bytes,
            prefill_tokens=torch.prefill_tokens,
            threads=torch.threads,
            deadline_s=ENGINE_DEADLINE_S,
        )
        engine = TorchEngine.from_directory(weights.path, settings, weights.version)
        # The libraries have half a million objects. Collecting them all would stop sampling and
        # every move for half a second.
        collect_seldom()
        return engine


class VllmEngines:
    """Factory for engines that sample from the policy, each in a server that it starts."""

    whole_vocabulary = False
    loads_asleep = False

    def __init__(self, settings: RolloutSection, log_dir: Path) -> None:
        self._settings = settings
        self._vllm = _over_devices(settings)
        self._check = WeightsCheck()
        self._log_dir = log_dir
        # Checked at the start, not with the first role: the mistake is in the settings.
        if settings.vllm.url is None and shutil.which(settings.vllm.python) is None:
            reason = f"there is no program {settings.vllm.python}; see runbooks/vllm.md"
            raise SettingsRejected("SEAMLESSFLOW_ROLLOUT__VLLM__PYTHON", reason)

    def verify(self, weights: PublishedWeights) -> None:
        """See `WeightsCheck`."""
        self._check.verify(weights)

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        """Start a server and wait for it. Raises `VllmNotStarted`, `WeightsRejected`."""
        settings = self._settings
        directory = weights.path
        log_file = self._log_dir / f"vllm-{settings.worker}.log"
        return VllmEngine(self._vllm, settings.capacity, directory, weights.version, log_file)


class ScriptedEngines:
    """Factory for engines with the same answer to every prompt; they read no file."""

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self, settings: RolloutSection) -> None:
        self._settings = settings

    def verify(self, weights: PublishedWeights) -> None:
        """Accept all weights: only their version is used."""

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        """Return an engine whose text is encoded in the policy's tokens."""
        scripted = self._settings.scripted
        pattern = parser.encode(scripted.text)
        script = Script(pattern, scripted.tokens, scripted.tokens_per_second)
        return ScriptedEngine(script, weights.version, max_running=self._settings.capacity)


class ClockEngines:
    """Factory for engines that take as long as modelled devices; they read no weights."""

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self, settings: RolloutSection, devices: DeviceModelSection) -> None:
        """Raises `ModelTooLarge`."""
        self._section = settings.clock
        rates = worker_rates(devices, max(1, len(settings.devices)), settings.capacity)
        self._settings = ClockEngineSettings(
            rates=rates.scaled(devices.scale),
            token_bytes=model_named(devices.model).kv_bytes,
            memory_bytes=round(hardware_named(devices.hardware).memory_bytes),
            report_s=self._section.report_s,
        )

    def verify(self, weights: PublishedWeights) -> None:
        """See `verify_full`: what a rehearsal publishes is checked as in a run."""
        verify_full(weights)

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        """Return an engine once weights would be loaded; its text is in the policy's tokens."""
        answers = Answers(
            parser.encode(self._section.text), AnswerLengths(self._section, self._section.seed)
        )
        engine = ClockEngine(self._settings, answers)
        engine.pause("keep")
        engine.load_weights(weights.path, weights.version)
        engine.resume()
        return engine


def engine_factory(settings: RolloutSettings) -> EngineFactory:
    """Return the factory for `rollout.engine`; servers that it starts log below `data_dir`."""
    mine = settings.rollout
    match mine.engine:
        case "torch":
            return TorchEngines(mine)
        case "vllm":
            return VllmEngines(mine, settings.data_dir / "logs")
        case "scripted":
            return ScriptedEngines(mine)
        case "clock":
            return ClockEngines(mine, settings.device_model)


class WeightsCheck:
    """Check on whole models and adapters, whose base is read once."""

    def __init__(self) -> None:
        self._bases: set[BaseModel] = set()

    def verify(self, weights: PublishedWeights) -> None:
        """Read and check every file, and the model that an adapter belongs to.

        Raises `WeightsInvalid`, `WeightsUnsupported` and `AdapterInvalid`.
        """
        if (base := _verified(weights).base) is not None and base not in self._bases:
            base.verify(weights.path)
            self._bases.add(base)


def verify_full(weights: PublishedWeights) -> None:
    """Read and check every file in a whole model.

    Raises `WeightsInvalid` or `WeightsUnsupported`.
    """
    if (kind := _verified(weights).kind) != "full":
        raise WeightsUnsupported(weights, f"kind {kind}, only full ones can be loaded")


def _verified(weights: PublishedWeights) -> Manifest:
    manifest = verify(weights.path, weights.manifest_sha256)
    if manifest.kind == "delta":
        raise WeightsUnsupported(weights, "kind delta cannot be loaded")
    if manifest.version != weights.version:
        raise WeightsUnsupported(weights, f"the manifest says version {manifest.version}")
    return manifest


def _over_devices(settings: RolloutSection) -> VllmSection:
    try:
        return settings.vllm.over(len(settings.devices))
    except ValueError as error:
        raise SettingsRejected("SEAMLESSFLOW_ROLLOUT__VLLM__REPLICAS", str(error)) from error
