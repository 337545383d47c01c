"""Matching of messages, with the real renderer and a tiny tokenizer."""

from pathlib import Path

import orjson
import pytest
import xxhash

from seamlessflow.consumers.trajectories.matching.chat import match
from seamlessflow.consumers.trajectories.matching.match import Match
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness, shape_key
from seamlessflow.consumers.trajectories.sessions.tree import ROOT
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, RendererSettings
from seamlessflow.schemas.identity import tool_call_id
from tests.builders.model_directories import FAMILIES, model_directory
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import completed, dispatched, opened, started
from tests.builders.trajectories.session_builder import SessionBuilder

SHAPE = shape_key("p", "t", None, None)
USER = message("user", "key 7")


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(directory)
    return Renderer.load(directory, RendererSettings("qwen3", thinking_retention="all"))


class Conversation:
    """A session in which turns are matched, started and answered."""

    def __init__(self, renderer: Renderer, strictness: Strictness = "arguments") -> None:
        self.renderer, self.strictness = renderer, strictness
        self.built = SessionBuilder().apply(opened())

    def match(self, *messages: bytes, shape: bytes = SHAPE) -> Match:
        return match(self.built.session, messages, None, shape, self.renderer, self.strictness)

    def turn(self, turn_id: str, *messages: bytes, answer: bytes, text: str) -> Match:
        matched = self.match(*messages)
        sampled = self.renderer.encode(text) + ids(self.renderer.stop_token_ids[0])
        self.built.apply(
            started(
                turn_id,
                matched.suffix_ids,
                parent_node=matched.parent_node,
                parent_end=matched.parent_end,
                prompt_length=len(matched.prompt_ids) // 4,
                prompt_hash=xxhash.xxh3_128_digest(matched.prompt_ids),
                history_key=matched.history_key,
                match_rule=matched.rule,
                parent_turn=matched.parent_turn,
            ),
            dispatched(turn_id),
            completed(sampled, turn_id, matched.prompt_ids, message=answer),
        )
        return matched

    def sampled(self, turn_id: str) -> bytes:
        return self.built.sampled(turn_id)


@pytest.fixture
def conversation(renderer: Renderer) -> Conversation:
    return Conversation(renderer)


ANSWER = message("assistant", "code 3")


def test_the_first_request_is_a_root(conversation: Conversation) -> None:
    matched = conversation.match(USER)

    assert (matched.rule, matched.detail, matched.parent_node) == ("root", "no_history", ROOT)
    assert matched.suffix_ids == matched.prompt_ids


def test_a_longer_history_extends_the_exact_stored_ids(conversation: Conversation) -> None:
    """Holds invariant I3."""
    first = conversation.turn("a", USER, answer=ANSWER, text="co")

    matched = conversation.match(USER, ANSWER, message("user", "more"))

    assert (matched.rule, matched.parent_turn, matched.ambiguous) == ("extend", "a", False)
    assert matched.prompt_ids == first.prompt_ids + conversation.sampled("a") + matched.suffix_ids
    assert matched.new_messages == (message("user", "more"),)


@pytest.mark.parametrize(
    ("new", "detail"),
    [
        ((message("assistant", "a summary"), message("user", "more")), "foreign_answer"),
        ((message("user", "more"), ANSWER, message("user", "3")), "foreign_answer"),
        ((), "answer_last"),
    ],
)
def test_what_the_policy_did_not_sample_is_rendered_behind_its_exact_ids(
    conversation: Conversation, new: tuple[bytes, ...], detail: str
) -> None:
    """Holds invariant I3."""
    first = conversation.turn("a", USER, answer=ANSWER, text="co")

    matched = conversation.match(USER, ANSWER, *new)
    assert (matched.rule, matched.detail, matched.parent_turn) == ("extend", detail, "a")
    assert matched.prompt_ids == first.prompt_ids + conversation.sampled("a") + matched.suffix_ids
    assert matched.new_messages == new
    rendered = conversation.renderer.render(list(map(orjson.loads, (USER, ANSWER, *new))))
    assert rendered.endswith(matched.suffix_ids)

    conversation.turn("b", USER, ANSWER, *new, answer=message("assistant", "so"), text="so")
    behind = (USER, ANSWER, *new, message("assistant", "so"), message("user", "end"))
    assert conversation.match(*behind).parent_turn == "b"
    again = conversation.match(USER, ANSWER, *new)
    assert (again.rule, again.detail, again.suffix_ids) == ("extend", "same_prompt", b"")


def test_an_edited_history_is_rendered_anew_and_forks_where_its_tokens_leave(
    conversation: Conversation,
) -> None:
    """Holds invariant I5."""
    conversation.turn("a", USER, answer=ANSWER, text="code 3")

    matched = conversation.match(USER, message("assistant", "code 9"), message("user", "more"))

    assert (matched.rule, matched.detail) == ("render", "edited_history")
    before = conversation.built.session.tree.path(matched.parent_node, matched.parent_end)
    assert before + matched.suffix_ids == matched.prompt_ids


def test_another_first_message_is_another_root(conversation: Conversation) -> None:
    conversation.turn("a", USER, answer=ANSWER, text="code 3")

    assert conversation.match(message("user", "hello")).rule == "root"


def test_the_same_request_again_shares_the_whole_prompt(conversation: Conversation) -> None:
    first = conversation.turn("a", USER, answer=ANSWER, text="code 3")

    again = conversation.match(USER)

    assert (again.rule, again.detail, again.suffix_ids) == ("same", "same_prompt", b"")
    assert again.prompt_ids == first.prompt_ids
    prompt_node = conversation.built.turn("a").prompt_node
    assert (again.parent_node, again.parent_end) == (prompt_node, len(first.prompt_ids) // 4)


def test_a_prompt_without_a_stop_token_is_shared_when_it_is_asked_again(tmp_path: Path) -> None:
    model_directory(tmp_path, FAMILIES["Mistral"])
    conversation = Conversation(Renderer.load(tmp_path, RendererSettings(CHAT_TEMPLATE)))
    first = conversation.turn("a", USER, answer=ANSWER, text="code 3")

    again, other = conversation.match(USER), conversation.match(message("user", "key 8"))

    assert (again.rule, again.suffix_ids, again.prompt_ids) == ("same", b"", first.prompt_ids)
    assert (other.rule, other.parent_node) == ("root", ROOT)


def test_two_continuations_with_equal_text_share_their_prompt(conversation: Conversation) -> None:
    conversation.turn("a", USER, answer=ANSWER, text="code 3")
    earlier = conversation.turn("b", USER, ANSWER, message("user", "more"), answer=ANSWER, text="1")

    repeat = conversation.match(USER, ANSWER, message("user", "more"))

    assert (repeat.rule, repeat.suffix_ids, repeat.prompt_ids) == (
        "extend",
        b"",
        earlier.prompt_ids,
    )
    assert (earlier.detail, repeat.detail) == ("", "same_prompt")


def test_a_history_cut_short_is_no_prompt_that_was_asked_before(conversation: Conversation) -> None:
    system, more = message("system", "be brief"), message("user", "more")
    conversation.turn("a", system, USER, ANSWER, more, answer=ANSWER, text="code 3")

    matched = conversation.match(system)

    assert (matched.rule, matched.detail) == ("render", "edited_history")


def test_samples_of_a_prompt_with_its_answer_begun_share_their_place(
    conversation: Conversation,
) -> None:
    tree, begun = conversation.built.session.tree, ids(7, 8)

    def sample(turn_id: str, *messages: bytes) -> tuple[int, int]:
        matched = conversation.match(*messages).with_answer_begun(begun, tree)
        assert matched.prefill == 2 and matched.prompt_ids.endswith(begun)
        conversation.built.apply(
            started(
                turn_id,
                matched.suffix_ids,
                parent_node=matched.parent_node,
                parent_end=matched.parent_end,
                history_key=matched.history_key,
            )
        )
        node = tree.nodes[conversation.built.turn(turn_id).prompt_node]
        assert tree.path(node.node_id, node.length) == matched.prompt_ids
        return (node.node_id, node.length) if node.length else (node.parent, node.parent_end)

    conversation.turn("plain", USER, answer=ANSWER, text="code 3")
    behind = (USER, ANSWER, message("user", "more"))

    assert sample("a", message("user", "x")) == sample("b", message("user", "x"))
    assert sample("c", USER) == sample("d", USER)
    assert conversation.match(USER).with_answer_begun(begun, tree).rule == "same"
    assert conversation.match(message("user", "x")).with_answer_begun(begun, tree).rule == "same"
    assert sample("e", *behind) == sample("f", *behind)


def test_another_shape_never_extends(conversation: Conversation) -> None:
    conversation.turn("a", USER, answer=ANSWER, text="code 3")

    matched = conversation.match(
        USER, ANSWER, message("user", "more"), shape=shape_key("other tools")
    )

    assert matched.rule != "extend"


def test_samples_that_read_the_same_are_told_apart_by_their_tool_call_ids(
    conversation: Conversation,
) -> None:
    """Holds invariant I5."""

    def calling(turn_id: str) -> bytes:
        call = {"name": "lookup", "arguments": '{"key":7}'}
        entry = {"id": tool_call_id(turn_id, 0), "type": "function", "function": call}
        return message("assistant", None, tool_calls=[entry])

    result = message("tool", "code 3", tool_call_id="x")
    for turn_id in ("a", "b", "c"):
        conversation.turn(turn_id, USER, answer=calling(turn_id), text=f"sample {turn_id}")

    named = conversation.match(USER, calling("b"), result)
    guessed = conversation.match(USER, calling("unheard"), result)

    assert (named.parent_turn, named.ambiguous) == ("b", False)
    assert (guessed.parent_turn, guessed.ambiguous) == ("c", True)


@pytest.mark.parametrize("text", ["", None, "dropped"])
def test_an_answer_is_known_without_the_text_beside_its_calls(
    conversation: Conversation, text: str | None
) -> None:
    call = {
        "id": tool_call_id("a", 0),
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
    said = message("assistant", "I look it up", tool_calls=[call])
    conversation.turn("a", USER, answer=said, text="I look it up<tool_call>{}</tool_call>")
    result = message("tool", "3", tool_call_id=call["id"])
    repeated = message("assistant", text, tool_calls=[call])
    if text == "dropped":
        repeated = orjson.dumps({"role": "assistant", "tool_calls": [call]})

    matched = conversation.match(USER, repeated, result)

    assert (matched.rule, matched.parent_turn, matched.ambiguous) == ("extend", "a", False)
    assert set(matched.answer_differs) == {"exact", "content"}
    assert matched.prompt_ids.startswith(conversation.match(USER).prompt_ids)
    assert "I look it up" in conversation.renderer.decode(matched.prompt_ids)


def test_the_text_beside_calls_tells_samples_apart_whose_ids_were_changed(
    conversation: Conversation,
) -> None:
    def said(text: str, call_id: str) -> bytes:
        function = {"name": "f", "arguments": "{}"}
        calls = [{"id": call_id, "type": "function", "function": function}]
        return message("assistant", text, tool_calls=calls)

    for turn in ("a", "b"):
        answer = said(f"sample {turn}", tool_call_id(turn, 0))
        conversation.turn(turn, USER, answer=answer, text=f"sample {turn}")
    result = message("tool", "3", tool_call_id="x")

    named = conversation.match(USER, said("sample a", "x"), result)
    dropped = conversation.match(USER, said("", "x"), result)
    assert (named.parent_turn, named.ambiguous) == ("a", False)
    assert (dropped.parent_turn, dropped.ambiguous) == ("b", True)
