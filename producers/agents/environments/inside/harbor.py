"""Harbor task directories: a `Trial` runs an agent and the tests in the session's workplace.

A task that needs a container is refused by name, unless `container` names one of Harbor's own
environment types. Each call is made once.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its import would fetch prices

from harbor.agents.terminus_2 import Terminus2
from harbor.llms.base import ContextLengthExceededError
from harbor.llms.lite_llm import LiteLLM
from harbor.models.task.task import Task
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.errors import AgentTimeoutError
from harbor.trial.trial import Trial

from seamlessflow.producers.agents.environments.inside.harbor_place import (
    FOREVER_S,
    PLACE,
    SESSION,
    kept_errors,
    refusals,
    why_invalid,
)
from seamlessflow.producers.agents.environments.inside.host import our_sandbox

LiteLLM.call.retry.enabled = False  # their failures are counted by the run
Terminus2._query_llm.retry.enabled = False


class Environment:
    """Task directories below a folder."""

    def __init__(
        self,
        tasks: str = "",
        agent: str = "",
        agent_settings: Mapping[str, Any] | None = None,
        steps: int = 50,
        reward: str = "",
        container: str = "",
        trials: str = "",
        network: bool = False,
        prefixes: Sequence[str] = (),
        limits: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`agent`: MODULE:CLASS, by default Terminus 2. `steps`: its call limit. `reward`: the main
        reward's name. `trials`: folder that keeps what Harbor writes. `network`: commands may use
        it. `prefixes`, `limits`: as in `Session.workplace`. `options`: for each call.
        """
        self._tasks = tasks
        self._reward = reward
        self._trials = trials
        self._network = network
        self._container = container
        ours = {
            "steps": steps,
            "llm_kwargs": {"max_retries": 0, "timeout": FOREVER_S},
            "llm_call_kwargs": options,
            "record_terminal_session": False,
            "enable_summarize": False,  # these two, so that a session is a chain
            "interleaved_thinking": True,
        }
        self._agent = {
            "import_path": agent or f"{__name__}:Terminus",
            "kwargs": {**({} if agent else ours), **(agent_settings or {})},
            "override_timeout_sec": FOREVER_S,
        }
        place = {"network": network, "prefixes": list(prefixes), "limits": dict(limits or {})}
        self._place = {"type": container} if container else {"import_path": PLACE, "kwargs": place}
        isolation = our_sandbox("isolation")
        if not container and isolation.isolation_here() is not isolation.Isolation.BUBBLEWRAP:
            text = "tasks run in a workplace, which needs bubblewrap, and that does not work here"
            raise ValueError(f"{text}: install it, or name a container")
        if not (agent or container or shutil.which("tmux")):
            raise ValueError("the agent Terminus 2 needs tmux, which is not here")

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield each task directory. Raises `ValueError` with all tasks that cannot be run."""
        if not self._tasks:
            raise ValueError("harbor lists the tasks below a folder: name it in settings.tasks")
        made = [Task(file.parent) for file in sorted(Path(self._tasks).rglob("task.toml"))]
        if refused := "\n".join(filter(None, map(self._refused, made))):
            raise ValueError(f"tasks that cannot be run here:\n{refused}")
        for task in made:
            facts = task.config.metadata.items()
            words = {name: str(value) for name, value in facts if isinstance(value, str | int)}
            yield {"id": task.name, "path": str(task.task_dir), "metadata": words}

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Run a trial. If its reward is not valid, raises the agent's error, or else the reason."""
        if refused := self._refused(Task(task["path"])):
            raise ValueError(refused)
        SESSION.set(session)
        key = f"POLICY_KEY_{id(session)}"  # Harbor takes a variable's name
        access = {"base_url": session.base_url, "model_api_key_name": key}
        os.environ[key] = session.api_key
        try:
            with tempfile.TemporaryDirectory() as folder:
                config = TrialConfig(
                    task=TaskConfig(path=task["path"]),
                    agent=AgentConfig(
                        model_name=f"openai/{session.model}", **access, **self._agent
                    ),
                    environment=EnvironmentConfig(**self._place),
                    trials_dir=self._trials or folder,
                )
                trial = await Trial.create(config)
                errors = kept_errors(trial.agent)
                result = await trial.run()
                if not result.reward_valid:
                    raise errors[0] if errors else why_invalid(trial)
        finally:
            del os.environ[key]
        return self._result(result)

    def _refused(self, task: Task) -> str:
        reasons = ", ".join(refusals(task.config, task.paths, self._network))
        return f"{task.name}: {reasons}" if reasons and not self._container else ""

    def _result(self, result: Any) -> dict[str, Any]:
        rewards = dict(result.verifier_result.rewards)
        name = self._reward or ("reward" if "reward" in rewards else ",".join(rewards))
        if name not in rewards:
            raise RuntimeError(f"settings.reward names one of the rewards: {', '.join(rewards)}")
        status = "truncated" if result.exception_info else "complete"
        return {"reward": rewards.pop(name), "rewards": rewards, "status": status}


class Terminus(Terminus2):  # type: ignore[misc]
    """Terminus 2 with a call limit. Beyond it, or with a full context, it ends as if it were out
    of time. Harbor then tests what the agent has done so far.
    """

    def __init__(self, *arguments: Any, steps: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._left = steps

    async def _query_llm(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise AgentTimeoutError("no more calls")
        try:
            return await super()._query_llm(*arguments, **options)
        except ContextLengthExceededError as error:
            raise AgentTimeoutError("the context is full") from error
