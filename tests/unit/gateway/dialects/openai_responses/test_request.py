import random
from typing import Any

import orjson
import pytest

from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.openai_chat.request import parse as parse_chat
from producers.gateway.dialects.openai_responses.request import parse
from producers.gateway.errors import ApiError
from schemas.records import Sampling
from tests.paths import CODEX_REQUEST

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "name": "lookup", "parameters": {"type": "object"}, "strict": True}
PATCH = {"type": "custom", "name": "patch", "description": "Edits files."}
GROUP = {"type": "namespace", "name": "team", "description": "Helpers.", "tools": [TOOL, PATCH]}
OUTPUT = {"type": "function_call_output", "call_id": "call_t_0", "output": "42"}
CODEX = CODEX_REQUEST.read_bytes()
"""What Codex 0.169.0 sends first, its texts cut short."""


def parsed(**request: Any) -> CanonicalRequest:
    return parse(orjson.dumps({"model": "m", "input": "hi", **request}), 4)


def refusal(**request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(**request)
    assert error.value.status == 400
    return error.value


def messages(*items: Any, **more: Any) -> list[Any]:
    return [orjson.loads(message) for message in parsed(input=list(items), **more).messages]


def call(turn: str = "t", number: int = 0, **more: Any) -> dict[str, Any]:
    call_id = f"call_{turn}_{number}"
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": "lookup",
        "arguments": "{}",
        **more,
    }


def functions(request: CanonicalRequest) -> list[Any]:
    return [tool["function"] for tool in orjson.loads(request.tools or b"[]")]


def test_a_plain_request_asks_for_what_a_plain_chat_request_does() -> None:
    request, chat = (
        parsed(),
        parse_chat(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}', 4),
    )
    assert request.messages == chat.messages == (b'{"content":"hi","role":"user"}',)
    assert request.sampling == chat.sampling == Sampling()
    assert (request.tools, request.tool_choice, request.choices) == (None, "auto", 1)
    assert (request.previous_turn, request.own_messages, request.stream) == (None, 0, False)


def test_tools_look_to_the_model_as_in_a_chat_request() -> None:
    function = {name: TOOL[name] for name in ("name", "parameters")}
    chat = {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": function}]}
    assert parsed(tools=[TOOL]).tools == parse_chat(orjson.dumps(chat), 4).tools


def test_the_first_request_of_codex_is_taken_whole() -> None:
    request = parse(CODEX, 1)
    roles = [orjson.loads(message)["role"] for message in request.messages]
    assert roles == ["system", "system", "user", "user"]
    names = [function["name"] for function in functions(request)]
    assert names[0] == "exec_command"
    assert "multi_agent_v1__spawn_agent" in names
    assert "web_search" not in names
    assert request.stream and not request.wants_logprobs
    assert request.echoed["prompt_cache_key"]


@pytest.mark.parametrize(
    "item",
    [
        USER,
        {"type": "message", **USER},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "input_text", "text": t} for t in "hi"]},
        {"id": "msg_1", "status": "completed", "type": "message", **USER},
    ],
)
def test_a_message_is_the_same_however_it_is_spelt(item: Any) -> None:
    assert parsed(input=[item]).messages == parsed(input="hi").messages


def test_developers_and_instructions_speak_as_the_system() -> None:
    read = messages({"role": "developer", "content": "b"}, USER, instructions="a")
    assert [(m["role"], m["content"]) for m in read] == [
        ("system", "a"),
        ("system", "b"),
        ("user", "hi"),
    ]


def test_instructions_are_this_requests_alone() -> None:
    assert parsed(instructions="a").own_messages == 1
    assert parsed(instructions="").own_messages == 0


def test_a_request_goes_on_from_a_response() -> None:
    request = parsed(previous_response_id="resp_abc", input=[OUTPUT], instructions="a")
    assert (request.previous_turn, request.own_messages, len(request.messages)) == ("abc", 1, 2)
    other = parsed(previous_response_id="resp_b", input=[OUTPUT], instructions="a")
    assert request.body_hashes() != other.body_hashes()


def test_a_response_of_somebody_else_is_not_found() -> None:
    error = refusal(previous_response_id="chatcmpl-1")
    assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")


def test_items_of_one_turn_are_one_assistant_message() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "x", "text": "hm"}]}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "wait"}]}
    read = messages(USER, thought, said, call(), call(number=1), OUTPUT)
    assert [message["role"] for message in read] == ["user", "assistant", "tool"]
    assert read[1]["reasoning_content"] == "hm"
    assert read[1]["content"] == "wait"
    assert [made["id"] for made in read[1]["tool_calls"]] == ["call_t_0", "call_t_1"]
    assert read[2] == {"role": "tool", "tool_call_id": "call_t_0", "content": "42"}


def test_messages_of_the_assistant_without_ids_stay_apart() -> None:
    said = {"role": "assistant", "content": "a"}
    assert messages(said, said) == [said, said]


def test_calls_of_two_turns_stay_apart() -> None:
    first, second = messages(call("t"), call("u"))
    assert first["tool_calls"][0]["id"] == "call_t_0"
    assert second["tool_calls"][0]["id"] == "call_u_0"


def test_an_answer_between_two_calls_of_one_turn_does_not_part_them() -> None:
    read = messages(call(), OUTPUT, call(number=1), {**OUTPUT, "call_id": "call_t_1"})
    assert [message["role"] for message in read] == ["assistant", "tool", "tool"]


def test_without_our_ids_an_answer_ends_the_message() -> None:
    other = {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"}
    read = messages(other, {**OUTPUT, "call_id": "x"}, {**other, "call_id": "y"})
    assert [message["role"] for message in read] == ["assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    "item",
    [
        {"summary": [], "encrypted_content": "gAAAAABo"},
        {"summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAAABo"},
        {"summary": []},
    ],
)
def test_reasoning_that_nobody_here_can_read_is_left_out(item: Any) -> None:
    assert messages(USER, {"type": "reasoning", "id": "rs_1", **item}, USER) == [USER, USER]


def test_a_summary_stands_for_reasoning_that_came_with_nothing_else() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert messages(USER, thought)[1]["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("42", "42"),
        (None, ""),
        ([], ""),
        ([{"type": "input_text", "text": "4"}, {"type": "output_text", "text": "2"}], "42"),
    ],
)
def test_the_output_of_a_tool_is_text(output: Any, content: str) -> None:
    _, message = messages(call(), {**OUTPUT, "output": output})
    assert message["content"] == content


def test_outputs_may_come_in_any_order_and_long_behind_their_calls() -> None:
    second = {**OUTPUT, "call_id": "call_t_1"}
    said = {"role": "assistant", "content": "wait", "id": "msg_u_0"}
    assert len(messages(call(), call(number=1), said, USER, second, OUTPUT)) == 5


@pytest.mark.parametrize("before", [[], [USER], [call(number=1)]])
@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_output_without_its_call_is_refused(kind: str, before: list[Any]) -> None:
    error = refusal(input=[*before, {**OUTPUT, "type": kind}, call()])
    assert error.param == f"input[{len(before)}].call_id"
    assert "'call_t_0'" in error.message


def test_a_shell_call_and_its_output_are_a_call_and_its_answer() -> None:
    action: dict[str, Any] = {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": None}
    asked = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": action}
    output = {"type": "local_shell_call_output", "id": "c", "output": "a.txt"}
    made, answer = messages(asked, output)
    assert made["tool_calls"][0]["function"] == {
        "name": "local_shell",
        "arguments": '{"command": ["ls"]}',
    }
    assert answer["tool_call_id"] == "c"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ("text", "input[0]"),
        ({}, "input[0].type"),
        ({"type": "web_search_call", "id": "x"}, "input[0].type"),
        ({"type": "compaction", "encrypted_content": "x"}, "input[0].type"),
        ({"type": ["message"]}, "input[0].type"),
        ({"type": "item_reference", "id": "x"}, "input[0]"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": ["user"], "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [1]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0]"),
        (call(arguments={}), "input[0].arguments"),
        (call(call_id=""), "input[0].call_id"),
        (call(name=None), "input[0].name"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "patch"}, "input[0].input"),
        ({"type": "local_shell_call", "call_id": "c", "action": []}, "input[0].action"),
        ({**OUTPUT, "call_id": None}, "input[0].call_id"),
        ({**OUTPUT, "output": 42}, "input[0].output"),
        ({"type": "additional_tools", "tools": {}}, "input[0].tools"),
    ],
)
def test_a_wrong_item_is_named(item: Any, param: str) -> None:
    assert refusal(input=[item]).param == param


@pytest.mark.parametrize("kind", ["input_image", "input_file", "input_audio"])
@pytest.mark.parametrize("place", ["content", "output"])
def test_what_is_not_text_is_refused_clearly(kind: str, place: str) -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": kind, "file_id": "x"}]
    item = {"role": "user", "content": parts} if place == "content" else {**OUTPUT, place: parts}
    error = refusal(input=[item])
    assert error.param == f"input[0].{place}[1]"
    assert kind in error.message and "text only" in error.message


@pytest.mark.parametrize("kind", ["custom_tool_call_output", "local_shell_call_output"])
def test_what_is_not_text_is_refused_in_what_any_tool_put_out(kind: str) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    error = refusal(input=[{"type": kind, "call_id": "call_t_0", "output": [image]}])
    assert (error.param, "text only" in error.message) == ("input[0].output[0]", True)


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: line"}
    (function,) = functions(parsed(tools=[{**PATCH, "format": grammar}]))
    assert (function["name"], function["description"]) == ("patch", "Edits files.")
    assert function["parameters"]["required"] == ["input"]
    assert "start: line" in function["parameters"]["properties"]["input"]["description"]


def test_tools_of_a_namespace_bear_its_name_and_are_described_with_it_once() -> None:
    first, second = functions(parsed(tools=[GROUP]))
    assert (first["name"], second["name"]) == ("team__lookup", "team__patch")
    assert (first["description"], second["description"]) == ("Helpers.", "Edits files.")


def test_tools_that_come_with_the_input_are_the_requests() -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [TOOL, GROUP]}
    request = parsed(input=[brought, USER])
    assert (request.tools, request.messages) == (
        parsed(tools=[TOOL, GROUP]).tools,
        parsed(input=[USER]).messages,
    )
    assert parsed(input=[brought, brought, USER], tools=[TOOL]).tools == request.tools


@pytest.mark.parametrize("kind", ["web_search", "image_generation", "tool_search"])
def test_what_codex_sends_unasked_is_not_offered(kind: str) -> None:
    request = parsed(tools=[{"type": kind}, TOOL])
    assert request.tools == parsed(tools=[TOOL]).tools
    assert parsed(tools=[{"type": kind}]).tools is None


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ("lookup", "tools[1]"),
        ({}, "tools[1]"),
        ({"type": "function"}, "tools[1].name"),
        ({"type": "custom", "name": ""}, "tools[1].name"),
        ({"type": "function", "name": "f", "parameters": []}, "tools[1].parameters"),
        ({"type": "function", "name": "f", "description": 1}, "tools[1].description"),
        ({"type": "custom", "name": "lookup"}, "tools[1].name"),
        ({"type": "namespace", "name": "n"}, "tools[1]"),
        ({"type": "namespace", "name": "n", "tools": {}}, "tools[1].tools"),
        ({"type": "namespace", "name": "n", "tools": [GROUP]}, "tools[1].tools[0].tools[0]"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}, "tools[1].tools[0]"),
        ({"type": "mcp", "server_label": "x"}, "tools[1].type"),
        ({"type": "file_search"}, "tools[1].type"),
        ({"type": "code_interpreter"}, "tools[1].type"),
        ({"type": "computer"}, "tools[1].type"),
    ],
)
def test_a_wrong_tool_is_named(tool: Any, param: str) -> None:
    assert refusal(tools=[TOOL, tool]).param == param


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "lookup"}, "lookup"),
        ({"type": "function", "name": "lookup", "namespace": "team"}, "team__lookup"),
        ({"type": "custom", "name": "patch"}, "team__patch"),
    ],
)
def test_tool_choice_is_a_word_or_a_tool(choice: Any, read: str) -> None:
    assert parsed(tools=[TOOL, GROUP], tool_choice=choice).tool_choice == read


def test_only_tools_that_are_allowed_are_shown() -> None:
    allowed = [{"type": "custom", "name": "patch"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    request = parsed(tools=[TOOL, PATCH], tool_choice=choice)
    assert request.tool_choice == "required"
    assert request.tools == parsed(tools=[PATCH]).tools


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("maybe", "tool_choice"),
        ({"type": "function", "name": "other"}, "tool_choice"),
        ({"type": "file_search"}, "tool_choice"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{}]}, "tool_choice.tools[0]"),
    ],
)
def test_a_choice_that_is_not_offered_is_named(choice: Any, param: str) -> None:
    assert refusal(tools=[TOOL], tool_choice=choice).param == param


def test_a_forced_choice_needs_tools() -> None:
    assert refusal(tool_choice="required").param == "tool_choice"
    assert parsed(tools=[], tool_choice="none").tool_choice == "auto"


def test_sampling_parameters_are_taken_over() -> None:
    request = parsed(
        max_output_tokens=7,
        temperature=1,
        top_p=0.5,
        top_k=3,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    assert request.sampling == Sampling(
        max_tokens=7, temperature=1, top_p=0.5, top_k=3, top_logprobs=2
    )
    assert request.wants_logprobs
    assert parsed(top_logprobs=2).sampling == Sampling()


def test_the_form_of_an_answer_is_its_schema() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    asked = parsed(text={"format": form, "verbosity": "low"})
    assert asked.sampling.json_schema == orjson.dumps(schema).decode()
    assert parsed(text={"format": {"type": "json_object"}}).sampling.json_schema is not None
    assert parsed(text={"format": {"type": "text"}}).sampling == Sampling()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 1),
        ("input", []),
        ("input", 1),
        ("input", None),
        ("instructions", ["x"]),
        ("max_output_tokens", 0),
        ("temperature", 3),
        ("top_p", 2),
        ("top_logprobs", 21),
        ("stream", "yes"),
        ("include", "logprobs"),
        ("include", {}),
        ("metadata", "x"),
        ("reasoning", "x"),
        ("truncation", "x"),
        ("truncation", ["auto"]),
        ("store", "x"),
        ("user", 1),
        ("service_tier", {}),
        ("safety_identifier", []),
        ("prompt_cache_key", 1),
        ("max_tool_calls", "3"),
        ("tools", {}),
        ("text", "plain"),
        ("previous_response_id", 1),
        ("background", True),
        ("conversation", "conv_1"),
        ("prompt", {"id": "pmpt_1"}),
        ("context_management", [{"type": "compaction"}]),
        ("n", 2),
    ],
)
def test_a_wrong_parameter_is_named(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


@pytest.mark.parametrize(
    ("request_part", "param"),
    [
        ({"include": ["foo"]}, "include[0]"),
        ({"include": ["reasoning.encrypted_content", 1]}, "include[1]"),
        ({"metadata": {"a": "b", "c": 5}}, "metadata.c"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort"),
        ({"reasoning": {"summary": ["x"]}}, "reasoning.summary"),
    ],
)
def test_what_is_wrong_inside_of_a_parameter_is_named(
    request_part: dict[str, Any], param: str
) -> None:
    assert refusal(**request_part).param == param


@pytest.mark.parametrize("form", [{"type": "json_schema"}, {"type": "json_schema", "schema": 1}])
def test_a_form_without_a_schema_is_named(form: Any) -> None:
    assert refusal(text={"format": form}).param == "text.format.schema"


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"store": False},
        {"background": False},
        {"parallel_tool_calls": True},
        {"reasoning": {"effort": "low", "summary": "auto"}},
        {"reasoning": {"effort": None, "context": "all"}},
        {"truncation": "auto"},
        {"service_tier": "auto"},
        {"safety_identifier": "x"},
        {"prompt_cache_key": "x"},
        {"client_metadata": {"a": "b"}},
        {"stream_options": {"include_obfuscation": False}},
        {"max_tool_calls": 3},
        {"include": ["reasoning.encrypted_content"]},
        {"text": {"verbosity": "low"}},
        {"no_such_parameter": [1, 2]},
    ],
)
def test_parameters_without_effect_are_ignored(harmless: dict[str, Any]) -> None:
    assert parsed(**harmless).body_hashes() == parsed().body_hashes()


def test_an_agent_may_ask_for_one_tool_call_at_most() -> None:
    request = parsed(parallel_tool_calls=False)
    assert request.sampling == Sampling(one_tool_call=True)
    assert request.echoed["parallel_tool_calls"] is False
    assert refusal(parallel_tool_calls=0).param == "parallel_tool_calls"


def test_nesting_too_deep_to_store_is_refused() -> None:
    deep = b'{"a":' * 300 + b"{}" + b"}" * 300
    tool = b'[{"type":"function","name":"f","parameters":' + deep + b"}]"
    named = {"tools": tool, "reasoning": deep}
    for name, value in named.items():
        with pytest.raises(ApiError) as error:
            parse(b'{"model":"m","input":"hi","%b":%b}' % (name.encode(), value), 1)
        assert (error.value.status, error.value.param) == (400, name)


def test_random_damage_is_either_read_or_refused(rng: random.Random) -> None:
    for _ in range(1000):
        body = bytearray(CODEX)
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            parse(bytes(body), 1)
        except ApiError as error:
            assert error.status == 400


def test_any_member_of_another_kind_is_either_read_or_refused(rng: random.Random) -> None:
    strange: list[Any] = [None, True, 1, "x", [], [1], {}, {"type": "x"}, [{"type": "function"}]]
    whole = orjson.loads(CODEX)
    items = [call(), OUTPUT, {"type": "reasoning", "summary": []}, {"role": "assistant"}]
    for _ in range(3000):
        body = orjson.loads(orjson.dumps({**whole, "input": [*whole["input"], *items]}))
        place: Any = body
        while True:
            name = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[name], dict | list) or not place[name] or rng.random() < 0.3:
                break
            place = place[name]
        place[name] = rng.choice(strange)
        try:
            parse(orjson.dumps(body), 1)
        except ApiError as error:
            assert error.status == 400
