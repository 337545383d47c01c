"""Tries of a judge: which failures are tried again, and how it ends."""

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import replace

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.recorded.judging.judged_session import JudgedSession
from seamlessflow.recorded.judging.judges import CallableJudge
from seamlessflow.recorded.judging.settings import JudgeSection
from seamlessflow.recorded.judging.tries import Tries, growing_pause_s
from seamlessflow.recorded.judging.verdict import JudgesWord, Rewarded, Unrewarded
from tests.builders.judging import seen_session

SESSION = seen_session()
Score = Callable[[JudgedSession], object]


class Script:
    """A judge that answers in turn, the last answer for ever; exceptions are raised."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.calls = 0

    def __call__(self, session: JudgedSession) -> object:
        answer = self._answers[min(self.calls, len(self._answers) - 1)]
        self.calls += 1
        if isinstance(answer, BaseException):
            raise answer
        return answer


def tries_of(
    score: Score,
    clock: Callable[[], int] = lambda: 0,
    metrics: Metrics | None = None,
    **settings: object,
) -> Tries:
    section = JudgeSection(callable="m:f", **settings)
    made = metrics or Metrics()
    return Tries("kind", CallableJudge(score), section, made, clock, lambda tries: 0.0)


def judged(score: Score, deadline_ms: int = 1, **settings: object) -> JudgesWord:
    async def judge() -> JudgesWord:
        return await tries_of(score, **settings).verdict(SESSION, deadline_ms)  # type: ignore[arg-type]

    return asyncio.run(judge())


def test_a_judge_is_called_once_for_a_reward() -> None:
    script = Script(0.5)
    assert (judged(script), script.calls) == (Rewarded(0.5), 1)


def test_an_async_judge_is_awaited() -> None:
    async def score(session: JudgedSession) -> float:
        return len(session.tokens)

    assert judged(score) == Rewarded(4.0)


def test_what_is_no_reward_is_asked_for_again_as_often_as_told() -> None:
    script = Script(math.nan, "prose", 1.0)
    assert (judged(script, retries=2), script.calls) == (Rewarded(1.0), 3)

    script = Script(math.nan, "prose", ValueError("broken"))
    verdict = judged(script, retries=2)
    assert verdict == Unrewarded("ValueError: broken (try 3 of 3)") and script.calls == 3


def test_an_outage_does_not_count_and_is_waited_out() -> None:
    script = Script(*[ConnectionError("away")] * 50, 1.0)
    assert (judged(script, retries=0), script.calls) == (Rewarded(1.0), 51)


def test_an_outage_beyond_the_deadline_ends_without_a_reward() -> None:
    script = Script(ConnectionError("away"))
    times = iter(range(0, 1_000, 100))
    verdict = judged(script, deadline_ms=500, clock=lambda: next(times))
    assert verdict == Unrewarded("no reward in time; at last: ConnectionError: away")
    assert script.calls == 6


def test_a_try_that_takes_too_long_counts() -> None:
    async def score(session: JudgedSession) -> float:
        await asyncio.Event().wait()
        raise AssertionError

    assert judged(score, timeout_s=0.01, retries=0) == Unrewarded("no answer within 0.01 s")


def test_a_judge_that_calls_exit_ends_its_try_alone() -> None:
    assert isinstance(judged(Script(SystemExit(3)), retries=0), Unrewarded)


def test_a_session_that_has_ended_is_not_judged() -> None:
    script = Script(1.0)

    async def judge() -> JudgesWord:
        return await tries_of(script).verdict(SESSION, 1, wanted=lambda: False)

    assert asyncio.run(judge()) == Unrewarded("its session has ended") and script.calls == 0


def test_no_more_tries_run_at_once_than_told() -> None:
    running: list[int] = []
    most = 0

    async def score(session: JudgedSession) -> float:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.pop()
        return 1.0

    async def judge() -> None:
        tries = tries_of(score, concurrency=2)
        await asyncio.gather(*(tries.verdict(SESSION, 1) for _ in range(6)))

    asyncio.run(judge())
    assert most == 2


def test_a_thread_that_goes_on_keeps_its_place() -> None:
    over = threading.Event()
    script = Script(1.0)

    def score(session: JudgedSession) -> object:
        if session.sample:
            return script(session)
        over.wait(30)
        return 0.0

    async def judge() -> None:
        tries = tries_of(score, concurrency=1, timeout_s=0.01, retries=0)
        assert isinstance(await tries.verdict(SESSION, 1), Unrewarded)
        other = seen_session(session="other")
        second = asyncio.create_task(tries.verdict(replace(other, sample=1), 1))
        done, _ = await asyncio.wait({second}, timeout=0.05)
        assert not done and script.calls == 0
        over.set()
        assert await asyncio.wait_for(second, 10) == Rewarded(1.0)
        await tries.close()

    asyncio.run(judge())


def test_tries_are_counted_by_their_outcome_and_those_behind_another_one() -> None:
    metrics = Metrics()
    script = Script(math.nan, KeyError("score"), ConnectionError("away"), 1.0)

    assert judged(script, metrics=metrics) == Rewarded(1.0)

    text = metrics.text().decode()
    for outcome in ("reward", "outage", "failure", "unreadable"):
        line = f'seamlessflow_judges_tries_total{{judge="kind",outcome="{outcome}"}} 1.0'
        assert line in text
    assert 'seamlessflow_judges_retries_total{judge="kind"} 3.0' in text


def test_a_judge_of_turns_rewards_each_turn() -> None:
    (turn,) = SESSION.turns
    assert judged(Script([0.5]), of="turns") == Rewarded(0.5, {turn.turn_id: 0.5})
    assert isinstance(judged(Script(0.5), of="turns"), Unrewarded)
    assert isinstance(judged(Script([0.5])), Unrewarded)


def test_pauses_double_up_to_a_limit() -> None:
    pauses = [growing_pause_s(tries) for tries in range(1, 20)]
    assert pauses[:3] == [0.2, 0.4, 0.8] and pauses[-1] == 30
