"""Values that are too long to be of use, told in a few lines."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.config_file import ConfigRejected, parse

LONG = "x" * 660_000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"policy": {"model": LONG}}, "policy.model: is a path that has a name of 660,000 bytes"),
        ({"out": "name/" * 1000}, "out: is a path that has"),
        ({"pacing": {"sources": {"a": {"tasks": LONG}}}}, "pacing.sources.a.tasks: is a path"),
        ({"agents": {"callable": f"a:{LONG}"}}, "agents: has 66"),
        ({"agents": {"command": ["agent", LONG]}}, "agents: has 66"),
        ({"trainer": {"advantage": LONG}}, "trainer.advantage: "),
        ({"trainer": {"loss": {LONG: 1}}}, "trainer.loss.xxx"),
        ({"trainer": {"optimizer": {"lr": LONG}}}, "trainer.optimizer.lr: "),
        ({LONG: 1}, "there is no such setting"),
        ({"workers": [{"id": "w", "tags": ["x"]}] * 5000}, "more"),
    ],
)
def test_a_refusal_is_short_whatever_it_refuses(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigRejected, match="wrong") as refused:
        parse(values, check=lambda _: ())
    assert words in str(refused.value)
    assert len(str(refused.value)) < 20_000


def test_nothing_else_is_checked_where_a_path_is_too_long() -> None:
    def check(_: object) -> tuple[()]:
        raise AssertionError("a path of this length ends the check with an error of its own")

    with pytest.raises(ConfigRejected):
        parse({"policy": {"model": LONG}}, check=check)


def test_what_a_system_takes_is_no_fault(tmp_path: Path) -> None:
    config = parse({"out": tmp_path / ("ü" * 127), "agents": {"command": ["x" * 100_000]}})
    assert config.agents.command == ("x" * 100_000,)
