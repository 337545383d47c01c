"""Matching of plain prompts, with the real renderer and a tiny tokenizer."""

from pathlib import Path

import orjson
import pytest
import xxhash

from seamlessflow.consumers.trajectories.matching.match import Match
from seamlessflow.consumers.trajectories.matching.raw import match_raw
from seamlessflow.consumers.trajectories.sessions.message_keys import shape_key
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.schemas.tokens import unpack
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import completed, dispatched, opened, started
from tests.builders.trajectories.session_builder import SessionBuilder

SHAPE = shape_key("p", "t", None, None)


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(directory)
    return Renderer.load(directory, RendererSettings("qwen3"))


class Text:
    """A session of plain prompts and their answers."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.stop = ids(renderer.stop_token_ids[0])
        self.built = SessionBuilder().apply(opened())

    def match(self, text: str, policy: str = "p") -> Match:
        asked = orjson.dumps({"content": text, "role": "raw"})
        return match_raw(self.built.session, asked, policy, SHAPE, self.renderer)

    def match_ids(self, prompt: bytes, policy: str = "p", **more: object) -> Match:
        asked = orjson.dumps({"ids": unpack(prompt), "role": "raw", **more})
        return match_raw(self.built.session, asked, policy, SHAPE, self.renderer)

    def turn(
        self, turn_id: str, text: str, answer: str, sampled: bytes, reason: str = "stop"
    ) -> Match:
        return self.answer(turn_id, self.match(text), answer, sampled, reason)

    def answer(
        self, turn_id: str, matched: Match, answer: str, sampled: bytes, reason: str = "stop"
    ) -> Match:
        self.built.apply(
            started(
                turn_id,
                matched.suffix_ids,
                parent_node=matched.parent_node,
                parent_end=matched.parent_end,
                prompt_length=len(matched.prompt_ids) // 4,
                prompt_hash=xxhash.xxh3_128_digest(matched.prompt_ids),
                history_key=matched.history_key,
                parent_turn=matched.parent_turn,
                new_messages=matched.new_messages,
                raw=True,
            ),
            dispatched(turn_id),
            completed(
                sampled,
                turn_id,
                matched.prompt_ids,
                message=message("assistant", answer),
                finish_reason=reason,
            ),
        )
        return matched


@pytest.fixture
def text(renderer: Renderer) -> Text:
    return Text(renderer)


def test_a_text_goes_on_from_exact_ids_without_the_stop_token(text: Text) -> None:
    encode = text.renderer.encode
    sampled = encode("co") + encode("de")
    first = text.turn("a", "say: ", "code", sampled + text.stop)

    matched = text.match("say: code 3")

    assert (matched.rule, matched.parent_turn, matched.parent_end) == (
        "extend",
        "a",
        len(sampled) // 4,
    )
    assert matched.prompt_ids == first.prompt_ids + sampled + encode(" 3")


def test_a_stop_string_that_was_sampled_is_not_said_twice(text: Text) -> None:
    encode = text.renderer.encode
    sampled = encode("act") + encode("\nObs:")
    first = text.turn("a", "think: ", "act", sampled)

    matched = text.match("think: act\nObs: done\n")

    assert (matched.rule, matched.parent_turn) == ("extend", "a")
    assert matched.prompt_ids == first.prompt_ids + sampled + encode(" done\n")


def test_a_turn_behind_a_sampled_stop_string_goes_on_like_any_other(text: Text) -> None:
    encode = text.renderer.encode
    text.turn("a", "think: ", "act", encode("act\nObs:"))
    second = text.turn("b", "think: act\nObs: done\n", "end", encode("end") + text.stop)

    matched = text.match("think: act\nObs: done\nend of it")

    assert (matched.rule, matched.parent_turn) == ("extend", "b")
    assert matched.prompt_ids == second.prompt_ids + encode("end") + encode(" of it")


def test_a_stop_string_that_the_next_prompt_leaves_out_is_left_out(text: Text) -> None:
    text.turn("a", "think: ", "act", text.renderer.encode("act\nObs:"))

    matched = text.match("think: act now")

    assert matched.rule == "render"
    assert text.renderer.decode(matched.prompt_ids) == "think: act now"


def test_an_answer_that_was_cut_by_its_length_goes_on(text: Text) -> None:
    first = text.turn("a", "say: ", "code", text.renderer.encode("code"), reason="length")

    matched = text.match("say: code 3")

    assert matched.rule == "extend"
    assert matched.prompt_ids == first.prompt_ids + text.renderer.encode("code") + (
        text.renderer.encode(" 3")
    )


def test_the_ids_of_another_policy_are_not_gone_on_from(text: Text) -> None:
    text.turn("a", "say: ", "code", text.renderer.encode("co") + text.renderer.encode("de"))

    assert text.match("say: code 3", policy="other").rule != "extend"


def test_of_samples_that_read_the_same_the_latest_is_meant(text: Text) -> None:
    for turn_id in ("a", "b"):
        text.turn(turn_id, "say: ", "code", text.renderer.encode("code") + text.stop)

    matched = text.match("say: code 3")

    assert (matched.parent_turn, matched.ambiguous) == ("b", True)


def test_samples_of_one_longer_text_share_their_prompt(renderer: Renderer) -> None:
    said = Text(renderer)
    said.turn("a", "once", " more", renderer.encode(" more") + said.stop)
    earlier = said.turn("b", "once more and", " on", renderer.encode(" on") + said.stop)

    repeat = said.match("once more and")

    assert (earlier.rule, repeat.rule) == ("extend", "extend")
    assert (repeat.suffix_ids, repeat.prompt_ids) == (b"", earlier.prompt_ids)
    assert repeat.parent_node == said.built.turn("b").prompt_node
    assert (earlier.detail, repeat.detail) == ("", "same_prompt")


def test_another_sample_of_a_text_is_no_edited_history(text: Text) -> None:
    first = text.turn("a", "say: code", "3", text.renderer.encode("3") + text.stop)

    again, other = text.match("say: code"), text.match("say: ")

    assert (again.rule, again.detail, again.suffix_ids) == ("same", "same_prompt", b"")
    assert again.prompt_ids == first.prompt_ids
    assert other.detail == "edited_history"


@pytest.mark.parametrize("with_stop", [True, False])
def test_ids_that_go_on_from_a_turn_extend_it(text: Text, with_stop: bool) -> None:
    encode = text.renderer.encode
    first = text.turn("a", "say: ", "code", encode("co") + encode("de") + text.stop)
    prompt = first.prompt_ids + encode("co") + encode("de") + (text.stop if with_stop else b"")

    matched = text.match_ids(prompt + ids(5, 6))

    assert (matched.rule, matched.detail, matched.parent_turn) == ("extend", "", "a")
    assert (matched.prompt_ids, matched.suffix_ids) == (prompt + ids(5, 6), ids(5, 6))
    assert orjson.loads(matched.new_messages[0]) == {"ids": [5, 6], "role": "raw"}


def test_the_same_ids_behind_a_turn_are_another_sample_of_their_prompt(text: Text) -> None:
    first = text.turn("a", "say: ", "code", text.renderer.encode("code"))
    prompt = first.prompt_ids + text.renderer.encode("code") + ids(5)
    text.answer("b", text.match_ids(prompt), "x", ids(9))

    again, other = text.match_ids(prompt), text.match_ids(prompt + ids(6))

    assert (again.rule, again.detail, again.suffix_ids) == ("extend", "same_prompt", b"")
    assert (other.rule, other.parent_turn, other.suffix_ids) == ("extend", "a", ids(6))


def test_ids_that_leave_what_was_sampled_are_an_edited_history(text: Text) -> None:
    first = text.turn("a", "say: ", "code", ids(7, 8, 9))

    edited = text.match_ids(first.prompt_ids + ids(7, 8, 5))

    assert (edited.rule, edited.detail, edited.parent_end) == ("render", "edited_history", 2)
    assert edited.parent_turn is None


def test_ids_of_equal_samples_extend_one_of_them_and_are_ambiguous(text: Text) -> None:
    for turn_id in ("a", "b"):
        text.turn(turn_id, "say: ", "code", ids(7, 8, 9))
    prompt = text.match("say: ").prompt_ids

    matched = text.match_ids(prompt + ids(7, 8, 9, 5))

    assert (matched.rule, matched.parent_turn, matched.ambiguous) == ("extend", "b", True)


def test_ids_behind_another_policys_turn_extend_no_turn(text: Text) -> None:
    first = text.turn("a", "say: ", "code", ids(7, 8, 9))

    matched = text.match_ids(first.prompt_ids + ids(7, 8, 9, 5), policy="other")

    assert (matched.rule, matched.parent_turn) == ("render", None)


def test_ids_of_a_client_that_stops_where_the_policy_does_are_a_prompt_like_any_other(
    text: Text,
) -> None:
    stops = list(text.renderer.stop_token_ids)

    for asked in (stops, stops[:1], []):
        matched = text.match_ids(ids(7, 8), stop_token_ids=asked)
        assert (matched.rule, matched.prompt_ids) == ("root", ids(7, 8))


@pytest.mark.parametrize("stops", [[7], ["x"], 7, [-1], [[]]], ids=str)
def test_ids_of_a_client_that_would_stop_elsewhere_are_refused(text: Text, stops: object) -> None:
    with pytest.raises(ValueError, match=r"stop_token_ids|token ids"):
        text.match_ids(ids(7, 8), stop_token_ids=stops)
