"""Samples of an Inspect task: its own solver asks the policy, and its own scorers give rewards.

A process evaluates one sample at a time, as the package demands. The package's retries are off.
"""

import copy
import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

_WORDS = {"C": 1, "P": 0.5, "I": 0, "N": 0, "yes": 1, "true": 1, "no": 0, "false": 0}
_OF_THE_POLICY = ("message", "token", "turn", "context", "cost")  # all limits but those on time


class Environment:
    """A task by its name, `package/task`, or its file, `FILE.py@task`."""

    concurrent = 1

    def __init__(
        self,
        task: str,
        arguments: dict[str, Any] | None = None,
        reward: str = "",
        models: dict[str, str] | None = None,
        local: bool = False,
        **options: Any,
    ) -> None:
        """`reward`: its scorer, or SCORER.KEY. `models`: by role. `local`: tools may run on this
        machine without isolation. `options`: for each call.
        """
        self._name = task
        self._arguments = arguments or {}
        self._reward = reward
        self._models = models or {}
        self._local = local
        self._options = options

    @cached_property
    def _task(self) -> Any:
        from inspect_ai._eval.loader import load_tasks
        from inspect_ai.util._display import init_display_type

        init_display_type("none")
        tasks = load_tasks([self._name], self._arguments)
        if len(tasks) != 1:
            raise ValueError(f"{self._name} has {len(tasks)} tasks: name one, as FILE.py@task")
        self._check_sandbox(tasks[0])
        return tasks[0]

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each sample, with the texts and whole numbers from its metadata."""
        for index, sample in enumerate(self._task.dataset):
            self._check_sandbox(sample)
            facts = {"task": self._task.name, **(sample.metadata or {})}.items()
            words = {key: str(value) for key, value in facts if isinstance(value, str | int)}
            place = index + 1 if sample.id is None else sample.id
            entry = {"id": f"{self._task.name}-{place}", "index": index, "metadata": words}
            yield {**entry, "digest": _digest(sample)}

    def warm_up(self) -> object:
        """Load the task. Raises `ValueError` for a sandbox that is refused."""
        return self._task

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Evaluate the sample. Each score is a reward with its scorer's name."""
        from inspect_ai import eval_async, task_with
        from inspect_ai.dataset import MemoryDataset
        from inspect_ai.model import GenerateConfig, get_model

        sample = copy.deepcopy(self._task.dataset[task["index"]])
        if task["digest"] != _digest(sample):
            raise RuntimeError(f"{task['id']} is another sample than when it was listed")
        access = {"base_url": session.base_url, "api_key": session.api_key, "memoize": False}
        client = {"max_retries": 0, "client_timeout": 1e6, **access}
        config = GenerateConfig(max_retries=0, **self._options)
        policy = get_model(f"openai-api/policy/{session.model}", config=config, **client)
        with tempfile.TemporaryDirectory() as logs:
            [log] = await eval_async(
                task_with(copy.copy(self._task), dataset=MemoryDataset([sample])),
                **{"model": policy, "model_roles": {"grader": "none/none", **self._models}},
                **{"epochs": 1, "retry_on_error": 0, "debug_errors": True, "fail_on_error": True},
                **{"log_dir": logs, "log_format": "json", "log_realtime": False},
                **{"acp_server": False, "ctl_server": False},
            )
        return self._result(log.samples[0])

    def _result(self, sample: Any) -> dict[str, Any]:
        limit = sample.limit and sample.limit.type
        if limit and limit not in _OF_THE_POLICY:
            raise RuntimeError(f"the sample ended by its limit: {limit}")
        rewards = dict(_rewards(sample.scores or {}))
        reward = rewards.get(self._reward or ",".join(rewards))  # the only one needs no name
        if reward is None and not limit:
            raise RuntimeError(f"settings.reward names one of the scores: {', '.join(rewards)}")
        status = "truncated" if limit else "complete"
        return {"reward": reward, "rewards": rewards, "status": status}

    def _check_sandbox(self, described: Any) -> None:
        kind = getattr(described.sandbox, "type", None)
        if kind not in (None, "local" if self._local else None):
            raise ValueError(f"the sandbox {kind!r} is refused; `local` runs with settings.local")


def _digest(sample: Any) -> str:
    return hashlib.sha256(sample.model_dump_json().encode()).hexdigest()[:16]


def _rewards(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield names and numbers. Raises `ValueError` for a value that is no number, such as prose."""
    for name, score in scores.items():
        parts = score.value if isinstance(score.value, Mapping) else {"": score.value}
        for key, value in parts.items():
            number = float(_WORDS.get(value, value) if isinstance(value, str) else value)
            if math.isnan(number):
                raise ValueError(f"{name} gave no score: {score.reason or score.explanation}")
            yield f"{name}.{key}".removesuffix("."), number
