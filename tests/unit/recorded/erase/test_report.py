"""Prefixes that an erasure names, as they may have copies of the session."""

from seamlessflow.recorded.erase.report import advice, other_prefixes


def test_prefixes_with_trajectories_are_found_but_for_those_of_the_erasure() -> None:
    topics = ["trajectories", "a.trajectories", "again.trajectories", "again.trajectories.dlq"]
    topics += ["clean.trajectories", "other.sessions"]
    assert other_prefixes(topics, ("a.", "clean.")) == ["", "again."]


def test_each_has_the_command_that_erases_from_it() -> None:
    assert list(advice(["s", "a b"], ["", "again."])) == [
        "! also look at: erase s 'a b' --from '' --to ...",
        "! also look at: erase s 'a b' --from again. --to ...",
    ]
