"""The form `atif`: sessions in version 1.8 of Harbor's Agent Trajectory Interchange Format. Pure.

A document is a path through the session's turns that ends with a turn that no other continues. So a
session is one document unless its agent rewrote its history or had sub-agents. If a turn also
stands in an earlier document, it is marked `is_copied_context`, as the format asks for.

An answer is a step with the source `agent`, with its tokens and log-probs. Its calls' results are
its observation. Our own members stand in `extra`.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.consumers.trajectories.sessions.tree import Node
from seamlessflow.producers.gateway.dialects.canonical import call_input
from seamlessflow.recorded.export.session_rows import IDENTITY, ExportedSession, identity
from seamlessflow.recorded.export.tables import DOCUMENT, Kind, Table, TableRow
from seamlessflow.schemas.tokens import of_exact_version, unpack

VERSION = "ATIF-v1.8"
AtifStep = dict[str, Any]


class AtifForm:
    """Form with one table, in which each row has a whole document."""

    tables = (Table("trajectories", {DOCUMENT: Kind.TEXT, **IDENTITY}),)

    def rows(self, exported: ExportedSession) -> Iterator[tuple[str, TableRow]]:
        """Yield a row for each of the session's documents."""
        cells = {name: cell for name, cell in identity(exported).items() if name in IDENTITY}
        for made in documents(exported):
            text = orjson.dumps(made).decode()
            yield self.tables[0].name, {DOCUMENT: text, **cells}


def documents(exported: ExportedSession) -> Iterator[Mapping[str, Any]]:
    """Yield a session's documents, in the order in which their last turns began."""
    session = exported.session
    written: set[str] = set()
    for number, path in enumerate(_paths(session)):
        steps = _Steps(exported, written)
        for turn in path:
            steps.append_turn(turn)
        written.update(turn.started.turn_id for turn in path)
        agent: dict[str, Any] = {
            "name": "seamlessflow",
            "version": str(exported.made.fold_version),
            "model_name": exported.made.policy,
        }
        if tools := path[-1].started.tools:
            agent["tool_definitions"] = orjson.loads(tools)
        yield {
            "schema_version": VERSION,
            "session_id": session.session_id,
            "trajectory_id": f"{session.session_id}/{number}",
            "agent": agent,
            "steps": steps.steps,
            "final_metrics": _final_metrics(steps.steps),
            "extra": {
                **{name: cell for name, cell in identity(exported).items() if cell is not None},
                "rewards": {reward.name: reward.value for reward in exported.made.rewards},
            },
        }


class _Steps:
    """One document's steps; it grows by a turn at a time."""

    def __init__(self, exported: ExportedSession, written: set[str]) -> None:
        self._session = exported.session
        self._made = exported.made
        self._written = written
        self.steps: list[AtifStep] = []

    def append_turn(self, turn: Turn) -> None:
        """Append the messages that the turn's prompt adds, and its answer."""
        copied = turn.started.turn_id in self._written
        first = len(self.steps)
        for message in turn.started.new_messages:
            self._append_message(orjson.loads(message))
        self._append_answer(turn)
        if copied:
            for step in self.steps[first:]:
                step["is_copied_context"] = True

    def _append_message(self, message: Mapping[str, Any]) -> None:
        role = message["role"]
        if role == "tool":
            self._observe(message)
        elif role == "assistant":
            # Written into the history by the agent; no call of this session sampled it.
            self._append("agent", message)["is_copied_context"] = True
        elif role == "raw":
            self._append("user", {"content": message.get("content") or orjson.dumps(message)})
        else:
            self._append("user" if role == "user" else "system", message)

    def _observe(self, message: Mapping[str, Any]) -> None:
        """Put a call's result into the step that made the call."""
        call_id = message.get("tool_call_id")
        result: dict[str, Any] = {"content": _content(message)}
        for step in reversed(self.steps):
            if any(call["tool_call_id"] == call_id for call in step.get("tool_calls", ())):
                result["source_call_id"] = call_id
                step.setdefault("observation", {"results": []})["results"].append(result)
                return
        self._append("system", {"content": ""})
        self.steps[-1]["observation"] = {"results": [result]}

    def _append(self, source: str, message: Mapping[str, Any]) -> AtifStep:
        step: AtifStep = {
            "step_id": len(self.steps) + 1,
            "source": source,
            "message": _content(message),
        }
        if reasoning := message.get("reasoning_content"):
            step["reasoning_content"] = reasoning
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [_call(call) for call in calls]
        self.steps.append(step)
        return step

    def _append_answer(self, turn: Turn) -> None:
        tree = self._session.tree
        node = tree.nodes[turn.node]
        started = turn.started
        prompt = tree.path(turn.prompt_node, tree.nodes[turn.prompt_node].length)
        step = self._append("agent", orjson.loads(turn.message))
        step["timestamp"] = datetime.fromtimestamp(started.at_ms / 1000, UTC).isoformat()
        step["model_name"] = started.policy
        step["llm_call_count"] = 1
        step["metrics"] = {
            "prompt_tokens": len(unpack(prompt)),
            "completion_tokens": node.length,
            "prompt_token_ids": unpack(prompt),
            "completion_token_ids": unpack(bytes(node.ids)),
            "extra": {
                "logprob_temperature": started.logprob_temperature,
                "mask": self._mask(turn.node),
                "versions": _versions(node),
            },
        }
        if node.logprobs:
            step["metrics"]["logprobs"] = memoryview(bytes(node.logprobs)).cast("f").tolist()
        step["extra"] = {"turn_id": started.turn_id, "finish_reason": turn.finish_reason}

    def _mask(self, number: int) -> list[bool]:
        """Return which tokens of a sampled node are trained."""
        if not self._made.nodes:  # a trajectory without tokens: of a session that failed
            return [False] * self._session.tree.nodes[number].length
        node = self._made.nodes[number]
        return list(map(bool, self._made.loss_mask[node.start : node.start + node.length]))


def _versions(node: Node) -> list[int]:
    """Return each token's policy version, -1 if it is not known exactly."""
    versions = [-1] * node.length
    ends = [*(span.start for span in node.spans[1:]), node.length]
    for span, end in zip(node.spans, ends, strict=False):
        if of_exact_version(span):
            versions[span.start : end] = [span.version_min] * (end - span.start)
    return versions


def _paths(session: Session) -> Iterator[Sequence[Turn]]:
    """Yield each path of turns from a first one to a completed one that none continues."""
    completed = [turn for turn in session.turns.values() if turn.state is TurnState.COMPLETED]
    continued = {turn.started.parent_turn for turn in completed}
    for turn in completed:
        if turn.started.turn_id not in continued:
            path = [turn]
            while (parent := path[-1].started.parent_turn) is not None:
                path.append(session.turns[parent])
            yield path[::-1]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call; its arguments are an object, as in the gateway's dialects that want one."""
    function = call["function"]
    return {
        "tool_call_id": call["id"],
        "function_name": function["name"],
        "arguments": orjson.Fragment(call_input(function["arguments"])),
    }


def _content(message: Mapping[str, Any]) -> str | list[dict[str, str]]:
    """Return a text or several texts; content that is no text becomes JSON."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    return [{"type": "text", "text": _part(part)} for part in content]


def _part(part: object) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    return orjson.dumps(part).decode()


def _final_metrics(steps: Sequence[AtifStep]) -> dict[str, int]:
    metrics = [step["metrics"] for step in steps if "metrics" in step]
    return {
        "total_prompt_tokens": sum(each["prompt_tokens"] for each in metrics),
        "total_completion_tokens": sum(each["completion_tokens"] for each in metrics),
        "total_steps": len(steps),
    }
