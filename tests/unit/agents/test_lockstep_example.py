"""The example `lockstep`: the sessions of a group act in the same ticks of one world."""

import asyncio
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import httpx2
import pytest

from tests.builders.scripted_endpoint import ScriptedEndpoint

AGENT: Any = import_module("examples.lockstep.agent")  # has no annotations, as a user's
TASK = {"places": [0, 1, 9], "berries": [0, 8], "ticks": 2}


@dataclass
class Player(ScriptedEndpoint):
    """The session of a player, whose endpoint says these cells."""

    session_id: str = ""
    ticks: list[int] = field(default_factory=list)
    """Tick of each request of all players, in their order."""

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.ticks.append(len(self.seen))
        return super()._answer(request)


def player(sample: int, *cells: str, group: str = "g") -> Player:
    script: list[dict[str, object] | int] = [
        {"role": "assistant", "content": f"cell {cell}"} for cell in cells
    ]
    return Player(script, numbered=True, session_id=f"{group}.{sample}.0")


def played(*players: Player, patience: float = 60) -> list[Any]:
    """Return what each session returns, or its error."""

    async def together() -> list[Any]:
        runs = (AGENT.run(TASK, session, patience) for session in players)
        return await asyncio.gather(*runs, return_exceptions=True)

    return asyncio.run(together())


def views(session: Player) -> list[str]:
    """Return the view of each tick: the last message of each request."""
    return [request["messages"][-1]["content"] for request in session.seen]  # type: ignore[index]


def test_each_player_has_its_own_view_and_players_in_a_cell_share() -> None:
    players = player(0, "0", "3"), player(1, "0", "1"), player(2, "8", "5")
    first, second, third = played(*players)
    assert [views(session) for session in players] == [
        ["key 0", "key 1"],
        ["key 0", "key 1"],
        ["key 8", "key 3"],
    ]
    assert list(first["turn_rewards"].values()) == [0.5, 1.0]
    assert list(second["turn_rewards"].values()) == [0.5, 1.0]
    assert list(third["turn_rewards"].values()) == [1.0, 0.0]
    assert (first["reward"], third["reward"]) == (0.75, 0.5)


def test_no_player_acts_in_a_tick_before_all_have_acted_in_the_one_before() -> None:
    players = player(0, "0", "3"), player(1, "0", "1"), player(2, "8", "5")
    ticks = players[0].ticks
    for other in players:
        other.ticks = ticks
    played(*players)
    assert ticks == [0, 0, 0, 1, 1, 1]


def test_the_world_goes_on_without_a_player_that_fails() -> None:
    first, second, failed = played(
        player(0, "0", "3"), player(1, "0", "1"), Player([400], session_id="g.2.0")
    )
    assert isinstance(failed, Exception)
    assert list(first["turn_rewards"].values()) == [0.5, 1.0]
    assert list(second["turn_rewards"].values()) == [0.5, 0.0]


def test_a_player_waits_no_longer_than_its_patience() -> None:
    (alone,) = played(player(1, "0", "8"), patience=0.05)
    assert list(alone["turn_rewards"].values()) == [1.0, 1.0]


def test_worlds_of_two_groups_are_apart_and_none_is_left_behind() -> None:
    of_a = [player(number, "0", "3", group="a") for number in range(3)]
    of_b = [player(number, "8", "1", group="b") for number in range(3)]
    results = played(*of_a, *of_b)
    rewards = [list(result["turn_rewards"].values()) for result in results]
    assert rewards == [[pytest.approx(1 / 3)] * 2] * 6
    assert AGENT.WORLDS == {}
