"""Settings of a rollout process. Importable without torch, Kafka or renderers."""

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from seamlessflow.infra.device_model.settings import DeviceModelSection, LengthsSection
from seamlessflow.infra.network.addresses import is_loopback
from seamlessflow.infra.settings import ProcessSettings, Section, SharedRunSection
from seamlessflow.infra.user_functions import is_user_function
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.worker.control_rule import ControlSection
from seamlessflow.infra.worker.tags import WorkerTags
from seamlessflow.infra.worker.updates import UpdateSection
from seamlessflow.producers.rollout.control.rules import rule_named

_ADDRESS = ("--host", "--port", "--uds")
"""vLLM's arguments that say where it listens."""
_STAGES = ("--pipeline-parallel-size", "-pp")


class TorchSection(Section):
    """The torch engine."""

    device: str = Field(
        "auto", description="Device for the model: cpu, cuda, cuda:1; auto: cuda if there is one"
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="Element type for weights and KV cache"
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads for one operation; none: torch's default"
    )
    max_length: int | None = Field(
        None,
        ge=2,
        description="Most tokens of prompt and completion together; none: the model's limit. A run "
        "fills in policy.max_context",
    )
    kv_bytes: int = Field(
        4 * 1024**3, ge=1, description="Most memory for keys and values, in bytes"
    )
    kept_prefixes: int = Field(
        32,
        ge=0,
        description="Finished turns whose keys and values are kept, so that the next turn need not "
        "compute them",
    )
    prefill_tokens: int = Field(
        1024,
        ge=1,
        description="Most prompt tokens computed in one pass; a lower number delays running turns "
        "less",
    )


class VllmSection(Section):
    """The vLLM engine: a server in its own Python environment, started by the rollout process."""

    python: Path = Field(
        Path(".venv-vllm/bin/python"),
        description="Python that has vLLM installed; scripts/vllm-cpu makes such an environment "
        "for a CPU",
    )
    url: str | None = Field(
        None,
        description="A running server that only this worker uses, such as http://127.0.0.1:8000, "
        "in development mode and with --enable-scale-out. It must be on this machine, because it "
        "obeys every client; none: start one",
    )
    arguments: tuple[str, ...] = Field(
        (), description="Further arguments for the server, such as --pipeline-parallel-size=2"
    )
    replicas: int = Field(
        1,
        ge=1,
        description="Copies of the model, each on its own part of the worker's devices. They share "
        "the worker's turns (data parallel)",
    )
    tensor_parallel: int | None = Field(
        None,
        ge=1,
        description="Devices that compute each pass of a copy together (tensor parallel); none: "
        "all the worker's devices, divided by replicas",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Element type for weights and KV cache; auto: as in the model's files"
    )
    max_length: int | None = Field(
        None,
        ge=2,
        description="Most tokens of prompt and completion together; none: the model's limit. A run "
        "fills in policy.max_context, unless the model's limit is lower",
    )
    kv_bytes: int | None = Field(
        4 * 1024**3,
        ge=1,
        description="Memory for keys and values on each device, in bytes; none: most of the "
        "device's memory, which is the default for a run on GPUs",
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="CPU threads for one operation, not bound to cores; none: bound to all cores, "
        "which is wrong if servers share a machine",
    )
    gpu: bool = Field(
        False,
        description="Whether the server runs on a GPU. Its memory can then be freed for a trainer, "
        "and requests may have a seed; on a CPU, vLLM 0.32 crashes if it splits a prompt that has "
        "one. A run on a machine with NVIDIA GPUs sets it by default, unless that vLLM is built "
        "for a CPU",
    )
    start_timeout_s: float = Field(600, gt=0, description="Seconds until the server must be ready")
    call_timeout_s: float = Field(
        300,
        gt=0,
        description="Seconds that a call to the server may take, such as loading new weights",
    )
    stall_timeout_s: float = Field(
        300,
        gt=0,
        description="Seconds without a token, while it samples, after which the server counts as "
        "lost",
    )
    restarts: int = Field(3, ge=0, description="Most restarts of a lost server in ten minutes")

    def sharing(self, devices: int) -> int:
        """Return how many of a worker's devices share each pass of a copy."""
        return self.tensor_parallel or max(1, devices // self.replicas)

    def over(self, devices: int) -> "VllmSection":
        """Return the settings for a server over so many devices; 0 if the worker names none.

        Raises `ValueError` if it would need more devices, or leave some without work.
        """
        if devices < 2:
            return self
        tensor_parallel = self.sharing(devices)
        stages = 1 + any(argument.startswith(_STAGES) for argument in self.arguments)
        if tensor_parallel * self.replicas * stages > devices or (
            stages == 1 and tensor_parallel * self.replicas < devices
        ):
            used = f"replicas x tensor_parallel is {self.replicas} x {tensor_parallel}"
            raise ValueError(f"{used}, the worker has {devices} devices")
        return self.model_copy(update={"tensor_parallel": tensor_parallel})

    @field_validator("url")
    @classmethod
    def _on_this_machine(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not is_loopback(parts.hostname or ""):
            text = "must be a URL of a server on the loopback interface, as http://127.0.0.1:8000"
            raise ValueError(text)
        if parts.path.strip("/"):
            raise ValueError(f"must be the URL of the whole server, without {parts.path}")
        return url

    @field_validator("arguments")
    @classmethod
    def _address_is_ours(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        for argument in arguments:
            if argument.partition("=")[0] in _ADDRESS:
                raise ValueError(f"{argument}: the server listens on loopback, at a free port")
        return arguments


class ScriptedSection(Section):
    """The engine without a model, for benchmarks and tests."""

    text: str = Field("ok", description="Text of the answer, repeated until it has enough tokens")
    tokens: int = Field(8, ge=0, description="Tokens in an answer before its stop token")
    tokens_per_second: float | None = Field(
        None, gt=0, description="Tokens a second in one turn; none: the whole answer at once"
    )


class ClockSection(LengthsSection):
    """The engine without a model that takes as long as the devices in `device_model` would."""

    text: str = Field(
        "The answer is found step by step: read what is given, name what is asked, try the "
        "simplest case first, then check each result before the next one. ",
        min_length=1,
        description="Text from which answers are cut; the prompt decides where an answer begins",
    )
    report_s: float = Field(
        0.5, gt=0, description="Seconds between two deliveries of a running turn's tokens"
    )
    seed: int = Field(
        0,
        description="Seed for all lengths; two rehearsals with the same seed draw the same lengths",
    )
    workers_a_process: int = Field(
        1,
        ge=1,
        description="Most workers that share one of the run's rollout processes; a worker with its "
        "own environment always has a separate process",
    )


class HostedWorkerSection(Section):
    """A worker beside the first one in a process."""

    worker: str = Field(min_length=1, description="The worker's id")
    tags: WorkerTags = Field(("rollout",), min_length=1, description="As rollout.tags")
    devices: tuple[int, ...] = Field((), description="As rollout.devices")


class RolloutSection(Section):
    """The worker that this process belongs to, and its engine."""

    worker: str = Field(
        "worker-0",
        min_length=1,
        description="The worker's id; the training process on the same devices has the same",
    )
    tags: WorkerTags = Field(
        ("rollout",),
        min_length=1,
        description="Roles that the worker can take, over all its processes, and tags that "
        "describe it",
    )
    policy: str = Field("policy", min_length=1, description="Policy to serve")
    engine: Literal["torch", "vllm", "scripted", "clock"] = Field(
        "torch",
        description="torch samples from the policy in this process, vllm in a server. scripted and "
        "clock have no model: scripted always gives the same answer, and clock takes as long as "
        "device_model says",
    )
    capacity: int = Field(
        32,
        ge=1,
        description="Most turns sampled at once. A run on GPUs has 256 by default. With the torch "
        "engine on a CPU, a run's default is the worker's part of a step's sessions",
    )
    hardware: dict[str, float] = Field(
        default_factory=dict,
        description="Facts about each device, for the scheduler: peak_flops, bandwidth (bytes a "
        "second), memory (bytes); none with clock: as in device_model",
    )
    devices: tuple[int, ...] = Field(
        (),
        description="vllm, clock: numbers of the worker's devices on its node. They compute each "
        "pass together (tensor parallel), or each serves its part of the turns (vllm.replicas); "
        "none: one device",
    )
    probe_deadline_s: float = Field(
        120,
        gt=0,
        description="Seconds that an engine may take for the test questions that decide whether it "
        "may serve",
    )
    probe_tolerance: float | None = Field(
        None,
        ge=0,
        description="Largest difference allowed between log-probs of the same token in the same "
        "place; none: depends on the engine's element type",
    )
    update: UpdateSection = Field(
        default_factory=UpdateSection, description="When workers load new weights"
    )
    control: ControlSection = Field(
        default_factory=ControlSection, description="When turns are ended early"
    )
    torch: TorchSection = Field(default_factory=TorchSection)
    vllm: VllmSection = Field(default_factory=VllmSection)
    scripted: ScriptedSection = Field(default_factory=ScriptedSection)
    clock: ClockSection = Field(default_factory=ClockSection)
    hosted: tuple[HostedWorkerSection, ...] = Field(
        (),
        description="clock: further workers in this process; they differ from the first one only "
        "in what they name",
    )

    @field_validator("control")
    @classmethod
    def _stops(cls, control: ControlSection) -> ControlSection:
        if control.name is None:
            if control.settings:
                raise ValueError("settings are those of a rule, but name is none")
        elif not is_user_function(control.name):
            rule_named(control.name, control.settings)
        return control


class RolloutSettings(ProcessSettings):
    """All settings of `python -m seamlessflow.producers.rollout`: `SEAMLESSFLOW_ROLLOUT__...`.

    `device_model` is only for the clock engine; from `run` only the lag is read, for updates.
    """

    run: SharedRunSection = Field(default_factory=SharedRunSection)
    rollout: RolloutSection = Field(default_factory=RolloutSection)
    device_model: DeviceModelSection = Field(default_factory=DeviceModelSection)
    weights: WeightsSection = Field(default_factory=WeightsSection)
