"""Documents of ATIF brought in: their tokens as they are, or their messages."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.recorded.export.atif import documents
from seamlessflow.recorded.export.session_rows import ExportedSession
from seamlessflow.recorded.importing.conversations.atif import has_tokens, rows
from seamlessflow.recorded.importing.conversations.conversation import ForeignConversation
from seamlessflow.recorded.importing.conversations.reading import read, reader_of
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected, foreign_row
from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import PolicyWeights, Trajectory
from seamlessflow.schemas.topics import FLEET, SESSIONS
from seamlessflow.trainer.credit import ONE_REWARD
from tests.builders.records.content import ids, message
from tests.builders.trajectories.conversation import ASKED, Conversation
from tests.builders.trajectories.golden_topics import golden_log
from tests.builders.trajectories.session_builder import finished


def exported(talked: Conversation) -> list[Any]:
    """Return the documents of a finished session, as JSON has them."""
    made = finished(talked)
    session = ExportedSession(talked.session, made, "c", "p.", ONE_REWARD)
    return [orjson.loads(orjson.dumps(document)) for document in documents(session)]


def talk() -> Conversation:
    talked = Conversation()
    talked.ask("a", *ASKED)
    said = talked.answer("a", ids(50, 51), message("assistant", "yes"))
    talked.ask("b", *ASKED, said, message("user", "and?"))
    talked.answer("b", ids(52), message("assistant", "no"))
    return talked


def read_back(directory: Path, *values: Any) -> list[Any]:
    path = directory / "file.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, values)))
    reader = reader_of(path)
    assert reader is not None
    return list(read(path, reader))


def test_an_exported_session_is_one_row_with_its_tokens(tmp_path: Path) -> None:
    talked = talk()
    (row,) = read_back(tmp_path, *exported(talked))
    made = foreign_row("f", 1, row)
    turn = talked.turn("b")
    prompt = talked.session.tree.path(
        turn.prompt_node, talked.session.tree.nodes[turn.prompt_node].length
    )
    assert made.ids_T.tobytes() == prompt + talked.sampled("b")
    assert int(made.sampled_T.sum()) == 3
    assert made.logprobs_T is not None
    assert (made.reward, made.named["session_id"]) == (1.0, "s")


def test_an_answer_whose_prompt_does_not_go_on_is_another_row(tmp_path: Path) -> None:
    talked = talk()
    talked.ask("c", message("system", "be brief"), message("user", "summary"))
    talked.answer("c", ids(60), message("assistant", "yes"))
    made = read_back(tmp_path, *exported(talked))
    assert [sum(row["mask"]) for row in made] == [3, 1]


def test_copied_context_is_not_learned_again(tmp_path: Path) -> None:
    (document,) = exported(talk())
    for step in document["steps"][:-1]:
        step["is_copied_context"] = True
    (row,) = read_back(tmp_path, document)
    assert sum(row["mask"]) == 1


def test_a_document_without_ids_is_a_conversation(tmp_path: Path) -> None:
    (document,) = exported(talk())
    for step in document["steps"]:
        step.pop("metrics", None)
    (conversation,) = read_back(tmp_path, document)
    assert isinstance(conversation, ForeignConversation)
    assert [(each["role"], each["content"]) for each in conversation.messages] == [
        ("system", "be brief"),
        ("user", "sum up the notes"),
        ("assistant", "yes"),
        ("user", "and?"),
        ("assistant", "no"),
    ]


def test_calls_and_their_observations_are_calls_and_results(tmp_path: Path) -> None:
    called = {"tool_call_id": "c", "function_name": "add", "arguments": {"a": 1}}
    result = {"source_call_id": "c", "content": [{"type": "text", "text": "2"}]}
    step = {
        "step_id": 1,
        "source": "agent",
        "message": "",
        "reasoning_content": "hm",
        "tool_calls": [called],
        "observation": {"results": [result]},
    }
    agent = {"name": "terminus-2", "version": "1", "model_name": "m"}
    document = {"schema_version": "ATIF-v1.5", "session_id": "s", "agent": agent, "steps": [step]}
    (conversation,) = read_back(tmp_path, document)
    function = {"name": "add", "arguments": '{"a":1}'}
    assert conversation.messages == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    assert (conversation.source, conversation.model) == ("atif", "m")


def test_embedded_sub_agents_are_rows_of_the_same_session(tmp_path: Path) -> None:
    (document,) = exported(talk())
    embedded = {**document, "trajectory_id": "sub", "session_id": None}
    made = read_back(tmp_path, {**document, "subagent_trajectories": [embedded]})
    assert [row["session_id"] for row in made] == ["s", "s"]


@pytest.mark.parametrize("damage", ["logprobs", "steps", "agent"])
def test_a_broken_document_is_refused_by_its_place(tmp_path: Path, damage: str) -> None:
    (document,) = exported(talk())
    if damage == "logprobs":
        document["steps"][-1]["metrics"]["logprobs"].append(-1.0)
    else:
        for step in document["steps"]:
            step.pop("metrics", None)
        del document[damage]
    with pytest.raises(ForeignRowRejected):
        read_back(tmp_path, document)


def recorded_sessions() -> list[tuple[Session, Trajectory]]:
    """Return the finalized sessions of a recorded log, each with its trajectory."""
    log = golden_log()
    weights = {
        each.policy: each
        for each in (decode(record.value) for record in log[FLEET.name])
        if isinstance(each, PolicyWeights)
    }

    def strictness(policy: str) -> Strictness:
        return weights[policy].strictness  # type: ignore[return-value]

    partitions: dict[int, LoggedPartition] = {}
    for record in log[SESSIONS.name]:
        partition = partitions.setdefault(record.partition, LoggedPartition(record.partition))
        partition.apply(decode(record.value), record.offset, strictness)
    return [
        (session, assembled(session, partition.number)[0])
        for partition in partitions.values()
        for session in partition.sessions.values()
        if session.finalized_at_ms is not None
    ]


def test_each_trained_token_of_a_recorded_log_stands_once_in_its_documents() -> None:
    sessions = recorded_sessions()
    assert len(sessions) > 10
    for session, made in sessions:
        exported_session = ExportedSession(session, made, "c", "p.", ONE_REWARD)
        written = [orjson.loads(orjson.dumps(each)) for each in documents(exported_session)]
        assert all(map(has_tokens, written))
        trained = sum(sum(row["mask"]) for document in written for row in rows(document))
        assert trained == made.loss_mask.count(1), session.session_id


@pytest.mark.parametrize(("trained", "scored"), [(False, True), (True, False)])
def test_only_answers_that_are_trained_need_log_probs(
    tmp_path: Path, trained: bool, scored: bool
) -> None:
    (document,) = exported(talk())
    first = next(step for step in document["steps"] if step["source"] == "agent")["metrics"]
    del first["logprobs"]
    first["extra"]["mask"] = [trained] * len(first["completion_token_ids"])
    (row,) = read_back(tmp_path, document)
    assert (foreign_row("f", 1, row).logprobs_T is not None) is scored
