"""A version made of its base and deltas is the one that was published, or there is none."""

from pathlib import Path

import pytest

from seamlessflow.infra.weights.delta import make_version, read_delta, write_delta
from seamlessflow.infra.weights.manifest import WeightsInvalid, verify
from tests.builders.disks.weights import Versions, content, digest


def chain(root: Path, count: int) -> tuple[list[Path], list[Path]]:
    """Publish versions and write the delta to each but the first."""
    made = Versions(root / "weights")
    versions, deltas = [made.next()], []
    for number in range(1, count):
        versions.append(made.next())
        deltas.append(root / f"delta-{number}")
        deltas[-1].mkdir()
        write_delta(versions[-2], versions[-1], deltas[-1])
    return versions, deltas


def test_a_delta_has_what_changed_and_nothing_else(tmp_path: Path) -> None:
    versions, (delta,) = chain(tmp_path, 2)
    names = {path.name for path in delta.iterdir()}
    assert names == {
        "model.safetensors.changes",
        "generation.json",
        "full.manifest.json",
        "manifest.json",
    }
    size = (versions[1] / "model.safetensors").stat().st_size
    assert (delta / "model.safetensors.changes").stat().st_size < 0.05 * size
    facts = read_delta(delta, 1, digest(versions[1]))
    assert (facts.kind, facts.version, facts.base_version) == ("delta", 1, 0)


def test_a_version_is_made_of_an_anchor_and_all_deltas_behind_it(tmp_path: Path) -> None:
    versions, deltas = chain(tmp_path, 4)
    made = make_version(tmp_path / "cache", versions[0], deltas)
    assert content(made) == content(versions[3])
    assert verify(made, digest(versions[3])).version == 3


@pytest.mark.parametrize("missing", [0, 1])
def test_a_chain_with_a_gap_is_refused(tmp_path: Path, missing: int) -> None:
    versions, deltas = chain(tmp_path, 4)
    del deltas[missing]
    with pytest.raises(WeightsInvalid, match="is against the version with manifest"):
        make_version(tmp_path / "cache", versions[0], deltas)
    assert not (tmp_path / "cache").exists()


def test_another_base_is_refused(tmp_path: Path) -> None:
    _, deltas = chain(tmp_path / "one", 2)
    other = Versions(tmp_path / "other", share=0.5)
    other.values[:] = 1
    with pytest.raises(WeightsInvalid, match="is against the version with manifest"):
        make_version(tmp_path / "cache", other.next(), deltas)


def test_a_base_whose_bytes_changed_gives_no_version(tmp_path: Path) -> None:
    versions, deltas = chain(tmp_path, 2)
    with (versions[0] / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))
    with pytest.raises(WeightsInvalid, match=r"model\.safetensors"):
        make_version(tmp_path / "cache", versions[0], deltas)
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_altered_byte_of_a_delta_is_found_before_it_is_applied(tmp_path: Path) -> None:
    versions, (delta,) = chain(tmp_path, 2)
    path = delta / "model.safetensors.changes"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    with pytest.raises(WeightsInvalid, match=r"model\.safetensors\.changes"):
        read_delta(delta, 1, digest(versions[1]))


def test_a_delta_to_another_version_and_a_whole_version_are_refused(tmp_path: Path) -> None:
    versions, (delta,) = chain(tmp_path, 2)
    with pytest.raises(WeightsInvalid, match="does not lead to version 1 as it was published"):
        read_delta(delta, 1, digest(versions[0]))
    with pytest.raises(WeightsInvalid, match="is of kind full, not a delta"):
        read_delta(versions[0], 0, digest(versions[0]))
