"""The command `seamlessflow environments doctor` with installed packages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders.tryouts import doctor, facts, grades, warned
from tests.environments.playing import PROGRAMS

SUMS = f"{PROGRAMS / 'inspect_sums.py'}@sums"


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory that no other test writes to."""
    monkeypatch.chdir(tmp_path)


def tried(name: str, settings: Mapping[str, Any], *more: str, status: int = 0) -> dict[str, Any]:
    """Return the facts of a package."""
    return facts(doctor(name, "--settings", json.dumps(settings), "--json", *more), status)


def test_questions_of_reasoning_gym_can_be_trained_on() -> None:
    settings = {"datasets": ["gcd", "chain_sum"], "size": 2}
    seen = tried("reasoning_gym", settings, "--tasks", "2", "--say", "<answer>0</answer>")
    assert warned(seen) == {}
    assert seen["package"]["versions"].keys() == {"reasoning-gym"}
    assert (seen["tasks"]["count"], seen["tasks"]["drawn_from"]) == (4, True)
    for episode in seen["episodes"]:
        assert (episode["status"], episode["turns"], episode["chains"]) == ("complete", 1, 1)
        assert episode["rewards"].keys() == {"reward", "score"}


def test_a_game_of_textarena_can_be_trained_on() -> None:
    seen = tried("textarena", {"games": ["Blackjack-v0"], "size": 2}, "--say", "[Stand]")
    assert warned(seen) == {}
    [episode] = seen["episodes"]
    assert (episode["status"], episode["chains"]) == ("complete", 1)
    assert episode["rewards"]["valid"] == 1.0


def test_each_player_of_a_game_has_a_session() -> None:
    settings = {"games": ["Nim-v0"], "size": 1, "players": 2}
    seen = tried("textarena", settings, "--say", "[0 1]", "--say", "[1 1]")
    assert warned(seen) == {}
    first, second = seen["episodes"]
    assert (first["task_id"], second["task_id"]) == ("Nim-v0-0 as player_0", "Nim-v0-0 as player_1")
    assert first["rewards"]["reward"] + second["rewards"]["reward"] == 0
    assert (first["chains"], second["chains"]) == (1, 1)


def test_a_task_set_of_verifiers_can_be_trained_on() -> None:
    settings = {"taskset": {"id": "sums_set"}, "path": [str(PROGRAMS)]}
    seen = tried("verifiers", settings, "--say", "It is 5.")
    assert "failed" not in grades(seen).values(), warned(seen)
    [episode] = seen["episodes"]
    assert (episode["status"], episode["chains"]) == ("complete", 1)
    assert episode["rewards"] == {"reward": 1.5, "right": 1.0, "short": 0.5, "turns": 3.0}
    assert [bool(call["called"]) for call in episode["calls"]] == [True, True, False]


def test_a_task_of_inspect_can_be_trained_on() -> None:
    seen = tried("inspect_ai", {"task": SUMS, "reward": "match"}, "--say", "5")
    assert warned(seen) == {"parameters": "without effect: tools[].function.strict"}
    [episode] = seen["episodes"]
    assert (episode["status"], episode["chains"]) == ("complete", 1)
    assert episode["rewards"]["reward"] == 1.0
    assert [call["called"] for call in episode["calls"]] == ["add", "add", ""]


def test_what_a_package_refuses_is_said_in_its_own_words() -> None:
    settings = {"taskset": {"id": "endless_set"}, "path": [str(PROGRAMS)]}
    result = doctor("verifiers", "--settings", json.dumps(settings))
    assert "endless_set has tasks without end" in str(result.exception)
