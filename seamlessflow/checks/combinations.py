"""Check of settings that are right one by one, but useless or impossible together.

Each process's settings have such rules too. They are checked here before the process starts.
"""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ValidationError

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.each_policy import each_policy, each_served, sections_path
from seamlessflow.infra.faults import Fault, faults
from seamlessflow.infra.settings import ENV_PREFIX, KafkaSettings, ProcessSettings, from_environment
from seamlessflow.infra.variables import misspelt, place_in
from seamlessflow.infra.worker.tags import CHEAP, EXACT
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.gateway.settings import GatewaySettings
from seamlessflow.producers.rollout.settings import RolloutSettings
from seamlessflow.recorded.judging.settings import RewardWorkerSettings
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.scheduler.tasks.check import may_have_sizes
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.unread import unread

_SETTINGS: dict[str, type[ProcessSettings]] = {
    "seamlessflow.consumers.trajectories": ManagerSettings,
    "seamlessflow.producers.agents": AgentsSettings,
    "seamlessflow.producers.gateway": GatewaySettings,
    "seamlessflow.producers.rollout": RolloutSettings,
    "seamlessflow.recorded.fork": AgentsSettings,
    "seamlessflow.recorded.judging": RewardWorkerSettings,
    "seamlessflow.scheduler": SchedulerSettings,
    "seamlessflow.trainer": TrainerSettings,
    "seamlessflow.trainer.ranks": TrainerSettings,
}

_TRAINED = ("train_truncated", "train_inexact")


def faults_of_processes(config: RunConfig, trainers: bool) -> Iterator[Fault]:
    """Yield the faults that a run's processes, with or without trainers, would find; each once."""
    made = ProcessSpecs(config, LaunchContext(config.kafka or KafkaSettings(), 1, {}))
    agents = [] if config.opened_outside else [made.agents()]
    for spec in (made.gateway(), made.manager(), made.scheduler(), *made.reward_workers(), *agents):
        yield from _refused(spec)
    places = {worker.id: number for number, worker in enumerate(config.workers)}
    for policy_config in each_served(config):
        yield from dict.fromkeys(_of_workers(policy_config, places, trainers))


def truncation_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each setting that trains log-probs which no trainer computes.

    Turns that top-p or top-k cut are trained only with an engine whose log-probs fit. vLLM's
    log-probs are relative to the tokens kept: `producers/rollout/roles/device.py` would refuse them
    later.
    """
    policy = config.policy
    cut = [f"policy.top_p is {policy.top_p:g}"] if policy.top_p < 1 else []
    cut += [f"policy.top_k is {policy.top_k}"] if policy.top_k > 0 else []
    if config.rollout.engine != "vllm" or not cut:
        return
    for name in _TRAINED:
        if getattr(policy, name):
            text = f"{' and '.join(cut)}, and vLLM reports log-probs among the tokens kept only"
            remedy = "set top_p: 1 and top_k: 0, rollout.engine: torch, or this to false"
            yield Fault(("policy", name), f"{text}, which no trainer computes: {remedy}")


def update_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for an update mode that would do the same as `together`.

    Without lag no worker may stay behind, so all load new weights at once.
    """
    mode = config.rollout.update.mode
    if config.run.lag == 0 and mode != "together":
        text = f"{mode} has no effect with run.lag 0: each worker loads new weights at once"
        yield Fault(("rollout", "update", "mode"), f"{text}; set run.lag to 1 or more, or together")


def group_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if every group has one session but the advantage compares a group's sessions.

    Tasks and forks may have groups with their own size.
    """
    pacing = config.pacing
    trainer = config.trainer
    files = [pacing.tasks, *(source.tasks for source in pacing.sources.values())]
    alone = config.run.group_size == 1 and trainer.compares_sessions
    if not alone or pacing.forks or config.opened_outside:
        return
    if not any(may_have_sizes(path) for path in files if path is not None):
        text = f"advantage {trainer.advantage} compares the sessions of a group, and of one alone"
        remedy = "nothing would be learned: set 2 or more, or another trainer.advantage"
        yield Fault(("run", "group_size"), f"{text} {remedy}")


def live_fork_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each setting that live forks exclude."""
    if not config.pacing.forks_live:
        return
    if config.agents.forks == "none":
        text = "pacing.forks_live needs an agent that can go on from an ended session"
        yield Fault(("agents", "forks"), f"{text}: set middle or playback, or forks_live to 0")
    for policy_config in each_policy(config):
        if policy_config.trainer.advantage == "gdpo":
            text = "gdpo compares each named reward, and of an ended session only the return is"
            remedy = "set another trainer.advantage, or pacing.forks_live to 0"
            path = (*sections_path(policy_config), "trainer", "advantage")
            yield Fault(path, f"{text} recorded with its forks: {remedy}")


def exploration_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield the faults of a run that explores on cheap workers and samples again on exact ones."""
    sampler = config.pacing.sampler
    if not sampler.explores:
        return
    name = ("pacing", "sampler", "name")
    if config.policies:
        yield Fault(name, "explore is for one policy: leave out policies")
    if config.pacing.terms.name is not None:
        yield Fault(("pacing", "terms", "name"), "explore sets the samples of its groups itself")
    if config.pacing.redundancy:
        text = "explore trains exactly the sessions that it chose: set 0"
        yield Fault(("pacing", "redundancy"), text)
    if config.pacing.forks_live:
        text = "explore trains what exact workers sample from the beginning: set 0"
        yield Fault(("pacing", "forks_live"), text)
    trained = sampler.best + sampler.worst
    if sampler.samples < trained:
        text = f"fewer than the {trained} of best and worst, so all would be sampled again"
        yield Fault(("pacing", "sampler", "samples"), text)
    if config.run.group_size != trained:
        text = f"explore trains pacing.sampler.best + worst sessions of a group: set {trained}"
        yield Fault(("run", "group_size"), text)
    yield from _exploring_workers(config)


def _exploring_workers(config: RunConfig) -> Iterator[Fault]:
    for number, worker in enumerate(config.workers):
        if {CHEAP, EXACT} <= {*worker.tags}:
            text = f"{worker.id} has the tags {CHEAP} and {EXACT}: what {CHEAP} ones sample is "
            yield Fault(("workers", number, "tags"), text + "never trained")
    rolling_out = [worker for worker in config.workers if _rolls_out(worker, config)]
    for tag in (CHEAP, EXACT):
        if not any(tag in worker.tags for worker in rolling_out):
            text = f"pacing.sampler.name is explore, and no worker with the tag {tag} rolls out"
            by = f"under scheduler.policy {config.scheduler.policy}"
            yield Fault(("workers",), f"{text} {by}: give one the tags rollout and {tag}")


def _rolls_out(worker: WorkerSection, config: RunConfig) -> bool:
    """Return whether the run's strategy lets a worker roll out."""
    strategy = config.scheduler.policy
    if strategy == "colocated":
        return {"rollout", "train"} <= {*worker.tags}
    # All workers of a run that can train are its gang, which then trains for good.
    for_good = strategy == "disaggregated"
    return "rollout" in worker.tags and not (for_good and "train" in worker.tags)


def service_faults(config: RunConfig, trainers: bool) -> Iterator[Fault]:
    """Yield why no worker would roll out; without `trainers` the run's strategy does not count."""
    if not any("rollout" in worker.tags for worker in config.workers):
        yield Fault(("workers",), "no worker can roll out: none has the tag rollout")
        return
    # With its own Kafka, the run may have workers on other machines, each with its own file.
    elsewhere = config.kafka is not None and len(config.nodes) < 2
    rolling_out = any(_rolls_out(worker, config) for worker in config.workers)
    if trainers and not elsewhere and not rolling_out:
        strategy = config.scheduler.policy
        remedy = "both tags" if strategy == "colocated" else "the tag rollout alone"
        text = f"no worker rolls out under scheduler.policy {strategy}: give one {remedy}"
        yield Fault(("workers",), text)


def unread_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each algorithm setting that was set and has no effect.

    No policy's trainer reads it: for example, it belongs to another surrogate or estimator. The
    run's settings count for each policy that has them, a further policy's only for itself.
    """
    trainers = {
        policy_config.run.policy: policy_config.trainer for policy_config in each_policy(config)
    }
    for path, text in unread(config.trainer, tuple(trainers.values())):
        yield Fault(("trainer", *path), text)
    for name in config.trained[1:]:
        for path, text in unread(config.policies[name].trainer, (trainers[name],)):
            yield Fault(("policies", name, "trainer", *path), text)


def _of_workers(config: RunConfig, places: Mapping[str, int], trainers: bool) -> Iterator[Fault]:
    """Yield faults in the processes that a policy's workers run.

    A worker's own variables win over all settings. `places`: worker numbers in the configuration.
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
        # Not `kind(**values)`, which would read this process's environment, too.
        BaseModel.__init__(kind.__new__(kind), **values)
    except ValidationError as error:
        yield from faults(error, kind)
