"""A real model behind the gateway, as the vendors' clients see it."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Sampling
from seamlessflow.schemas.tokens import unpack
from tests.builders.gateway.conversing import DIALECTS, Door
from tests.e2e.running_system import POLICY, RunningSystem, running_system

pytestmark = [pytest.mark.real, pytest.mark.kafka]
CONTEXT = 8192
"""SmolLM2's own."""
USER: Any = {"role": "user", "content": "Write one short line about the sea, with emoji. 🌊"}
ADD: Any = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {}},
}


@pytest.fixture(scope="module")
def system(
    broker: KafkaSettings, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSystem]:
    with running_system(broker, tmp_path_factory.mktemp("gateway")) as made:
        made.model = smollm2
        made.max_context = CONTEXT
        made.overrides = Sampling()
        made.publish_weights(0, seed=0)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.start_worker("w0")
        made.give_role("w0", 0)
        made.await_ready()
        yield made


def opened(system: RunningSystem) -> tuple[str, Door]:
    """Open a session; return its id, and where it is reached."""
    name = f"s-{uuid.uuid4().hex[:8]}"
    answer = system.admin("/sessions", session_id=name, policy=POLICY)
    assert answer.status_code == 201, answer.text
    return name, Door(answer.json()["base_url"], answer.json()["api_key"])


@pytest.fixture
def door(system: RunningSystem) -> Door:
    return opened(system)[1]


@pytest.fixture
def client(door: Door) -> Iterator[openai.OpenAI]:
    with door.openai() as made:
        yield made


@pytest.fixture(scope="module")
def spoken(system: RunningSystem) -> tuple[list[str], r.Trajectory]:
    """Return the answers and the trajectory of the conversation by chat, not streamed."""
    name, door = opened(system)
    answers = DIALECTS["chat"](door, False)
    return answers, system.end(name)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_has_the_same_tokens_in_each_dialect(
    system: RunningSystem,
    spoken: tuple[list[str], r.Trajectory],
    dialect: str,
    streamed: bool,
) -> None:
    answers, trajectory = spoken
    name, door = opened(system)
    assert DIALECTS[dialect](door, streamed) == answers
    recorded = system.end(name)
    assert unpack(recorded.tokens) == unpack(trajectory.tokens)
    assert recorded.match_rules == {"root": 1, "extend": 1}


@pytest.mark.parametrize("stop", [["🌊"], [" "], ["e", "a"], ["\n"]], ids=repr)
def test_a_stop_string_ends_streamed_and_whole_answers_at_the_same_place(
    client: openai.OpenAI, stop: list[str]
) -> None:
    asked: Any = {"model": POLICY, "messages": [USER], "max_tokens": 20, "temperature": 0}
    plain = client.chat.completions.create(**asked).choices[0].message.content or ""
    whole = client.chat.completions.create(**asked, stop=stop).choices[0]
    chunks = list(client.chat.completions.create(**asked, stop=stop, stream=True))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    places = [place for text in stop if (place := plain.find(text)) >= 0]
    assert whole.message.content == streamed == plain[: min(places, default=len(plain))].rstrip()
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_choices_and_log_probs_are_of_the_tokens_that_are_shown(client: openai.OpenAI) -> None:
    asked: Any = {"model": POLICY, "messages": [USER], "max_tokens": 8, "n": 3}
    answer = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    assert len(answer.choices) == 3
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.content
        for token in choice.logprobs.content:
            first, second = token.top_logprobs
            assert token.logprob <= first.logprob and second.logprob <= first.logprob


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_tools_that_the_template_does_not_write_are_refused_at_once(
    client: openai.OpenAI, door: Door, streamed: bool
) -> None:
    tools: Any = [{"type": "function", "function": ADD}]
    with pytest.raises(openai.BadRequestError, match="leave them out, or describe them") as chat:
        client.chat.completions.create(model=POLICY, messages=[USER], tools=tools, stream=streamed)
    assert chat.value.param == "tools"
    with pytest.raises(openai.BadRequestError, match="does not write tools"):
        flat: Any = [{"type": "function", "strict": False, **ADD}]
        client.responses.create(model=POLICY, input="x", tools=flat)
    described: Any = {"name": "add", "description": "Adds.", "input_schema": ADD["parameters"]}
    with door.anthropic() as other, pytest.raises(anthropic.BadRequestError, match="leave them"):
        other.messages.create(model=POLICY, messages=[USER], max_tokens=5, tools=[described])


def test_a_schema_is_refused_by_an_engine_without_structured_output(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    with pytest.raises(openai.BadRequestError, match="structured output") as raised:
        client.chat.completions.create(model=POLICY, messages=[USER], response_format=form)
    assert raised.value.param == "response_format"


def test_a_template_argument_that_is_not_read_is_named(client: openai.OpenAI) -> None:
    more = {"chat_template_kwargs": {"enable_thinking": False}}
    with pytest.raises(openai.BadRequestError, match="enable_thinking") as raised:
        client.chat.completions.create(model=POLICY, messages=[USER], extra_body=more)
    assert raised.value.param == "chat_template_kwargs"


def test_a_prompt_one_token_below_the_context_gets_one_token(client: openai.OpenAI) -> None:
    prompt = [504] * (CONTEXT - 1)
    answer = client.completions.create(model=POLICY, prompt=prompt, max_tokens=8, temperature=0)
    assert answer.usage is not None
    assert answer.usage.total_tokens == CONTEXT
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_a_prompt_that_fills_the_context_is_refused(client: openai.OpenAI, more: int) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 8192") as raised:
        client.completions.create(model=POLICY, prompt=[504] * (CONTEXT + more))
    assert raised.value.code == "context_length_exceeded"
