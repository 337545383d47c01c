"""A whole run's configuration; the settings of every process follow from it.

Its sections are the processes' settings, under the same names. For example, `run.lag` in the file
sets what `SEAMLESSFLOW_RUN__LAG` sets for the trainer process. Environment variables override the
file. Importable without torch, Kafka or renderers. `processes/specs.py` turns it into process
environments.
"""

import re
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.further_policy import FurtherPolicySection
from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.infra.settings import (
    ENV_PREFIX,
    KafkaSettings,
    PastSection,
    Section,
    TelemetrySettings,
)
from seamlessflow.infra.variables import refuse_truth
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.worker.tags import SHARED, WorkerTags
from seamlessflow.lab.simulation.settings import SimulationSection
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.producers.gateway.settings import GatewaySection
from seamlessflow.producers.rollout.settings import RolloutSection
from seamlessflow.recorded.judging.settings import RewardsSection
from seamlessflow.recorded.share.settings import ShareSection
from seamlessflow.scheduler.settings import (
    EvaluationSection,
    PacingSection,
    RunSection,
    SchedulerSection,
)
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection

_NODE_NAME = r"^[A-Za-z0-9_.-]*$"
"""Pattern for a node's name; an empty name stands for the head."""

_INVENTED = "invented."
"""Prefix of a secret that the configuration chose itself."""
_POLICY_NAME = re.compile(r"[A-Za-z0-9_-]+")


class WorkerSection(Section):
    """A worker: one machine's devices, with a rollout process, a training process, or both."""

    id: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$", description="The worker's id")
    tags: WorkerTags = Field(
        ("rollout",),
        min_length=1,
        description="Roles that the worker can take (rollout, train), and tags that describe it. "
        "Agents may ask for these: prefill, decode, reward, env, hw:NAME, precision:NAME, or "
        "others like them",
    )
    device: str | None = Field(
        None,
        description="Device for both its processes, such as cuda:1 or auto; if not set, as in "
        "rollout.torch and trainer",
    )
    devices: tuple[NonNegativeInt, ...] = Field(
        (),
        description="Numbers of its devices, if it has several: [0, 1, 2, 3]; device then names "
        "only their kind. A vLLM engine shares each pass among them; in a gang each is a rank",
    )
    policy: str = Field(
        "",
        description="With several policies, the one that it rolls out and trains; empty: "
        "run.policy",
    )
    node: str = Field(
        "", pattern=_NODE_NAME, description="Node (host) that it is on; empty: the gateway's node"
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="More environment variables for its processes, such as CUDA_VISIBLE_DEVICES",
    )

    @field_validator("devices")
    @classmethod
    def _each_once(cls, devices: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(devices)) < len(devices):
            raise ValueError("names a device twice")
        return devices

    @property
    def shared(self) -> bool:
        """True if it rolls out for whichever policy has most to do."""
        return SHARED in self.tags

    @property
    def device_count(self) -> int:
        """Device count."""
        return max(1, len(self.devices))


class BrokerSection(Section):
    """The embedded Kafka; not used if `kafka` names another."""

    heap_mb: int = Field(384, ge=128, description="Most memory for its Java heap, in MiB")


class RestartsSection(Section):
    """Restarts of processes that end by themselves, or that stand still."""

    most: int = Field(
        5,
        ge=0,
        description="Most restarts of a process in within_s; if it ends once more, the run ends. "
        "0: the run ends if any process ends by itself",
    )
    within_s: float = Field(
        600, gt=0, description="Period over which restarts are counted, in seconds"
    )
    pause_s: float = Field(
        1,
        ge=0,
        description="Seconds before the first restart; each further pause is twice as long",
    )
    longest_pause_s: float = Field(30, ge=0, description="Longest such pause, in seconds")
    frozen_s: float = Field(
        60,
        ge=0,
        description="Seconds without a sign of life after which a process is ended by force; 0: "
        "never, as for a debugger in an agent",
    )
    free_mb: float = Field(
        64,
        ge=0,
        description="MiB that must be free on the disk with a process's log before it is started "
        "again. Until then it waits, without a limit",
    )


class RunConfig(BaseSettings):
    """All settings that `seamlessflow train --config FILE` reads."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
    )

    out: Path = Field(
        Path(".seamlessflow/run"),
        description="Directory for everything that the run writes; a run in it is resumed",
    )
    workers: tuple[WorkerSection, ...] = Field(
        (WorkerSection(id="w0", tags=("rollout", "train")),),
        min_length=1,
        description="The workers, each on its node",
    )
    node: str = Field(
        "",
        pattern=_NODE_NAME,
        description="Node (host) for gateway, manager, scheduler and agents, and for workers that "
        "name none; empty: the first node that a worker names",
    )
    policy: PolicySection = Field(
        default_factory=PolicySection, description="The initial model and how it is sampled"
    )
    policies: dict[str, FurtherPolicySection] = Field(
        default_factory=dict,
        description="Further policies by name, each with its own workers (workers[].policy) and "
        "the modules that it answers (agents.modules); run.policy comes first",
    )
    run: RunSection = Field(
        default_factory=RunSection, description="How long and how large the training is"
    )
    pacing: PacingSection = Field(
        default_factory=PacingSection, description="The tasks, and when they are issued"
    )
    evaluation: EvaluationSection = Field(
        default_factory=EvaluationSection, description="Tasks that are only evaluated"
    )
    agents: AgentsSection = Field(
        default_factory=AgentsSection, description="The agent and its reward"
    )
    trainer: TrainerSection = Field(
        default_factory=TrainerSection, description="How the policy is trained"
    )
    rollout: RolloutSection = Field(
        default_factory=RolloutSection,
        description="How the policy is sampled; the same for all workers",
    )
    scheduler: SchedulerSection = Field(
        default_factory=SchedulerSection, description="How roles are assigned to workers"
    )
    rewards: RewardsSection = Field(
        default_factory=RewardsSection,
        description="Judges that reward sessions apart from their agents",
    )
    manager: ManagerSection = Field(
        default_factory=ManagerSection, description="The trajectory manager"
    )
    gateway: GatewaySection = Field(
        default_factory=lambda: GatewaySection(secret=_new_secret()),
        description="The gateway; a secret and a free port are chosen if they are not set",
    )
    weights: WeightsSection = Field(
        default_factory=WeightsSection,
        description="How published weights reach hosts that do not share a directory",
    )
    broker: BrokerSection = Field(default_factory=BrokerSection, description="The embedded Kafka")
    kafka: KafkaSettings | None = Field(
        None, description="Kafka to use; if not set, an embedded one with its data in OUT/kafka"
    )
    telemetry: TelemetrySettings = Field(
        default_factory=TelemetrySettings, description="Where traces and metrics go"
    )
    restarts: RestartsSection = Field(
        default_factory=RestartsSection,
        description="When a process that ended by itself, or hangs, is started again",
    )
    device_model: DeviceModelSection = Field(
        default_factory=DeviceModelSection,
        description="Modelled devices, for `seamlessflow simulate`, rollout.engine clock and "
        "trainer.backend clock",
    )
    simulation: SimulationSection = Field(
        default_factory=SimulationSection,
        description="The modelled cluster of `seamlessflow simulate`; no run reads it",
    )
    share: ShareSection = Field(
        default_factory=ShareSection,
        description="Groups that `seamlessflow share` gives to others and takes from them; no run "
        "reads it",
    )
    start_timeout_s: float = Field(
        180,
        gt=0,
        description="Seconds within which the embedded Kafka, then all processes, must be ready",
    )

    @field_validator("start_timeout_s", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return refuse_truth(value, float)

    @field_validator("gateway", mode="before")
    @classmethod
    def _with_secret(cls, value: object) -> object:
        # The default factory is not called for a section that names only a port, for example.
        return {"secret": _new_secret(), **value} if isinstance(value, dict) else value

    @field_validator("workers")
    @classmethod
    def _fit(cls, workers: tuple[WorkerSection, ...]) -> tuple[WorkerSection, ...]:
        counts = Counter(worker.id for worker in workers)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"two workers have the same id {twice[0]!r}")
        return workers

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read only passed values: `config_file.py` puts environment variables over the file."""
        return (init_settings,)

    @model_validator(mode="after")
    def _named_policies(self) -> Self:
        names = {self.run.policy, *self.policies}
        if self.run.policies:
            raise ValueError("run.policies is filled in from policies: leave it out")
        if wrong := [name for name in self.policies if not _POLICY_NAME.fullmatch(name)]:
            raise ValueError(f"policies: {wrong[0]!r} is no name of letters, digits, _ and -")
        if self.run.policy in self.policies:
            raise ValueError(f"policies: {self.run.policy!r} is run.policy, the first one")
        if self.run.frozen:
            raise ValueError("run.frozen is filled in from policies: leave it out")
        if self.run.roles:
            raise ValueError("run.roles is filled in from agents.roles: leave it out")
        for worker in self.workers:
            if worker.policy and worker.policy not in names:
                raise ValueError(f"workers: {worker.id} is of no policy {worker.policy!r}")
            if worker.shared and (not self.policies or "train" in worker.tags or worker.policy):
                text = "rolls out only, for several policies, and is of none: leave out policy"
                raise ValueError(f"workers: {worker.id} has the tag {SHARED}: it {text} and train")
        for module, name in self.agents.modules.items():
            if name not in names:
                raise ValueError(f"agents.modules: {module} is answered by no policy {name!r}")
        for role, name in self.agents.roles.items():
            if not _POLICY_NAME.fullmatch(role):
                raise ValueError(f"agents.roles: {role!r} is no name of letters, digits, _ and -")
            if name not in names:
                raise ValueError(f"agents.roles: {role} is played by no policy {name!r}")
        return self

    @model_validator(mode="after")
    def _frozen_policies(self) -> Self:
        for worker in self.workers:
            if worker.policy in self.frozen and "train" in worker.tags:
                text = f"{worker.policy} is frozen and not trained: leave out the tag train"
                raise ValueError(f"workers: {worker.id} cannot train, since {text}")
        for name, past in self.frozen.items():
            if past is not None and past.policy not in self.trained:
                text = f"{past.policy!r} is none of the policies that are trained"
                raise ValueError(f"policies.{name}.frozen.of: {text}: {', '.join(self.trained)}")
        return self

    @model_validator(mode="after")
    def _weighed_rewards(self) -> Self:
        others = (section.trainer for section in self.policies.values())
        sections = (trainer for trainer in others if "rewards" in trainer.model_fields_set)
        weighed = {name for trainer in (self.trainer, *sections) for name in trainer.reward_weights}
        if unweighed := [name for name in self.rewards.judges if name not in weighed]:
            text = f"trainer.rewards weighs no reward {unweighed[0]!r}: give it a weight there"
            raise ValueError(f"rewards.judges.{unweighed[0]}: {text}")
        if self.agents.timeout_reward and "reward" not in weighed - self.rewards.judges.keys():
            text = (
                "is the reward named reward, which trainer.rewards does not weigh, or a judge gives"
            )
            remedy = "leave it out, and such a session has 0 for each that is named"
            raise ValueError(f"agents.timeout_reward {text}: {remedy}")
        return self

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of the trained policies; `run.policy` comes first."""
        further = (name for name, section in self.policies.items() if section.frozen is None)
        return (self.run.policy, *further)

    @property
    def frozen(self) -> dict[str, PastSection | None]:
        """Frozen policies by name, each with the past versions that it shows, or None."""
        return {
            name: section.frozen if isinstance(section.frozen, PastSection) else None
            for name, section in self.policies.items()
            if section.frozen is not None
        }

    @property
    def head(self) -> str:
        """Node that hosts gateway, manager, scheduler and agents; empty if no node is named."""
        return self.node or next((worker.node for worker in self.workers if worker.node), "")

    @property
    def nodes(self) -> Mapping[str, tuple[WorkerSection, ...]]:
        """Workers by node name, the head first; the head may have no workers."""
        workers: dict[str, tuple[WorkerSection, ...]] = {self.head: ()}
        for worker in self.workers:
            name = worker.node or self.head
            workers[name] = (*workers.get(name, ()), worker)
        return workers

    @property
    def secret_invented(self) -> bool:
        """True if no gateway secret is set, so that each reading of the file chooses a new one."""
        return self.gateway.secret.get_secret_value().startswith(_INVENTED)

    @property
    def opened_outside(self) -> bool:
        """True for a service: it names no tasks and no agent, and others open its sessions."""
        agents = self.agents
        agent = agents.callable or agents.command or agents.environment
        return not (agent or self.pacing.issues or self.evaluation.files)

    @property
    def kafka_dir(self) -> Path:
        """Directory for the embedded Kafka's data."""
        return self.out / "kafka"

    @property
    def logs_dir(self) -> Path:
        """Directory for the log files of all processes."""
        return self.out / "logs"

    @property
    def weights_dir(self) -> Path:
        """Directory for published weights, one folder for each version."""
        return self.trainer.weights_dir or self.out / "weights"

    @property
    def trained_dir(self) -> Path:
        """Directory for the tokens that each step trained on."""
        return self.trainer.trained_dir or self.out / "trained"


def _new_secret() -> str:
    return _INVENTED + secrets.token_urlsafe(32)
