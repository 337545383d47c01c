"""Trials of Harbor in real sessions, and documents of ATIF for its models and from its agent."""

import json
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.venvs import directory
from seamlessflow.recorded.importing.conversations.reading import read, reader_of
from seamlessflow.schemas.tokens import unpack
from tests.agents.agent_system import AgentSystem, same_tokens
from tests.agents.engine.scripts import answer, cue
from tests.builders.trajectories.exports import export, named_cluster
from tests.builders.trajectories.golden_topics import golden_log
from tests.environments.checks import SCRIPTS, Row, one_chain, row
from tests.environments.harbor_tasks import write_task
from tests.environments.playing import PROGRAMS, installed

LARGEST = 500_000
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
ADD: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": NUMBERS}},
}


def read_by_harbor(exported: Path) -> list[dict[str, Any]]:
    """Return what Harbor's models read in the files of an export. Fails if they refuse any.

    Documents of megabytes are left out: each answer has all ids of its prompt.
    """
    python = directory(KNOWN["harbor"]) / "bin" / "python"
    documents = exported / "documents.jsonl"
    files = sorted((exported / "trajectories").iterdir())
    lines = [line for file in files for line in file.read_bytes().split(b"\n")]
    documents.write_bytes(b"\n".join(line for line in lines if 0 < len(line) < LARGEST))
    program = [str(python), "-P", str(PROGRAMS / "read_atif.py"), str(documents)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def add_up(system: AgentSystem, session_id: str) -> None:
    """Have a session of three turns, whose calls of a tool are answered."""
    session = system.open(session_id)
    messages: list[Any] = [{"role": "user", "content": f"{cue('adding')}Add."}]
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key, max_retries=0) as client:
        while not messages[1:] or messages[-1]["role"] == "tool":
            said = client.chat.completions.create(model="m", messages=messages, tools=[ADD])
            message = said.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or ():
                numbers = json.loads(call.function.arguments)  # type: ignore[union-attr]
                result = str(numbers["a"] + numbers["b"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    session.end(1.0)


def test_a_trial_has_its_tokens_on_the_log_and_in_its_own_document(
    acting: AgentSystem, tmp_path: Path, rows: list[Row]
) -> None:
    write_task(tmp_path / "tasks" / "sum", instruction=f"{cue('terminus')}Sums are wrong.")
    settings = {
        "tasks": str(tmp_path / "tasks"),
        "trials": str(tmp_path / "trials"),
        "agent_settings": {"collect_rollout_details": True},
    }
    with installed("harbor", settings, acting.running, tmp_path) as package:
        (task,) = package.tasks(tmp_path)
        package.begin()
        before = len(acting.sampled(0))
        episode = package.play(task)
    same_tokens(episode.trajectory, acting.sampled(before))
    one_chain(episode)
    assert episode.result == {"reward": 1.0, "rewards": {}, "status": "complete"}
    rows.append(row(package, "a trial with a terminal", SCRIPTS, episode))

    (document,) = (tmp_path / "trials").glob("*/agent/trajectory.json")
    reader = reader_of(document)
    assert reader is not None
    (made,) = read(document, reader)
    assert isinstance(made, dict)
    assert made["token_ids"] == list(unpack(episode.trajectory.tokens))
    sampled = [token for token, kept in zip(made["token_ids"], made["mask"], strict=True) if kept]
    assert sampled == list(chain.from_iterable(episode.sampled))
    logprobs = np.frombuffer(episode.trajectory.logprobs, "<f4")
    assert made["logprobs"] == pytest.approx(logprobs.tolist(), abs=1e-6)


def test_an_exported_session_with_tools_is_read_by_harbors_models(
    acting: AgentSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_up(acting, "adding-up")
    kafka = acting.running.kafka
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    done = export("--to", tmp_path / "all", "--form", "atif", "--format", "jsonl")
    assert done.exit_code == 0, done.output
    (made,) = (each for each in read_by_harbor(tmp_path / "all") if each["session"] == "adding-up")
    called = [("add", {"a": 2, "b": 3}), ("add", {"a": 5, "b": 4}), ("add", {"a": 1, "b": 1})]
    assert [tuple(call) for call in made["calls"]] == called
    assert made["results"] == 3
    assert made["messages"][-1] == answer("adding")
    sampled = [list(unpack(bytes.fromhex(turn.tokens))) for turn in acting.sampled(0)[-3:]]
    assert made["ids"] == sampled


def test_sessions_of_every_kind_are_read_by_harbors_models(
    broker: KafkaSettings, tmp_path: Path
) -> None:
    with named_cluster(broker, golden_log()):
        done = export("--to", tmp_path / "all", "--form", "atif", "--format", "jsonl")
        assert done.exit_code == 0, done.output
    assert len(read_by_harbor(tmp_path / "all")) > 100
