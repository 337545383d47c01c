"""reasoning-gym, TextArena and Gymnasium: episodes of the installed packages in real sessions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentUnusable
from tests.agents.agent_system import AgentSystem, same_tokens
from tests.agents.engine.scripts import cue
from tests.e2e.running_system import RunningSystem
from tests.environments.checks import SCRIPTS, TINY, Row, one_chain, row
from tests.environments.episodes import installed as described
from tests.environments.episodes import running
from tests.environments.playing import installed

LAKE = "FrozenLake-v1"
SCRIPTED: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "reasoning_gym": ({"datasets": ["chain_sum"], "size": 2, "system": cue("answer")}, 1),
    "textarena": ({"games": ["Blackjack-v0"], "size": 2, "system": cue("blackjack")}, 2),
    "gymnasium": (
        {
            "worlds": {LAKE: {"is_slippery": False}},
            "size": 2,
            "actions": {LAKE: [f"{cue('lake')}left", "down", "right", "up"]},
        },
        6,
    ),
}
"""Settings of each package with a script that plays it, and the fewest turns of an episode."""
RANDOM: Mapping[str, Mapping[str, Any]] = {
    "reasoning_gym": {"datasets": ["chain_sum", "basic_arithmetic"], "size": 2, "max_tokens": 24},
    "textarena": {"games": ["Blackjack-v0"], "size": 2, "max_tokens": 16},
    "gymnasium": {"worlds": [LAKE, "CliffWalking-v1"], "size": 1, "max_tokens": 16, "turns": 3},
}


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_log_has_the_tokens_of_a_played_episode_in_a_chain(
    name: str, acting: AgentSystem, tmp_path: Path, rows: list[Row]
) -> None:
    settings, turns = SCRIPTED[name]
    with installed(name, settings, acting.running, tmp_path) as package:
        task, other = package.tasks(tmp_path)
        assert task["id"] != other["id"]
        package.begin()
        before = len(acting.sampled(0))
        episode = package.play(task)
    one_chain(episode)
    same_tokens(episode.trajectory, acting.sampled(before))
    assert len(episode.sampled) >= turns
    rows.append(row(package, task["id"], SCRIPTS, episode))


def test_a_lake_that_is_crossed_gives_its_reward(acting: AgentSystem, tmp_path: Path) -> None:
    settings, _ = SCRIPTED["gymnasium"]
    with installed("gymnasium", settings, acting.running, tmp_path) as package:
        [task, _] = package.tasks(tmp_path)
        package.begin()
        episode = package.play(task)
    assert episode.result == {"reward": 1.0, "rewards": {"readable": 1.0}}


@pytest.mark.parametrize("name", RANDOM)
def test_the_log_has_the_tokens_of_a_model_that_plays(
    name: str, sampling: RunningSystem, tmp_path: Path, rows: list[Row]
) -> None:
    with installed(name, RANDOM[name], sampling, tmp_path) as package:
        tasks = package.tasks(tmp_path)
        package.begin()
        episodes = [package.play(task) for task in tasks]
    one_chain(*episodes)
    rows.append(row(package, f"{len(tasks)} tasks", TINY, *episodes))


def test_two_players_have_a_session_of_a_chain_each(
    sampling: RunningSystem, tmp_path: Path, rows: list[Row]
) -> None:
    settings = {"games": ["Nim-v0"], "size": 1, "players": 2}
    roles = ("player_0", "player_1")
    with installed(
        "textarena", {**settings, "max_tokens": 16}, sampling, tmp_path, roles
    ) as package:
        tasks = package.tasks(tmp_path)
        package.begin()
        played = [package.play_roles(task) for task in tasks]
    for players in played:
        assert players.keys() == {*roles}
        assert sum(episode.result["reward"] for episode in players.values()) == 0
        one_chain(*(episode for episode in players.values() if episode.sampled))
    first, *_ = played
    rows.append(row(package, "2 players", TINY, *first.values()))


def test_roles_that_the_game_does_not_have_are_refused(
    sampling: RunningSystem, tmp_path: Path
) -> None:
    settings = {"games": ["KuhnPoker-v0"], "players": 2}
    package = installed("textarena", settings, sampling, tmp_path, ("seeker",))
    with package as refused, pytest.raises(EnvironmentUnusable, match=r"agents\.roles: seeker"):
        refused.begin()


def test_what_is_shown_stands_before_each_question_in_its_form(tmp_path: Path) -> None:
    settings = {"datasets": ["chain_sum"], "system": "Calculate.", "shown": [["2 + 3 =", "5"]]}
    spec = described("reasoning_gym", {**settings, "between_tags": False}, tmp_path)
    task = {"dataset": "chain_sum", "config": {}, "size": 1, "seed": 0, "index": 0}
    with running(spec) as environment:
        ended = environment.run(task, {"role": "assistant", "content": "4"})
    [request] = ended.requests
    system, question, answer, asked = request["messages"]
    assert (system["content"], answer) == ("Calculate.", {"role": "assistant", "content": "5"})
    form = question["content"].removeprefix("2 + 3 =")
    assert form
    assert asked["content"].endswith(form)


def test_what_is_shown_stands_before_each_game(tmp_path: Path) -> None:
    settings = {"games": ["Blackjack-v0"], "system": "Play.", "shown": [["Your turn.", "[Stand]"]]}
    spec = described("textarena", settings, tmp_path)
    with running(spec) as environment:
        ended = environment.run(
            {"game": "Blackjack-v0", "seed": 0}, {"role": "assistant", "content": "[Stand]"}
        )
    messages = ended.requests[0]["messages"]
    assert [message["content"] for message in messages[:3]] == ["Play.", "Your turn.", "[Stand]"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
