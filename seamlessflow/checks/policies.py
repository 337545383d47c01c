"""Checks for each policy in a run: its workers, its model, and the run that it goes on.

A trained policy needs a gang, and a frozen one needs workers that serve it. A resumed run must have
the model that it began with. If episodes have roles, each policy plays one.
"""

from collections.abc import Iterator
from pathlib import Path

from seamlessflow.checks.models import (
    apart_on_vllm,
    model_faults,
    side_model_faults,
    trained_model_faults,
)
from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy, sections_path
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.variables import SettingPath
from seamlessflow.infra.weights.adapter import CONFIG
from seamlessflow.infra.weights.manifest import WeightsInvalid, other_file, present
from seamlessflow.processes.ranks import gang_faults
from seamlessflow.read_paths import link_nowhere
from seamlessflow.scheduler.tasks.check import other_role
from seamlessflow.trainer.recovery.resume import other_model

_ROLES = ("agents", "roles")


def policy_faults(config: RunConfig, whole: RunConfig) -> Iterator[Fault]:
    """Yield a trained policy's faults; `config` has its own workers, `whole` has all workers."""
    run = config.run
    owner = f" of {run.policy}" if run.policies else ""
    if not any("train" in worker.tags for worker in config.workers):
        yield Fault(("workers",), f"no worker{owner} can train: none has the tag train")
    yield from gang_faults(config)
    yield from side_model_faults(config)
    yield from trained_model_faults(config)
    if run.policy != run.all_policies[0]:
        yield from _further_faults(config, whole)
    yield from _resume_faults(config)


def frozen_faults(config: RunConfig, whole: RunConfig) -> Iterator[Fault]:
    """Yield a frozen policy's faults, from the same arguments as `policy_faults`."""
    name = config.run.policy
    setting = ("policies", name, "frozen")
    yield from _service_faults(config, whole, setting)
    shared = any(worker.shared for worker in whole.workers)
    if shared and (text := apart_on_vllm(config, whole)):
        yield Fault(setting, text)
    if config.run.frozen[name] is not None:
        if config.weights.url is not None:
            text = "shows versions of a directory that all hosts see, and not those of a storage"
            yield Fault(setting, f"{text}: leave out weights.url")
        return
    directory = config.policy.model
    if (directory / CONFIG).is_file():
        yield Fault(setting, f"{directory} is an adapter: name a whole model, merged with its base")
        return
    faults = list(model_faults(setting, directory, config))
    yield from faults
    if not faults and (reason := _other_directory(directory, config.weights_dir)):
        yield Fault(setting, f"{directory}: {reason}")


def league_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if groups play against past versions, but not exactly one policy shows any."""
    if config.pacing.terms.name != "league":
        return
    if config.pacing.forks_live:
        text = "groups that go on from ended sessions would play against any version: leave it out"
        yield Fault(("pacing", "forks_live"), f"{text}, or pacing.terms.name league")
    showing = [name for name, past in config.frozen.items() if past is not None]
    if len(showing) == 1:
        return
    text = f"policies {', '.join(showing)} show past versions" if showing else "no policy shows any"
    remedy = "league plays against those of one: set policies.NAME.frozen.of for one name"
    yield Fault(("pacing", "terms", "name"), f"{text}: {remedy}")


def role_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield the faults of a training whose episodes have several roles."""
    if not config.agents.roles:
        return
    yield from _role_agent_faults(config)
    if config.run.policy not in config.agents.roles.values():
        yield Fault(_ROLES, f"no role is played by {config.run.policy}")
    yield from _credit_faults(config)
    yield from _task_faults(config)
    for path, text in _others(config):
        yield Fault(path, f"is of episodes with one session, and agents.roles names roles: {text}")
    if config.evaluation.files:
        section = "sets" if config.evaluation.sets else "tasks"
        text = "an evaluation has one session an episode, and agents.roles names roles"
        yield Fault(("evaluation", section), f"{text}: leave it out")


def _role_agent_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield the faults of an agent that gets several sessions."""
    agents = config.agents
    if agents.command:
        text = "a program has one session, and agents.roles names roles: name agents.callable"
        yield Fault(("agents", "command"), f"{text} or agents.environment")
    if agents.reward:
        text = "a judge gets the result of one session: return each role's rewards from the agent"
        yield Fault(("agents", "reward"), f"{text}, or name rewards.judges")
    if agents.modules:
        text = "each role has a session of one policy: leave it out, or agents.roles"
        yield Fault(("agents", "modules"), text)


def one_session_faults(config: RunConfig, what: str) -> Iterator[Fault]:
    """Yield a fault if episodes have several roles: `what` has only one session in an episode."""
    if config.agents.roles:
        yield Fault(_ROLES, f"{what} has one session an episode: leave the roles out")


def judging_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each judge that is a policy whose weights may change."""
    for judge, section in config.rewards.judges.items():
        name = "" if section.model is None else section.model.policy
        if name and (reason := _no_judge(config, name)):
            path = ("rewards", "judges", judge, "model", "policy")
            remedy = "name one with policies.NAME.frozen: DIRECTORY"
            yield Fault(path, f"{name} {reason}: {remedy}")


def _no_judge(config: RunConfig, name: str) -> str:
    """Return why a policy cannot judge; empty if it can."""
    if name in config.trained:
        return "is trained, and a judge stays as it is"
    if name not in config.frozen:
        return "is no policy of the run"
    past = config.frozen[name]
    return (
        "" if past is None else f"shows past versions of {past.policy}, and a judge stays as it is"
    )


def _further_faults(config: RunConfig, whole: RunConfig) -> Iterator[Fault]:
    name = config.run.policy
    model = ("policies", name, "policy", "model")
    yield from _service_faults(config, whole, model)
    shared = any(worker.shared for worker in whole.workers)
    if shared and (text := apart_on_vllm(config, whole)):
        yield Fault(("policies", name, "trainer", "adapter"), text)
    yield from model_faults(model, config.policy.model, config)


def _service_faults(config: RunConfig, whole: RunConfig, model: SettingPath) -> Iterator[Fault]:
    """Yield a fault if no worker can serve a further policy, or if no module or role uses it.

    `model` is the setting that names its model.
    """
    name = config.run.policy
    shared = any(worker.shared for worker in whole.workers)
    if not shared and not any("rollout" in worker.tags for worker in config.workers):
        text = f"no worker of {name} can roll out: none has the tag rollout"
        yield Fault(("workers",), text)
    if shared and not _alike(config.policy.model, whole.policy.model):
        text = "shared workers need models of one form: its config.json is not that of policy.model"
        yield Fault(model, text)
    agents = config.agents
    judging = config.rewards.policies
    if agents.roles and name not in {*agents.roles.values(), *judging}:
        yield Fault(_ROLES, f"no role is played by {name}")
    if not agents.roles and name not in {*agents.modules.values(), *judging}:
        yield Fault(("agents", "modules"), f"no module is answered by {name}")


def _alike(first: Path, other: Path) -> bool:
    """Return False if both models have a configuration, but not the same."""
    files = [model / "config.json" for model in (first, other)]
    return (
        not all(file.is_file() for file in files) or files[0].read_bytes() == files[1].read_bytes()
    )


def _resume_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if the run began with another model; its trainer would find that late."""
    model = config.policy.model
    if link_nowhere(config.weights_dir.absolute()):
        return  # another check reports it
    if reason := other_model(model, config.weights_dir.resolve()):
        yield Fault((*sections_path(config), "policy", "model"), f"{model}: {reason}")


def _other_directory(directory: Path, weights_dir: Path) -> str:
    """Return why a run cannot go on with a frozen model; empty if it began with the same files."""
    if link_nowhere(weights_dir.absolute()):
        return ""  # another check reports it
    try:
        before = present(weights_dir.resolve())
        file = "" if before is None else other_file(directory, before.path)
    except WeightsInvalid as error:
        return str(error)
    if not file:
        return ""
    text = f"its {file} is not that of the model that this run began with"
    return f"{text}: name that one, or begin another run (out)"


def _task_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if a task file names a role that the run lacks: the first one in each file."""
    files: dict[SettingPath, Path | None] = {("pacing", "tasks"): config.pacing.tasks}
    for name, source in config.pacing.sources.items():
        files["pacing", "sources", name, "tasks"] = source.tasks
    roles = config.agents.roles
    for path, file in files.items():
        if file is not None and (strange := other_role(file, roles)):
            names = ", ".join(roles)
            yield Fault(path, f"{strange} is no role of agents.roles: {names}")


def _credit_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each policy whose batches cannot hold whole episodes only."""
    for policy_config in each_policy(config):
        name = policy_config.run.policy
        count = list(config.agents.roles.values()).count(name)
        groups = policy_config.run.groups_per_step
        if count and groups % count:
            text = f"{name} plays {count} roles, so its groups come by {count}, and {groups} is no"
            yield Fault(("run", "groups_per_step"), f"{text} multiple of that")


def _others(config: RunConfig) -> Iterator[tuple[SettingPath, str]]:
    """Yield each pacing setting that works only with one session in an episode, and the remedy."""
    pacing = config.pacing
    if pacing.redundancy:
        yield ("pacing", "redundancy"), "set 0"
    if pacing.forks_live:
        yield ("pacing", "forks_live"), "set 0"
    if pacing.forks is not None:
        yield ("pacing", "forks"), "leave it out"
    if pacing.sampler.explores:
        yield ("pacing", "sampler", "name"), "name another one"
