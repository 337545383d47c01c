"""Settings for the trainer and for training processes. Importable without torch or Kafka."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from seamlessflow.infra.device_model.presets import hardware_named
from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.infra.settings import (
    ProcessSettings,
    Section,
    SharedEvaluationSection,
    SharedPacingSection,
    SharedRunSection,
)
from seamlessflow.infra.user_functions import (
    OrUserFunction,
    UserFunctionName,
    is_user_function,
    refuse_unnamed,
)
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.worker.tags import WorkerTags
from seamlessflow.trainer.credit import COMPARED, Chaining, CreditSettings, FilterAction
from seamlessflow.trainer.loss import LossSection
from seamlessflow.trainer.parallelism import ComputingSettings, MegatronSection
from seamlessflow.trainer.policy import AdapterSettings, PolicySection
from seamlessflow.trainer.sinks import SinkSettings
from seamlessflow.trainer.stored import ReplaySection, ReuseSection

FilterName = Literal["zero_variance", "untrainable", "spread"]
MaskName = Literal["high_entropy_turns"]


class OptimizerSection(Section):
    """AdamW and its learning rate."""

    lr: float = Field(1e-6, gt=0, description="Learning rate")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="How the learning rate falls to min_lr, which it reaches after the last step",
    )
    warmup_steps: int = Field(
        0, ge=0, description="Steps in which the rate rises linearly from zero"
    )
    min_lr: float = Field(0.0, ge=0, description="Learning rate that the schedule falls to")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay for the mean gradient")
    beta2: float = Field(0.95, ge=0, lt=1, description="Decay for the mean squared gradient")
    eps: float = Field(1e-8, gt=0, description="Added to the root of the mean square")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay")
    clip_norm: float = Field(
        1.0, gt=0, description="Largest gradient norm; beyond it, gradients are scaled"
    )


class TrainerSection(AdapterSettings, CreditSettings, ComputingSettings, SinkSettings):
    """The training settings, for the trainer and for training processes."""

    worker: str = Field(
        "worker-0", min_length=1, description="The worker's id, also in rollout on its device"
    )
    tags: WorkerTags = Field(
        ("train",),
        min_length=1,
        description="Roles the worker can take, over all its processes, and tags that describe it",
    )
    hardware: dict[str, float] = Field(
        default_factory=dict,
        description="Facts about each device, for the scheduler: peak_flops, bandwidth (bytes a "
        "second), memory (bytes); none with clock: as in device_model",
    )
    host: str = Field(
        "127.0.0.1",
        description="Address on which this process waits: the trainer for its gang's first rank, "
        "and that rank for the others",
    )
    devices: tuple[int, ...] = Field(
        (), description="Not torch: numbers of the worker's devices, a rank each; none: only device"
    )
    backend: Literal["torch", "fsdp2", "megatron", "clock"] = Field(
        "torch",
        description="torch: one device; fsdp2: the model sharded over all ranks; megatron: as its "
        "section says; clock: nothing is computed, a step takes its time on device_model",
    )
    megatron: MegatronSection = Field(default_factory=MegatronSection)
    rank: int = Field(
        0, ge=0, description="Not torch: rank of the worker's first device; the trainer calls 0"
    )
    ranks: int = Field(
        1, ge=1, description="Not torch: devices in the whole gang, over all workers"
    )
    filters: dict[OrUserFunction[FilterName], FilterAction] = Field(
        {"zero_variance": "count", "untrainable": "drop"},
        description="Rules that keep groups out of the loss, each with its action; your own "
        "module:function may be one. count: the group still fills its place in the batch; drop: "
        "another takes it (see trainer/data/filters.py)",
    )
    functions: dict[UserFunctionName, dict[str, JsonValue]] = Field(
        {},
        description="Settings for your own functions in trainer.advantage, trainer.filters, "
        "trainer.selection, trainer.pairs and trainer.replay: their keyword arguments, by "
        "module:function",
    )
    masks: dict[OrUserFunction[MaskName], dict[str, JsonValue]] = Field(
        {},
        description="Masks by what the policy computed, each with its settings: "
        "high_entropy_turns: {keep: 0.8} (see trainer/data/turn_masks.py), or your own "
        "module:function",
    )
    chains: Chaining = Field(
        "merged",
        description="merged: a chain trains all completions in its branch; per_request: each "
        "completion is a chain after its own prompt, and a sequence in the loss means",
    )
    on_stale: Literal["mask", "correct", "drop", "wait"] = Field(
        "mask",
        description="What happens to tokens staler than max_staleness (see "
        "trainer/data/staleness.py)",
    )
    max_staleness: int | None = Field(
        None,
        ge=0,
        description="Largest staleness for a trained token, in optimizer steps; none: run.lag",
    )
    reuse: ReuseSection = Field(default_factory=ReuseSection)
    replay: ReplaySection = Field(default_factory=ReplaySection)
    loss: LossSection = Field(default_factory=LossSection)
    optimizer: OptimizerSection = Field(default_factory=OptimizerSection)
    mini_batches: int = Field(
        1, ge=1, description="Parts of a batch, each with whole groups and its own update"
    )
    epochs: int = Field(1, ge=1, description="How many times a step trains its batch")
    seed: int = Field(0, ge=0, description="Seed for all random numbers in the trainer")
    checkpoint_every: int = Field(10, ge=1, description="Steps between two full checkpoints")
    checkpoints_kept: int = Field(2, ge=1, description="Full checkpoints that stay on disk")
    versions_kept: int = Field(4, ge=3, description="Weight versions that stay on disk")
    source_prefix: str | None = Field(
        None, description="Prefix of the recorded sessions to train; none: the run's live sessions"
    )
    follow: bool = Field(
        False, description="At the end of recorded sessions, wait for more, up to run.steps"
    )
    train_foreign: bool = Field(False, description="Whether to train imported tokens")
    window: int | None = Field(
        None,
        ge=1,
        description="When this many groups are ready, no more sessions are read; none: lag + 4 "
        "batches, and extra_groups",
    )
    mismatch_versions: int = Field(
        2, ge=0, description="Earlier versions kept in memory to compare engine and trainer"
    )
    mismatch_memory_mb: int = Field(512, ge=0, description="Most memory for these versions, in MiB")
    mismatch_tokens: int = Field(
        2048, ge=0, description="Most tokens compared per step, under the weights that sampled them"
    )
    mismatch_alarm: float = Field(
        0.05,
        gt=0,
        description="Mean difference between the engine's and the trainer's log-probs that is an "
        "alarm",
    )
    explain_after: int = Field(
        5, ge=1, description="Steps without any gradient after which the reasons are reported"
    )
    most_barren_steps: int = Field(
        5,
        ge=1,
        description="Steps in a row with every token masked, after which the run ends in an error",
    )
    weights_dir: Path | None = Field(None, description="Published weights; none: DATA_DIR/weights")
    trained_dir: Path | None = Field(
        None, description="Record with every trained token; none: DATA_DIR/trained"
    )
    checkpoints_dir: Path | None = Field(
        None, description="Full checkpoints; none: DATA_DIR/checkpoints"
    )
    heartbeat_s: float = Field(1, gt=0, description="Seconds between two heartbeats")
    usage_s: float = Field(3, gt=0, description="Seconds between two records on activity")

    @model_validator(mode="after")
    def _computes(self) -> Self:
        if self.master_dtype == "bfloat16" and self.compute != "bfloat16":
            raise ValueError(f"master_dtype bfloat16 needs dtype bfloat16, not {self.compute}")
        if self.backend == "megatron":
            self.megatron.check(self)
        return self

    @model_validator(mode="after")
    def _names_functions(self) -> Self:
        settings = "trainer.advantage, filters, selection.name, pairs.name or replay.name"
        # A mixer chooses only on the trainer's host, so `user_functions` leaves it out.
        names = (*self._named_methods, self.replay.name or "")
        refuse_unnamed(self.functions, names, settings)
        return self

    @model_validator(mode="after")
    def _corrects(self) -> Self:
        # Its gradient has no ratio, so nothing would tell how far the weights moved.
        bare = self.loss.chosen_surrogate == "policy_gradient"
        if bare and self.loss.chosen_correction == "none":
            if self.updates > 1:
                raise ValueError(
                    "several updates of a step move the policy away from the one that sampled, "
                    "which loss.surrogate policy_gradient without a correction does not see: set "
                    "loss.correction, another surrogate, or mini_batches 1 and epochs 1"
                )
            if self.reuse.groups or self.replay.name:
                raise ValueError(
                    "reuse and replay train tokens of a policy that has moved away since, which "
                    "loss.surrogate policy_gradient without a correction does not see: set "
                    "loss.correction, another surrogate, or reuse.groups 0 and no replay.name"
                )
        return self

    @model_validator(mode="after")
    def _replays(self) -> Self:
        if self.replay.name and self.reuse.groups:
            raise ValueError(
                "replay and reuse both choose what is trained again: leave reuse.groups 0, and "
                "give replay the pool own"
            )
        return self

    @model_validator(mode="after")
    def _renews(self) -> Self:
        if self.reference_every and not self.reference_used:
            raise ValueError("reference_every renews what no loss compares with: set loss.kl")
        if self.reference_every and self.adapter.used:
            raise ValueError(
                "reference_every makes the reference the policy, and an adapter is only a part of "
                "it: leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _imitates(self) -> Self:
        if self.loss.chosen_surrogate != "cloning":
            return self
        without_effect = {
            "advantage distill": self.advantage == "distill",
            "advantage habc": self.advantage == "habc",
            "returns.entropy_scale": self.returns.entropy_scale > 0,
            "returns.hybrid_scale": self.returns.hybrid_scale > 0,
            # A critic learns from it all the same.
            "kl_penalty": self.kl_penalty > 0 and not self.critic_used,
        }
        for name, is_set in without_effect.items():
            if is_set:
                raise ValueError(
                    f"{name} makes advantages, and loss.surrogate cloning trains each token "
                    "whatever its advantage: set another surrogate, or leave it out"
                )
        return self

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if not self.loss.of_pairs:
            return self
        if self.updates > 1:
            raise ValueError(
                f"loss.surrogate {self.loss.chosen_surrogate} compares sessions under the weights "
                "before the step, which several updates leave: set mini_batches 1 and epochs 1"
            )
        unused = {
            f"advantage {self.advantage}": self.advantage != "grpo",
            "returns.entropy_scale": self.returns.entropy_scale > 0,
            "returns.hybrid_scale": self.returns.hybrid_scale > 0,
        }
        for name, is_set in unused.items():
            if is_set:
                raise ValueError(
                    f"{name} makes advantages, and loss.surrogate {self.loss.chosen_surrogate} "
                    "trains pairs of sessions: set another surrogate, or leave it out"
                )
        if self.opponents and self.adapter.used:
            raise ValueError(
                "pairs.opponents are whole models, and an adapter is only a part of one: set "
                "pairs.reference_share 1, or leave the adapter out"
            )
        return self

    @property
    def opponents(self) -> int:
        """Return how many earlier policies the loss compares with."""
        compared = self.loss.chosen_surrogate == "pairs_squared" and self.pairs.reference_share < 1
        return self.pairs.opponents.most if compared else 0

    @property
    def user_functions(self) -> list[str]:
        """Return the names of the user's own functions that shape a step."""
        names = (*self._named_methods, *self.masks, *self.loss.user_functions.values())
        return sorted({name for name in names if is_user_function(name)})

    @property
    def _named_methods(self) -> tuple[str, ...]:
        return (self.advantage, *self.filters, self.selection.name or "", self.pairs.name)

    @property
    def compares_sessions(self) -> bool:
        """Return whether sessions are compared, so that one session in a group teaches nothing."""
        return self.advantage in COMPARED and self.loss.chosen_surrogate != "cloning"

    @property
    def by_parts(self) -> bool:
        """Return whether each rank loads and holds only its part of a model."""
        return self.backend in ("fsdp2", "megatron")

    @property
    def updates(self) -> int:
        """Return how many optimizer updates a step has, if no part of its batch is empty."""
        return self.mini_batches * self.epochs

    @property
    def reference_used(self) -> bool:
        """Return whether the reference's log-probs are needed."""
        return self.kl_penalty > 0 or self.loss.kl > 0 or self.loss.of_pairs


class TrainerSettings(ProcessSettings):
    """All settings for `python -m seamlessflow.trainer`."""

    run: SharedRunSection = Field(default_factory=SharedRunSection)
    pacing: SharedPacingSection = Field(default_factory=SharedPacingSection)
    evaluation: SharedEvaluationSection = Field(default_factory=SharedEvaluationSection)
    policy: PolicySection = Field(default_factory=PolicySection)
    trainer: TrainerSection = Field(default_factory=TrainerSection)
    device_model: DeviceModelSection = Field(default_factory=DeviceModelSection)
    weights: WeightsSection = Field(default_factory=WeightsSection)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        window = self.trainer.window
        if window is not None and window < self.run.groups_per_step:
            raise ValueError("trainer.window must not be smaller than run.groups_per_step")
        if self.trainer.mini_batches > self.run.groups_per_step:
            raise ValueError("trainer.mini_batches must not exceed run.groups_per_step")
        devices = max(1, len(self.trainer.devices))
        if self.trainer.rank + devices > self.trainer.ranks:
            last = self.trainer.rank + devices - 1
            raise ValueError(f"trainer.ranks must exceed {last}, the last rank of this worker")
        if self.trainer.ranks > 1 and self.trainer.backend == "torch":
            raise ValueError("trainer.ranks > 1 needs backend fsdp2 or megatron (or clock)")
        if "train" not in self.trainer.tags:
            raise ValueError("trainer.tags must name train")
        return self

    @property
    def weights_dir(self) -> Path:
        return self.trainer.weights_dir or self.data_dir / "weights"

    @property
    def trained_dir(self) -> Path:
        return self.trainer.trained_dir or self.data_dir / "trained"

    @property
    def checkpoints_dir(self) -> Path:
        return self.trainer.checkpoints_dir or self.data_dir / "checkpoints"

    @property
    def metrics_csv(self) -> Path:
        return self.trainer.metrics_csv or self.data_dir / "metrics.csv"

    @property
    def run_name(self) -> str:
        """Return the run's name at experiment trackers."""
        if self.trainer.run_name is not None:
            return self.trainer.run_name
        name = self.data_dir.absolute().name
        return f"{name}-{self.run.policy}" if len(self.run.all_policies) > 1 else name

    @property
    def hardware(self) -> Mapping[str, float]:
        """Return each device's facts for the scheduler."""
        if self.trainer.backend != "clock" or self.trainer.hardware:
            return self.trainer.hardware
        return hardware_named(self.device_model.hardware).figures

    @property
    def window(self) -> int:
        """Return how many groups may be ready before the trainer reads no more sessions."""
        batches = (self.run.lag + 4) * self.run.groups_per_step
        return self.trainer.window or batches + self.pacing.extra_count(self.run.groups_per_step)

    @property
    def max_staleness(self) -> int:
        """Return a trained token's largest staleness, in optimizer steps."""
        limit = self.trainer.max_staleness
        return self.run.lag if limit is None else limit
