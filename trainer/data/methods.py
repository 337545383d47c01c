"""Methods that a run chooses by name, and the effect of an error in a method.

Advantage estimators and filters see one group at a time, so an error removes only that group from a
batch. A recorded step cannot leave a group out: there the error ends the run. Pure; called by
`batch.py`.
"""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from seamlessflow.infra.errors import ENDS_PROCESS, SeamlessFlowError
from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.schemas.arrays import Float64s
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.data.episodes import Episode

METHOD_FAILED = "method_failed"
"""Reason why a group is dropped: a method failed for it."""

_LONGEST_TEXT = 500
"""Most characters that a record keeps from an error's text."""

_LARGEST = np.finfo(np.float32).max
"""Largest advantage: float32 has no larger finite number."""


class MethodFailed(SeamlessFlowError):
    """A method that raised an error for one group, or returned an invalid result."""

    def __init__(self, method: str, error: Exception) -> None:
        self.method = method
        """Its kind and name."""
        self.reason = f"{type(error).__name__}: {f'{error}':.{_LONGEST_TEXT}}"
        places = traceback.extract_tb(error.__traceback__)
        where = f" ({places[-1].name}, line {places[-1].lineno})" if places else ""
        super().__init__(f"{method} failed: {self.reason}{where}")


class RecordedMethodFailed(SeamlessFlowError):
    """A method that fails for a recorded step's group; the step cannot be executed again."""

    lasting = True

    def __init__(self, step: int, group_id: str, failed: MethodFailed) -> None:
        self.step = step
        self.group_id = group_id
        self.method = failed.method
        super().__init__(
            f"{step_name(step)} cannot be executed again as it was recorded: for its group "
            f"{group_id} {failed}; repair the method, or choose the one that the step was trained "
            "with"
        )


@contextmanager
def method(kind: str, name: str) -> Iterator[None]:
    """Raise `MethodFailed` for any error that this method raises in the body.

    Errors that end the process are raised unchanged.
    """
    try:
        yield
    except ENDS_PROCESS:
        raise
    except Exception as error:
        raise MethodFailed(f"{kind} {name}", error) from error


def checked_advantages(
    advantages: Sequence[Float64s], episodes: Sequence[Episode]
) -> list[Float64s]:
    """Return each session's (S) advantages (N) after a check: a finite one per trained token.

    Raises `ResultMalformed`.
    """
    values = [np.asarray(of_session, np.float64) for of_session in advantages]
    if len(values) != len(episodes):
        raise ResultMalformed(f"advantages of {len(values)} sessions", f"of {len(episodes)}")
    for number, (advantages_N, episode) in enumerate(zip(values, episodes, strict=True)):
        if advantages_N.shape != (len(episode),):
            shape = list(advantages_N.shape)
            expected = f"{[len(episode)]}, one for each trained token"
            raise ResultMalformed(f"advantages of shape {shape} for session {number}", expected)
        wrong_N = ~(np.abs(advantages_N) <= _LARGEST)
        if wrong_N.any():
            first = f"{advantages_N[wrong_N][0]:g} for session {number}"
            raise ResultMalformed(first, "a finite advantage")
    return values


def checked_verdict(answer: object) -> bool:
    """Return a filter's answer. Raises `ResultMalformed` if it is neither true nor false."""
    if not isinstance(answer, (bool, np.bool_)):
        raise ResultMalformed(f"{answer!r:.80}", "True or False")
    return bool(answer)
