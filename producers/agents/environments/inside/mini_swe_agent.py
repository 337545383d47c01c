"""Repository repairs by mini-swe-agent: the reward is what the repository's tests say.

A task names a repository (a directory or an archive), an issue and a command that tests:

    {"id": "sum", "repository": "sum.tar.gz", "issue": "...", "test": "python3 -m pytest -q"}

The agent works on a copy in the sandbox. `hidden`, a directory of tests, is laid over the copy once
the agent is done. The package's own bubblewrap leaves the network open, so it is not used.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

_PLACES = {"repository", "hidden"}
_NOT_STARTED = (126, 127)  # exit statuses of a shell


class Environment:
    """Tasks from a JSONL file, or the run's own tasks."""

    def __init__(
        self,
        tasks: str = "",
        steps: int = 50,
        test_s: float = 300.0,
        prefixes: Sequence[str] = (),
        limits: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`steps`: call limit. `test_s`: seconds for the tests. `prefixes`: directories with
        programs in `bin`, which commands may use. `limits`: for each command (`SandboxLimits`).
        `config`: changes to the package's mini.yaml. `options`: for each call, as `max_tokens`.
        """
        self._tasks = tasks
        self._steps = steps
        self._test_s = test_s
        self._prefixes = prefixes
        self._config = config or {}
        self._options = options
        self._limits = {"time_s": 30.0, **(limits or {})}
        os.environ.update(
            MSWEA_SILENT_STARTUP="1",
            MSWEA_GLOBAL_CONFIG_DIR=tempfile.mkdtemp(),  # not the user's, with its keys
            MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="1",
            LITELLM_LOCAL_MODEL_COST_MAP="True",
        )

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield the file's lines. Paths in it are relative to its folder."""
        if not self._tasks:
            raise ValueError("mini_swe_agent lists the tasks of a file: name it in settings.tasks")
        file = Path(self._tasks).absolute()
        for line in file.read_text(encoding="utf-8").splitlines():
            task = json.loads(line)
            places = {name: str(file.parent / task[name]) for name in _PLACES & task.keys()}
            yield {**task, **places}

    def warm_up(self) -> None:
        """Import the package, which takes seconds."""
        import minisweagent.models.litellm_model  # noqa: F401

    def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Let the agent work, then test. `submitted` is 1 if the agent said that it was done."""
        with session.sandbox(self._prefixes, **self._limits) as sandbox:
            sandbox.fill(Path(task["repository"]))
            ended = self._agent(sandbox, session).run(task["issue"])["exit_status"]
            passed = _passes(sandbox, task, self._test_s)
        status = "truncated" if ended == "LimitsExceeded" else "complete"
        rewards = {"submitted": float(ended == "Submitted")}
        return {"reward": float(passed), "rewards": rewards, "status": status}

    def _agent(self, sandbox: Any, session: Any) -> Any:
        from minisweagent.agents.default import DefaultAgent
        from minisweagent.config import get_config_from_spec
        from minisweagent.models.litellm_model import LitellmModel
        from minisweagent.utils.serialize import recursive_merge

        access = {"api_base": session.base_url, "api_key": session.api_key, "max_retries": 0}
        model = {"model_name": f"openai/{session.model}", "cost_tracking": "ignore_errors"}
        ours = {
            "agent": {"cost_limit": 0, "step_limit": self._steps},
            "model": {**model, "model_kwargs": {**self._options, **access}},
        }
        config = recursive_merge(get_config_from_spec("mini.yaml"), self._config, ours)
        return DefaultAgent(LitellmModel(**config["model"]), _commands(sandbox), **config["agent"])


def _commands(sandbox: Any) -> Any:
    """Return the sandbox as the package sees an environment."""
    from minisweagent.environments.local import LocalEnvironment

    class Commands(LocalEnvironment):  # type: ignore[misc]
        def execute(self, action: dict[str, Any], cwd: str = "", **_: Any) -> dict[str, Any]:
            ended = sandbox.run(["bash", "-c", "exec 2>&1\n" + action["command"]])
            output = {
                "output": ended.stdout.decode(errors="replace"),
                "returncode": -1 if ended.status is None else ended.status,
                "exception_info": "" if ended.ended == "exited" else f"limit of {ended.ended}",
            }
            self._check_finished(output)
            return output

    return Commands()


def _passes(sandbox: Any, task: Mapping[str, Any], test_s: float) -> bool:
    """Return whether the tests pass. Raises `RuntimeError` if they cannot be started."""
    if "hidden" in task and not sandbox.lay(Path(task["hidden"])):
        return False  # the agent left something in the way
    limits = replace(sandbox.limits, time_s=test_s)
    ended = sandbox.run(["bash", "-c", task["test"]], limits=limits)
    if ended.status in _NOT_STARTED:
        raise RuntimeError(f"the tests cannot be started: {ended.stderr.decode(errors='replace')}")
    return bool(ended.status == 0)
