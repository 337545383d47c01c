"""Whatever an agent or a judge raises or returns ends its own session, and nothing else."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import pytest

from seamlessflow.producers.agents.harness.agent import CallableAgent
from seamlessflow.producers.agents.harness.containment import contain_exits
from seamlessflow.producers.agents.harness.session import AgentSession
from tests.integration.agents.one_episode import SESSION, THREADS, closed, run
from tests.integration.agents.scripted_gateway import ScriptedGateway, accepting, on_uvloop, refusal

Payload = Mapping[str, object]
HALF_A_PAIR = "\ud800"


def raising(error: BaseException) -> Callable[..., float]:
    """Return a plain agent or judge that raises the error."""

    def call(task: Payload, subject: object) -> float:
        raise error

    return call


def raising_async(error: BaseException) -> Callable[..., object]:
    """Return an async agent or judge that raises the error."""

    async def call(task: Payload, subject: object) -> float:
        raise error

    return call


def returning(value: object) -> CallableAgent:
    return CallableAgent(lambda task, session: value, THREADS)


def reason(gateway: ScriptedGateway) -> str:
    return str(gateway.calls[-1].body["reason"])


def test_a_task_is_named_after_its_coroutine_in_the_messages_of_asyncio() -> None:
    async def my_agent() -> None:
        await asyncio.sleep(0)

    async def main() -> str:
        contain_exits(asyncio.get_running_loop())
        task = asyncio.get_running_loop().create_task(my_agent())
        shown = repr(task)
        await task
        return shown

    assert "my_agent()" in asyncio.run(main())


ERRORS: dict[str, Callable[[], BaseException]] = {
    "StopIteration": lambda: StopIteration("no more"),
    "StopAsyncIteration": lambda: StopAsyncIteration(),
    "GeneratorExit": lambda: GeneratorExit(),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(),
    "SystemExit": lambda: SystemExit(3),
    "asyncio.CancelledError": lambda: asyncio.CancelledError(),
    "pytest.fail.Exception": lambda: pytest.fail.Exception("2 != 3"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup(
        "both", [KeyboardInterrupt(), ValueError("bad")]
    ),
    "surrogate": lambda: RuntimeError(f"the answer was {HALF_A_PAIR}"),
}


@pytest.mark.parametrize("call", [raising, raising_async])
@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
def test_any_exception_of_an_agent_closes_its_session(
    make: Callable[[], BaseException], call: Callable[[BaseException], Callable[..., object]]
) -> None:
    gateway = run(CallableAgent(call(make()), THREADS), time_limit_s=20)
    assert closed(gateway) == ("aborted", "environment")
    assert "Traceback" in reason(gateway)


@pytest.mark.parametrize("call", [raising, raising_async])
@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
def test_any_exception_of_a_judge_leaves_its_session_unrewarded(
    make: Callable[[], BaseException], call: Callable[[BaseException], Callable[..., object]]
) -> None:
    gateway = run(returning(1.0), judge=call(make()))
    assert closed(gateway) == ("unrewarded", "environment")
    assert reason(gateway).startswith("the judge gave no reward\n")


def test_an_agent_that_cancels_itself_is_told_from_one_that_was_stopped() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        call = asyncio.create_task(asyncio.Event().wait())
        call.cancel()
        return float(await call)

    gateway = run(CallableAgent(agent, THREADS))
    assert closed(gateway) == ("aborted", "environment")
    assert "CancelledError" in reason(gateway)
    assert "process" not in reason(gateway).splitlines()[-1]


def test_a_task_that_an_agent_begins_may_call_exit_also() -> None:
    async def tool() -> None:
        sys.exit(2)

    async def agent(task: Payload, session: AgentSession) -> float:
        contain_exits(asyncio.get_running_loop())
        async with asyncio.TaskGroup() as calls:
            calls.create_task(tool())
        return 1.0

    gateway = run(CallableAgent(agent, THREADS))
    assert closed(gateway) == ("aborted", "environment")
    assert "called exit(2)" in reason(gateway)


def test_a_task_that_is_cancelled_before_it_began_ends_without_a_warning() -> None:
    async def main() -> bool:
        contain_exits(asyncio.get_running_loop())
        begun = asyncio.create_task(asyncio.Event().wait())
        begun.cancel()
        await asyncio.wait([begun])
        return begun.cancelled()

    assert on_uvloop(main())


def test_a_judge_that_takes_too_long_is_stopped_even_if_it_ignores_that() -> None:
    async def judge(task: Payload, result: Payload) -> float:
        for _ in range(2):  # the second time is the end of the event loop
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return 1.0

    gateway = run(returning(1.0), judge=judge, reward_limit_s=0.2)
    assert closed(gateway) == ("unrewarded", "environment")
    assert "agents.reward_limit_s" in reason(gateway)


@pytest.mark.parametrize(
    "value",
    [
        10**400,
        10**5000,
        {"reward": -(10**400)},
        {"rewards": {"test": 10**400}},
        {"turn_rewards": {"chatcmpl-1": 10**400}},
        np.array([1.0, 2.0]),
        np.float32("nan"),
        np.str_("1.0"),
        np.complex128(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_no_reward_is_the_agents_error(value: object) -> None:
    gateway = run(returning(value))
    assert closed(gateway) == ("aborted", "environment")
    assert gateway.paths() == ["/sessions", f"/sessions/{SESSION}/close"]
    assert gateway.calls[-1].body["on_limit"] == "retry"
    unjudged = run(returning(None), judge=lambda task, result: value)
    assert closed(unjudged) == ("unrewarded", "environment")
    assert unjudged.calls[-1].body["on_limit"] == "retry"


@pytest.mark.parametrize("status", ["great", np.array(["complete", "truncated"]), None])
def test_a_status_that_does_not_exist_is_the_agents_error(status: object) -> None:
    gateway = run(returning({"reward": 1.0, "status": status}))
    assert closed(gateway) == ("aborted", "environment")
    assert gateway.calls[-1].body["on_limit"] == "retry"


def test_a_reward_that_the_gateway_refuses_is_the_agents_error() -> None:
    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        return refusal(404, "unknown_turn") if "turn" in body else accepting(path, body)

    gateway = run(returning({"reward": 1, "turn_rewards": {"x": 1}}), answering=answering)
    assert closed(gateway) == ("aborted", "environment")
    assert gateway.calls[-1].body["on_limit"] == "retry"


class Unreadable(dict[str, object]):
    """Mapping that fails when it is read."""

    def get(self, *_: object) -> object:
        raise LookupError("gone")

    def items(self) -> object:  # type: ignore[override]
        raise LookupError("gone")


@pytest.mark.parametrize("value", [Unreadable(), {"rewards": Unreadable(a=1)}])
def test_a_mapping_that_fails_when_it_is_read_is_the_agents_error(value: object) -> None:
    gateway = run(returning(value))
    assert closed(gateway) == ("aborted", "environment")
    assert "gone" in reason(gateway)


def test_text_that_is_no_unicode_reaches_the_gateway_with_its_codes_spelt_out() -> None:
    name = f"style{HALF_A_PAIR}"
    answer = {
        "reward": {"value": 1, "source": name},
        "rewards": {name: 0.5},
        "turn_rewards": {name: 0.25},
    }
    gateway = run(returning(answer))
    assert closed(gateway) == ("complete", "policy")
    of_turn, named, last = (call.body for call in gateway.calls[1:4])
    spelt = "style\\ud800"
    assert (of_turn["turn"], named["name"], last["source"]) == (spelt, spelt, spelt)


def test_an_error_of_the_episode_itself_closes_its_session_and_frees_its_place() -> None:
    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        if path == "/sessions":
            return 201, {"api_key": "a key without its base URL"}
        return accepting(path, body)

    gateway = run(returning(1.0), answering=answering)
    assert closed(gateway) == ("aborted", "infrastructure")
    assert "base_url" in reason(gateway)
