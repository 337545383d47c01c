"""Judges that are models: a prompt from the session, a call, and the score in the answer.

`servers.py` has the servers that are asked. Answers with a score are kept by the question's hash,
so a process asks the same question only once.
"""

import hashlib
import json
import math
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from string import Template
from typing import Any

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.agents.gateway_client.connections import HttpAnswer
from seamlessflow.producers.agents.result import BadResult, shown
from seamlessflow.recorded.judging.judged_session import JudgedSession
from seamlessflow.recorded.judging.servers import (
    ModelAway,
    ModelRefused,
    ModelServer,
    beginning,
)
from seamlessflow.recorded.judging.settings import ModelSection
from seamlessflow.schemas.json_text import write_json

SCORE = "score"
"""Member in an answer's JSON object that holds the score."""
_PASSING = {408, 425, 429}
"""Statuses below 500 with which a server asks for another try."""
_KEPT = 10_000


class ModelJudge:
    """Judge that asks a model. Used from one event loop."""

    def __init__(
        self, name: str, settings: ModelSection, server: ModelServer, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._server = server
        self._kept: OrderedDict[bytes, float] = OrderedDict()
        tokens = "seamlessflow_judges_tokens_total"
        self._prompt_tokens = metrics.counter(tokens, judge=name, kind="prompt")
        self._sampled_tokens = metrics.counter(tokens, judge=name, kind="completion")
        self._hits = metrics.counter("seamlessflow_judges_cached_total", judge=name)

    async def reward(self, session: JudgedSession) -> object:
        body = self._body(session)
        key = hashlib.sha256(write_json(body, sort_keys=True)).digest()
        if (kept := self._kept.get(key)) is not None:
            self._hits.inc()
            return kept
        score = score_in(await self._answer(body, session), self._settings.score)
        self._kept[key] = score
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return score

    def goes_on(self, session: JudgedSession) -> bool:
        return False

    def close(self) -> None:
        self._server.close()

    def _body(self, session: JudgedSession) -> dict[str, Any]:
        settings = self._settings
        return {
            "model": settings.name or settings.policy,
            "messages": [{"role": "user", "content": prompt(session, settings.prompt)}],
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
        }

    async def _answer(self, body: Mapping[str, Any], session: JudgedSession) -> str:
        """Return the answer's text. Raises `OSError` and `ModelRefused`."""
        answer = await self._server.answer(body, session)
        if answer.status in _PASSING or answer.status >= 500:
            raise ModelAway(_shown(answer), answer.retry_after_s)
        if answer.status != 200:
            raise ModelRefused(_shown(answer))
        content = answer.json()
        usage: Any = content.get("usage")
        if isinstance(usage, Mapping):
            self._prompt_tokens.inc(usage.get("prompt_tokens") or 0)
            self._sampled_tokens.inc(usage.get("completion_tokens") or 0)
        try:
            choices: Any = content["choices"]
            return str(choices[0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError):
            raise ModelRefused(f"no answer in {beginning(answer)}") from None


def prompt(session: JudgedSession, template: str) -> str:
    """Return a session's prompt for the judge."""
    messages = session.messages
    history = "\n\n".join(f"{part.get('role')}: {_text(part)}" for part in messages)
    return Template(template).substitute(
        answer=_text(messages[-1]) if messages else "",
        messages=history,
        task=write_json(session.task).decode(),
        metadata=write_json(dict(session.metadata)).decode(),
    )


def score_in(text: str, pattern: str) -> float:
    """Return the score in an answer. Raises `BadResult` if there is none, or if scores differ.

    `pattern`: regular expression whose group is the score; empty: the member `score` of a JSON
    object.
    """
    scores: list[Any] = re.findall(pattern, text) if pattern else list(_scores(text))
    values = set()
    for score in scores:
        try:
            values.add(float(score))
        except (TypeError, ValueError):
            raise BadResult(f"the score {shown(score)} is no number") from None
    if len(values) != 1:
        many = "no score" if not values else f"{len(values)} scores"
        raise BadResult(f"{many} in the answer {shown(text)}")
    (value,) = values
    if not math.isfinite(value):
        raise BadResult(f"the score {value} is not finite")
    return value


def _scores(text: str) -> Iterator[object]:
    """Yield the scores of the JSON objects in a text, without objects inside others."""
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if SCORE in value:
                score = value[SCORE]
                yield None if isinstance(score, bool) else score
        place = text.find("{", end)


def _text(message: Mapping[str, Any]) -> str:
    """Return a message's text: its content, or the whole message as JSON."""
    content = message.get("content")
    return content if isinstance(content, str) and content else write_json(dict(message)).decode()


def _shown(answer: HttpAnswer) -> str:
    return f"status {answer.status}: {beginning(answer)}"
