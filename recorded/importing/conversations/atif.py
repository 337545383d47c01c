"""Documents in Harbor's format ATIF: their tokens if they have any, else their messages. Pure.

An answer may have the ids of its prompt and its own ids. If its prompt begins with all that the
previous answer's row has so far, both stand in one row. A document whose answers lack ids is a
conversation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.recorded.importing.conversations.conversation import (
    ForeignConversation,
    NotReadable,
    text_of,
)
from seamlessflow.recorded.importing.foreign_row import RowRead

Document = Mapping[str, Any]
ATIF = "atif"
_UNKNOWN = -1
"""Version of a token that was not sampled, or whose version the document does not name."""


@dataclass(slots=True)
class _Sequence:
    """A row that grows by an answer at a time; the lists are equally long."""

    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def append(self, metrics: Mapping[str, Any], copied: bool) -> None:
        """Append the new part of a prompt, and the answer. Raises `NotReadable`."""
        answer = metrics["completion_token_ids"]
        logprobs = metrics.get("logprobs")
        if logprobs is not None and len(logprobs) != len(answer):
            raise NotReadable(f"{len(logprobs)} log-probs of {len(answer)} tokens")
        new = metrics["prompt_token_ids"][len(self.token_ids) :]
        extra = metrics.get("extra") or {}
        temperature = extra.get("logprob_temperature", 1.0)
        mask = _mask(metrics)
        self.token_ids += [*new, *answer]
        self.mask += [False] * len(new) + [kept and not copied for kept in mask]
        self.versions += [_UNKNOWN] * len(new) + (extra.get("versions") or [_UNKNOWN] * len(answer))
        self.logprobs += [0.0] * len(new) + (logprobs or [0.0] * len(answer))
        self.temperatures += [1.0] * len(new) + [temperature] * len(answer)


def is_atif(document: Document) -> bool:
    """Return whether a value is an ATIF document."""
    return str(document.get("schema_version", "")).startswith("ATIF-")


def rows(document: Document) -> Iterator[RowRead]:
    """Yield a document's token rows.

    Raises `NotReadable`.
    """
    answers = [step for step in _answers(document) if step.get("metrics")]
    sequences: list[_Sequence] = []
    for step in answers:
        metrics = step["metrics"]
        before = sequences[-1].token_ids if sequences else []
        if not sequences or metrics["prompt_token_ids"][: len(before)] != before:
            sequences.append(_Sequence())
        sequences[-1].append(metrics, bool(step.get("is_copied_context")))
    sampled = [step["metrics"] for step in answers if not step.get("is_copied_context")]
    # An answer that is not trained needs no log-probs, for example one that a fork played back.
    scored = all(
        metrics.get("logprobs") is not None or not any(_mask(metrics)) for metrics in sampled
    )
    extra = document.get("extra") or {}
    for sequence in sequences:
        row = {
            "token_ids": sequence.token_ids,
            "mask": sequence.mask,
            "temperatures": sequence.temperatures,
            "versions": sequence.versions,
            "reward": extra.get("reward"),
            **{
                name: extra[name] for name in ("group_id", "task_id") if extra.get(name) is not None
            },
            "session_id": document.get("session_id") or "",
        }
        yield row | {"logprobs": sequence.logprobs} if scored else row


def _mask(metrics: Mapping[str, Any]) -> list[bool]:
    """Return which tokens in an answer are trained: all, unless the document says otherwise."""
    extra = metrics.get("extra") or {}
    return extra.get("mask") or [True] * len(metrics["completion_token_ids"])


def has_tokens(document: Document) -> bool:
    """Return whether each answer that is no copied context has its own ids and its prompt's."""
    sampled = (step for step in _answers(document) if not step.get("is_copied_context"))
    answers = [step.get("metrics") or {} for step in sampled]
    names = ("prompt_token_ids", "completion_token_ids")
    return bool(answers) and all(metrics.get(name) for metrics in answers for name in names)


def conversation(document: Document) -> ForeignConversation:
    """Return a document's messages. Raises `NotReadable`."""
    messages: list[Mapping[str, Any]] = []
    for step in document["steps"]:
        role = "assistant" if step["source"] == "agent" else step["source"]
        message: dict[str, Any] = {"role": role, "content": _content(step["message"])}
        if reasoning := step.get("reasoning_content"):
            message["reasoning_content"] = reasoning
        if calls := step.get("tool_calls"):
            message["tool_calls"] = [_call(call) for call in calls]
        if step.get("is_copied_context"):
            message["weight"] = 0
        messages += [message, *_results(step)]
    agent = document["agent"]
    return ForeignConversation(
        messages,
        ATIF,
        agent.get("tool_definitions") or (),
        document.get("session_id") or "",
        agent.get("model_name") or "",
    )


def with_subagents(document: Document) -> Iterator[Document]:
    """Yield the document and all that it embeds."""
    yield document
    for embedded in document.get("subagent_trajectories") or ():
        session_id = embedded.get("session_id") or document.get("session_id")
        yield from with_subagents({**embedded, "session_id": session_id})


def _answers(document: Document) -> Sequence[Mapping[str, Any]]:
    """Return the steps that a model answered; a call count of 0 says that no model did."""
    steps = (step for step in document["steps"] if step["source"] == "agent")
    return [step for step in steps if step.get("llm_call_count") != 0]


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = {"name": call["function_name"], "arguments": text_of(call["arguments"])}
    return {"id": call["tool_call_id"], "type": "function", "function": function}


def _results(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for result in (step.get("observation") or {}).get("results", ()):
        content = _content(result.get("content") or "")
        if call_id := result.get("source_call_id"):
            yield {"role": "tool", "tool_call_id": call_id, "content": content}
        else:
            yield {"role": "user", "content": content}


def _content(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    if any(part["type"] != "text" for part in content):
        raise NotReadable("a part that is no text: a text model cannot read it")
    return "".join(part["text"] for part in content)
