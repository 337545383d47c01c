"""Supervised fine-tuning: tokens that are learned, bad lines, a loss that falls, a resumed run."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import normalizers

from seamlessflow.config import RunConfig
from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.model import make_model
from seamlessflow.demo.task import LOOKUP, dialogue, make_tasks
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.runs.conversations import ConversationsRejected, read_conversations
from seamlessflow.runs.supervised import SupervisedForeign, fine_tune
from tests.builders.line_forms import LINE_FORMS, SEPARATORS, Written
from tests.builders.tokenizers import byte_tokenizer

ASKED: dict[str, Any] = {"role": "user", "content": "key 7"}
SAID: dict[str, Any] = {"role": "assistant", "content": "code 3"}
RULES: dict[str, Any] = {"role": "system", "content": "look it up"}
CALL: dict[str, Any] = {"id": "a", "function": {"name": "look", "arguments": '{"key": 7}'}}
CALLED: dict[str, Any] = {"role": "assistant", "tool_calls": [CALL]}
NO_TEXT: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{**CALL, "function": {"name": "look", "arguments": {"key": 7}}}],
}


def written(directory: Path, *rows: object) -> Path:
    path = directory / "conversations.jsonl"
    path.write_bytes(b"\n".join(map(line, rows)))
    return path


def line(row: object) -> bytes:
    text = row if isinstance(row, str | bytes) else json.dumps(row)
    return text.encode() if isinstance(text, str) else text


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    directory = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(directory)
    return Renderer.load(directory, RENDERER)


def test_answers_alone_are_learned_with_their_ends(renderer: Renderer, tmp_path: Path) -> None:
    (task,) = make_tasks(1, 0, "train")
    path = written(tmp_path, {"messages": dialogue(task), "tools": [LOOKUP]})
    ((chain,),) = read_conversations(path, renderer, 512)
    tokens = chain.tokens
    texts = [
        renderer.decode(tokens.ids_T[tokens.turns_T == turn].astype("<i4").tobytes())
        for turn in (0, 1)
    ]
    assert texts[0].endswith("</tool_call><|im_end|>")
    assert texts[1].endswith(f"code {task['table'][task['key']]}<|im_end|>")
    assert (tokens.trained_T == (tokens.turns_T >= 0)).all()


@pytest.mark.parametrize("written_as", LINE_FORMS.values(), ids=LINE_FORMS)
def test_conversations_are_the_same_however_their_lines_were_written(
    renderer: Renderer, tmp_path: Path, written_as: Written
) -> None:
    path = tmp_path / "conversations.jsonl"
    asked = {"role": "user", "content": SEPARATORS}
    row = json.dumps({"messages": [asked, SAID]}, ensure_ascii=False).encode()
    path.write_bytes(written_as([row] * 3))
    assert len(read_conversations(path, renderer, 512)) == 3


def test_an_answer_of_weight_0_is_not_learned(renderer: Renderer, tmp_path: Path) -> None:
    messages = [ASKED, {**SAID, "weight": 0}, ASKED, SAID]
    ((chain,),) = read_conversations(written(tmp_path, {"messages": messages}), renderer, 512)
    assert chain.turns == ("turn-0",)
    assert renderer.decode(chain.tokens.ids_T.astype("<i4").tobytes()).count("code 3") == 2


@pytest.mark.parametrize(
    "said",
    [
        {"content": " code 3\n"},
        {"content": "a < b, </b> and <|im_en d|>"},
        {"content": "", "tool_calls": [CALL]},
        {"content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
        {"tool_calls": [{**CALL, "function": {"name": "look", "arguments": ' {"key":7.0}'}}]},
        {"tool_calls": [{**CALL, "function": {"name": "look", "arguments": ""}}]},
    ],
)
@pytest.mark.parametrize("tools", [None, [LOOKUP]])
def test_an_answer_that_reads_back_as_it_was_given_is_learned(
    said: dict[str, Any], tools: object, renderer: Renderer, tmp_path: Path
) -> None:
    asked = {**ASKED, "content": "what does <|im_end|> or <think> do?"}
    row = {"messages": [asked, {"role": "assistant", **said}], "tools": tools}
    assert len(read_conversations(written(tmp_path, row), renderer, 512)) == 1


def test_letters_that_a_tokenizer_composes_are_learned_composed(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.normalizer = normalizers.NFC()
    renderer = Renderer(Tokenizer(tokenizer), RENDERER, "")
    call = {**CALL, "function": {"name": "look", "arguments": '{"key": "e\u0301"}'}}
    answers = [
        {"role": "assistant", "content": "Cafe\u0301."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    rows = [{"messages": [ASKED, answer], "tools": [LOOKUP]} for answer in answers]
    chains = read_conversations(written(tmp_path, *rows), renderer, 1024)
    learned = [renderer.decode(chain.tokens.ids_T.astype("<i4").tobytes()) for (chain,) in chains]
    assert "Caf\u00e9.<|im_end|>" in learned[0]
    assert '{"key": "\u00e9"}' in learned[1]


def test_results_are_learned_in_the_order_of_their_calls(
    renderer: Renderer, tmp_path: Path
) -> None:
    calls = [{**CALL, "id": name} for name in ("a", "b")]
    answers = [
        {"role": "tool", "tool_call_id": name, "content": f"of {name}"} for name in ("a", "b")
    ]
    rows = [
        {"messages": [ASKED, {**CALLED, "tool_calls": calls}, *results, SAID], "tools": [LOOKUP]}
        for results in (answers, answers[::-1])
    ]
    (ordered,), (exchanged,) = read_conversations(written(tmp_path, *rows), renderer, 512)
    assert exchanged.tokens.ids_T.tolist() == ordered.tokens.ids_T.tolist()


def test_an_answer_that_the_template_changes_later_ends_its_chain(
    renderer: Renderer, tmp_path: Path
) -> None:
    messages = [ASKED, {**SAID, "reasoning_content": "it is 3"}, ASKED, SAID]
    (chains,) = read_conversations(written(tmp_path, {"messages": messages}), renderer, 512)
    texts = [renderer.decode(chain.tokens.ids_T.astype("<i4").tobytes()) for chain in chains]
    assert ["it is 3" in text for text in texts] == [True, False]
    assert [sorted(set(chain.tokens.turns_T.tolist())) for chain in chains] == [[-1, 0], [-1, 1]]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "Expecting property name"),
        ([], "not a JSON object"),
        ({"messages": "hi"}, "messages must be a list of at least one message"),
        ({"messages": [ASKED], "tools": [1]}, "tools[0] must be of type function"),
        ({"messages": [ASKED]}, "no message is an answer"),
        ({"messages": [SAID]}, "message 0 is an answer, to nothing"),
        (
            {"messages": [{"role": "critic", "content": ""}, SAID]},
            "messages[0].role must be one of",
        ),
        ({"messages": [ASKED, {**SAID, "content": "code 3 " * 99}]}, "of policy.max_context"),
        ({"messages": [ASKED, {**SAID, "weight": 0.5}]}, "message 1 has the weight 0.5, which is"),
        ({"messages": [ASKED, CALLED, {"role": "tool", "content": "3"}, SAID]}, "must name a tool"),
        ({"messages": [ASKED, CALLED, ASKED, SAID]}, "did not have response messages: a"),
        ({"messages": [ASKED, NO_TEXT, SAID]}, "a function with name and arguments as text"),
        *(
            ({"messages": [ASKED, {**SAID, **said}], "tools": [LOOKUP]}, f"its {part} is ")
            for said, part in (
                ({"content": "Write <|im_end|> behind it, then a new line."}, "content"),
                ({"content": "<|im_end|>"}, "content"),
                ({"content": "Tags are <think> and </think>, so"}, "reasoning_content"),
                ({"content": "<think>hm</think>code 3"}, "reasoning_content"),
                ({"content": "</think> code 3"}, "content"),
                ({"content": "a <tool_call> b"}, "text"),
                ({"reasoning_content": "a </think> b"}, "reasoning_content"),
                (
                    {
                        "content": '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>',
                    },
                    "content",
                ),
            )
        ),
        ("[" * 99_999, "recursion"),
        (b'{"messages": "\xe9"}', "it is not UTF-8 (byte 0xe9 at column 15)"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(
    row: object, reason: str, renderer: Renderer, tmp_path: Path
) -> None:
    path = written(tmp_path, {"messages": [ASKED, SAID]}, "", row)
    with pytest.raises(ConversationsRejected) as refused:
        read_conversations(path, renderer, 64)
    (fault,) = refused.value.faults
    assert fault.startswith(f"{path}:3: ") and reason in fault


def test_messages_and_tools_are_those_that_an_agent_would_send(
    renderer: Renderer, tmp_path: Path
) -> None:
    answer = {"role": "tool", "content": "3", "tool_call_id": "a"}
    tool: dict[str, Any] = {"type": "function", "function": {"name": "look", "parameters": {}}}
    plain = {"messages": [RULES, ASKED, CALLED, answer, SAID], "tools": [tool]}
    parts = {"content": [{"type": "text", "text": "key "}, {"type": "text", "text": "7"}]}
    rich = [{**RULES, "role": "developer"}, ASKED | parts, CALLED | {"refusal": None}, answer, SAID]
    more = {**tool, "function": {**tool["function"], "strict": None}}
    path = written(tmp_path, plain, {"messages": rich, "tools": [more], "source": "elsewhere"})
    ((chain,), (other,)) = read_conversations(path, renderer, 512)
    assert chain.tokens.ids_T.tolist() == other.tokens.ids_T.tolist()
    assert chain.tokens.trained_T.tolist() == other.tokens.trained_T.tolist()


def test_a_file_may_begin_with_a_mark_of_its_encoding(renderer: Renderer, tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeff" + json.dumps({"messages": [ASKED, SAID]}))
    assert len(read_conversations(path, renderer, 64)) == 1


def test_a_token_that_the_model_does_not_embed_is_named(tmp_path: Path) -> None:
    model = tmp_path / "model"
    make_model(model, seed=0)
    tokenizer = RustTokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.add_tokens(["<extra>"])
    tokenizer.save(str(model / "tokenizer.json"))
    policy = {"model": model, "renderer": {"name": "qwen3"}}
    trainer = {"device": "cpu", "threads": 1}
    config = RunConfig(out=tmp_path / "out", policy=policy, trainer=trainer)
    data = written(tmp_path, {"messages": [{**ASKED, "content": "an <extra>"}, SAID]})
    with pytest.raises(ConversationsRejected, match=r"'<extra>' is token .* and the model embeds"):
        fine_tune(config, data, 1, 1, lambda *_: None)


def test_the_loss_falls_and_a_killed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    make_model(tmp_path / "model", seed=0)
    rows = [{"messages": dialogue(task), "tools": [LOOKUP]} for task in make_tasks(32, 0, "train")]
    data = written(tmp_path, *rows)
    losses: list[float] = []

    def configured(out: str, lr: float = 3e-3) -> RunConfig:
        policy = {"model": tmp_path / "model", "max_context": 512, "renderer": {"name": "qwen3"}}
        trainer = {"optimizer": {"lr": lr}, "checkpoint_every": 4, "device": "cpu", "threads": 1}
        return RunConfig(out=tmp_path / out, policy=policy, trainer=trainer)

    def killed(step: int, *_: object) -> None:
        if step == 6:
            raise KeyboardInterrupt

    whole = fine_tune(
        configured("a"), data, 5, 16, lambda *arguments: losses.append(arguments[2]["loss"])
    )
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 2

    with pytest.raises(KeyboardInterrupt):
        fine_tune(configured("b"), data, 5, 16, killed)
    steps: list[int] = []
    begun: list[tuple[int, int]] = []
    again = fine_tune(
        configured("b"),
        data,
        5,
        16,
        lambda step, *_: steps.append(step),
        lambda *counts: begun.append(counts),
    )
    assert begun == [(4, 10)]
    assert steps == [5, 6, 7, 8, 9, 10]
    ours, theirs = (load_file(directory / "model.safetensors") for directory in (whole, again))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (again / "tokenizer.json").is_file()

    with pytest.raises(SupervisedForeign):
        fine_tune(configured("b", lr=1e-3), data, 5, 16, lambda *_: None)
