"""Agents, each with one session, in which it does a few random things."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import orjson

from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import unpack
from tests.builders.records import commands
from tests.properties.choices import Choices
from tests.properties.simulation.callers import AGE_MS, IDLE_MS, POLICY, Asked, Caller
from tests.properties.simulation.conversations import (
    INSTRUCTIONS,
    PLAIN,
    TOOLS,
    Message,
    begun,
    canonical,
    gone_on,
    rewritten,
    written_on,
)


@dataclass
class Agent(Caller):
    """An agent; `acts_left` is the number of things it still does before it ends its session."""

    acts_left: int = 0
    lives: int = 1
    """Number of sessions of its name that it still has, one after the other."""
    opened: bool = False
    closed: bool = False

    @property
    def done(self) -> bool:
        """Return True if the agent does nothing any more."""
        return self.closed

    def act(self, choices: Choices) -> bool:
        """Do one random thing; return False if there was nothing to do."""
        if not self.opened:
            self.opened = True
            if self.terms is None:
                self._open(choices)
            return True
        if self.closed:
            return False
        if self.acts_left <= 0:
            if self._waits and choices.below(4) == 0:
                return False
            self._leave(choices)
            return True
        act = choices.pick(_ACTS)
        if act is Agent.go_on and self._waits and not self._ready:
            return False
        self.acts_left -= 1
        act(self, choices)
        return True

    @property
    def _waits(self) -> bool:
        return any(call.end is None for asked in self.asked for call in asked.calls)

    @property
    def _ready(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.used and _answers(asked)]

    def go_on(self, choices: Choices) -> None:
        """Continue from an answer, or begin a conversation if there is none."""
        if self._ready:
            asked = choices.pick(self._ready)
            asked.used = not choices.one_in(3)  # else somebody goes on from it once more
            answer = orjson.loads(choices.pick(_answers(asked)))
            if asked.request.raw:
                ids = [call.answer.token_ids for call in asked.calls if call.answer is not None]
                sampled = unpack(next(filter(None, ids), b""))
                self._ask_raw(written_on(asked.history, answer, sampled, choices), choices)
                return
            history = gone_on(asked.history, answer, choices)
            if choices.one_in(5):
                history = rewritten(history, choices)
            tools = asked.request.tools if not choices.one_in(12) else choices.pick(TOOLS)
            self._ask(history, tools, choices)
        else:
            self.begin(choices)

    def begin(self, choices: Choices) -> None:
        """Begin a conversation: the first, or a sub-agent's."""
        self._ask(begun(choices), choices.pick(TOOLS), choices)

    def rewrite(self, choices: Choices) -> None:
        """Ask with a history that differs from what was sampled."""
        chats = [asked for asked in self.asked if not asked.request.raw]
        if chats:
            asked = choices.pick(chats)
            answers = _answers(asked)
            history = asked.history
            if answers:
                history = gone_on(history, orjson.loads(choices.pick(answers)), choices)
            self._ask(rewritten(history, choices), asked.request.tools, choices)

    def respond(self, choices: Choices) -> None:
        """Name the turn to continue instead of sending the history."""
        answered = [
            (asked, call.answer)
            for asked in self.asked
            for call in asked.calls
            if call.answer is not None and not asked.request.raw
        ]
        if answered:
            asked, answer = choices.pick(answered)
            instructions = choices.pick(INSTRUCTIONS)
            message = orjson.loads(answer.message or b"{}")
            _, *new = gone_on([], message, choices)
            inherited = [*asked.history[asked.request.own_messages :], message]
            self._ask(
                [*instructions, *inherited, *new],
                asked.request.tools,
                choices,
                messages=tuple(map(canonical, [*instructions, *new])),
                previous_turn=answer.turn_id,
                own_messages=len(instructions),
            )

    def complete(self, choices: Choices) -> None:
        """Ask with a plain prompt."""
        self._ask_raw(choices.pick(PLAIN), choices)

    def _ask_raw(self, prompt: Message, choices: Choices) -> None:
        self._ask([prompt], None, choices, raw=True)

    def sample_again(self, choices: Choices) -> None:
        """Send the same body again without a sign of a retry, which asks for a new sample."""
        if self.asked:
            asked = choices.pick(self.asked)
            request = self._turn(asked.request, idempotency_key=None, retry_count=0)
            self.asked.append(Asked(asked.history, request, [self._call(request, choices)]))

    def retry(self, choices: Choices) -> None:
        """Retry a turn, as a client does whose connection broke."""
        if not self.asked:
            return
        asked = choices.pick(self.asked)
        if choices.one_in(2):
            if not choices.one_in(3):
                self._give_up()
            self.instance = choices.pick(("g1", "g0"))
        request = self._turn(asked.request, retry_count=asked.request.retry_count + 1)
        asked.calls.append(self._call(request, choices))

    def _give_up(self) -> None:
        """Give up all calls that are not answered."""
        for asked in self.asked:
            for call in asked.calls:
                self.gateway.give_up(call.command.command_id)  # type: ignore[attr-defined]
            asked.calls = [call for call in asked.calls if call.end is not None]

    def cancel(self, choices: Choices) -> None:
        """Cancel a turn, for all gateway instances or for one."""
        if self.asked:
            turn = choices.pick(self.asked).request
            command = commands.cancel_turn(turn.turn_id, **self._header())
            instance = choices.pick(("", "g0", "g1"))
            address = r.ReplyAddress(partition=0, gateway=instance) if instance else None
            self._send(replace(command, reply=address))

    def reward(self, choices: Choices) -> None:
        """Assign a reward to the session or to one of its turns."""
        turn_id = choices.pick(self.asked).request.turn_id if self.asked else None
        scope = choices.pick(("session", "turn")) if turn_id is not None else "session"
        reward = r.Reward(
            value=choices.below(5) / 4,
            scope=scope,
            turn_id=turn_id if scope == "turn" else None,
            name=choices.pick(("reward", "style")),
        )
        command = commands.assign_reward(reward, **self._header(), final=choices.one_in(4))
        self._send(command, choices)

    def close(self, choices: Choices) -> None:
        """Close the session, with a reward still to come or not."""
        self.lives -= 1
        self.closed, self.acts_left = self.lives == 0, 3
        await_ms = choices.pick((0, 5_000))
        self._send(commands.close_session(**self._header(), await_reward_ms=await_ms), choices)
        if choices.one_in(2):
            self.reward(choices)

    def _leave(self, choices: Choices) -> None:
        if choices.one_in(6):
            self.closed = True  # nobody ends it, but its deadlines
        else:
            self.close(choices)

    def _open(self, choices: Choices) -> None:
        command = commands.open_session(
            **self._header(),
            policy=POLICY,
            purpose="eval" if choices.one_in(12) else "train",
            max_age_ms=AGE_MS,
            max_idle_ms=IDLE_MS,
        )
        self._send(command, choices)


def _answers(asked: Asked) -> list[bytes]:
    """Return the messages that answered a question."""
    answers = [call.answer for call in asked.calls]
    return [answer.message for answer in answers if answer is not None and answer.message]


_ACTS: tuple[Callable[[Agent, Choices], None], ...] = (
    *[Agent.go_on] * 10,
    *[Agent.rewrite] * 2,
    Agent.begin,
    *[Agent.respond] * 2,
    Agent.complete,
    Agent.sample_again,
    *[Agent.retry] * 2,
    Agent.cancel,
    Agent.reward,
)
