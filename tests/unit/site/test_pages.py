"""A page of the repository as a page of the site."""

import pytest

from scripts.site.menu import Menu
from scripts.site.pages import site_page

PAGES = ("docs/tour.md", "runbooks/local.md")


def staged(text: str, repository: str = "") -> str:
    return site_page(text, "docs/tour.md", Menu(PAGES, repository), lambda _: "diagrams/x.svg")


@pytest.mark.parametrize(
    "link",
    [
        "[local](../runbooks/local.md)",
        "[local](../runbooks/local.md#start-and-stop)",
        "[above](#records)",
        "[paper](https://host.example/paper)",
        "![Reward](images/reward.png)",
    ],
)
def test_a_link_to_a_page_a_picture_or_another_host_stays(link: str) -> None:
    assert staged(f"See {link}.", "https://host.example/us") == f"See {link}."


def test_a_link_to_a_source_file_is_text_with_its_path() -> None:
    text = staged("[`Episodes`](../producers/agents/episode.py) plays.")
    assert text == '<abbr title="producers/agents/episode.py">`Episodes`</abbr> plays.'


def test_a_link_to_a_source_file_leads_to_a_repository_that_has_an_address() -> None:
    text = staged("[`Episodes`](../producers/agents/episode.py)", "https://host.example/us/")
    assert text == "[`Episodes`](https://host.example/us/blob/main/producers/agents/episode.py)"


@pytest.mark.parametrize("text", ["`[x](../a.py)`", "```python\ny = [x](../a.py)\n```\n"])
def test_code_is_no_link(text: str) -> None:
    assert staged(text) == text


def test_a_block_that_no_test_runs_loses_the_reason() -> None:
    text = staged("Start:\n\n```sh norun: needs a cluster\nls\n```\n\nEnd.\n")
    assert text == "Start:\n\n```sh\nls\n```\n\nEnd.\n"


def test_a_diagram_is_a_picture_that_leads_to_itself() -> None:
    text = staged("```mermaid\nflowchart LR\n    a --> b\n```\n")
    assert text == "[![Diagram](../diagrams/x.svg){ .diagram }](../diagrams/x.svg)\n"
