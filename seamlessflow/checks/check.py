"""Check before a run's first process starts: all faults that show without a process.

Imports neither torch nor transformers. The callables are imported meanwhile in a separate process,
since their authors' libraries may take long.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seamlessflow.checks import devices, packages
from seamlessflow.checks.callables import (
    Importing,
    named_callables,
    tried_callables,
    unnamed_strategy_faults,
)
from seamlessflow.checks.combinations import (
    exploration_faults,
    faults_of_processes,
    group_faults,
    live_fork_faults,
    service_faults,
    truncation_faults,
    unread_faults,
    update_faults,
)
from seamlessflow.checks.models import model_faults, side_model_faults, trained_model_faults
from seamlessflow.checks.policies import (
    frozen_faults,
    judging_faults,
    league_faults,
    one_session_faults,
    policy_faults,
    role_faults,
)
from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.each_policy import (
    each_frozen,
    each_policy,
    sections_path,
    several_policies_faults,
    sharing_faults,
)
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.network.addresses import HOST, is_free, no_own_host
from seamlessflow.infra.network.storages import local_path
from seamlessflow.infra.variables import SettingPath
from seamlessflow.inspection.model_directory import (
    incomplete,
    unrenderable,
)
from seamlessflow.machine import available_bytes, this_machine
from seamlessflow.memory.faults import free_memory_faults, memory_faults
from seamlessflow.nodes import elsewhere_faults, name_faults, spread_faults
from seamlessflow.processes.ranks import gang_faults
from seamlessflow.read_paths import link_nowhere, unreachable
from seamlessflow.scheduler.settings import EvaluationSection, PacingSection
from seamlessflow.scheduler.tasks.check import fork_faults, task_faults
from seamlessflow.scheduler.tasks.prepared.places import is_plain
from seamlessflow.seams.seams import method_functions


def before_training(config: RunConfig) -> Iterator[Fault]:
    """Yield all faults of a training that runs on this machine only."""
    yield from elsewhere_faults(config)
    yield from _training(config, config)


def before_node(config: RunConfig, name: str) -> Iterator[Fault]:
    """Yield all faults of a training with this machine as the node `name`."""
    named = list(name_faults(config, name))
    yield from named
    yield from spread_faults(config)
    if named:
        return
    here = config.model_copy(update={"workers": config.nodes[name]})
    if name == config.head:
        yield from _training(config, here)
        return
    for policy_config in each_policy(config):
        yield from gang_faults(policy_config)
        yield from trained_model_faults(policy_config)
    yield from unread_faults(config)
    yield from packages.training_faults(config)
    yield from faults_of_processes(config, True)
    yield from _machine_faults(config, here.workers)
    yield from _writable(config)
    yield from model_faults(("policy", "model"), config.policy.model, config)


def _training(config: RunConfig, here: RunConfig) -> Iterator[Fault]:
    """Yield a training's faults; `here` has only this machine's workers."""
    with Importing(named_callables(config), config.start_timeout_s) as importing:
        for policy_config in each_policy(config):
            yield from policy_faults(policy_config, config)
            yield from group_faults(policy_config)
        for policy_config in each_frozen(config):
            yield from frozen_faults(policy_config, config)
        yield from league_faults(config)
        yield from role_faults(config)
        yield from sharing_faults(config)
        yield from exploration_faults(config)
        yield from unnamed_strategy_faults(config)
        yield from (
            _service_faults(config) if config.opened_outside else pacing_faults(config.pacing)
        )
        yield from _evaluation_faults(config.evaluation, config.evaluation.files)
        yield from update_faults(config)
        yield from live_fork_faults(config)
        yield from unread_faults(config)
        yield from packages.training_faults(config)
        yield from _shared(config, trainers=True, here=here)
        yield from model_faults(("policy", "model"), config.policy.model, config)
        yield from importing.faults()


def pacing_faults(pacing: PacingSection) -> Iterator[Fault]:
    """Yield each training file's first fault; two files must not share a task's id.

    A service is not checked, since others open its sessions.
    """
    if not pacing.issues:
        yield Fault(("pacing", "tasks"), "no file of tasks is named")
    seen: dict[str, str] = {}
    if pacing.tasks is not None:
        yield from task_faults(("pacing", "tasks"), pacing.tasks, seen)
    for name, source in sorted(pacing.sources.items()):
        yield from task_faults(("pacing", "sources", name, "tasks"), source.tasks, seen)
    if pacing.forks is not None:
        yield from fork_faults(("pacing", "forks"), pacing.forks, seen)


def _evaluation_faults(evaluation: EvaluationSection, files: Mapping[str, Path]) -> Iterator[Fault]:
    """Yield each file's first fault, by the names of the evaluation sets."""
    for name, path in files.items():
        setting = ("sets", name, "tasks") if name in evaluation.sets else ("tasks",)
        yield from task_faults(("evaluation", *setting), path)


def _service_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if no client could open a service's sessions."""
    if config.gateway.admin_key is None and config.secret_invented:
        text = "neither tasks nor an agent is named, so others open the sessions, with this key"
        remedy = "set it, or name pacing.tasks and agents.callable or agents.command"
        yield Fault(("gateway", "admin_key"), f"{text}: {remedy}")


def before_evaluation(
    config: RunConfig, weights: Path, tasks: Path | None, chosen: str | None = None
) -> Iterator[Fault]:
    """Yield all faults of evaluating a directory's weights, on `tasks` or the configuration's.

    `chosen` is one of the configuration's sets, None stands for all.
    """
    with Importing(named_callables(config), config.start_timeout_s) as importing:
        yield from several_policies_faults(config, "an evaluation without training")
        yield from one_session_faults(config, "an evaluation without training")
        files = config.evaluation.files
        if tasks is not None and not is_plain(str(tasks)):
            text = "takes a file of JSON lines; name other forms in the section evaluation"
            yield Fault(("tasks",), f"{tasks}: {text}")
        elif tasks is not None:
            yield from task_faults(("tasks",), tasks)
        elif not files:
            text = "no file of tasks is named, here or with --tasks"
            yield Fault(("evaluation", "tasks"), text)
        if chosen is not None and (tasks is not None or chosen not in files):
            sets = ", ".join(files) if tasks is None else "the tasks of --tasks alone"
            yield Fault(("set",), f"there is no evaluation set {chosen!r}, but {sets or 'none'}")
        elif tasks is None:
            named = files if chosen is None else {chosen: files[chosen]}
            yield from _evaluation_faults(config.evaluation, named)
        yield from elsewhere_faults(config)
        yield from packages.rollout_faults(config)
        yield from _shared(config, trainers=False)
        initial = weights == config.policy.model
        yield from model_faults(("policy", "model") if initial else ("weights",), weights, config)
        yield from importing.faults()


def before_recorded_training(config: RunConfig) -> Iterator[Fault]:
    """Yield all faults of a training on recorded sessions, which needs no tasks and no agent."""
    functions = tried_callables(method_functions(config))
    if not functions:  # no process is started for nothing
        yield from _recorded_training(config)
        return
    with Importing(functions, config.start_timeout_s) as importing:
        yield from _recorded_training(config)
        yield from importing.faults()


def _recorded_training(config: RunConfig) -> Iterator[Fault]:
    yield from several_policies_faults(config, "a training on recorded sessions")
    yield from elsewhere_faults(config)
    if not any("train" in worker.tags for worker in config.workers):
        yield Fault(("workers",), "no worker can train: none has the tag train")
    yield from gang_faults(config)
    yield from side_model_faults(config)
    yield from trained_model_faults(config)
    yield from unread_faults(config)
    yield from devices.modelled_faults(config)
    yield from devices.divided_faults(config)
    yield from _host_faults(config, gateway=False, trainers=True)
    yield from packages.training_faults(config)
    yield from _machine_faults(config, config.workers)
    yield from _writable(config)
    yield from model_faults(("policy", "model"), config.policy.model, config)


def before_fine_tuning(config: RunConfig) -> Iterator[Fault]:
    """Yield all faults of a supervised fine-tuning, which computes in one process."""
    yield from several_policies_faults(config, "supervised fine-tuning")
    if config.trainer.backend != "torch":
        yield Fault(("trainer", "backend"), "supervised fine-tuning knows torch alone")
    yield from packages.training_faults(config)
    yield from _writable(config)
    if reason := incomplete(config.policy.model, with_weights=True):
        yield Fault(("policy", "model"), reason)
    elif reason := unrenderable(config.policy.model, config.policy.renderer):
        yield Fault(("policy", "renderer"), reason)


def before_demo(config: RunConfig) -> Iterator[Fault]:
    """Yield the faults of a demo, which makes its own model and tasks."""
    yield from packages.training_faults(config)
    yield from _shared(config, trainers=True)


def before_real_demo(config: RunConfig) -> Iterator[Fault]:
    """Yield the faults of a demo that makes its tasks, and has its model from elsewhere."""
    yield from before_demo(config)
    yield from model_faults(("policy", "model"), config.policy.model, config)
    # A stranger's machine is often in use; out of memory, a run would end in the middle.
    yield from free_memory_faults(config, this_machine(), available_bytes())


def _shared(config: RunConfig, trainers: bool, here: RunConfig | None = None) -> Iterator[Fault]:
    yield from service_faults(config, trainers)
    yield from faults_of_processes(config, trainers)
    yield from truncation_faults(config)
    yield from devices.modelled_faults(config)
    yield from devices.divided_faults(config)
    yield from judging_faults(config)
    yield from _machine_faults(config, (here or config).workers)
    commands: dict[SettingPath, Sequence[str]] = {("agents", "command"): config.agents.command}
    for name, judge in config.rewards.judges.items():
        commands["rewards", "judges", name, "command"] = judge.command
    for path, command in commands.items():
        if command and shutil.which(command[0]) is None:
            yield Fault(path, f"there is no program {command[0]}")
    wrong_hosts = list(_host_faults(config, gateway=True, trainers=trainers))
    yield from wrong_hosts
    gateway = config.gateway
    set_port = "port" in gateway.model_fields_set and not wrong_hosts
    if set_port and not is_free(gateway.port, gateway.host):
        yield Fault(("gateway", "port"), f"{gateway.port} is taken by another program")
    yield from _writable(config)


def _host_faults(config: RunConfig, gateway: bool, trainers: bool) -> Iterator[Fault]:
    """Yield a fault for each host on which this machine's processes must listen but cannot.

    A trainer's host is checked only if the run has one node: then it is surely on this machine.
    """
    hosts: dict[SettingPath, str] = {("telemetry", "metrics_host"): config.telemetry.metrics_host}
    if gateway:
        hosts["gateway", "host"] = config.gateway.host or HOST
    if trainers and len(config.nodes) < 2:
        for policy_config in each_policy(config):
            hosts[(*sections_path(policy_config), "trainer", "host")] = policy_config.trainer.host
    for setting, host in hosts.items():
        if reason := no_own_host(host):
            yield Fault(setting, f"{host} {reason}")


def _machine_faults(config: RunConfig, here: Sequence[WorkerSection]) -> Iterator[Fault]:
    """Yield device and memory faults for the workers `here`, which are on this machine."""
    machine = this_machine()
    faults = list(devices.device_faults(config, machine.gpus, here))
    yield from faults
    if not faults:
        yield from memory_faults(config, machine, here)


def _writable(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each directory that this machine must write to but cannot.

    The trainer's directories are checked only if the run has one node: then it surely runs here.
    """
    yield from _unwritable(("out",), config.out)
    if config.weights.cache_dir is not None:
        yield from _unwritable(("weights", "cache_dir"), config.weights.cache_dir)
    if len(config.nodes) < 2:
        url = config.weights.url
        if url and (sent := local_path(url)) is not None:
            yield from _unwritable(("weights", "url"), sent)
        for name in ("weights_dir", "checkpoints_dir", "trained_dir"):
            if (directory := getattr(config.trainer, name)) is not None:
                yield from _unwritable(("trainer", name), directory)


def _unwritable(setting: SettingPath, directory: Path) -> Iterator[Fault]:
    path = directory.absolute()
    if why := unreachable(str(directory)):
        yield Fault(setting, f"{directory}: {why}")
        return
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name that is too long, or none
        reason = getattr(error, "strerror", None) or error
        yield Fault(setting, f"{str(directory)!r} cannot be a directory: {reason}")
        return
    if (link := link_nowhere(path)) is not None:
        yield Fault(setting, f"{link} is a link that leads nowhere")
        return
    existing = next(place for place in (path, *path.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        yield Fault(setting, f"nothing can be written to {existing}")
