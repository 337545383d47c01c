"""Task sets from verifiers (`verifiers.v1`): an episode is a rollout, with all its rewards.

A rollout's programs reach the policy through a relay in the package. The relay adds the session's
key to their calls, so that no program sees it.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClient
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.runtimes import provision_runtime, runtime_is_local, subprocess
from verifiers.v1.utils.loaders import default_harness_id


class Environment:
    """A task set, and the agent that verifiers runs for each of its tasks."""

    def __init__(
        self, taskset: Any, select: Any = None, path: Any = (), **environment: Any
    ) -> None:
        """`taskset`: its `id` and settings. `select`: which of its tasks, in verifiers' words.
        `path`: folders with task sets' modules. `environment`: more of verifiers' own `env`.
        """
        sys.path[:0] = [str(Path(folder).absolute()) for folder in path]
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        os.environ.update(PYTHONPATH=os.pathsep.join(sys.path[: len(path)]), PATH=programs)
        config = _config(taskset, environment)
        self._policy = _policy(config)
        self._name = config.env_id
        self._environment = vf.load_environment(config)
        self._tasks = self._environment.taskset.select(vf.SelectConfig(**(select or {})))
        if not self._tasks.bounded:
            raise ValueError(f"{self._name} has tasks without end: set `select: {{limit: 1000}}`")
        self._by_key: dict[str, Any] = {}
        self._keys: dict[str, str] = {}
        self._serving = self._environment.serving()

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield each task by its key, which follows from its content or is the task set's own."""
        for task in self._tasks:
            yield {"id": task.key, "metadata": {"taskset": self._name}}

    async def warm_up(self) -> None:
        """Read the tasks, install each agent's program and start the rollouts' servers."""
        subprocess.CACHE_DIR = Path(tempfile.gettempdir())  # gets a folder for each rollout
        self._by_key = {task.key: task for task in self._tasks}
        for name, agent in self._environment._agent_specs.items():
            async with provision_runtime(agent.runtime) as runtime:
                await self._environment._harnesses[name].setup(runtime)
        await self._serving.__aenter__()

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Run the rollout. Raises `RuntimeError` if it failed or was not scored."""
        if (chosen := self._by_key.get(task["id"])) is None:
            raise LookupError(f"{self._name} no longer has the task {task['id']}")
        context = vf.ModelContext(model=session.model, client=self._client(session.base_url))
        traces: list[Any] = []

        def begin(trace: Any) -> None:
            if trace.agent.name == self._policy:
                traces.append(trace)
                if len(traces) > 1:
                    raise ValueError(f"{self._policy} begins again, but an episode has one session")
                self._keys[trace.id] = session.api_key

        try:
            episode = await self._environment.run_episode(chosen, context, on_trace=begin)
        finally:
            for trace in traces[:1]:
                del self._keys[trace.id]
        return _result(episode, traces)

    async def close(self) -> None:
        """End the rollouts' servers."""
        await self._serving.__aexit__(None, None, None)

    def _client(self, base_url: str) -> Any:
        """Return settings that name the relay's client; make it once, for all sessions."""

        async def sign(request: Any) -> None:
            key = self._keys[request.headers["x-session-id"]]
            request.headers["authorization"] = f"Bearer {key}"

        config = vf.EvalClientConfig(base_url=base_url, api_key_var="KEY_OF_NO_SESSION")
        name = config.model_dump_json()
        clients = self._environment._interception.clients
        if name not in clients:
            clients[name] = EvalClient(config)
            clients[name].client.event_hooks = {"request": [sign]}
        return config


def _config(taskset: dict[str, Any], environment: dict[str, Any]) -> Any:
    """Return verifiers' settings. By default programs run on this host, and the policy gets no
    shell.
    """
    here: dict[str, Any] = {"runtime": {"type": "subprocess"}}
    if default_harness_id(taskset["id"]) == "bash":
        here["harness"] = {"id": "null"}
    for name in agent_config_fields(vf.env_config_type(taskset["id"], environment.get("id", ""))()):
        environment[name] = here | environment.get(name, {})
    return vf.resolve_env_config(
        environment | {"taskset": taskset, "interception": {"type": "server"}}
    )


def _policy(config: Any) -> str:
    """Return the name of the agent that is the policy. Raises `ValueError` for refused settings."""
    agents = agent_config_fields(config)
    for name, agent in {"env": config, **agents}.items():
        if agent.retries.max_retries or agent.retries.rules:
            raise ValueError(f"{name}.retries is refused: a run tries failed samples again itself")
        if name in agents and not runtime_is_local(agent.runtime):
            raise ValueError(f"{name}.runtime {agent.runtime.type} is refused: it is not this host")
    policies = [str(name) for name, agent in agents.items() if agent.client is None]
    if len(policies) != 1:
        raise ValueError(f"{policies} cannot all be the policy: set `client` and `model` of others")
    return policies[0]


def _result(episode: Any, traces: list[Any]) -> dict[str, Any]:
    """Return the policy's rewards and metrics by name, and the sum of its rewards as `reward`."""
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    unscored = ("setup_timeout", "finalize_timeout", "scoring_timeout")
    if not episode.ok or traces[0].stop_condition in unscored or not traces[0].rewards:
        reasons = [f"{error.type}: {error.message}" for error in errors]
        failed: Any = RuntimeError("; ".join(reasons) or f"not scored: {traces[0].stop_condition}")
        failed.status_code = next((error.status_code for error in errors if error.status_code), 0)
        raise failed
    [trace] = traces
    named = {name: reward.value for name, reward in trace.rewards.items()}
    named |= {name: value for name, value in trace.metrics.items() if value is not None}
    named.pop("reward", None)  # the sum has this name
    cut = trace.is_truncated or trace.stop_condition == "agent_timeout" or trace.calls[-1].error
    return {"reward": trace.reward, "rewards": named, "status": "truncated" if cut else "complete"}
