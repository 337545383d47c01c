"""Session files of coding agents: what their models were sent, and what they answered.

Two files are those that the real agents wrote, when they repaired a repository by scripted answers
(`tests/agents`). Long texts, what no conversation has, and the place of the repository are cut.
"""

from pathlib import Path
from typing import Any

import orjson
import pytest

from seamlessflow.recorded.importing.conversations.conversation import ForeignConversation
from seamlessflow.recorded.importing.conversations.reading import read, reader_of
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected
from tests.paths import ROOT

FILES = ROOT / "tests/builders/agent_files"
TEXT = {"type": "text", "text": "Let me see."}
USE = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "calc.py"}


def claude(uuid: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, **more.pop("message", {})}
    return {
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "isSidechain": False,
        "type": role,
        "message": message,
        **more,
    }


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


SESSION = [
    {"type": "summary", "summary": "x", "sessionId": "s", "leafUuid": "5"},
    claude("1", None, "user", "Repair it."),
    claude("2", "1", "assistant", [{"type": "thinking", "thinking": "hm", "signature": "x"}]),
    claude("3", "2", "assistant", [TEXT], message={"id": "m", "model": "claude"}),
    claude("4", "3", "assistant", [USE], message={"id": "m", "model": "claude"}),
    claude("5", "4", "user", [RESULT]),
    claude("6", "5", "assistant", [{"type": "text", "text": "Done."}]),
]
MESSAGE = {"type": "message", "role": "user"}
ROLLOUT = [
    codex("session_meta", id="s", base_instructions={"text": "You are Codex."}),
    codex("turn_context", model="gpt"),
    codex("response_item", **MESSAGE, content=[{"type": "input_text", "text": "Repair it."}]),
    codex("event_msg", type="user_message", message="Repair it."),
    codex("response_item", type="reasoning", summary=[], encrypted_content="x"),
    codex("response_item", type="function_call", name="shell", arguments="{}", call_id="c1"),
    codex("response_item", type="function_call_output", call_id="c1", output="calc.py"),
    codex(
        "response_item",
        type="message",
        role="assistant",
        content=[{"type": "output_text", "text": "Done."}],
    ),
]


def conversations(directory: Path, *lines: Any) -> list[ForeignConversation]:
    path = directory / "session.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return of_file(path)


def of_file(path: Path) -> list[ForeignConversation]:
    reader = reader_of(path)
    assert reader is not None
    made = list(read(path, reader))
    assert all(isinstance(item, ForeignConversation) for item in made)
    return made  # type: ignore[return-value]


def spoken(conversation: ForeignConversation) -> list[tuple[str, Any]]:
    return [(each["role"], each.get("content", "")) for each in conversation.messages]


def calls(conversation: ForeignConversation) -> list[str]:
    """Return the names of the functions that the answers call."""
    return [
        call["function"]["name"]
        for message in conversation.messages
        for call in message.get("tool_calls", ())
    ]


def test_a_file_of_the_real_claude_code_is_its_session() -> None:
    (talk,) = of_file(FILES / "claude-code.jsonl")
    roles = [role for role, _ in spoken(talk)]
    assert roles == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert calls(talk) == ["Read", "Edit", "Bash"]
    assert spoken(talk)[-1][1] == "It subtracted. Now it adds, and the test passes."
    assert talk.model == "policy"


def test_a_file_of_the_real_codex_is_its_session() -> None:
    (talk,) = of_file(FILES / "codex.jsonl")
    roles = [role for role, _ in spoken(talk)]
    assert roles == ["system", "system", "user", "user", *["assistant", "tool"] * 3, "assistant"]
    assert calls(talk) == ["exec_command"] * 3
    assert spoken(talk)[-1][1] == "It subtracted. Now it adds, and the test passes."
    assert talk.model == "policy"


def test_a_claude_code_session_is_a_conversation(tmp_path: Path) -> None:
    (talk,) = conversations(tmp_path, *SESSION)
    assert (talk.source, talk.session_id, talk.model) == ("claude-code", "s", "claude")
    assert spoken(talk) == [
        ("user", "Repair it."),
        ("assistant", "Let me see."),
        ("tool", "calc.py"),
        ("assistant", "Done."),
    ]
    (call,) = talk.messages[1]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c1", "Bash")
    assert orjson.loads(call["function"]["arguments"]) == {"command": "ls"}


def test_what_the_user_went_back_over_is_left_out(tmp_path: Path) -> None:
    again = [
        claude("7", "1", "assistant", [{"type": "text", "text": "Otherwise."}]),
        claude("8", "7", "user", "Good."),
        claude("9", "8", "assistant", [{"type": "text", "text": "Bye."}]),
    ]
    (talk,) = conversations(tmp_path, *SESSION, *again)
    assert [text for _, text in spoken(talk)] == ["Repair it.", "Otherwise.", "Good.", "Bye."]


def test_results_of_calls_side_by_side_are_all_kept(tmp_path: Path) -> None:
    second = {**USE, "id": "c2"}
    lines = [
        claude("1", None, "user", "x"),
        claude("2", "1", "assistant", [USE], message={"id": "m"}),
        claude("3", "2", "assistant", [second], message={"id": "m"}),
        claude("4", "2", "user", [RESULT]),
        claude("5", "3", "user", [{**RESULT, "tool_use_id": "c2"}]),
        claude("6", "4", "assistant", "Done."),
    ]
    (talk,) = conversations(tmp_path, *lines)
    assert [role for role, _ in spoken(talk)] == ["user", "assistant", "tool", "tool", "assistant"]


def test_a_sub_agent_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    sub = {"isSidechain": True, "agentId": "a"}
    lines = [
        claude("11", None, "user", "Look.", **sub),
        claude("12", "11", "assistant", "Seen.", **sub),
    ]
    first, second = conversations(tmp_path, *SESSION, *lines)
    assert (first.session_id, second.session_id) == ("s", "s/a")
    assert [text for _, text in spoken(second)] == ["Look.", "Seen."]


def test_a_codex_session_is_a_conversation(tmp_path: Path) -> None:
    (talk,) = conversations(tmp_path, *ROLLOUT)
    assert (talk.source, talk.session_id, talk.model) == ("codex", "s", "gpt")
    assert spoken(talk) == [
        ("system", "You are Codex."),
        ("user", "Repair it."),
        ("assistant", ""),
        ("tool", "calc.py"),
        ("assistant", "Done."),
    ]


def test_where_codex_compacted_its_history_another_conversation_begins(tmp_path: Path) -> None:
    kept = {**MESSAGE, "content": [{"type": "input_text", "text": "Summary."}]}
    more = [
        codex("compacted", message="", replacement_history=[kept]),
        codex("response_item", **MESSAGE, content=[{"type": "input_text", "text": "Go on."}]),
    ]
    first, second = conversations(tmp_path, *ROLLOUT, *more)
    assert (first.session_id, second.session_id) == ("s", "s/1")
    assert [text for _, text in spoken(second)] == ["You are Codex.", "Summary.", "Go on."]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([claude("1", None, "user", [RESULT])], "tool_use_id"),
        ([claude("1", None, "user", [{"type": "image", "source": {}}])], "text"),
        ([codex("session_meta", id="s")], "no item"),
        ([codex("response_item", type="function_call_output", call_id="c", output="")], "no call"),
    ],
)
def test_what_a_text_model_cannot_have_said_is_refused(
    tmp_path: Path, lines: list[Any], reason: str
) -> None:
    with pytest.raises(ForeignRowRejected, match=reason):
        conversations(tmp_path, *lines)
