"""Stop strings in what comes out late."""

from infra.completion import NOTHING, MessageDelta, ParsedMessage
from producers.rollout.stop_text import StopText


class HeldBack:
    """A stream that gives all its text at the end, as an unclosed tool call comes out."""

    message = ParsedMessage("code 3")

    def feed(self, ids: bytes) -> MessageDelta:
        return NOTHING

    def finish(self) -> MessageDelta:
        return MessageDelta(self.message.content)


def test_a_stop_string_in_what_was_held_back_leaves_no_space_before_it_in_the_stream() -> None:
    stream = StopText(HeldBack(), ["3"])
    stream.feed(b"\0\0\0\0")

    streamed = stream.finish().content

    assert streamed == stream.message.content == "code"
