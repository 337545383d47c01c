"""The command that holds the topics of a run, by the members of its group."""

from pathlib import Path

from seamlessflow.processes.topics_lock import others, owner_of

OUT = Path("/runs/a")
ELSEWHERE = owner_of(Path("/runs/b"), 100)


def test_the_command_of_another_directory_holds_them() -> None:
    assert others([ELSEWHERE], OUT) == [ELSEWHERE]
    assert "out /runs/b, since 1970-01-01 00:01:40 UTC" in ELSEWHERE


def test_an_earlier_command_of_the_same_directory_is_dead() -> None:
    assert others([owner_of(OUT, 50)], OUT) == []
    assert others([owner_of(OUT / "deeper", 50)], OUT) != []


def test_the_first_of_several_comes_first() -> None:
    earlier = owner_of(Path("/runs/z"), 99)
    assert others([ELSEWHERE, earlier], OUT) == [earlier, ELSEWHERE]


def test_the_same_directory_of_another_host_is_another_one() -> None:
    there = "process 7 of elsewhere, out /runs/a, since 1970-01-01 00:01:40 UTC"
    assert others([there], OUT) == [there]
