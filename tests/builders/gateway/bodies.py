"""A full request of each dialect, with nearly every member; tests damage them."""

from collections.abc import Mapping
from typing import Any

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
FUNCTION = {"name": "lookup", "description": "finds", "parameters": SCHEMA, "strict": True}
CALL = {
    "id": "call_t_0",
    "type": "function",
    "function": {"name": "lookup", "arguments": '{"a": 1}'},
}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "call_t_0", "content": "42"},
        {"role": "assistant", "content": "so", "refusal": None},
        {"role": "user", "content": "go on"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "lookup"}},
    "temperature": 1,
    "top_p": 0.5,
    "max_completion_tokens": 9,
    "n": 2,
    "stop": ["END"],
    "seed": 5,
    "stream": True,
    "stream_options": {"include_usage": True},
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"12": -1},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "chat_template_kwargs": {"enable_thinking": False},
}
COMPLETION: dict[str, Any] = {
    "model": "m",
    "prompt": ["once upon"],
    "max_tokens": 9,
    "n": 2,
    "logprobs": 2,
    "stop": "END",
    "stream": True,
    "stream_options": {"include_usage": True},
    "logit_bias": {"12": -1},
    "echo": False,
}
GENERATE: dict[str, Any] = {
    "model": "m",
    "request_id": "r",
    "token_ids": [5, 6, 7],
    "sampling_params": {
        "max_tokens": 9,
        "n": 2,
        "logprobs": 2,
        "stop": ["END"],
        "stop_token_ids": [2],
        "temperature": 1,
        "top_k": -1,
        "seed": 5,
        "skip_special_tokens": False,
        "routed_experts_prompt_start": 3,
    },
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
    "cache_salt": "s",
    "output_mode": "tokens",
}
RESPONSE: dict[str, Any] = {
    "model": "m",
    "instructions": "be brief",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_t_0", "summary": [], "content": []},
        {
            "type": "function_call",
            "id": "fc_t_0",
            "call_id": "call_t_0",
            "name": "lookup",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "call_t_0", "output": "42"},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_t_0",
            "content": [{"type": "output_text", "text": "so", "annotations": []}],
        },
        {"role": "user", "content": "go on"},
    ],
    "tools": [{"type": "function", **FUNCTION}, {"type": "custom", "name": "patch"}],
    "tool_choice": {"type": "function", "name": "lookup"},
    "max_output_tokens": 9,
    "temperature": 1,
    "top_p": 0.5,
    "stream": True,
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "metadata": {"a": "b"},
    "store": False,
}
MESSAGE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "be brief"}],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "t"},
                {"type": "tool_use", "id": "call_t_0", "name": "lookup", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_t_0",
                    "content": [{"type": "text", "text": "42"}],
                    "is_error": False,
                },
                {
                    "type": "search_result",
                    "source": "s",
                    "title": "t",
                    "content": [{"type": "text", "text": "found"}],
                },
                {"type": "text", "text": "go on"},
            ],
        },
    ],
    "tools": [{"name": "lookup", "description": "finds", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "lookup"},
    "temperature": 1,
    "top_p": 0.5,
    "top_k": 3,
    "stop_sequences": ["END"],
    "stream": True,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "metadata": {"user_id": "u"},
}
CONTENT: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "be brief"}]},
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"text": "so", "thoughtSignature": "c2VhbWxlc3NmbG93OmhtbQ=="},
                {"functionCall": {"id": "call_t_0", "name": "lookup", "args": {"a": 1}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "call_t_0",
                        "name": "lookup",
                        "response": {"output": "42"},
                    }
                },
                {"text": "go on"},
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "lookup",
                    "description": "finds",
                    "parameters": {
                        "type": "OBJECT",
                        "properties": {"a": {"type": "INTEGER", "nullable": True}},
                        "propertyOrdering": ["a"],
                    },
                },
                {"name": "other", "parametersJsonSchema": SCHEMA},
            ]
        }
    ],
    "toolConfig": {
        "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["lookup"]},
    },
    "generationConfig": {
        "temperature": 1,
        "topP": 0.5,
        "topK": 3.0,
        "maxOutputTokens": 9,
        "stopSequences": ["END"],
        "candidateCount": 2,
        "seed": 5,
        "presencePenalty": 0.5,
        "frequencyPenalty": 0.5,
        "responseLogprobs": True,
        "logprobs": 2,
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"b": {"type": "STRING"}}},
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1024},
    },
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
}
BODIES: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/inference/v1/generate": GENERATE,
    "/v1/responses": RESPONSE,
    "/v1/messages": MESSAGE,
    "/v1beta/models/*:generateContent": CONTENT,
    "/v1beta/models/*:streamGenerateContent": CONTENT,
}
"""By path."""
