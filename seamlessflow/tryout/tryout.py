"""Tryout of an environment: its tasks are listed, and episodes played against a scripted policy.

The user needs no Kafka, no model and no GPU for it. `report.py` judges what it gathers. Called by
`seamlessflow environments doctor`.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.processes.stopping import Stop
from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.listing import write_tasks
from seamlessflow.producers.agents.environments.venvs import (
    environment_spec,
    other_versions,
    python_facts,
)
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.scheduler.settings import RunSection
from seamlessflow.scheduler.tasks.file import TasksRejected
from seamlessflow.scheduler.tasks.file import read as read_tasks
from seamlessflow.scheduler.tasks.source import TaskRow
from seamlessflow.schemas.json_text import read_json
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.tryout.facts import PackageFacts, TaskFacts, Tryout
from seamlessflow.tryout.playing import episode_facts, play
from seamlessflow.tryout.policy import TEXTS
from seamlessflow.tryout.system import tryout_system
from seamlessflow.tryout.worker import WORKER

_POLICY = "policy"
_MAX_CONTEXT = 131_072
ShowLine = Callable[[str], object]


@dataclass(frozen=True)
class TryoutPlan:
    """An environment to try, and how."""

    agents: AgentsSection
    out: Path
    """Directory for logs and data."""
    config: RunConfig | None = None
    """Run whose policy, rewards and manager are taken; None: a small policy, and one reward."""
    episodes: int = 1
    texts: Sequence[str] = TEXTS
    """The policy's words, in turn."""


def try_out(plan: TryoutPlan, stop: Stop, show: ShowLine) -> Tryout:
    """Return what was seen. `show` gets lines about the progress.

    Raises `EnvironmentUnusable`, and the processes' errors.
    """
    agents = plan.agents.model_copy(update={"rewards": _needed_rewards(plan)})
    spec = environment_spec(agents, os.environ, plan.out / "logs" / "environment.log")
    spec = replace(spec, any_roles=not spec.roles)
    package = _package(spec)
    before = set(os.listdir())
    show(f"listing the tasks of {spec.name}")
    rows, tasks = _listed(spec, plan, show)
    if not rows:
        return Tryout(package, tasks, 0.0, (), (), ())
    show("starting Kafka, gateway, manager and a worker with a scripted policy")
    with tryout_system(_config(plan), stop, show) as system:
        show(f"playing {len(rows)} episodes" if len(rows) > 1 else "playing an episode")
        played = play(system, agents, spec, rows, plan.texts)
        episodes = episode_facts(system, played)
    written = tuple(sorted(set(os.listdir()) - before))
    return Tryout(package, tasks, played.warm_up_s, episodes, played.left_at_end, written)


def _needed_rewards(plan: TryoutPlan) -> tuple[str, ...]:
    """Return the names of the rewards that a session needs from the environment."""
    if plan.config is None:
        return plan.agents.rewards
    judges = plan.config.rewards.judges
    return tuple(name for name in plan.config.trainer.reward_weights if name not in judges)


def _config(plan: TryoutPlan) -> RunConfig:
    """Return the configuration for the tryout's processes."""
    config = RunConfig() if plan.config is None else plan.config
    policy = config.policy
    if plan.config is None:
        model = plan.out / "model"
        make_tokenizer(model)
        renderer = replace(RENDERER, thinking_retention="all")
        policy = PolicySection(model=model, renderer=renderer, max_context=_MAX_CONTEXT)
    gateway = config.gateway.model_copy(
        update={"host": HOST, "public_url": None, "admin_key": None, "api_keys": {}}
    )
    return RunConfig(
        out=plan.out,
        workers=(WorkerSection(id=WORKER),),
        policy=policy,
        run=RunSection(id="tryout", policy=config.run.policy if plan.config else _POLICY),
        manager=config.manager,
        gateway=gateway,
        start_timeout_s=config.start_timeout_s,
    )


def _package(spec: EnvironmentSpec) -> PackageFacts:
    """Return a package's facts. Raises `EnvironmentUnusable` if its Python does not run."""
    package = KNOWN.get(spec.name)
    facts = python_facts(spec.python, package)
    others = "" if package is None else other_versions(package, facts.packages)
    return PackageFacts(spec.name, facts.packages, str(spec.python), facts.version, others)


def _listed(
    spec: EnvironmentSpec, plan: TryoutPlan, show: ShowLine
) -> tuple[Sequence[TaskRow], TaskFacts]:
    """Return the tasks to play, and facts about all tasks, read as a run reads them."""
    file = plan.out / "tasks.jsonl"
    begun_s = time.monotonic()
    count = asyncio.run(write_tasks(spec, file, lambda number: show(f"{number:,} tasks listed")))
    seconds = time.monotonic() - begun_s
    try:
        source = read_tasks(file)
    except TasksRejected as error:
        return (), TaskFacts(count, seconds, f"task {error.line}: {error.reason}")
    names: set[str] = set()
    drawn = 0
    with file.open("rb") as lines:
        for line in lines:
            task = read_json(line)
            names |= (task.get("metadata") or {}).keys()
            drawn += "drawn_from" in task
    facts = TaskFacts(count, seconds, "", tuple(sorted(names)), drawn == count)
    return source.rows[: plan.episodes], facts
