"""Specifications for a run's processes, made from its configuration. Pure.

A process gets the command line's environment without any `SEAMLESSFLOW_*`. Its own settings are
added: one variable for each section, as JSON.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.each_policy import each_policy, each_served
from seamlessflow.infra.device_model.model_shape import positions_of
from seamlessflow.infra.network.addresses import address_of, reached_here
from seamlessflow.infra.settings import ENV_PREFIX, KafkaSettings
from seamlessflow.infra.worker.control_rule import SharedRolloutSection
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.ranks import first_ranks, gang_size, trains
from seamlessflow.producers.gateway.calls.keys import derived_admin_key
from seamlessflow.producers.rollout.settings import HostedWorkerSection
from seamlessflow.scheduler.settings import RunSection, SchedulerSection
from seamlessflow.trainer.settings import TrainerSection

AGENTS = "agents"
GATEWAY = "gateway"
MANAGER = "manager"
REWARDS = "rewards"
"""Prefix of reward workers' names, before a dash and a number."""
SCHEDULER = "scheduler"
TRAINER = "trainer"
_LONG_STOP_S = 30.0
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class LaunchContext:
    """Facts that are known only when the run starts."""

    kafka: KafkaSettings
    gateway_port: int
    environment: Mapping[str, str] = field(repr=False)
    """The command line's environment."""
    node: str | None = None
    """Node whose workers have processes here; None: all."""
    head: str = ""
    """Node for workers that name none."""
    launch: str = field(default_factory=lambda: token_hex(4))
    """This launch's name, which no other launch on the cluster has."""


class ProcessSpecs:
    """Specifications for all of a configuration's processes."""

    def __init__(self, config: RunConfig, context: LaunchContext) -> None:
        self._config = config
        self._context = context

    @property
    def gateway_url(self) -> str:
        """Address at which processes on the gateway's machine reach it."""
        host = reached_here(self._config.gateway.host)
        return f"http://{address_of(host, self._context.gateway_port)}"

    @property
    def _admin_key(self) -> SecretStr:
        gateway = self._config.gateway
        return gateway.admin_key or SecretStr(derived_admin_key(gateway.secret.get_secret_value()))

    def gateway(self) -> ChildSpec:
        """Return the gateway."""
        section = _updated(
            self._config.gateway,
            port=self._context.gateway_port,
            models=(self._config.run.policy,),
            policy=self._config.run.policy,
        )
        return self._child(GATEWAY, "seamlessflow.producers.gateway", gateway=section)

    def manager(self) -> ChildSpec:
        """Return the trajectory manager."""
        configured = self._config.manager
        # The same after a restart: the manager then ends the transaction that a kill left open.
        section = _updated(configured, slot=configured.slot or self._context.launch)
        control = SharedRolloutSection(control=self._config.rollout.control)
        return self._child(
            MANAGER,
            "seamlessflow.consumers.trajectories",
            manager=section,
            rollout=control,
            rewards=self._config.rewards.shared,
        )

    def reward_workers(self) -> list[ChildSpec]:
        """Return the reward workers; none if the run has no judges."""
        section = self._config.rewards
        if section.policies:
            section = _updated(section, gateway_url=self.gateway_url, admin_key=self._admin_key)
        return [
            self._child(f"{REWARDS}-{number}", "seamlessflow.recorded.judging", rewards=section)
            for number in range(section.workers if section.judges else 0)
        ]

    def rollouts(self) -> list[ChildSpec]:
        """Return the rollout processes for all workers that can roll out; most have one each."""
        served = [ProcessSpecs(config, self._context) for config in each_served(self._config)]
        return [spec for of_policy in served for spec in of_policy._rollouts_of_policy()]

    def trainers(self) -> list[ChildSpec]:
        """Return each trained policy's trainer, and a process for each worker that can train it.

        The trainer comes first, and runs on the first rank's machine.
        """
        trained = [ProcessSpecs(config, self._context) for config in each_policy(self._config)]
        return [spec for of_policy in trained for spec in of_policy._gang_of_policy()]

    @property
    def _further(self) -> bool:
        run = self._config.run
        return run.policy != run.all_policies[0]

    def _rollouts_of_policy(self) -> list[ChildSpec]:
        template = self._config.rollout
        most = template.clock.workers_a_process if template.engine == "clock" else 1
        able = [worker for worker in self._here(self._config.workers) if "rollout" in worker.tags]
        sharing = [worker for worker in able if not worker.environment] if most > 1 else []
        alone = [self.rollout(worker) for worker in able if worker not in sharing]
        shared = [sharing[first : first + most] for first in range(0, len(sharing), most)]
        return [*alone, *(self.rollout(first, others) for first, *others in shared)]

    def _gang_of_policy(self) -> list[ChildSpec]:
        ranks = first_ranks(self._config)
        here = self._here(trains(self._config))
        leads = [self.trainer()] if any(ranks[worker.id] == 0 for worker in here) else []
        return [*leads, *(self.training(worker) for worker in here)]

    def _here(self, workers: Iterable[WorkerSection]) -> list[WorkerSection]:
        # A policy's configuration has only its own workers: the head is the whole run's.
        node = self._context.node
        head = self._context.head
        return [worker for worker in workers if node is None or (worker.node or head) == node]

    def scheduler(self) -> ChildSpec:
        """Return the training's scheduler."""
        config = self._config
        return self._child(
            SCHEDULER,
            "seamlessflow.scheduler",
            run=_with_roles(each_policy(config)[0]),
            finite=True,
            scheduler=self._scheduling,
            pacing=config.pacing,
            evaluation=config.evaluation,
            rewards=config.rewards.shared,
        )

    def scheduler_without_tasks(self) -> ChildSpec:
        """Return a scheduler that assigns roles but issues no tasks, for evaluations."""
        config = self._config
        return self._child(
            SCHEDULER,
            "seamlessflow.scheduler",
            # One step more than the run has, or it would end with the last step.
            run=_updated(each_policy(config)[0].run, steps=config.run.steps + 1),
            scheduler=self._scheduling,
        )

    @property
    def _scheduling(self) -> SchedulerSection:
        config = self._config
        groups = {"manager_group": config.manager.group, "agents_group": config.agents.group}
        return _updated(config.scheduler, gang_size=gang_size(config), **groups)

    def agents(self) -> ChildSpec:
        """Return the agents process."""
        needed = dict.fromkeys(
            name
            for policy_config in each_policy(self._config)
            for name in policy_config.trainer.reward_weights
        )
        section = _updated(
            self._config.agents,
            gateway_url=self.gateway_url,
            admin_key=self._admin_key,
            rewards=tuple(name for name in needed if name not in self._config.rewards.judges),
        )
        stop_s = section.drain_s + _LONG_STOP_S
        pacing = self._config.pacing
        # Only the module that reads recorded sessions can copy their beginnings.
        room = "recorded.fork" if pacing.forks_live else "producers.agents"
        module = f"seamlessflow.{room}"
        return self._child(AGENTS, module, stop_s=stop_s, agents=section, pacing=pacing)

    def rollout(self, worker: WorkerSection, beside: Sequence[WorkerSection] = ()) -> ChildSpec:
        """Return the rollout process for a worker, and for the workers beside it."""
        template = self._config.rollout
        # One engine may serve all policies, in turns.
        longest = max(
            policy_config.policy.max_context for policy_config in each_served(self._config)
        )
        torch = _updated(template.torch, max_length=template.torch.max_length or longest)
        # vLLM does not start with more than the model's own limit, which is its default.
        fits = longest <= positions_of(self._config.policy.model)
        most = longest if fits else None
        vllm = _updated(template.vllm, max_length=template.vllm.max_length or most)
        if worker.device is not None:
            torch = _updated(torch, device=worker.device)
        section = _updated(
            template,
            worker=worker.id,
            tags=worker.tags,
            policy=self._config.run.policy,
            torch=torch,
            vllm=vllm,
            devices=worker.devices,
            hosted=tuple(
                HostedWorkerSection(worker=member.id, tags=member.tags, devices=member.devices)
                for member in beside
            ),
        )
        environment = {**_visible(template.engine, worker), **worker.environment}
        return self._child(
            f"rollout-{worker.id}",
            "seamlessflow.producers.rollout",
            environment,
            run=self._config.run,
            rollout=section,
            device_model=self._config.device_model,
            weights=self._config.weights,
        )

    def trainer(self) -> ChildSpec:
        """Return the trainer, which has no device."""
        # No training process can have this name: theirs end with a dash and a worker.
        name = f"{TRAINER}.{self._config.run.policy}" if self._further else TRAINER
        return self._training(name, "seamlessflow.trainer", {}, self._config.trainer)

    def training(self, worker: WorkerSection) -> ChildSpec:
        """Return a worker's training process."""
        section = _updated(
            self._config.trainer,
            worker=worker.id,
            tags=worker.tags,
            devices=worker.devices,
            rank=first_ranks(self._config)[worker.id],
        )
        if worker.device is not None:
            section = _updated(section, device=worker.device)
        name = f"{TRAINER}-{worker.id}"
        return self._training(name, "seamlessflow.trainer.ranks", worker.environment, section)

    def _training(
        self, name: str, module: str, environment: Mapping[str, str], section: TrainerSection
    ) -> ChildSpec:
        config = self._config
        return self._child(
            name,
            module,
            environment,
            stop_s=_LONG_STOP_S,
            finite=True,
            # Without one of them, the weights in the others' memory are useless.
            gang=f"trainers of {config.run.policy}" if self._further else "trainers",
            run=_with_roles(config),
            pacing=config.pacing,
            evaluation=config.evaluation,
            policy=config.policy,
            device_model=config.device_model,
            weights=config.weights,
            trainer=section,
        )

    def _child(
        self,
        name: str,
        module: str,
        environment: Mapping[str, str] | None = None,
        stop_s: float = 15.0,
        finite: bool = False,
        gang: str = "",
        **sections: BaseModel,
    ) -> ChildSpec:
        # One port cannot serve several processes: each takes a free one and writes its address.
        telemetry = _updated(self._config.telemetry, metrics_port=0)
        shared = {"kafka": self._context.kafka, "telemetry": telemetry}
        settings = {
            f"{ENV_PREFIX}{section.upper()}": as_json(model)
            for section, model in {**shared, **sections}.items()
        }
        return ChildSpec(
            name=name,
            module=module,
            environment={
                **without_settings(self._context.environment),
                **settings,
                f"{ENV_PREFIX}DATA_DIR": str(self._config.out),
                **(environment or {}),  # last: a worker's own variables win
            },
            stop_s=stop_s,
            finite=finite,
            supervised=True,
            gang=gang,
        )


def _visible(engine: str, worker: WorkerSection) -> Mapping[str, str]:
    """Return the variables that show vLLM only its worker's GPUs: it takes the first it sees."""
    kind, _, number = (worker.device or "").partition(":")
    named = ",".join(map(str, worker.devices)) or (number if kind == "cuda" else "")
    return {"CUDA_VISIBLE_DEVICES": named} if engine == "vllm" and kind != "cpu" and named else {}


def without_settings(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment without any settings of this project."""
    return {name: text for name, text in environment.items() if not name.startswith(ENV_PREFIX)}


def as_json(model: BaseModel) -> str:
    """Return a settings section as its environment variable's value, secrets in clear."""
    return json.dumps(model.model_dump(mode="python"), default=_plain, sort_keys=True)


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _with_roles(config: RunConfig) -> RunSection:
    """Return the run's section with the episodes' roles, which the agents' section has."""
    return _updated(config.run, roles=config.agents.roles)


def _updated(section: M, **values: Any) -> M:
    return section.model_copy(update=values)
