"""Judges that are models: their prompts, their calls, and the scores in their answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.agents.result import BadResult
from seamlessflow.recorded.judging.models import ModelJudge, prompt, score_in
from seamlessflow.recorded.judging.servers import ModelAway, OpenAIServer
from seamlessflow.recorded.judging.settings import JudgeSection, ModelSection
from seamlessflow.recorded.judging.tries import Tries
from seamlessflow.recorded.judging.verdict import JudgesWord, Rewarded, Unrewarded, failed_try
from tests.builders.judging import seen_session

SESSION = seen_session()
SECRET = "sk-of-a-judge"


class ModelServer:
    """A server of chat completions that answers one after the other: a text, or a status."""

    def __init__(self, *answers: str | int | dict[str, Any], headers: str = "") -> None:
        self._answers = list(answers)
        self._headers = headers
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []

    async def serve(self, work: Callable[[str], Any]) -> Any:
        """Return what `work` returns, called with the server's base URL."""
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await work(f"http://127.0.0.1:{port}/v1")

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        self.bodies.append(orjson.loads(await reader.readexactly(length)))
        self.heads.append(head)
        writer.write(self._response())
        writer.close()
        await writer.wait_closed()

    def _response(self) -> bytes:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        status = answer if isinstance(answer, int) else 200
        usage = {"prompt_tokens": 11, "completion_tokens": 3}
        content: object = answer
        if isinstance(answer, str):
            content = {"choices": [{"message": {"content": answer}}], "usage": usage}
        body = orjson.dumps(content)
        lines = f"HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
        return f"{lines}{self._headers}\r\n".encode() + body


def section(url: str = "http://127.0.0.1:1/v1", **more: Any) -> ModelSection:
    fields = {"url": url, "name": "m", "prompt": "Rate: $answer", "api_key": SECRET, **more}
    return ModelSection(**fields)


def judge_at(url: str, metrics: Metrics | None = None) -> ModelJudge:
    return ModelJudge("kind", section(url), OpenAIServer(section(url)), metrics or Metrics())


def judged(server: ModelServer, times: int = 1, metrics: Metrics | None = None) -> list[JudgesWord]:
    """Return the words of a judge that asks the server about a session so often."""
    made = metrics or Metrics()

    async def work(url: str) -> list[JudgesWord]:
        settings = JudgeSection(model=section(url), retries=1)
        judge = judge_at(url, made)
        tries = Tries("kind", judge, settings, made, lambda: 0, lambda tries: 0.0)
        words = [await tries.verdict(SESSION, 60_000) for _ in range(times)]
        await tries.close()
        return words

    words: list[JudgesWord] = asyncio.run(server.serve(work))
    return words


def test_a_model_gets_the_prompt_and_its_score_is_the_reward() -> None:
    server = ModelServer('{"score": 0.75}')
    assert judged(server) == [Rewarded(0.75)]
    (body,) = server.bodies
    assert body["messages"] == [{"role": "user", "content": "Rate: hello"}]
    assert (body["model"], body["temperature"]) == ("m", 0)
    assert server.heads[0].startswith("POST /v1/chat/completions")
    assert f"authorization: Bearer {SECRET}" in server.heads[0]


def test_the_same_question_is_asked_once_and_its_tokens_are_counted() -> None:
    metrics = Metrics()
    server = ModelServer('{"score": 1}')
    assert judged(server, 3, metrics) == [Rewarded(1.0)] * 3
    assert len(server.bodies) == 1
    text = metrics.text().decode()
    assert 'seamlessflow_judges_cached_total{judge="kind"} 2.0' in text
    assert 'seamlessflow_judges_tokens_total{judge="kind",kind="prompt"} 11.0' in text


def test_an_answer_without_a_score_is_asked_for_again_and_not_kept() -> None:
    server = ModelServer("it is good", '{"score": 0.5}')
    assert judged(server) == [Rewarded(0.5)]
    assert len(server.bodies) == 2


def test_a_busy_server_is_waited_for_and_does_not_count() -> None:
    server = ModelServer(429, 503, 429, '{"score": 0.5}', headers="retry-after: 0\r\n")
    assert judged(server) == [Rewarded(0.5)]


def test_a_server_that_refuses_counts() -> None:
    (word,) = judged(ModelServer(401))
    assert isinstance(word, Unrewarded) and "ModelRefused: status 401" in word.reason
    (other,) = judged(ModelServer({"choices": []}))
    assert isinstance(other, Unrewarded) and "no answer in" in other.reason


def test_the_pause_that_a_server_asks_for_is_obeyed() -> None:
    async def work(url: str) -> None:
        await judge_at(url).reward(SESSION)

    with pytest.raises(ModelAway) as error:
        asyncio.run(ModelServer(429, headers="retry-after: 9\r\n").serve(work))
    failure = failed_try(error.value)
    assert (failure.outage, failure.again_after_s) == (True, 9)


def test_a_server_that_is_not_there_is_an_outage() -> None:
    with pytest.raises(OSError) as error:
        asyncio.run(judge_at(section().url).reward(SESSION))
    assert failed_try(error.value).outage


def test_a_prompt_has_answer_history_task_and_metadata() -> None:
    text = prompt(SESSION, "$$5 for $answer of [$messages] by $task and $metadata")
    assert text == '$5 for hello of [user: hi\n\nassistant: hello] by null and {"level":"3"}'


@pytest.mark.parametrize(
    ("text", "pattern", "score"),
    [
        ('{"score": 0.5}', "", 0.5),
        ('So: ```json\n{"why": {"a": 1}, "score": 1}\n```', "", 1.0),
        ('{"score": 0.5} and again {"score": 0.5}', "", 0.5),
        ('not {this, but {"score": "2"}', "", 2.0),
        ("Score: 7/10", r"Score: (\d+)", 7.0),
    ],
)
def test_the_score_of_an_answer_is_read(text: str, pattern: str, score: float) -> None:
    assert score_in(text, pattern) == score


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("I like it", ""),
        ("", ""),
        ('{"score": 0.5} or {"score": 0.6}', ""),
        ('{"score": true}', ""),
        ('{"score": null}', ""),
        ('{"score": "high"}', ""),
        ('{"score": NaN}', ""),
        ("Score: 7, Score: 8", r"Score: (\d+)"),
        ("none", r"Score: (\d+)"),
    ],
)
def test_no_score_and_two_scores_are_no_reward(text: str, pattern: str) -> None:
    with pytest.raises(BadResult):
        score_in(text, pattern)


def test_a_key_is_never_shown_nor_given_to_others() -> None:
    settings = JudgeSection(model=section())
    assert SECRET not in repr(settings) and SECRET not in str(settings.model_dump())
