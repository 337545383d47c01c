from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.task import LOOKUP, answer_text, call_text, dialogue, make_tasks
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.tokens import unpack


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(made)
    return made


@pytest.fixture(scope="module")
def renderer(directory: Path) -> Renderer:
    return Renderer.load(directory, RENDERER)


def test_it_is_made_the_same_each_time(directory: Path, tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    for file in directory.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_an_episode_is_short(renderer: Renderer) -> None:
    asked, _, result, _ = dialogue(make_tasks(1, 0, "train")[0])
    prompt = renderer.render([asked], [LOOKUP])
    call = renderer.encode(call_text(7) + "<|im_end|>")
    suffix = renderer.bridge(prompt, call, [result], [LOOKUP]) or b""
    answer = renderer.encode(answer_text(3) + "<|im_end|>")
    assert [len(ids) // 4 for ids in (prompt, call, suffix, answer)] == [19, 6, 13, 3]


def test_a_digit_is_one_token_the_same_everywhere(renderer: Renderer) -> None:
    for digit in range(10):
        (token,) = unpack(renderer.encode(str(digit)))
        for text in (f"key {digit}", call_text(digit), answer_text(digit)):
            assert unpack(renderer.encode(text)).count(token) == 1
    assert len(unpack(renderer.encode("2024"))) == 4


def test_the_call_the_policy_learns_is_read_as_one(renderer: Renderer) -> None:
    (call,) = renderer.parse(renderer.encode(call_text(7)), [LOOKUP]).tool_calls
    assert (call.name, call.arguments) == ("lookup", '{"key": 7}')


THINKING = {"role": "assistant", "content": "so", "reasoning_content": "why"}
CONVERSATIONS: list[list[Mapping[str, object]]] = [
    [{"role": "user", "content": "hello"}],
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": "key 1"}],
    [{"role": "user", "content": "a"}, THINKING, {"role": "user", "content": "b"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nso"},
        {"role": "system", "content": "b"},
        {"role": "user", "content": "<tool_response>\nx\n</tool_response>"},
    ],
    [
        {"role": "user", "content": "a"},
        {**THINKING, "tool_calls": [{"function": {"name": "lookup", "arguments": "{}"}}] * 2},
        {"role": "tool", "content": "x"},
        {"role": "tool", "content": "y"},
        {"role": "user", "content": "b"},
    ],
    *(dialogue(task)[:3] for task in make_tasks(3, 0, "eval")),
]


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, [LOOKUP], [LOOKUP, LOOKUP]])
def test_the_chat_template_gives_the_renderers_ids(
    directory: Path,
    messages: list[Mapping[str, object]],
    tools: list[dict[str, object]] | None,
) -> None:
    # The template reads markup in a user's words as control tokens; by default we do not.
    renderer = Renderer.load(directory, replace(RENDERER, control_tokens="tokens"))
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    ids = tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, return_dict=False
    )
    assert ids == unpack(renderer.render(messages, tools))


def test_transformers_knows_the_end_of_a_turn(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert tokenizer.decode(tokenizer.encode("code 3<|im_end|>"), skip_special_tokens=True) == (
        "code 3"
    )
