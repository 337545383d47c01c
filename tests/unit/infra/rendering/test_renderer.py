import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings, rendering_hash
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.producers.gateway.dialects.openai_responses.request import (
    parse as parse_responses,
)
from seamlessflow.schemas.tokens import unpack
from tests.builders.messages import ASKED, TOLD, TOOLS, Message, called
from tests.builders.tokenizers import (
    MARKUP_TOKENS,
    byte_tokenizer,
    make_renderer,
    merging_renderer,
)
from tests.paths import CODEX_REQUEST

FAMILIES = ("qwen3", "qwen3.5", "qwen3.6", "qwen3.8", "qwen3-vl", "prime-qwen3")

CODEX = CODEX_REQUEST
ASKED_AGAIN = {"role": "user", "content": "two"}


class TestRender:
    def test_a_prompt_reads_as_the_models_template_has_it(self) -> None:
        renderer = make_renderer()
        messages = [{"role": "system", "content": "be brief"}, ASKED]
        assert renderer.decode(renderer.render(messages)) == (
            "<|im_start|>system\nbe brief<|im_end|>\n"
            "<|im_start|>user\none<|im_end|>\n"
            "<|im_start|>assistant\n"
        )

    def test_arguments_keep_the_spelling_of_the_client(self) -> None:
        renderer = make_renderer()
        prompt = renderer.render([ASKED, called('{"a":1,  "b": 2}'), TOLD], TOOLS)
        assert (
            '<tool_call>\n{"name": "act", "arguments": {"a":1,  "b": 2}}\n</tool_call><|im_end|>'
            in renderer.decode(prompt)
        )

    def test_a_template_that_wants_an_object_gets_the_arguments_as_one(self) -> None:
        renderer = make_renderer("qwen3.5")
        prompt = renderer.render([ASKED, called('{"a": 1}'), TOLD], TOOLS)
        assert "<parameter=a>\n1\n</parameter>" in renderer.decode(prompt)

    def test_a_developer_is_the_system_and_text_parts_are_one_text(self) -> None:
        renderer = make_renderer()
        parts = [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]
        assert renderer.render([{"role": "developer", "content": parts}, ASKED]) == renderer.render(
            [{"role": "system", "content": "be brief"}, ASKED]
        )

    @pytest.mark.parametrize("family", FAMILIES)
    def test_what_the_system_says_in_several_messages_is_one(self, family: str) -> None:
        renderer = make_renderer(family)
        several: list[Message] = [
            {"role": "system", "content": "be brief"},
            {"role": "developer", "content": ""},
            {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
            {"role": "system", "content": "be quick"},
        ]
        system = {"role": "system", "content": "be brief\n\nbe kind\n\nbe quick"}
        for tools in (None, TOOLS):
            assert renderer.render([*several, ASKED], tools) == renderer.render(
                [system, ASKED], tools
            )
        prompt = renderer.render([system, ASKED], TOOLS)
        begun = renderer.forced_call(prompt, [*several, ASKED], TOOLS, "act")
        assert begun == renderer.forced_call(prompt, [system, ASKED], TOOLS, "act")

    @pytest.mark.parametrize("family", FAMILIES)
    def test_what_codex_sends_first_can_be_rendered(self, family: str) -> None:
        asked = parse_responses(CODEX.read_bytes(), 1)
        messages = [orjson.loads(message) for message in asked.messages]
        assert [message["role"] for message in messages] == ["system", "system", "user", "user"]
        assert make_renderer(family).render(messages, orjson.loads(asked.tools or b"[]"))

    def test_system_messages_of_different_names_stay_apart(self) -> None:
        named = [{"role": "system", "name": name, "content": name} for name in ("a", "b")]
        prompt = make_renderer().decode(make_renderer().render([*named, ASKED]))
        assert prompt.count("<|im_start|>system\n") == 2

    @pytest.mark.parametrize(
        ("messages", "reason"),
        [
            ([{"role": "robot", "content": "a"}], "message 0 has role 'robot'"),
            ([ASKED, {"content": "a"}], "message 1 has role None"),
            ([{"role": "user", "content": [{"type": "image_url"}]}], "part of type 'image_url'"),
            ([{"role": "user", "content": [5]}], "not an object with a type"),
            ([{"role": "user", "content": 5}], "neither text nor parts"),
            ([{"role": "assistant", "function_call": {}}], "use tool_calls"),
            ([{"role": "assistant", "tool_calls": "x"}], "no list"),
            ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "without a name"),
            ([], "cannot render"),
        ],
    )
    def test_what_a_template_would_drop_or_trip_over_is_refused(
        self, messages: Sequence[Message], reason: str
    ) -> None:
        with pytest.raises(RendererError, match=reason):
            make_renderer().render(messages)

    def test_a_template_with_rules_of_its_own_refuses_by_the_same_error(self) -> None:
        late_system = [ASKED, {"role": "system", "content": "be brief"}]
        with pytest.raises(RendererError, match="System message must be at the beginning"):
            make_renderer("qwen3.5").render(late_system)


class TestAnswer:
    @pytest.mark.parametrize("indented", ["\n    return one", "\n\nSure."])
    def test_an_answer_that_a_tokenizer_joins_with_its_prompt_stands_behind_it(
        self, indented: str
    ) -> None:
        renderer = merging_renderer("prime-qwen3", ["\n\n"])
        spoken = [ASKED, {"role": "assistant", "content": indented}]
        assert renderer.decode(renderer.answer(spoken)) == f"{indented}<|im_end|>"


class TestBridge:
    @pytest.mark.parametrize(
        ("sampled", "echoed"),
        [
            ("three<|im_end|>", {"role": "assistant", "content": "three"}),
            (
                '<tool_call>\n{"name": "act", "arguments": {}}\n</tool_call><|im_end|>',
                called("{}"),
            ),
            (
                "<think>\nwhy\n</think>\n\nthree<|im_end|>",
                {"role": "assistant", "content": "three", "reasoning_content": "why"},
            ),
        ],
    )
    def test_it_adds_what_a_whole_rendering_would(self, sampled: str, echoed: Message) -> None:
        renderer = make_renderer()
        prompt, completion = renderer.render([ASKED], TOOLS), renderer.encode(sampled)
        suffix = renderer.bridge(prompt, completion, [TOLD], TOOLS)
        assert suffix is not None
        assert prompt + completion + suffix == renderer.render([ASKED, echoed, TOLD], TOOLS)

    def test_new_system_messages_read_as_in_a_whole_rendering(self) -> None:
        renderer = make_renderer(retention="all")
        new = [ASKED_AGAIN, *({"role": "system", "content": text} for text in ("be kind", "so"))]
        prompt, completion = renderer.render([ASKED]), renderer.encode("three<|im_end|>")
        suffix = renderer.bridge(prompt, completion, new)
        assert suffix is not None
        echoed = {"role": "assistant", "content": "three"}
        assert prompt + completion + suffix == renderer.render([ASKED, echoed, *new])
        assert renderer.decode(suffix).count("<|im_start|>system") == 1

    def test_a_completion_that_was_cut_short_is_closed_first(self) -> None:
        renderer = make_renderer()
        suffix = renderer.bridge(renderer.render([ASKED]), renderer.encode("thr"), [TOLD])
        assert renderer.decode(suffix or b"").startswith("<|im_end|>\n<|im_start|>user\n")

    def test_thinking_that_was_cut_short_is_closed_first(self) -> None:
        renderer = make_renderer()
        completion = renderer.encode("<think>\nwhy")
        suffix = renderer.bridge(renderer.render([ASKED]), completion, [TOLD])
        assert renderer.decode(suffix or b"").startswith("</think><|im_end|>\n")

    def test_a_completion_that_stopped_inside_its_thinking_has_no_bridge(self) -> None:
        renderer = make_renderer()
        completion = renderer.encode("<think>\nwhy<|im_end|>")
        assert renderer.bridge(renderer.render([ASKED]), completion, [TOLD]) is None

    def test_a_new_user_message_forks_unless_thinking_is_retained(self) -> None:
        prompt = make_renderer().render([ASKED])
        completion = make_renderer().encode("<think>\nwhy\n</think>\n\nthree<|im_end|>")
        assert make_renderer().bridge(prompt, completion, [ASKED_AGAIN]) is None
        suffix = make_renderer(retention="all").bridge(prompt, completion, [ASKED_AGAIN])
        assert make_renderer().decode(suffix or b"") == (
            "\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_sampled_ids_behind_the_end_of_the_turn_are_never_cut_off(self) -> None:
        renderer = make_renderer()
        completion = renderer.encode("three<|im_end|>\nmore")
        assert renderer.bridge(renderer.render([ASKED]), completion, [TOLD]) is None

    def test_new_messages_that_cannot_be_rendered_are_an_error(self) -> None:
        renderer = make_renderer()
        with pytest.raises(RendererError, match="role 'robot'"):
            renderer.bridge(renderer.render([ASKED]), b"", [{"role": "robot"}])

    @pytest.mark.parametrize("family", FAMILIES)
    def test_the_tail_of_a_prompt_gives_the_same_bridge(self, family: str) -> None:
        renderer = make_renderer(family)
        prompt = renderer.render([ASKED, {"role": "assistant", "content": "x"}, ASKED_AGAIN])
        tail = renderer.tail(prompt)
        assert len(tail) < len(prompt)
        assert renderer.tail(tail) == tail
        for text in ("three<|im_end|>", "thr", "<think>why", "why</think>three"):
            completion = renderer.encode(text)
            assert renderer.bridge(tail, completion, [TOLD]) == renderer.bridge(
                prompt, completion, [TOLD]
            )

    def test_a_prompt_without_a_stop_token_is_its_own_tail(self) -> None:
        renderer = make_renderer()
        assert renderer.tail(renderer.encode("abc")) == renderer.encode("abc")
        assert renderer.bridge(b"", b"", [TOLD]) is None


class TestLoad:
    def test_the_hash_is_that_of_tokenizer_and_settings(self, tmp_path: Path) -> None:
        byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
        settings = RendererSettings("qwen3")
        renderer = Renderer.load(tmp_path, settings)
        assert renderer.hash == rendering_hash(tmp_path, settings)
        other = RendererSettings("qwen3", options={"enable_thinking": False})
        assert Renderer.load(tmp_path, other).hash != renderer.hash
        byte_tokenizer(without="<think>").save(str(tmp_path / "tokenizer.json"))
        assert rendering_hash(tmp_path, settings) != renderer.hash

    def test_every_token_that_the_tokenizer_lacks_is_named(self) -> None:
        with pytest.raises(RendererError) as caught:
            Renderer(Tokenizer(byte_tokenizer()), RendererSettings("llama-3"), "")
        for token in ("<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>"):
            assert token in caught.value.reason

    @pytest.mark.parametrize("token", [t for t in MARKUP_TOKENS if t != "<think>"])
    def test_a_missing_chat_token_is_named(self, token: str) -> None:
        with pytest.raises(RendererError, match=f"lacks {token}"):
            Renderer(Tokenizer(byte_tokenizer(without=token)), RendererSettings("qwen3"), "")

    def test_without_a_token_for_thinking_messages_come_whole(self) -> None:
        tokenizer = Tokenizer(byte_tokenizer(without="<think>"))
        renderer = Renderer(tokenizer, RendererSettings("qwen3"), "")
        assert not renderer.streams
        text = '<think>why</think>so<tool_call>{"name": "act"}</tool_call><tool_call>x</tool_call>'
        completion = renderer.encode(f"{text}<|im_end|>")
        stream = renderer.stream(TOOLS)
        assert not stream.feed(completion)
        stream.finish()
        assert stream.message == renderer.parse(completion, TOOLS)
        assert stream.message.content == "so\n<tool_call>x</tool_call>"
        assert stream.message.reasoning == "why"
        assert stream.message.reasoning_tokens == len(renderer.encode("<think>why</think>")) // 4
        assert stream.message.malformed == ("invalid_json",)
        assert [call.name for call in stream.message.tool_calls] == ["act"]

    @pytest.mark.parametrize("family", FAMILIES)
    def test_families_with_the_four_marks_are_read_as_they_come(self, family: str) -> None:
        assert make_renderer(family).streams

    @pytest.mark.parametrize("name", ["auto", "custom", "default"])
    def test_renderers_that_settings_alone_do_not_make_are_refused(self, name: str) -> None:
        with pytest.raises(RendererError, match="name the model family"):
            Renderer(Tokenizer(byte_tokenizer()), RendererSettings(name), "")

    @pytest.mark.parametrize(
        "settings",
        [RendererSettings("qwen9"), RendererSettings("qwen3", options={"no_such": True})],
    )
    def test_unknown_names_and_options_are_refused(self, settings: RendererSettings) -> None:
        with pytest.raises(RendererError, match="settings:"):
            Renderer(Tokenizer(byte_tokenizer()), settings, "")

    def test_a_directory_without_a_tokenizer_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(RendererError, match=r"tokenizer\.json is missing"):
            Renderer.load(tmp_path, RendererSettings("qwen3"))


class TestSettings:
    def test_equal_settings_have_equal_bytes(self) -> None:
        settings = RendererSettings("qwen3", "all", {"b": 1, "a": True})
        other = RendererSettings("qwen3", "all", {"a": True, "b": 1})
        assert settings.to_json() == other.to_json()
        assert RendererSettings.from_json(settings.to_json()) == settings

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"name": 5},
            {"name": "qwen3", "thinking_retention": "some"},
            {"name": "qwen3", "options": {"a": [1]}},
            {"name": "qwen3", "more": 1},
        ],
    )
    def test_what_is_no_settings_is_refused(self, fields: Mapping[str, object]) -> None:
        with pytest.raises(RendererError):
            RendererSettings.from_json(json.dumps(fields).encode())

    def test_what_is_no_json_is_refused(self) -> None:
        with pytest.raises(RendererError):
            RendererSettings.from_json(b"qwen3")

    def test_the_error_survives_a_process_border(self) -> None:
        error = pickle.loads(pickle.dumps(RendererError("qwen3", "reason")))
        assert (error.renderer, error.reason, str(error)) == (
            "qwen3",
            "reason",
            "renderer qwen3: reason",
        )


def test_plain_text_leaves_control_tokens_out() -> None:
    renderer = make_renderer()
    stream = renderer.text_stream()
    assert stream.feed(unpack(renderer.encode("so<|im_end|>\n"))) == "so\n"
