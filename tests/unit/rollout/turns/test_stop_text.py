"""Stop strings in what comes out late."""

import pytest

from infra.rendering.completion import NOTHING, MessageDelta, ParsedMessage
from producers.rollout.turns.stop_text import StopText
from schemas.tokens import pack
from tests.builders.rollout.completions import Letters, codes


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


@pytest.mark.parametrize(
    ("text", "stops", "found"),
    [
        ("abcdef", ("x", "cd"), "cd"),
        ("abcdef", ("ef", "bc"), "bc"),
        ("abcdef", ("abcd", "bc"), "bc"),
        ("abcdef", ("x",), None),
    ],
)
def test_the_stop_string_that_ended_the_content_is_told(
    text: str, stops: tuple[str, ...], found: str | None
) -> None:
    stream = StopText(Letters(), stops)
    stream.feed(pack(codes(text)))
    stream.finish()

    assert stream.found == found


@pytest.mark.parametrize(("stops", "found"), [(("3", "de"), "de"), (("de", "d"), "de")])
def test_of_several_that_come_at_once_the_first_in_the_text_is_told(
    stops: tuple[str, ...], found: str
) -> None:
    stream = StopText(HeldBack(), stops)
    stream.finish()

    assert (stream.found, stream.message.content) == (found, "co")
