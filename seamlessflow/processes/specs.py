"""From a run configuration to the processes that make the run: pure.

The environment of a process is this one's without any `SEAMLESSFLOW_*`, and its own settings, one
variable a section as JSON. What the launcher decides (ports, keys, ids) stands in `Places`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr

from infra.settings import ENV_PREFIX, KafkaSettings
from producers.gateway.calls.keys import derived_admin_key
from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.processes.child import ChildSpec

AGENTS = "agents"
GATEWAY = "gateway"
MANAGER = "manager"
SCHEDULER = "scheduler"
_GENEROUS_STOP_S = 30.0
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Places:
    """What is found out when the run starts."""

    kafka: KafkaSettings
    gateway_port: int
    environment: Mapping[str, str]
    """This process's own environment."""


class Children:
    """The processes of a configuration."""

    def __init__(self, config: RunConfig, places: Places) -> None:
        self._config = config
        self._places = places

    @property
    def gateway_url(self) -> str:
        """Where the gateway listens."""
        return f"http://127.0.0.1:{self._places.gateway_port}"

    def gateway(self) -> ChildSpec:
        """The gateway."""
        section = _updated(
            self._config.gateway,
            port=self._places.gateway_port,
            models=(self._config.run.policy,),
            policy=self._config.run.policy,
        )
        return self._child(GATEWAY, "producers.gateway", gateway=section)

    def manager(self) -> ChildSpec:
        """The trajectory manager."""
        return self._child(MANAGER, "consumers.trajectories", manager=self._config.manager)

    def rollouts(self) -> list[ChildSpec]:
        """A rollout process of every worker that can roll out."""
        return [self._rollout(w) for w in self._config.workers if "rollout" in w.tags]

    def trainers(self) -> list[ChildSpec]:
        """A trainer process of every worker that can train."""
        return [self._trainer(w) for w in self._config.workers if "train" in w.tags]

    def scheduler(self) -> ChildSpec:
        """The scheduler of the training."""
        config = self._config
        return self._child(
            SCHEDULER,
            "scheduler",
            run=config.run,
            finite=True,
            scheduler=config.scheduler,
            pacing=config.pacing,
            evaluation=config.evaluation,
        )

    def scheduler_without_tasks(self) -> ChildSpec:
        """A scheduler that gives roles, but neither tasks nor an end: for measuring."""
        config = self._config
        return self._child(
            SCHEDULER,
            "scheduler",
            run=_updated(config.run, steps=config.run.steps + 1),
            scheduler=config.scheduler,
        )

    def agents(self) -> ChildSpec:
        """The agents."""
        gateway = self._config.gateway
        key = gateway.admin_key or SecretStr(derived_admin_key(gateway.secret.get_secret_value()))
        section = _updated(self._config.agents, gateway_url=self.gateway_url, admin_key=key)
        stop_s = section.drain_s + _GENEROUS_STOP_S
        return self._child(AGENTS, "producers.agents", stop_s=stop_s, agents=section)

    def _rollout(self, worker: WorkerSection) -> ChildSpec:
        template = self._config.rollout
        torch = template.torch
        if worker.device is not None:
            torch = _updated(torch, device=worker.device)
        section = _updated(
            template,
            worker=worker.id,
            tags=worker.tags,
            policy=self._config.run.policy,
            torch=torch,
        )
        environment = {**_visible(template.engine, worker.device), **worker.environment}
        return self._child(
            f"rollout-{worker.id}", "producers.rollout", environment, rollout=section
        )

    def _trainer(self, worker: WorkerSection) -> ChildSpec:
        section = _updated(self._config.trainer, worker=worker.id, tags=worker.tags)
        if worker.device is not None:
            section = _updated(section, device=worker.device)
        return self._child(
            f"trainer-{worker.id}",
            "trainer",
            worker.environment,
            stop_s=_GENEROUS_STOP_S,
            finite=True,
            run=self._config.run,
            pacing=self._config.pacing,
            policy=self._config.policy,
            trainer=section,
        )

    def _child(
        self,
        name: str,
        module: str,
        environment: Mapping[str, str] | None = None,
        stop_s: float = 15.0,
        finite: bool = False,
        **sections: BaseModel,
    ) -> ChildSpec:
        shared = {"kafka": self._places.kafka, "telemetry": self._config.telemetry}
        settings = {
            f"{ENV_PREFIX}{section.upper()}": as_json(model)
            for section, model in {**shared, **sections}.items()
        }
        return ChildSpec(
            name=name,
            module=module,
            environment={
                **without_settings(self._places.environment),
                **settings,
                f"{ENV_PREFIX}DATA_DIR": str(self._config.out),
                **(environment or {}),
            },
            stop_s=stop_s,
            finite=finite,
        )


def _visible(engine: str, device: str | None) -> Mapping[str, str]:
    """vLLM takes the GPUs that it sees, so it is shown the worker's own."""
    kind, _, number = (device or "").partition(":")
    return (
        {"CUDA_VISIBLE_DEVICES": number} if engine == "vllm" and kind == "cuda" and number else {}
    )


def without_settings(environment: Mapping[str, str]) -> Mapping[str, str]:
    """An environment without any of this system's settings."""
    return {name: text for name, text in environment.items() if not name.startswith(ENV_PREFIX)}


def as_json(model: BaseModel) -> str:
    """A settings section as the value of its environment variable, secrets in clear."""
    return json.dumps(model.model_dump(mode="python"), default=_plain, sort_keys=True)


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _updated(section: M, **values: Any) -> M:
    return section.model_copy(update=values)
