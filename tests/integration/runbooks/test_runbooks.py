"""Every command of every runbook, on a recorded log and a live gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.infra.settings import KafkaSettings
from tests.builders.own_topics import own_topics
from tests.integration.runbooks.commands import Command, RunbookWrong, blocks
from tests.integration.runbooks.live_system import LiveSystem, live_system
from tests.paths import ROOT

PAGES = sorted((ROOT / "runbooks").glob("*.md"))
page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
NOT_RUN = 17
"""Blocks with a reason why no test runs them; a new one has to be counted here."""


@pytest.fixture(scope="module")
def system(broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    directory = tmp_path_factory.mktemp("runbooks")
    with (
        pytest.MonkeyPatch.context() as patch,
        own_topics(broker) as kafka,
        live_system(directory, kafka) as made,
    ):
        patch.chdir(directory)
        yield made


@page
def test_each_command_of_a_runbook_ends_as_it_says(system: LiveSystem, page: Path) -> None:
    failed = []
    for block in blocks(page.read_text()):
        for command in () if block.reason else block.commands:
            status, said = system.run(command)
            if status not in command.statuses:
                failed.append(f"$ {command.text}\nstatus {status}\n{said[-2000:]}")
    assert failed == [], "\n".join(failed)


def test_commands_that_no_test_runs_are_few_and_counted() -> None:
    all_blocks = [block for path in PAGES for block in blocks(path.read_text())]
    assert len([block for block in all_blocks if block.reason]) == NOT_RUN


@pytest.mark.parametrize(
    "text",
    [
        "```\nseamlessflow show S\n```",
        "```bash\ntrue\n```",
        "    seamlessflow show S",
        "```sh norun:",
    ],
)
def test_a_command_that_is_neither_run_nor_excused_fails(text: str) -> None:
    with pytest.raises(RunbookWrong):
        list(blocks(text))


def test_a_command_has_its_lines_its_statuses_and_its_end() -> None:
    text = "```sh\na \\\n  b 'c\n d'   # status 1 if none\nwatch  # until Ctrl-C\n```\n"
    (block,) = blocks(text)
    assert block.commands == (
        Command("a \\\n  b 'c\n d'", frozenset({0, 1}), False),
        Command("watch", frozenset({0}), True),
    )
