"""Conversations of a golden log in which nothing goes wrong, in all dialects."""

from typing import Any

from tests.agents.engine.scripts import cue
from tests.e2e.running_system import POLICY
from tests.golden.recording_system import LARGE, Agent, RecordingSystem

PARAMETERS: Any = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
FUNCTION: Any = {"name": "add", "description": "Adds two numbers.", "parameters": PARAMETERS}
CHAT_TOOLS: Any = [{"type": "function", "function": FUNCTION}]
RESPONSES_TOOLS: Any = [{"type": "function", **FUNCTION}]
MESSAGES_TOOLS: Any = [{"name": "add", "description": "Adds.", "input_schema": PARAMETERS}]
TASK = f"{cue('adding')}What is 5 + 4, and 1 + 1?"


def user(content: str) -> Any:
    return {"role": "user", "content": content}


def chat(agent: Agent, messages: list[Any], **more: Any) -> Any:
    """Return the first choice's message, as it is sent back."""
    body = {"messages": messages, "max_tokens": 200, **more}
    answer = agent.post("/chat/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


def streamed_chat(agent: Agent, messages: list[Any], **more: Any) -> Any:
    """Return a streamed message, as it is sent back."""
    with agent.openai.chat.completions.stream(
        model="any", messages=messages, max_tokens=200, **more
    ) as stream:
        final = stream.get_final_completion().choices[0].message
    return final.model_dump(exclude_none=True, exclude={"parsed"})


def tool_results(message: Any) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": "5"}
        for call in message.get("tool_calls") or ()
    ]


def chat_tool_loop(system: RecordingSystem, session_id: str, policy: str, say: Any) -> None:
    agent = system.agent(session_id, policy, task_id="t", group_id="g", group_size=2)
    add_by_chat(agent, say)
    system.reward(session_id, 0.25, name="format", final=False)
    system.end(session_id, 0.5, 1.0)


def add_by_chat(agent: Agent, say: Any) -> None:
    messages = [{"role": "system", "content": "You add."}, user(TASK)]
    while True:
        message = say(agent, messages, tools=CHAT_TOOLS)
        results = tool_results(message)
        if not results:
            break
        messages += [message, *results]


def messages_tool_loop(system: RecordingSystem, session_id: str, streamed: bool) -> None:
    agent = system.agent(session_id, metadata={"of": "messages"})
    add_by_messages(agent, streamed)
    system.end(session_id, 1.0, status="truncated", reason="as told", cause="environment")


def add_by_messages(agent: Agent, streamed: bool) -> None:
    messages: list[Any] = [user(TASK)]
    asked: dict[str, Any] = {"model": "any", "system": "You add.", "tools": MESSAGES_TOOLS}
    agent.anthropic.messages.count_tokens(messages=messages, **asked)
    while True:
        call: dict[str, Any] = {**asked, "messages": messages, "max_tokens": 500}
        if streamed:
            with agent.anthropic.messages.stream(**call) as stream:
                message = stream.get_final_message()
        else:
            message = agent.anthropic.messages.create(**call)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "5"}
            for block in message.content
            if block.type == "tool_use"
        ]
        if not results:
            break
        messages += [message.to_param(), user(results)]  # type: ignore[arg-type]


def responses_tool_loop(system: RecordingSystem, session_id: str, streamed: bool) -> None:
    agent = system.agent(session_id)
    last = add_by_responses(agent, streamed)
    system.reward(session_id, 0.75, turn=last, name="turn")
    system.end(session_id, 1.0)


def add_by_responses(agent: Agent, streamed: bool) -> str | None:
    """Return the id of the last response."""
    previous: str | None = None
    items: Any = [user(TASK)]
    while items:
        call: dict[str, Any] = {
            "model": "any",
            "instructions": "You add.",
            "input": items,
            "tools": RESPONSES_TOOLS,
            "max_output_tokens": 500,
        }
        if previous is not None:
            call["previous_response_id"] = previous
        if streamed:
            with agent.openai.responses.stream(**call) as stream:
                response = stream.get_final_response()
        else:
            response = agent.openai.responses.create(**call)
        previous = response.id
        items = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "5"}
            for item in response.output
            if item.type == "function_call"
        ]
    return previous


def completions(system: RecordingSystem) -> None:
    agent = system.agent("completions", POLICY)

    def say(prompt: Any, **more: Any) -> str:
        body = {"prompt": prompt, "max_tokens": 12, **more}
        answer = agent.post("/completions", body)
        assert answer.status_code == 200, answer.text
        return "" if more.get("stream") else str(answer.json()["choices"][0]["text"])

    first = say("key 7")
    say(f"key 7{first} and then", logprobs=3)
    say(f"key 7{first} and then", n=2)
    say([5, 6, 7, 8])
    say([5, 6, 9], stream=True)
    say("word", stop=["e", "a"], echo=False)
    system.end("completions", 0.0, 1.0)


def forced_calls(system: RecordingSystem) -> None:
    for policy in (POLICY, "free", "lenient"):
        session_id = f"forced-{policy}"
        agent = system.agent(session_id, policy)
        begun = [user("key 7" if policy == POLICY else f"{cue('forced')}Add.")]
        named = {"type": "function", "function": {"name": "add"}}
        for number, choice in enumerate(("required", named, "auto", "none")):
            if policy == POLICY:
                more = {"max_tokens": 24, "tool_choice": choice}
                message = chat(agent, begun, tools=CHAT_TOOLS, **more)
            else:
                say = streamed_chat if number % 2 else chat
                message = say(agent, begun, tools=CHAT_TOOLS, tool_choice=choice)
            begun += [message, *tool_results(message), user(f"and {number}")]
        system.end(session_id, 1.0)


def forks_and_samples(system: RecordingSystem) -> None:
    for policy in (POLICY, "acting", "by-ids", "free", "lenient", "voting"):
        session_id = f"forks-{policy}"
        agent = system.agent(session_id, policy, purpose="eval" if policy == "by-ids" else "train")
        begun, few = [user("key 7")], {"max_tokens": 8}
        first = chat(agent, begun, n=3, **few)
        second = chat(agent, begun, **few)
        answer = [*begun, second, user("and 8")]
        chat(agent, answer, **few)
        chat(agent, answer, **few)
        chat(agent, [*begun, first, user("and 9")], **few)
        edited = [user("key 7"), {"role": "assistant", "content": "I never said so"}, user("go")]
        chat(agent, edited, **few)
        chat(agent, [{"role": "system", "content": "S"}, *answer], **few)
        chat(agent, [*begun, first], **few)
        chat(agent, [*answer, {"role": "assistant", "content": "made up"}, user("on")], n=2, **few)
        system.end(session_id, 1.0, await_reward_s=1)


def sampling_parameters(system: RecordingSystem) -> None:
    schema: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}}
    settings: list[dict[str, Any]] = [
        {"temperature": 0.7},
        {"presence_penalty": 0.5},
        {"top_p": 0.8, "seed": 7},
        {"temperature": 0, "stop": ["swer"]},
        {"logit_bias": {"5": 1}},
        {"response_format": schema},
        {"logprobs": True, "top_logprobs": 2},
        {},
    ]
    for policy in ("free", "lenient", "acting"):
        session_id = f"parameters-{policy}"
        agent = system.agent(session_id, policy)
        for number, parameters in enumerate(settings):
            # The worker refuses some; those turns fail.
            body = {"messages": [user(f"question {number}")], "max_tokens": 50, **parameters}
            agent.post("/chat/completions", body)
        system.end(session_id, 1.0, status="unrewarded" if policy == "acting" else "complete")


def names_and_modules(system: RecordingSystem) -> None:
    for call in range(2):
        agent = system.unopened(session_id="named")
        chat(agent, [user(f"hello {call}")])
        name = "harness.named"
        system.opened.append(name)
        system.reward(name, float(call))
        system.close_twice(name)
    agent = system.agent("modules", "acting", policies={"critic": "lenient"}, pinned_version=0)
    agent.post("/chat/completions", {"messages": [user("draft")]}, x_seamlessflow_module="writer")
    agent.post("/chat/completions", {"messages": [user("draft")]}, x_seamlessflow_module="critic")
    system.end("modules", 1.0)


def retries(system: RecordingSystem) -> None:
    agent = system.agent("retries")
    body = {"messages": [user("once")], "max_tokens": 20}
    answers = [agent.post("/chat/completions", body, idempotency_key="k") for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    again = agent.post("/chat/completions", body, x_stainless_retry_count="1")
    assert again.json()["id"] == answers[0].json()["id"]
    other = {**body, "messages": [user("other")]}
    assert agent.post("/chat/completions", other, idempotency_key="k").status_code == 422
    streamed = {**other, "stream": True}
    agent.post("/chat/completions", streamed, idempotency_key="s")
    agent.post("/chat/completions", streamed, idempotency_key="s")
    system.reward("retries", 1.0)
    system.close_twice("retries")


def too_large(system: RecordingSystem) -> None:
    """Sample behind more tokens than a trajectory can hold."""
    agent = system.agent("too-large", LARGE)
    for token in range(5, 13):
        answer = agent.post("/completions", {"prompt": [token] * 240_000, "max_tokens": 4})
        assert answer.status_code == 200, answer.text
    system.end("too-large", 1.0)


def all_of_them(system: RecordingSystem) -> None:
    """Have all these conversations."""
    chat_tool_loop(system, "chat-plain", "acting", chat)
    chat_tool_loop(system, "chat-streamed", "by-ids", streamed_chat)
    chat_tool_loop(system, "chat-lenient", "lenient", streamed_chat)
    for streamed in (False, True):
        messages_tool_loop(system, f"messages-{streamed}", streamed)
        responses_tool_loop(system, f"responses-{streamed}", streamed)
    for conversation in (
        completions,
        forced_calls,
        forks_and_samples,
        sampling_parameters,
        names_and_modules,
        retries,
        too_large,
    ):
        conversation(system)
