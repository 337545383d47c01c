"""The manifest of an export: its terms and what it finished, kept in its directory."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from seamlessflow.infra.disk import DiskFull
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.recorded.export.manifest import ExportManifest, ExportTaken, ExportTerms
from seamlessflow.recorded.select.selection import Range, SessionSelection
from tests.builders.disks.file_limit import largest_file

BOUNDS: dict[int, Range] = {0: (0, 7), 1: (2, 2)}


def terms(form: str = "sessions") -> ExportTerms:
    return ExportTerms("cluster", "prefix.", form, "jsonl", SessionSelection())


def test_the_next_call_finds_what_an_earlier_one_finished(tmp_path: Path) -> None:
    ExportManifest.begin(tmp_path, terms(), BOUNDS).finish(1, {"sessions": 3})
    manifest = ExportManifest.begin(tmp_path, terms(), {0: (5, 90), 1: (5, 90)})
    assert (manifest.bounds, manifest.finished) == (BOUNDS, {1: {"sessions": 3}})
    with pytest.raises(ExportTaken, match="another form"):
        ExportManifest.begin(tmp_path, terms("verl"), BOUNDS)


def test_an_export_of_an_earlier_release_goes_on_unless_rewards_are_weighed(
    tmp_path: Path,
) -> None:
    ExportManifest.begin(tmp_path, terms(), BOUNDS).finish(1, {"sessions": 3})
    path = tmp_path / "manifest.json"
    earlier = orjson.loads(path.read_bytes())
    del earlier["terms"]["rewards"]
    path.write_bytes(orjson.dumps(earlier))
    assert ExportManifest.begin(tmp_path, terms(), BOUNDS).finished == {1: {"sessions": 3}}
    weighed = replace(terms(), rewards={"p": {"test": 1.0, "style": 0.2}})
    with pytest.raises(ExportTaken, match="another rewards"):
        ExportManifest.begin(tmp_path, weighed, BOUNDS)


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsRejected, match=r"--to: .*file is no directory for files"):
        ExportManifest.begin(tmp_path / "file", terms(), BOUNDS)


def test_a_full_disk_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    with largest_file(10), pytest.raises(DiskFull):
        ExportManifest.begin(tmp_path, terms(), BOUNDS)
    made = ExportManifest.begin(tmp_path, terms(), BOUNDS)
    with largest_file(10), pytest.raises(DiskFull):
        made.finish(0, {})
    assert ExportManifest.begin(tmp_path, terms(), BOUNDS).finished == {}
