"""Options that choose recorded sessions, and a renderer to try."""

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.recorded.select.options import renderer_change, selection


def test_ranges_may_be_open_at_their_end() -> None:
    chosen = selection(offsets=["3:10-20", "4:10-"], versions="7-")
    assert chosen.offsets[3] == (10, 20)
    assert chosen.offsets[4][0] == 10
    assert chosen.versions is not None and chosen.versions[0] == 7
    assert selection(versions="7").versions == (7, 7)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["8:60-0"], "8:60-0 has no offset"),
        (["8:60-60"], "8:60-60 has no offset"),
        (["8:0-1", "8:5-6"], "partition 8 is named twice"),
    ],
)
def test_offsets_that_choose_nothing_are_refused(option: list[str], message: str) -> None:
    with pytest.raises(SettingsRejected, match=f"--offsets: .*{message}"):
        selection(offsets=option)


def test_reversed_versions_are_refused() -> None:
    with pytest.raises(SettingsRejected, match="--versions: 4-3 has no version"):
        selection(versions="4-3")


def test_a_renderer_is_named_or_one_of_its_settings_changed() -> None:
    renderers = ["qwen3", "chat-template"]
    recorded = RendererSettings("qwen3")
    assert renderer_change("chat-template", renderers)(recorded).name == "chat-template"
    changed = renderer_change("thinking_retention=all", renderers)(recorded)
    assert (changed.name, changed.thinking_retention) == ("qwen3", "all")
    message = "--renderer: unknown renderer nope; known: chat-template, qwen3"
    with pytest.raises(SettingsRejected, match=message):
        renderer_change("nope", renderers)


def test_a_time_that_ends_before_it_begins_is_refused() -> None:
    message = r"^--since: 2026-01-02 is behind --until 2026-01-01T00:00\+05:00, so no session"
    with pytest.raises(SettingsRejected, match=message):
        selection(since="2026-01-02", until="2026-01-01T00:00+05:00")
    moment = selection(since="2026-01-01", until="2026-01-01T01:00+01:00")
    assert moment.since_ms == moment.until_ms
