"""One conversation in each dialect, by the vendors' clients: whole answers or streamed ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types

POLICY = "policy"
SYSTEM = "You are brief."
QUESTIONS = ("Name three colours.", "Now in German, with emoji 😀.")
MAX_TOKENS = 24
TIMEOUT_S = 600


@dataclass(frozen=True)
class Door:
    """Address and key of a session."""

    base_url: str
    """Of the OpenAI dialects, ends with /v1."""
    api_key: str

    @property
    def root(self) -> str:
        """Return the URL that the other vendors' clients take."""
        return self.base_url.removesuffix("/v1")

    def openai(self) -> openai.OpenAI:
        """Return OpenAI's client, without retries."""
        return openai.OpenAI(
            base_url=self.base_url, api_key=self.api_key, timeout=TIMEOUT_S, max_retries=0
        )

    def anthropic(self) -> anthropic.Anthropic:
        """Return Anthropic's client, without retries."""
        return anthropic.Anthropic(
            base_url=self.root, api_key=self.api_key, timeout=TIMEOUT_S, max_retries=0
        )


Converse = Callable[[Door, bool], list[str]]
"""Ask both questions; return the answers, streamed or not."""


def by_chat(door: Door, streamed: bool) -> list[str]:
    said: list[Any] = [{"role": "system", "content": SYSTEM}]
    answers = []
    with door.openai() as client:
        for question in QUESTIONS:
            said.append({"role": "user", "content": question})
            asked: Any = {"model": POLICY, "messages": said, "temperature": 0}
            asked["max_tokens"] = MAX_TOKENS
            if streamed:
                chunks = client.chat.completions.create(**asked, stream=True)
                answers.append("".join(c.choices[0].delta.content or "" for c in chunks))
            else:
                whole = client.chat.completions.create(**asked)
                answers.append(whole.choices[0].message.content or "")
            said.append({"role": "assistant", "content": answers[-1]})
    return answers


def by_responses(door: Door, streamed: bool) -> list[str]:
    answers = []
    more: dict[str, Any] = {}
    with door.openai() as client:
        for question in QUESTIONS:
            asked: Any = {"model": POLICY, "instructions": SYSTEM, "input": question, **more}
            asked |= {"max_output_tokens": MAX_TOKENS, "temperature": 0}
            if streamed:
                # Not the client's own stream, which wants an answer that no limit has cut.
                events = list(client.responses.create(**asked, stream=True))
                answered = events[-1].response
                deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
                assert "".join(deltas) == answered.output_text
            else:
                answered = client.responses.create(**asked)
            answers.append(answered.output_text)
            more = {"previous_response_id": answered.id}
    return answers


def by_messages(door: Door, streamed: bool) -> list[str]:
    said: list[Any] = []
    answers = []
    with door.anthropic() as client:
        for question in QUESTIONS:
            said.append({"role": "user", "content": question})
            asked: Any = {"model": POLICY, "system": SYSTEM, "messages": said}
            asked |= {"max_tokens": MAX_TOKENS, "extra_body": {"temperature": 0}}
            if streamed:
                with client.messages.stream(**asked) as stream:
                    answers.append("".join(stream.text_stream))
            else:
                (block,) = client.messages.create(**asked).content
                answers.append(block.text)
            said.append({"role": "assistant", "content": answers[-1]})
    return answers


def by_content(door: Door, streamed: bool) -> list[str]:
    config = types.GenerateContentConfig(
        system_instruction=SYSTEM, temperature=0, max_output_tokens=MAX_TOKENS
    )
    answers = []
    options = types.HttpOptions(base_url=door.root, timeout=1000 * TIMEOUT_S)
    with genai.Client(api_key=door.api_key, http_options=options) as client:
        chat = client.chats.create(model=POLICY, config=config)
        for question in QUESTIONS:
            if streamed:
                parts = [event.text or "" for event in chat.send_message_stream(question)]
                answers.append("".join(parts))
            else:
                answers.append(chat.send_message(question).text or "")
    return answers


def by_completions(door: Door, streamed: bool) -> list[str]:
    """Ask with a prompt that is written as the model's template writes it."""
    prompt = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
    answers = []
    with door.openai() as client:
        for question in QUESTIONS:
            prompt += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            asked: Any = {"model": POLICY, "prompt": prompt, "temperature": 0}
            asked["max_tokens"] = MAX_TOKENS
            if streamed:
                chunks = client.completions.create(**asked, stream=True)
                answers.append("".join(chunk.choices[0].text for chunk in chunks))
            else:
                answers.append(client.completions.create(**asked).choices[0].text)
            prompt += f"{answers[-1]}<|im_end|>\n"
    return answers


DIALECTS: dict[str, Converse] = {
    "chat": by_chat,
    "responses": by_responses,
    "messages": by_messages,
    "content": by_content,
    "completions": by_completions,
}
