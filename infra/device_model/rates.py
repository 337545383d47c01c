"""Times that a worker's work takes: decoding, prompts, training, weights, role changes. Pure.

A gang's step takes as long as its slowest worker, for which all others wait. The simulator
(`lab/simulation/trainer.py`) asks for the whole gang, and each clock back end
(`trainer/backends/clock_backend.py`) for its own worker.

This is a roofline model (Williams, Waterman and Patterson, CACM 2009) for a worker with n equal
devices that share each pass. Forward, a token takes 2 x active parameters operations. Training
takes three times as many (Kaplan et al., arXiv 2001.08361). Attention adds 4 x layers x width for
each earlier token. A decode pass reads the weights, and the KV of all its rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from seamlessflow.infra.device_model.presets import Hardware, ModelSize
from seamlessflow.infra.errors import SeamlessFlowError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """One worker's times in seconds, modelled or measured."""

    launch_s: float = 0.0
    """Fixed part of a decode pass."""
    weights_s: float = 0.0
    """Time to read all weights once."""
    active_share: float = 1.0
    """Share of the weights that one row reads; a mixture of experts reads more for more rows."""
    row_s: float = 0.0
    """Time for one row's operations in a pass."""
    context_s: float = 0.0
    """Time to read one token's KV, in each pass."""
    prompt_s: float = 0.0
    """Time for one prompt token's operations."""
    prompt_context_s: float = 0.0
    """Time for attention from a prompt token to one earlier token."""
    train_s: float = 0.0
    """Time to train one token."""
    train_context_s: float = 0.0
    """Time for attention from a trained token to one earlier token."""
    load_s: float = 0.0
    """Time to load new weights into a running engine."""
    leave_s: float = 0.0
    """Time to release the training role: what training keeps leaves the devices."""
    take_s: float = 0.0
    """Time to acquire the training role: what training keeps comes back."""
    sleep_s: float = 0.0
    """Time to release the rollout role: the weights leave the devices, the KV is dropped."""
    wake_s: float = 0.0
    """Time to acquire the rollout role: the weights come back."""
    rows: int = 256
    """Most rows in a batch."""
    kv_tokens: float = float("inf")
    """Tokens whose KV fits into the worker's memory."""

    def __post_init__(self) -> None:
        if self.launch_s + self.weights_s + self.row_s <= 0:
            raise ValueError("a decode pass must take time: launch_s, weights_s or row_s")

    def scaled(self, factor: float) -> "Rates":
        """Return the rates with all times multiplied by `factor`."""
        times = {
            field.name: factor * getattr(self, field.name)
            for field in fields(self)
            if _timed(field.name)
        }
        return replace(self, **times)

    def batch_s(self, rows: int) -> float:
        """Return how long a decode pass takes with so many rows, without reading their KV."""
        read = self.weights_s * (1 - (1 - self.active_share) ** rows)
        return self.launch_s + max(read, rows * self.row_s)

    def prompt(self, tokens: float, before: float = 0.0) -> float:
        """Return the time to compute KV for `tokens` behind `before` others."""
        return tokens * (self.prompt_s + self.prompt_context_s * (before + tokens / 2))

    def training(self, tokens: float) -> float:
        """Return the time to train one sequence."""
        return tokens * (self.train_s + self.train_context_s * tokens / 2)

    def part(self, lengths: Iterable[float], mine: int, devices: int) -> float:
        """Return how long this worker's part takes in a step on sequences with these lengths.

        A gang divides the sequences evenly among its `devices`. The worker has `mine` of these
        devices.
        """
        return mine * sum(self.training(tokens) for tokens in lengths) / devices

    def releasing(self, role: str) -> float:
        """Return the time to release `rollout` or `train`."""
        return self.sleep_s if role == "rollout" else self.leave_s

    def acquiring(self, role: str) -> float:
        """Return the time to acquire `rollout` or `train`."""
        return self.wake_s if role == "rollout" else self.take_s

    def full_rows(self, context: float) -> float:
        """Return how many rows a full batch has, if sequences have the mean length `context`."""
        return max(1.0, min(self.rows, self.kv_tokens / context if context > 0 else self.rows))


@dataclass(frozen=True, slots=True)
class GangMember:
    """A worker in a gang."""

    rates: Rates
    devices: int


@dataclass(frozen=True, slots=True)
class GangStep:
    """A step's times."""

    parts_s: Mapping[str, float]
    """Each worker's time by name, the step's fixed part included."""

    @property
    def slowest_s(self) -> float:
        """The longest part, for which all others wait."""
        return max(self.parts_s.values())


def gang_step(
    members: Mapping[str, GangMember], devices: int, lengths: Sequence[float], step_s: float
) -> GangStep:
    """Return each worker's time in a step, by name, on sequences with these lengths.

    `members` are some or all workers in a gang with so many `devices`. Each device gets an equal
    part. `step_s` is the step's fixed part.
    """
    # Workers are mostly alike, and a step has many sequences.
    parts_s = {
        member: step_s + member.rates.part(lengths, member.devices, devices)
        for member in set(members.values())
    }
    return GangStep({name: parts_s[member] for name, member in members.items()})


def _timed(name: str) -> bool:
    return name.endswith("_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Shares of a data sheet's figures that are reached, and speeds that it does not list.

    These are assumptions, to be replaced by measured rates. The shares are what is usually reported
    for vLLM-like engines, and for FSDP or Megatron training.
    """

    bandwidth: float = 0.7
    """Share of the memory bandwidth that decoding reaches."""
    prompt_flops: float = 0.5
    """Share of the peak that prompts, and a large batch's rows, reach."""
    train_flops: float = 0.35
    """Share of the peak that training reaches, recomputation of activations included."""
    memory: float = 0.9
    """Share of the memory that the engine may use."""
    load_bytes: float = 10e9
    """Weight bytes a second that each device receives."""
    host_bytes: float = 25e9
    """Bytes a second between a device and its host, when a role leaves its memory."""
    trained_bytes: float = 16.0
    """Bytes that training keeps for each parameter, divided among its gang.

    These are weights and gradients in bf16, and weights and both Adam moments in fp32 (ZeRO, arXiv
    1910.02054, section 3.1).
    """
    all_reduce_s: float = 10e-6
    """Latency of one all-reduce; a pass on several devices needs two for each layer."""


class ModelTooLarge(SeamlessFlowError):
    """A model's weights do not fit into the memory that a worker's devices have."""

    def __init__(self, model: ModelSize, hardware: Hardware, devices: int) -> None:
        self.model = model
        self.hardware = hardware
        self.devices = devices
        super().__init__(
            f"{model.name} needs {model.weight_bytes / 1e9:.0f} GB, "
            f"{devices} {hardware.name} have {devices * hardware.memory_bytes / 1e9:.0f} GB"
        )


def rates_of(
    hardware: Hardware,
    model: ModelSize,
    devices: int = 1,
    efficiency: Efficiency | None = None,
    rows: int = 256,
    gang: int = 0,
) -> Rates:
    """Return the modelled rates for a worker with so many devices.

    It trains in a gang with `gang` devices, or alone if that is 0. Raises `ModelTooLarge`.
    """
    share = efficiency or Efficiency()
    free = devices * hardware.memory_bytes * share.memory - model.weight_bytes
    if free <= 0:
        raise ModelTooLarge(model, hardware, devices)
    bandwidth = devices * hardware.bandwidth * share.bandwidth
    prompt_flops = devices * hardware.peak_flops * share.prompt_flops
    train_flops = devices * hardware.peak_flops * share.train_flops
    attention = 4 * model.layers * model.attention_width
    trained = share.trained_bytes * model.parameters / max(gang, devices)
    moved_s = min(trained, hardware.memory_bytes * share.memory) / share.host_bytes
    asleep_s = model.weight_bytes / devices / share.host_bytes
    return Rates(
        launch_s=2 * model.layers * share.all_reduce_s if devices > 1 else 0.0,
        weights_s=model.weight_bytes / bandwidth,
        active_share=model.active / model.parameters,
        row_s=2 * model.active / prompt_flops,
        context_s=model.kv_bytes / bandwidth,
        prompt_s=2 * model.active / prompt_flops,
        prompt_context_s=attention / prompt_flops,
        train_s=6 * model.active / train_flops,
        train_context_s=3 * attention / train_flops,
        load_s=model.weight_bytes / (devices * share.load_bytes),
        leave_s=moved_s,
        take_s=moved_s,
        sleep_s=asleep_s,
        wake_s=asleep_s,
        rows=rows,
        kv_tokens=free / model.kv_bytes,
    )
