"""A small run of a real model whose trainer is killed once, and all that is done with its log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.stopping import Stop
from tests.algorithms.checks import audit_faults, log_faults, replay_faults
from tests.algorithms.whole_run import Commands
from tests.builders.own_topics import own_topics

pytestmark = [pytest.mark.real, pytest.mark.kafka]
STEPS = 4
AGENT = """
from openai import AsyncOpenAI


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    said = [{"role": "user", "content": task["prompt"]}]
    for more in (" Are you sure? 🤔", None):
        answer = await client.chat.completions.create(
            model=session.model, max_tokens=12, messages=said
        )
        text = answer.choices[0].message.content or ""
        said += [{"role": "assistant", "content": text}, {"role": "user", "content": more}]
    return len(text) % 3 / 2
"""
TAUGHT = (
    [("user", "What is 5 + 19?"), ("assistant", "24")],
    [("system", "Write code."), ("user", "one()?"), ("assistant", "    return 1  # one 😀\n")],
)
"""The second answer begins with white space, which tokenizers join with the line end before it."""


@pytest.fixture(scope="module")
def run(
    broker: KafkaSettings, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Commands, Path, KafkaSettings]]:
    """Yield the commands of a run that has ended, its configuration and its Kafka."""
    directory = tmp_path_factory.mktemp("run")
    (directory / "real_agent.py").write_text(AGENT, encoding="utf-8")
    tasks = [{"id": str(n), "prompt": f"What is {n} + 19?"} for n in range(8)]
    (directory / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    config = directory / "run.yaml"
    config.write_text(yaml.safe_dump(_values(directory, smollm2)))
    with own_topics(broker) as kafka, pytest.MonkeyPatch.context() as patched:
        patched.chdir(directory)
        commands = Commands(directory / "out", kafka, Stop())
        ended = commands.train(config, STEPS)
        assert 0 < ended.killed_at < STEPS
        yield commands, config, kafka


def _values(directory: Path, model: Path) -> dict[str, Any]:
    return {
        "out": str(directory / "out"),
        "workers": [{"id": "w0", "tags": ["rollout", "train"]}],
        "policy": {"model": str(model), "max_context": 256},
        "run": {"id": "real", "steps": STEPS, "groups_per_step": 1, "group_size": 4},
        "pacing": {
            "tasks": str(directory / "tasks.jsonl"),
            "task_timeout_s": 300,
            "group_timeout_s": 600,
        },
        "agents": {"callable": "real_agent:run"},
        "trainer": {
            "threads": 2,
            "checkpoint_every": 2,
            "versions_kept": 3,
            "filters": {},
            "optimizer": {"lr": 1e-5},
        },
        "rollout": {"engine": "torch", "torch": {"threads": 2, "kv_bytes": 512 * 2**20}},
        "scheduler": {"assignment_timeout_s": 300},
        "start_timeout_s": 300,
    }


def test_a_step_that_is_executed_again_has_the_same_tensors(
    run: tuple[Commands, Path, KafkaSettings],
) -> None:
    commands, _, kafka = run
    assert not list(log_faults(kafka, "policy"))
    summary = json.loads((commands.out / "summary.json").read_text())
    assert summary["steps"] == STEPS
    checks = summary["checks"]
    assert checks["tokens_checked"] == summary["tokens_trained"] > 0
    assert (checks["mismatches"], checks["trained_twice"]) == (0, 0)


def test_an_audit_finds_nothing(run: tuple[Commands, Path, KafkaSettings]) -> None:
    commands, _, kafka = run
    assert not [fault for fault in audit_faults(kafka, commands.out) if "nothing to" not in fault]


def test_steps_executed_from_the_log_alone_have_equal_tensors(
    run: tuple[Commands, Path, KafkaSettings],
) -> None:
    commands, _, _ = run
    assert not list(replay_faults(commands("replay", "train"), STEPS))


def test_both_turns_of_a_session_are_one_chain_in_the_export(
    run: tuple[Commands, Path, KafkaSettings], tmp_path: Path
) -> None:
    commands, _, _ = run
    commands("export", "--to", str(tmp_path / "rows"), "--form", "trl", "--format", "jsonl")
    rows = [
        json.loads(line)
        for file in (tmp_path / "rows").rglob("*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    assert rows


def test_recorded_sessions_are_the_beginning_of_others(
    run: tuple[Commands, Path, KafkaSettings], tmp_path: Path
) -> None:
    commands, _, _ = run
    forks = tmp_path / "forks.jsonl"
    commands("replay", "fork", "--to", str(forks), "--turn", "2", "--samples", "4")
    assert len(forks.read_text(encoding="utf-8").splitlines()) >= STEPS * 4


def test_answers_of_conversations_are_learned(
    run: tuple[Commands, Path, KafkaSettings], tmp_path: Path
) -> None:
    commands, config, _ = run
    lines = [
        {"messages": [{"role": role, "content": text} for role, text in taught]}
        for taught in TAUGHT
    ]
    data = tmp_path / "conversations.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    commands("sft", "--config", str(config), "--data", str(data), "--batch", "2")
    assert (commands.out / "sft" / "model" / "model.safetensors").is_file()


def test_the_newest_version_is_evaluated(run: tuple[Commands, Path, KafkaSettings]) -> None:
    commands, config, _ = run
    tasks = str(config.parent / "tasks.jsonl")
    commands(
        *("eval", "--config", str(config), "--tasks", tasks),
        *("--limit", "2", "--temperature", "0"),
    )
    (written,) = commands.out.glob("evaluations/**/evaluation.json")
    assert json.loads(written.read_text())
