"""A recorded session becomes the beginning of others, by both modes, through everything."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from seamlessflow.recorded.audit.audit import audit
from seamlessflow.recorded.fork.forking import ForkJob, fork_sessions
from seamlessflow.recorded.fork.places import ForkRule, appended_message
from seamlessflow.scheduler.tasks.forks import fork_file
from seamlessflow.schemas import records as r
from seamlessflow.schemas.forks import history, of_session
from seamlessflow.schemas.json_form import to_json
from tests.agents.agent_system import AgentSystem
from tests.agents.engine.scripts import answer, cue
from tests.e2e.running_system import POLICY

pytestmark = pytest.mark.kafka
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        },
    },
}
QUESTION: Any = {"role": "user", "content": f"{cue('adding')}What is 5 + 4, and 1 + 1?"}


def play(
    system: AgentSystem, name: str, messages: Sequence[Any] = (QUESTION,), **opening: object
) -> str:
    """Let an agent with a tool work in a session of its own; return its last answer."""
    fields = {"session_id": name, "policy": POLICY, "task_id": "t", **opening}
    opened = system.running.admin("/sessions", **fields)
    assert opened.status_code == 201, opened.text
    conversation = list(messages)
    with openai.OpenAI(
        base_url=opened.json()["base_url"], api_key=opened.json()["api_key"], max_retries=0
    ) as client:
        while True:
            made = client.chat.completions.create(model=POLICY, messages=conversation, tools=[ADD])
            said = made.choices[0].message
            conversation.append(said.model_dump(exclude_none=True))
            for call in said.tool_calls or ():
                total = sum(json.loads(call.function.arguments).values())  # type: ignore[union-attr]
                conversation.append(
                    {"role": "tool", "tool_call_id": call.id, "content": str(total)}
                )
            if not said.tool_calls:
                return said.content or ""


def forked(system: AgentSystem, directory: Path, rule: ForkRule) -> r.ForkedPrefix:
    """Return the prefix of the recorded session, by way of the file."""
    path, tasks = directory / "forks.jsonl", directory / "tasks.jsonl"
    tasks.write_text('{"id": "t"}')
    job = ForkJob(path, rule, samples=2, task_file=tasks)
    fork_sessions(system.running.kafka, job, lambda *_: None)
    prefixes = {row.fork.origin.session_id: row.fork for row in fork_file(path) if row.fork}
    return prefixes["recorded"]


def trained(trajectory: r.Trajectory) -> list[int]:
    """Return the ids of the tokens that may be trained."""
    mask = np.frombuffer(trajectory.loss_mask, np.uint8).astype(bool)
    return [int(token) for token in np.frombuffer(trajectory.tokens, np.int32)[mask]]


@pytest.fixture(scope="module")
def recorded(system: AgentSystem) -> r.Trajectory:
    assert play(system, "recorded") == answer("adding")
    return system.running.end("recorded")


def test_a_session_goes_on_in_the_middle_of_a_recorded_one(
    system: AgentSystem, recorded: r.Trajectory, tmp_path: Path
) -> None:
    prefix = forked(system, tmp_path, ForkRule(after_tool_result="first"))
    beginning = [json.loads(message) for message in history(of_session(prefix, "middle"))]
    said = play(system, "middle", beginning, fork=json.loads(to_json(prefix)))

    made = system.running.end("middle")
    assert said == answer("adding")
    assert made.fork == prefix.origin
    assert (made.turns, made.match_rules.get("root", 0)) == (2, 0)
    # The copied answer was trained there and is not here; the rest was sampled again.
    copied = np.frombuffer(prefix.turns[0].ids, np.int32).tolist()
    assert trained(recorded) == copied + trained(made)
    assert made.tokens[: 4 * prefix.length] == recorded.tokens[: 4 * prefix.length]
    assert audit(system.running.kafka).clean


def test_an_agent_that_begins_anew_gets_the_recorded_answers(
    system: AgentSystem, recorded: r.Trajectory, tmp_path: Path
) -> None:
    prefix = forked(system, tmp_path, ForkRule(turn="last", mode="playback"))
    assert play(system, "played", fork=json.loads(to_json(prefix))) == answer("adding")

    made = system.running.end("played")
    copied = [id for turn in prefix.turns for id in np.frombuffer(turn.ids, np.int32).tolist()]
    assert (len(prefix.turns), made.turns) == (2, 1)
    assert trained(recorded) == copied + trained(made)
    assert audit(system.running.kafka).clean


def test_an_agent_that_leaves_the_recording_ends_its_session(
    system: AgentSystem, recorded: r.Trajectory, tmp_path: Path
) -> None:
    prefix = forked(system, tmp_path, ForkRule(turn="last", mode="playback"))
    other = {"role": "user", "content": f"{cue('adding')}What is 6 + 4?"}
    with pytest.raises(openai.ConflictError) as raised:
        play(system, "left", [other], fork=json.loads(to_json(prefix)))

    assert raised.value.code == "fork_diverged"
    assert "What is 6 + 4?" in str(raised.value)
    made = system.running.expect(r.Trajectory, lambda record: record.session_id == "left")
    assert (made.status, made.reason, trained(made)) == ("aborted", "fork_diverged", [])


def test_a_fork_behind_the_last_answer_has_all_tokens_and_trains_none_of_them(
    system: AgentSystem, recorded: r.Trajectory, tmp_path: Path
) -> None:
    check = appended_message("check your work")
    rule = ForkRule(turn="last", behind="answer", appended=(check,))
    prefix = forked(system, tmp_path, rule)
    opening = {"session_id": "checked", "policy": POLICY, "fork": json.loads(to_json(prefix))}
    assert system.running.admin("/sessions", **opening).status_code == 201

    made = system.running.end("checked")
    assert (made.tokens, trained(made), made.turns) == (recorded.tokens, [], 0)
