"""Places in recorded sessions where new ones begin: turns, chosen by hand or by rule. Pure."""

import re
from dataclasses import dataclass

import orjson

from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.schemas.forks import BEHIND_ANSWER, BEHIND_PROMPT, MIDDLE, PLAYBACK

LAST = "last"
# Ids are a gateway instance and a number, both in hex, perhaps with a sample's number. Copied turns
# have their own ids (`forked_turn_id`).
_TURN = re.compile(rf"{LAST}|[1-9]\d*|f?[0-9a-f]{{12,}}(n[0-9a-f]+|\.\d+)?")


@dataclass(frozen=True, slots=True)
class ForkRule:
    """Turns chosen by one of the first three criteria, and the kind of each fork."""

    turn: str | None = None
    """A turn's id, its number from 1 in log order, or `last`."""
    after_tool_result: str | None = None
    """`first`, `last` or `every` turn whose prompt ends with a tool's result."""
    before_compaction: bool = False
    """True: each last turn before the agent went on with a shorter, edited history."""
    behind: str = BEHIND_PROMPT
    mode: str = MIDDLE
    appended: tuple[bytes, ...] = ()
    """Messages in canonical JSON that the agent adds first."""

    def check(self) -> None:
        """Raise `SettingsRejected` for criteria that are missing or contradict each other."""
        choices = (self.turn, self.after_tool_result, self.before_compaction or None)
        if sum(choice is not None for choice in choices) != 1:
            reason = "choose the turns by one of --turn, --after-tool-result, --before-compaction"
            raise SettingsRejected("--turn", reason)
        if self.turn is not None and not _TURN.fullmatch(self.turn):
            reason = f"{self.turn} is not a turn's id, its number from 1, or {LAST}"
            raise SettingsRejected("--turn", reason)
        if self.behind == BEHIND_ANSWER and not self.appended:
            reason = "behind an answer the agent needs something to answer: add --append TEXT"
            raise SettingsRejected("--behind", reason)
        if self.mode == PLAYBACK and (self.appended or self.behind == BEHIND_ANSWER):
            reason = (
                "an agent that plays back asks for the recorded prompts alone: it goes with "
                "neither --append nor --behind answer"
            )
            raise SettingsRejected("--mode", reason)

    def turns(self, session: Session) -> list[str]:
        """Return the ids of this session's turns that the rule chooses."""
        every = list(session.turns.values())
        if self.turn is not None:
            chosen = _by_hand(every, self.turn)
        elif self.before_compaction:
            chosen = _before_compaction(every)
        else:
            chosen = [turn for turn in every if _after_result(turn)]
            chosen = {"first": chosen[:1], "last": chosen[-1:]}.get(
                self.after_tool_result or "", chosen
            )
        return [turn.started.turn_id for turn in chosen]


def appended_message(text: str) -> bytes:
    """Return a user's message in canonical JSON."""
    return orjson.dumps({"role": "user", "content": text}, option=orjson.OPT_SORT_KEYS)


def _by_hand(turns: list[Turn], named: str) -> list[Turn]:
    if named == LAST:
        return turns[-1:]
    matches = [turn for turn in turns if turn.started.turn_id == named]
    if matches or not named.isdigit():
        return matches
    number = int(named)
    return turns[number - 1 : number] if number else []


def _after_result(turn: Turn) -> bool:
    messages = turn.started.new_messages
    return bool(messages) and orjson.loads(messages[-1]).get("role") == "tool"


def _before_compaction(turns: list[Turn]) -> list[Turn]:
    """Return the turns that no turn continues, before one with a shorter, edited history."""
    continued = {turn.started.parent_turn for turn in turns}
    return [
        turn
        for number, turn in enumerate(turns)
        if turn.started.turn_id not in continued
        and _compacted(turn, _next(turns[number + 1 :], turn.started.module))
    ]


def _compacted(turn: Turn, later: Turn | None) -> bool:
    return (
        later is not None
        and (later.started.match_rule, later.started.match_detail) == ("render", "edited_history")
        and later.started.prompt_length < turn.started.prompt_length
    )


def _next(turns: list[Turn], module: str) -> Turn | None:
    return next((turn for turn in turns if turn.started.module == module), None)
