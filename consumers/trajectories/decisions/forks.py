"""Check of a fork before a session begins with it. Pure."""

from typing import NamedTuple

from seamlessflow.consumers.trajectories.decisions.context import LARGEST_EVENT_BYTES, Context
from seamlessflow.consumers.trajectories.sessions.forks import copy_fork
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas import records as r
from seamlessflow.schemas.forks import MIDDLE, PLAYBACK

FORK_REFUSED = "fork_refused"


class ForkProblem(NamedTuple):
    """HTTP status and explanation of a fork's refusal."""

    status: int
    detail: str


def fork_problem(opened: r.SessionOpened, context: Context) -> ForkProblem | None:
    """Return the reason why no session can open with this fork; None if it can, or without one."""
    fork = opened.fork
    if fork is None:
        return None
    policy = context.fleet.policies[opened.policy]
    if fork.tokenizer_hash != policy.tokenizer_hash:
        detail = (
            f"the recorded session has tokenizer and renderer {fork.tokenizer_hash}, "
            f"policy {opened.policy!r} has {policy.tokenizer_hash}: the tokens differ"
        )
        return ForkProblem(409, detail)
    if (problem := _other_policy(opened, fork)) is not None:
        return problem
    if fork.length >= policy.max_context:
        detail = f"the fork has {fork.length} tokens, the context holds {policy.max_context}"
        return ForkProblem(422, f"{detail} with the answer")
    if (size := _record_bytes(fork)) > LARGEST_EVENT_BYTES:
        return ForkProblem(413, f"the fork takes {size} bytes on the log, which is too many")
    return _contradiction(opened, fork, context)


def _other_policy(opened: r.SessionOpened, fork: r.ForkedPrefix) -> ForkProblem | None:
    for prompt in _prompts(fork):
        answers = opened.policies.get(prompt.module, opened.policy)
        if answers != prompt.policy:
            detail = (
                f"policy {prompt.policy!r} answered turn {prompt.turn_id} of module "
                f"{prompt.module!r}, and here {answers!r} would"
            )
            return ForkProblem(409, detail)
    return None


def _contradiction(
    opened: r.SessionOpened, fork: r.ForkedPrefix, context: Context
) -> ForkProblem | None:
    """Return the contradiction that the fold would find, by copying into a throw-away session."""

    def strictness(policy: str) -> Strictness:
        return context.fleet.policies[policy].strictness  # type: ignore[return-value]

    if fork.mode not in (MIDDLE, PLAYBACK) or (fork.prompt is None and not fork.turns):
        return ForkProblem(422, f"a fork of mode {fork.mode!r} with {len(fork.turns)} turns")
    try:
        copy_fork(Session(opened, 0), fork, strictness)
    except (ValueError, IndexError, KeyError) as error:
        return ForkProblem(422, f"the fork contradicts itself: {error}")
    return None


def _record_bytes(fork: r.ForkedPrefix) -> int:
    prompts = _prompts(fork)
    texts = [message for prompt in prompts for message in (*prompt.messages, prompt.tools or b"")]
    texts += [*fork.appended, *(turn.message for turn in fork.turns)]
    texts += [prompt.ids for prompt in prompts] + [turn.ids for turn in fork.turns]
    return sum(map(len, texts))


def _prompts(fork: r.ForkedPrefix) -> list[r.ForkedPrompt]:
    return [turn.prompt for turn in fork.turns] + ([fork.prompt] if fork.prompt else [])
