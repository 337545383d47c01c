"""Check of what each process demands of its settings together, before it is started."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ValidationError

from seamlessflow.config import RunConfig
from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.faults import Fault, faults
from seamlessflow.infra.settings import ENV_PREFIX, KafkaSettings, ProcessSettings, from_environment
from seamlessflow.infra.variables import misspelt, place_in
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.gateway.settings import GatewaySettings
from seamlessflow.producers.rollout.settings import RolloutSettings
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.trainer.settings import TrainerSettings

_SETTINGS: dict[str, type[ProcessSettings]] = {
    "seamlessflow.consumers.trajectories": ManagerSettings,
    "seamlessflow.producers.agents": AgentsSettings,
    "seamlessflow.producers.gateway": GatewaySettings,
    "seamlessflow.producers.rollout": RolloutSettings,
    "seamlessflow.scheduler": SchedulerSettings,
    "seamlessflow.trainer": TrainerSettings,
    "seamlessflow.trainer.ranks": TrainerSettings,
}


def faults_of_processes(config: RunConfig, trainers: bool) -> Iterator[Fault]:
    """Yield what the processes of a run, with or without trainers, would refuse; each once."""
    made = ProcessSpecs(config, LaunchContext(config.kafka or KafkaSettings(), 1, {}))
    agents = [] if config.opened_outside else [made.agents()]
    for spec in (made.gateway(), made.manager(), made.scheduler(), *agents):
        yield from _refused(spec)
    places = {worker.id: number for number, worker in enumerate(config.workers)}
    for policy_config in each_policy(config):
        yield from dict.fromkeys(_of_workers(policy_config, places, trainers))


def _of_workers(config: RunConfig, places: Mapping[str, int], trainers: bool) -> Iterator[Fault]:
    """Yield faults of the processes of a policy's workers, whose own variables win over all
    settings. `places`: their numbers in the configuration.
    """
    made = ProcessSpecs(config, LaunchContext(config.kafka or KafkaSettings(), 1, {}))
    for worker in config.workers:
        specs = [made.rollout(worker)] if "rollout" in worker.tags else []
        specs += [made.training(worker)] if trainers and "train" in worker.tags else []
        setting = ("workers", places[worker.id], "environment")
        for line in misspelt(worker.environment, ENV_PREFIX):
            yield Fault(setting, line.strip())
        for spec in specs:
            for fault in _refused(spec):
                place = place_in(worker.environment, fault.path)
                yield fault._replace(path=(*setting, *place)) if place else fault


def _refused(spec: ChildSpec) -> Iterator[Fault]:
    kind = _SETTINGS[spec.module]
    values, wrong = from_environment(kind, spec.environment)
    for name, text in wrong.items():
        yield Fault(tuple(name.upper().removeprefix(ENV_PREFIX).lower().split("__")), text)
    try:
        # Not `kind(**values)`, which would read the environment of this process, too.
        BaseModel.__init__(kind.__new__(kind), **values)
    except ValidationError as error:
        yield from faults(error, kind)
