"""Documents of Harbor's format ATIF: their steps, and the rules that its own models check."""

from typing import Any

import orjson
import pytest

from seamlessflow.recorded.export.atif import AtifForm, documents
from seamlessflow.recorded.export.session_rows import ExportedSession
from seamlessflow.schemas.tokens import unpack
from seamlessflow.trainer.credit import ONE_REWARD
from tests.builders.records.content import ids, message
from tests.builders.trajectories.conversation import ASKED, Conversation
from tests.builders.trajectories.session_builder import finished

STEP = {
    *("step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "extra"),
    *("tool_calls", "observation", "metrics", "is_copied_context", "llm_call_count"),
}
"""Members of a step that we write; Harbor's models forbid unknown ones."""


def call(number: int, arguments: str) -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def talk(arguments: str = '{"a": 1}') -> Conversation:
    """Return a session whose agent makes a call, and answers by its result."""
    talked = Conversation()
    talked.ask("a", *ASKED)
    said = talked.answer(
        "a",
        ids(50, 51),
        message("assistant", "let me see", reasoning_content="hm", tool_calls=[call(1, arguments)]),
    )
    result = message("tool", "2", tool_call_id="call_1")
    talked.ask("b", *ASKED, said, result)
    talked.answer("b", ids(52), message("assistant", "it is 2"))
    return talked


def written(talked: Conversation) -> list[Any]:
    """Return the documents of a session as a reader of their JSON has them."""
    made = finished(talked)
    exported = ExportedSession(talked.session, made, "c", "p.", ONE_REWARD)
    (table,) = AtifForm.tables
    rows = [row for _, row in AtifForm().rows(exported)]
    assert all(set(row) == set(table.columns) for row in rows)
    assert len(rows) == len(list(documents(exported)))
    return [orjson.loads(str(row["document"])) for row in rows]


def check(document: Any) -> None:
    """Check what Harbor's models check of steps."""
    assert [step["step_id"] for step in document["steps"]] == list(
        range(1, len(document["steps"]) + 1)
    )
    for step in document["steps"]:
        assert set(step) <= STEP
        assert step["source"] == "agent" or not {"metrics", "tool_calls"} & set(step)
        call_ids = {called["tool_call_id"] for called in step.get("tool_calls", ())}
        for result in step.get("observation", {}).get("results", ()):
            assert result.get("source_call_id") is None or result["source_call_id"] in call_ids


def test_a_session_is_a_document_with_a_step_for_each_message() -> None:
    (document,) = written(talk())
    check(document)
    assert (document["schema_version"], document["session_id"]) == ("ATIF-v1.8", "s")
    steps = document["steps"]
    assert [(step["source"], step["message"]) for step in steps] == [
        ("system", "be brief"),
        ("user", "sum up the notes"),
        ("agent", "let me see"),
        ("agent", "it is 2"),
    ]
    assert steps[2]["reasoning_content"] == "hm"
    (called,) = steps[2]["tool_calls"]
    assert called == {"tool_call_id": "call_1", "function_name": "add", "arguments": {"a": 1}}
    assert steps[2]["observation"] == {"results": [{"content": "2", "source_call_id": "call_1"}]}


def test_each_answer_has_its_prompt_and_its_tokens() -> None:
    talked = talk()
    (document,) = written(talked)
    tree = talked.session.tree
    for step, turn_id in zip(document["steps"][2:], ("a", "b"), strict=True):
        turn = talked.turn(turn_id)
        prompt = tree.path(turn.prompt_node, tree.nodes[turn.prompt_node].length)
        metrics = step["metrics"]
        assert metrics["prompt_token_ids"] == unpack(prompt)
        assert metrics["completion_token_ids"] == unpack(talked.sampled(turn_id))
        assert len(metrics["logprobs"]) == metrics["completion_tokens"]
        assert step["extra"] == {"turn_id": turn_id, "finish_reason": "stop"}


def test_a_history_that_was_rewritten_is_a_document_of_its_own() -> None:
    talked = talk()
    talked.ask("c", message("system", "be brief"), message("user", "summary: 2"))
    talked.answer("c", ids(60), message("assistant", "yes"))
    first, second = written(talked)
    assert (first["trajectory_id"], second["trajectory_id"]) == ("s/0", "s/1")
    assert [step["message"] for step in second["steps"]] == ["be brief", "summary: 2", "yes"]


def test_turns_that_two_documents_share_are_copied_context_in_the_later_one() -> None:
    talked = talk()
    said = talked.turn("a").message
    talked.ask("c", *ASKED, said, message("tool", "3", tool_call_id="call_1"))
    talked.answer("c", ids(60), message("assistant", "it is 3"))
    first, second = written(talked)
    check(first)
    check(second)
    assert not any("is_copied_context" in step for step in first["steps"])
    assert [step.get("is_copied_context", False) for step in second["steps"]] == [True] * 3 + [
        False
    ]


@pytest.mark.parametrize("arguments", ["", "no JSON", "[1]", '{"a": 1e999}'])
def test_arguments_of_any_kind_are_an_object(arguments: str) -> None:
    (document,) = written(talk(arguments))
    (called,) = document["steps"][2]["tool_calls"]
    assert isinstance(called["arguments"], dict)


def test_a_session_without_an_answer_has_no_document() -> None:
    talked = Conversation()
    talked.ask("a", *ASKED)
    assert written(talked) == []
