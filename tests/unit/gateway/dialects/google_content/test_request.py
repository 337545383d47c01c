"""Requests of Google's `generateContent` in canonical form, and what is refused by name."""

from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.google_content.request import parse, prompt
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import Sampling

USER: Any = {"role": "user", "parts": [{"text": "hi"}]}


def parsed(contents: list[Any] | None = None, **more: Any) -> CanonicalRequest:
    body = {"contents": [USER] if contents is None else contents, **more}
    return parse(orjson.dumps(body), 4, "m", "whole")


def configured(**config: Any) -> CanonicalRequest:
    return parsed(generationConfig=config)


def refusal(contents: list[Any] | None = None, **more: Any) -> str | None:
    """Return the member that a refusal names."""
    with pytest.raises(ApiError) as error:
        parsed(contents, **more)
    assert error.value.status == 400
    return error.value.param


def functions(request: CanonicalRequest) -> list[Any]:
    return [tool["function"] for tool in orjson.loads(request.tools or b"[]")]


def declared(*names: str) -> list[Any]:
    return [{"functionDeclarations": [{"name": name} for name in names]}]


def test_an_object_stands_for_a_list_of_it() -> None:
    """Many agents send what is one as one; the vendor takes it."""
    single = {
        "contents": {"parts": {"text": "hi"}},
        "systemInstruction": {"parts": {"text": "short"}},
        "tools": {"functionDeclarations": {"name": "f"}},
    }
    several = {
        "contents": [USER],
        "systemInstruction": {"parts": [{"text": "short"}]},
        "tools": declared("f"),
    }
    of_one, of_several = (parse(orjson.dumps(body), 4, "m", "whole") for body in (single, several))
    assert (of_one.messages, of_one.tools) == (of_several.messages, of_several.tools)


def test_sampling_parameters_are_read() -> None:
    read = configured(
        temperature=0.5,
        topP=0.9,
        topK=40.0,
        maxOutputTokens=7,
        stopSequences=["END"],
        seed=3,
        presencePenalty=0.1,
        frequencyPenalty=0.2,
        responseLogprobs=True,
        logprobs=2,
        candidateCount=2,
    )
    assert read.sampling == Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        max_tokens=7,
        stop=("END",),
        seed=3,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        top_logprobs=2,
    )
    assert (read.choices, read.wants_logprobs, read.model) == (2, True, "m")


def test_members_may_be_written_in_snake_case() -> None:
    snake = parsed(
        system_instruction={"parts": [{"text": "be kind"}]},
        generation_config={"max_output_tokens": 7},
        tools=[{"function_declarations": [{"name": "f"}]}],
        tool_config={"function_calling_config": {"mode": "none"}},
    )
    camel = parsed(
        systemInstruction={"parts": [{"text": "be kind"}]},
        generationConfig={"maxOutputTokens": 7},
        tools=[{"functionDeclarations": [{"name": "f"}]}],
        toolConfig={"functionCallingConfig": {"mode": "NONE"}},
    )
    assert snake == camel
    assert refusal(generationConfig={"topK": 1, "top_k": 2}) == "generationConfig.topK"


@pytest.mark.parametrize(
    ("config", "param"),
    [
        ({"topK": 1.5}, "topK"),
        ({"temperature": 3}, "temperature"),
        ({"candidateCount": 5}, "candidateCount"),
        ({"logprobs": 2}, "logprobs"),
        ({"responseModalities": ["IMAGE"]}, "responseModalities"),
        ({"speechConfig": {}}, "speechConfig"),
        ({"imageConfig": {}}, "imageConfig"),
        ({"minP": 0.1}, "minP"),
        ({"responseMimeType": "text/x.enum"}, "responseMimeType"),
        ({"responseSchema": {"type": "STRING"}}, "responseSchema"),
        ({"thinkingConfig": {"includeThoughts": 1}}, "thinkingConfig.includeThoughts"),
    ],
)
def test_configuration_that_would_change_the_answer_is_refused(
    config: dict[str, Any], param: str
) -> None:
    assert refusal(generationConfig=config) == f"generationConfig.{param}"


def test_what_changes_nothing_is_ignored() -> None:
    plain = parsed()
    assert plain == parsed(
        generationConfig={"responseModalities": ["TEXT"], "thinkingConfig": {"thinkingBudget": 9}},
        safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        labels={"a": "b"},
    )
    assert refusal(cachedContent="cachedContents/x") == "cachedContent"


def test_a_schema_of_google_becomes_json_schema_with_members_in_their_order() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "a": {"type": "INTEGER", "nullable": True},
            "b": {"type": "ARRAY", "items": {"type": "STRING"}, "min_items": "2"},
            "c": {"any_of": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": True},
            "d": {"type": "STRING", "enum": ["x"], "nullable": True},
            "propertyOrdering": {"type": "STRING"},
        },
        "required": ["a"],
        "propertyOrdering": ["b", "a"],
    }
    read = configured(responseMimeType="application/json", responseSchema=schema)
    assert read.sampling.json_schema is not None
    properties = orjson.loads(read.sampling.json_schema)["properties"]
    assert list(properties) == ["b", "a", "c", "d", "propertyOrdering"]
    assert properties["a"] == {"type": ["integer", "null"]}
    assert properties["b"] == {"type": "array", "items": {"type": "string"}, "minItems": 2}
    assert properties["c"]["anyOf"] == [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]
    assert properties["d"] == {"type": ["string", "null"], "enum": ["x", None]}


def test_json_schema_is_taken_as_it_is_and_json_alone_is_any_json() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    for name in ("responseJsonSchema", "_responseJsonSchema"):
        read = parsed(generationConfig={"responseMimeType": "application/json", name: schema})
        assert read.sampling.json_schema == orjson.dumps(schema).decode()
    assert configured(responseMimeType="application/json").sampling.json_schema == "{}"
    assert configured(responseMimeType="text/plain").sampling.json_schema is None


def test_functions_are_declared_with_either_kind_of_schema() -> None:
    schema = {"type": "object", "properties": {"b": {"type": "string"}}}
    google = {"type": "OBJECT", "properties": {"b": {"type": "STRING"}}}
    declarations = [
        {"name": "f", "description": "does", "parameters": google},
        {"name": "g", "parametersJsonSchema": schema},
        {"name": "h"},
    ]
    assert functions(parsed(tools=[{"functionDeclarations": declarations}])) == [
        {"name": "f", "description": "does", "parameters": schema},
        {"name": "g", "parameters": schema},
        {"name": "h"},
    ]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"googleSearch": {}}], "tools[0].googleSearch"),
        ([{"code_execution": {}}], "tools[0].codeExecution"),
        ([{"functionDeclarations": [{}]}], "tools[0].functionDeclarations[0].name"),
        (declared("f", "f"), "tools"),
        (
            [{"functionDeclarations": [{"name": "f", "behavior": "NON_BLOCKING"}]}],
            "tools[0].functionDeclarations[0].behavior",
        ),
        ("f", "tools"),
        ({"functionDeclarations": {}}, "tools[0].functionDeclarations[0].name"),
    ],
)
def test_tools_that_only_the_vendor_has_are_refused(tools: Any, param: str) -> None:
    assert refusal(tools=tools) == param


@pytest.mark.parametrize(
    ("config", "choice", "shown"),
    [
        ({}, "auto", ["f", "g", "h"]),
        ({"mode": "AUTO"}, "auto", ["f", "g", "h"]),
        ({"mode": "MODE_UNSPECIFIED"}, "auto", ["f", "g", "h"]),
        ({"mode": "NONE"}, "none", ["f", "g", "h"]),
        ({"mode": "VALIDATED"}, "auto", ["f", "g", "h"]),
        ({"mode": "validated", "allowedFunctionNames": ["g", "f"]}, "auto", ["f", "g"]),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["g"]}, "auto", ["g"]),
        ({"mode": "ANY"}, "required", ["f", "g", "h"]),
        ({"mode": "ANY", "allowedFunctionNames": ["g"]}, "g", ["f", "g", "h"]),
        ({"mode": "ANY", "allowedFunctionNames": ["h", "f"]}, "required", ["f", "h"]),
    ],
)
def test_a_mode_is_a_choice_of_functions(
    config: dict[str, Any], choice: str, shown: list[str]
) -> None:
    read = parsed(tools=declared("f", "g", "h"), toolConfig={"functionCallingConfig": config})
    assert read.tool_choice == choice
    assert [function["name"] for function in functions(read)] == shown


@pytest.mark.parametrize(
    ("config", "member"),
    [
        ({"mode": "OTHER"}, "mode"),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["other"]}, "allowedFunctionNames"),
        ({"mode": "ANY", "allowedFunctionNames": ["other"]}, "allowedFunctionNames"),
        ({"mode": "AUTO", "allowedFunctionNames": ["f"]}, "allowedFunctionNames"),
        ({"streamFunctionCallArguments": True}, "streamFunctionCallArguments"),
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused(config: dict[str, Any], member: str) -> None:
    refused = refusal(tools=declared("f"), toolConfig={"functionCallingConfig": config})
    assert refused == f"toolConfig.functionCallingConfig.{member}"


def test_a_choice_without_functions_is_auto_or_refused() -> None:
    for mode in ("NONE", "AUTO", "VALIDATED"):
        config = {"functionCallingConfig": {"mode": mode}}
        assert parsed(toolConfig=config).tool_choice == "auto"
    must = {"functionCallingConfig": {"mode": "ANY"}}
    assert refusal(toolConfig=must) == "toolConfig.functionCallingConfig"


def test_a_prompt_to_count_stands_in_the_body_or_in_a_request_within() -> None:
    inner = {"contents": [USER], "tools": declared("f")}
    assert prompt(orjson.dumps(inner)) == prompt(orjson.dumps({"generateContentRequest": inner}))
    with pytest.raises(ApiError):
        prompt(orjson.dumps({"contents": [USER], "generateContentRequest": inner}))
