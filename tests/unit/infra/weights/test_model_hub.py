"""Names of models at a hub, and the directories of its cache: told apart without any network."""

from pathlib import Path

import pytest

from seamlessflow.infra.weights.model_hub import HubModel
from tests.builders.model_hub import COMMIT, snapshot_directory


@pytest.mark.parametrize(
    ("text", "name", "revision"),
    [
        ("Org/Name", "Org/Name", "main"),
        ("org/a_b.c-1@v1.2", "org/a_b.c-1", "v1.2"),
        ("org/name@refs/pr/7", "org/name", "refs/pr/7"),
        (f"org/name@{COMMIT}", "org/name", COMMIT),
    ],
)
def test_a_name_has_an_owner_and_may_have_a_revision(text: str, name: str, revision: str) -> None:
    assert HubModel.named(text) == HubModel(name, revision)


@pytest.mark.parametrize(
    "text",
    ["model", "/org/name", "./name", "../name", "~/name", "a/b/c", "org/", "org/name@", "a--b/c"],
)
def test_a_path_is_no_name(text: str) -> None:
    assert HubModel.named(text) is None


def test_a_directory_of_the_cache_says_model_and_commit(tmp_path: Path) -> None:
    directory = snapshot_directory(tmp_path, "org/name")
    assert str(HubModel.of_snapshot(directory)) == f"org/name@{COMMIT}"
    assert HubModel.of_snapshot(directory / "inside") is None
    assert HubModel.of_snapshot(tmp_path / "org/name") is None
