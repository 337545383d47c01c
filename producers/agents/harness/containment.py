"""Containment of agents and judges: whatever one raises ends only its own call.

Python gives some exceptions a meaning for the caller. `SystemExit` and `KeyboardInterrupt` end the
event loop; `CancelledError` says that the waiting task is to end. Here they are call failures like
any other. A call counts as cancelled only after `stop`. Used by `play.py`, and by `runner.py` for
the tasks that agents begin.
"""

import asyncio
from asyncio import FIRST_COMPLETED, AbstractEventLoop, Future, Task
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any

from seamlessflow.infra.errors import SeamlessFlowError


class CalledExit(SeamlessFlowError):
    """A callable tried to end the process."""

    def __init__(self, status: object) -> None:
        self.status = status
        super().__init__(f"the callable called exit({status!r})")


class ContainedCall:
    """Call to an agent or a judge, in its own asyncio task. Begins at once."""

    def __init__(self, call: Coroutine[Any, Any, object]) -> None:
        self._task: Task[object] = asyncio.get_running_loop().create_task(_Contained(call))
        self._stopped = False

    @property
    def over(self) -> bool:
        """True once the call has returned or raised."""
        return self._task.done()

    @property
    def stopped(self) -> bool:
        """True if the call ended with an exception after `stop`."""
        return self._stopped and self.error() is not None

    def stop(self) -> None:
        """Ask the call to end; it may go on."""
        self._stopped = True
        self._task.cancel()

    async def wait(self, limit_s: float, *others: Future[Any]) -> None:
        """Return once the call is over, one of `others` is done, or the limit has passed."""
        # `wait` and not `wait_for`: a call that ignores its cancellation must not hold up the
        # session.
        await asyncio.wait({self._task, *others}, timeout=limit_s, return_when=FIRST_COMPLETED)

    def error(self) -> BaseException | None:
        """Return what a call that is over raised, or None if it returned."""
        try:
            return self._task.exception()
        except asyncio.CancelledError as error:
            return error

    def result(self) -> object:
        """Return what a call without an error returned."""
        return self._task.result()


def contain_exits(loop: AbstractEventLoop) -> None:
    """Keep `exit` from ending the loop, in any of its tasks, also in those that agents begin."""
    loop.set_task_factory(_contained_task)


class _Contained(Coroutine[Any, Any, Any]):
    """Coroutine that raises `CalledExit` instead of what would end the event loop.

    An `async def` around the inner coroutine would not do. If it were cancelled before its start,
    the inner one would never start, and Python would warn of that.
    """

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner
        # Asyncio names a task by these in its messages.
        self.__name__ = getattr(inner, "__name__", type(inner).__name__)
        self.__qualname__ = getattr(inner, "__qualname__", type(inner).__qualname__)

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise _called_exit(error) from error

    def throw(
        self,
        error: Any,
        value: Any = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        try:
            return self._inner.throw(error, value, traceback)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise _called_exit(raised) from raised

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


def _contained_task(
    loop: AbstractEventLoop, call: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **how: Any
) -> Task[Any]:
    return Task(_Contained(call) if isinstance(call, Coroutine) else call, loop=loop, **how)


def _called_exit(error: BaseException) -> CalledExit:
    return CalledExit(error.code if isinstance(error, SystemExit) else type(error).__name__)
