"""Builder of a fork's beginning; see `builder`."""

from seamlessflow.schemas.records import ForkedPrefix, ForkedPrompt, ForkedTurn, ForkOrigin
from tests.builders.records.builder import builder
from tests.builders.records.content import ids, message

CALL = {"id": "call_a_0", "type": "function", "function": {"name": "read", "arguments": "{}"}}
ASKED = ForkedPrompt(
    turn_id="a",
    ids=ids(1, 2),
    messages=(message("user", "sum up"),),
    history_key=b"a" * 16,
    policy="policy",
)
ANSWERED = ForkedTurn(
    prompt=ASKED,
    ids=ids(3, 4),
    message=message("assistant", None, tool_calls=[CALL]),
    finish_reason="tool_calls",
)
RESULT = ForkedPrompt(
    turn_id="b",
    parent=0,
    parent_end=2,
    ids=ids(5),
    origin="tool",
    messages=(message("tool", "notes", tool_call_id="call_a_0"),),
    history_key=b"b" * 16,
    policy="policy",
)

forked = builder(
    ForkedPrefix(
        origin=ForkOrigin(partition=3, session_id="recorded", turn_id="b", offset=7),
        policy="policy",
        tokenizer_hash="hash",
        turns=(ANSWERED,),
        prompt=RESULT,
        length=5,
        hash=b"h" * 16,
    )
)
