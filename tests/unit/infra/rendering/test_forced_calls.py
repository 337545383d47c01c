"""Tool calls that are begun for the model."""

import pytest

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.infra.rendering.tool_calls import ToolCall
from seamlessflow.schemas.tokens import pack
from tests.builders.messages import ASKED, TOLD, TOOLS, Message, called
from tests.builders.tokenizers import make_renderer, merging_renderer

EMPTY_THINKING = "<think>\n\n</think>\n\n"


def forced(renderer: Renderer, messages: list[Message], name: str | None) -> tuple[bytes, str]:
    """The prompt, and the beginning as text."""
    prompt = renderer.render(messages, TOOLS)
    return prompt, renderer.decode(renderer.forced_call(prompt, messages, TOOLS, name))


@pytest.mark.parametrize("messages", [[ASKED], [ASKED, called("{}"), TOLD]])
@pytest.mark.parametrize(
    ("family", "thinking", "beginning"),
    [
        ("qwen3", None, EMPTY_THINKING + '<tool_call>\n{"name": "act", "arguments": {'),
        ("qwen3", False, '<tool_call>\n{"name": "act", "arguments": {'),
        ("qwen3.5", None, "\n</think>\n\n<tool_call>\n<function=act>\n<"),
        ("qwen3.5", False, "<tool_call>\n<function=act>\n<"),
        ("qwen3-vl", None, '<tool_call>\n{"name": "act", "arguments": {'),
    ],
)
def test_a_call_begins_as_the_template_spells_it_with_thinking_closed(
    family: str, thinking: bool | None, beginning: str, messages: list[Message]
) -> None:
    renderer = make_renderer(family, None, thinking)
    prompt, text = forced(renderer, messages, "act")
    assert text == beginning
    answer = called('{"a": 1}')
    assert renderer.decode(renderer.render([*messages, answer], TOOLS)).startswith(
        renderer.decode(prompt) + beginning
    )


@pytest.mark.parametrize(
    ("family", "beginning"),
    [
        ("qwen3", EMPTY_THINKING + '<tool_call>\n{"name": "'),
        ("qwen3.5", "\n</think>\n\n<tool_call>\n<function="),
    ],
)
def test_a_call_of_any_function_begins_as_far_as_all_do(family: str, beginning: str) -> None:
    assert forced(make_renderer(family), [ASKED], None)[1] == beginning


@pytest.mark.parametrize(
    ("family", "rest"),
    [
        ("qwen3", '"a":1}}\n</tool_call><|im_end|>'),
        ("qwen3-vl", '"a":1}}\n</tool_call><|im_end|>'),
    ],
)
def test_what_is_sampled_behind_a_beginning_makes_the_call(family: str, rest: str) -> None:
    renderer = make_renderer(family)
    prompt, beginning = forced(renderer, [ASKED], "act")
    stream = renderer.stream(TOOLS, prompt)
    assert not stream.feed(renderer.encode(beginning))
    assert stream.feed(renderer.encode(rest)).tool_calls == (ToolCall("act", '{"a":1}'),)
    stream.finish()
    assert (stream.message.content, stream.message.reasoning or "") == ("", "")
    assert stream.message.well_formed


def test_the_next_turn_goes_on_behind_a_call_that_was_begun() -> None:
    renderer = make_renderer()
    prompt, beginning = forced(renderer, [ASKED], "act")
    turn = prompt + renderer.encode(beginning)
    completion = renderer.encode('"a":1}}\n</tool_call><|im_end|>')
    suffix = renderer.bridge(turn, completion, [TOLD], TOOLS)
    assert suffix is not None
    assert renderer.decode(suffix).startswith("\n<|im_start|>user\n<tool_response>\nfour")


def test_a_beginning_ends_between_tokens_of_the_models_own_spelling() -> None:
    renderer = merging_renderer("qwen3", [' {"', " {}"])
    prompt, beginning = forced(renderer, [ASKED], "act")
    assert beginning.endswith('"arguments":')
    whole = renderer.render([ASKED, called('{"a": 1}')], TOOLS)
    assert whole.startswith(prompt + renderer.encode(beginning))


def test_a_beginning_of_any_call_is_not_joined_otherwise_than_with_the_tool_that_is_there() -> None:
    joined = '\n{"name": "act'
    renderer = merging_renderer("qwen3", [joined])
    prompt, beginning = forced(renderer, [ASKED], None)
    assert beginning == EMPTY_THINKING + "<tool_call>"
    whole = renderer.render([ASKED, called('{"a": 1}')], TOOLS)
    assert whole.startswith(prompt + renderer.encode(beginning) + renderer.encode(joined))


def test_thinking_is_closed_where_its_line_breaks_are_one_token() -> None:
    renderer = merging_renderer("qwen3.5", ["\n\n"])
    prompt, beginning = forced(renderer, [ASKED], "act")
    assert beginning.startswith("\n</think>\n\n<tool_call>\n<function=act>\n")
    rest = renderer.encode("/function>\n</tool_call><|im_end|>")
    message = renderer.parse(renderer.encode(beginning) + rest, TOOLS, prompt)
    assert message.tool_calls == (ToolCall("act", "{}"),)


def test_what_cannot_be_begun_is_refused() -> None:
    renderer = make_renderer()
    prompt = renderer.render([ASKED], TOOLS)
    with pytest.raises(RendererError, match="does not end where an answer begins"):
        renderer.forced_call(prompt + pack([5]), [ASKED], TOOLS, "act")
    with pytest.raises(RendererError, match="is not read"):
        renderer.forced_call(renderer.render([ASKED]), [ASKED], None, "act")
