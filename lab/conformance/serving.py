"""Process for one environment: `python -m seamlessflow.lab.conformance.serving NAME DESCRIPTOR`.

Requests are JSON lines on standard input: a seed, or an action. Each is answered by a line on the
descriptor. Standard output belongs to the environment, which may print.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from typing import IO, Any

from seamlessflow.infra.user_functions import FunctionUnusable, load_function, place_of

_METHODS = ("reset", "step", "actions")
_SHOWN_CHARACTERS = 80


class ReturnedMalformed(Exception):
    """A method returned a result that the protocol does not allow."""


def main() -> None:
    """Make the environment, report that it is ready, and answer requests until they end."""
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the environment must not read requests
    with os.fdopen(int(sys.argv[2]), "wb") as answers:
        try:
            environment = _made(sys.argv[1])
        except BaseException as error:  # a user's module may raise anything
            _write(answers, _failed(error))
            return
        _write(answers, {})
        for line in requests:
            try:
                answer = _state(environment, json.loads(line))
            except BaseException as error:  # an environment may raise anything, SystemExit also
                answer = _failed(error)
            _write(answers, answer)


def _write(answers: IO[bytes], answer: Mapping[str, Any]) -> None:
    sys.stdout.flush()  # before the answer: after it, the asker may end this process
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _failed(error: BaseException) -> Mapping[str, Any]:
    if isinstance(error, ReturnedMalformed):
        return {"error": str(error)}
    if isinstance(error, FunctionUnusable):
        return {"error": error.reason}
    return {"error": f"{place_of(error)}{type(error).__name__}: {error}"}


def _made(name: str) -> Any:
    environment = load_function(name)()
    missing = [method for method in _METHODS if not callable(getattr(environment, method, None))]
    if missing:
        kind = type(environment).__name__
        raise ReturnedMalformed(f"it returned {kind}, which has no method {', '.join(missing)}")
    return environment


def _state(environment: Any, request: Mapping[str, Any]) -> Mapping[str, Any]:
    reward: Any = 0.0
    done: Any = False
    if "seed" in request:
        observation = environment.reset(request["seed"])
    else:
        returned = environment.step(request["action"])
        if not isinstance(returned, tuple) or len(returned) != 3:
            raise _malformed("step", returned, "(observation, reward, done)")
        observation, reward, done = returned
    if done not in (True, False):
        raise _malformed("step", done, "True or False for done")
    actions = [] if done else _actions(environment.actions())
    return {
        "observation": _json("observation", observation),
        "reward": _reward(reward),
        "done": bool(done),
        "actions": _json("actions", actions),
    }


def _actions(returned: Any) -> list[Any]:
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | dict):
        raise _malformed("actions", returned, "a list of possible actions")
    if not (actions := list(returned)):
        raise ReturnedMalformed("actions: it returned none, though the episode is not over")
    return actions


def _reward(returned: Any) -> float:
    try:
        reward = float(returned)
    except (TypeError, ValueError):
        raise _malformed("step", returned, "a number as reward") from None
    if not math.isfinite(reward):
        raise _malformed("step", returned, "a finite reward")
    return reward


def _json(part: str, value: Any) -> Any:
    """Return a value as JSON keeps it. Raises `ReturnedMalformed`."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ReturnedMalformed(f"{part}: {error}, so it cannot be compared as JSON") from None


def _malformed(method: str, returned: Any, expected: str) -> ReturnedMalformed:
    shown = f"{returned!r}"[:_SHOWN_CHARACTERS]
    return ReturnedMalformed(f"{method}: it returned {shown}, not {expected}")


if __name__ == "__main__":
    main()
