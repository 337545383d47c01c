"""Builders of replies to a gateway `g` about a turn `t` of a session `s`; see `builder`."""

from schemas.records import CommandAnswered, ReplyDelta, ReplyFinished, TokenTensor
from tests.builders.records.builder import builder

answered = builder(CommandAnswered(gateway="g", session_id="s", command_id="c"), "command_id")
delta = builder(
    ReplyDelta(gateway="g", session_id="s", turn_id="t", token_offset=0, token_count=0),
    *("token_offset", "token_count"),
)
finished = builder(ReplyFinished(gateway="g", session_id="s", turn_id="t"))
"""Without a message, for tests that only look at the envelope; see `whole`."""
tensor = builder(TokenTensor(name="topk_ids", from_token=0, to_token=1, dtype="int32"), "name")
