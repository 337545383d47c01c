"""Stop strings in what comes out late, and behind white space."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.sessions.message_keys import message_key
from seamlessflow.infra.rendering.completion import NOTHING, MessageDelta, ParsedMessage
from seamlessflow.producers.rollout.turns.assistant_message import message_json
from seamlessflow.producers.rollout.turns.stop_text import StopText
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack
from tests.builders.records.content import message
from tests.builders.rollout.completions import Letters, codes
from tests.builders.tokenizers import make_renderer


class HeldBack:
    """A stream that gives all its text at the end, as an unclosed tool call comes out."""

    message = ParsedMessage("code 3")
    space = ""

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


@pytest.mark.parametrize("behind", ["", "more", "  "])
def test_a_stop_string_of_white_space_ends_the_turn_at_its_own_token(behind: str) -> None:
    renderer = make_renderer()
    upto, rest = renderer.encode("word\n\n"), renderer.encode(behind)
    stream = StopText(renderer.stream(), ["\n\n"])

    streamed = stream.feed(upto + rest).content + stream.finish().content

    assert (stream.found, stream.found_after) == ("\n\n", len(upto) // TOKEN_BYTES)
    assert streamed == stream.message.content == "word"


@pytest.mark.parametrize(("stops", "found"), [(("3", "de"), "de"), (("de", "d"), "de")])
def test_of_several_that_come_at_once_the_first_in_the_text_is_told(
    stops: tuple[str, ...], found: str
) -> None:
    stream = StopText(HeldBack(), stops)
    stream.finish()

    assert (stream.found, stream.message.content) == (found, "co")


@settings(deadline=None, max_examples=200)
@given(
    text=st.text("ab \n", max_size=12),
    stops=st.lists(st.text("ab \n", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    raw=st.booleans(),
)
@example(text="word11 STOP", stops=["STOP"], cuts=list(range(11)), raw=False)
def test_the_streamed_text_is_that_of_the_message_and_continues_the_same_turn(
    text: str, stops: list[str], cuts: list[int], raw: bool
) -> None:
    renderer = make_renderer()
    ids = renderer.encode(text)
    places = [0, *sorted(TOKEN_BYTES * cut for cut in cuts), len(ids)]

    stream = StopText(renderer.raw_stream() if raw else renderer.stream(), stops, trimmed=not raw)
    parts = [stream.feed(ids[a:b]) for a, b in pairwise(places)]
    streamed = "".join(part.content for part in [*parts, stream.finish()])

    whole = StopText(renderer.raw_stream() if raw else renderer.stream(), stops, trimmed=not raw)
    whole.feed(ids)
    whole.finish()
    assert streamed == stream.message.content == whole.message.content
    sent_back = message("assistant", streamed)
    stored = message_json(whole.message, "turn")
    assert message_key(sent_back, "exact") == message_key(stored, "exact")
