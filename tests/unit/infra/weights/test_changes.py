"""Changed elements of a file: small, exact in every bit, and of no other file."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from seamlessflow.infra.weights.changes import ChangesInvalid, apply_changes, write_changes


def pair(root: Path, share: float, dtype: str, count: int = 50_000) -> tuple[Path, Path]:
    """Write two files whose elements differ by about that share."""
    random = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    old = random.integers(0, 256, count * size, np.uint8).view(dtype)
    new = old.copy()
    changed = random.random(count) < share
    new.view(f"<u{size}")[changed] ^= 1
    for name, values in (("old", old), ("new", new)):
        save_file({"a": values[:333], "b": values[333:]}, root / name)
    return root / "old", root / "new"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("share", [0.0, 0.0001, 0.02, 0.5, 1.0])
def test_what_is_made_has_every_bit(tmp_path: Path, share: float, dtype: str) -> None:
    old, new = pair(tmp_path, share, dtype)
    assert write_changes(old, new, tmp_path / "changes")
    apply_changes(old, [tmp_path / "changes"], tmp_path / "made")
    assert (tmp_path / "made").read_bytes() == new.read_bytes()


def test_two_per_cent_of_elements_of_two_bytes_are_three_per_cent_of_the_bytes(
    tmp_path: Path,
) -> None:
    old, new = pair(tmp_path, 0.02, "float16", 1_000_000)
    write_changes(old, new, tmp_path / "changes")
    assert (tmp_path / "changes").stat().st_size < 0.032 * new.stat().st_size


@given(places=st.sets(st.integers(0, 4000)), later=st.sets(st.integers(0, 4000)))
def test_changes_after_changes_give_the_last_file(
    tmp_path_factory: pytest.TempPathFactory, places: set[int], later: set[int]
) -> None:
    root, values, files = tmp_path_factory.mktemp("changes"), np.zeros(4001, np.int16), []
    for number, changed in enumerate((set(), places, later)):
        values[sorted(changed)] += np.int16(number)
        save_file({"a": values}, root / f"{number}")
    for number in (1, 2):
        files.append(root / f"{number}.changes")
        assert write_changes(root / f"{number - 1}", root / f"{number}", files[-1])
    apply_changes(root / "0", files, root / "made")
    assert (root / "made").read_bytes() == (root / "2").read_bytes()


def test_files_with_other_tensors_have_no_changed_elements(tmp_path: Path) -> None:
    save_file({"a": np.zeros(4, np.int16)}, tmp_path / "old")
    save_file({"b": np.zeros(4, np.int16)}, tmp_path / "new")
    assert not write_changes(tmp_path / "old", tmp_path / "new", tmp_path / "changes")


@pytest.mark.parametrize("left", [0, 5, 30, -1])
def test_changes_that_were_cut_short_are_refused(tmp_path: Path, left: int) -> None:
    old, new = pair(tmp_path, 0.02, "float16")
    write_changes(old, new, tmp_path / "changes")
    (tmp_path / "changes").write_bytes((tmp_path / "changes").read_bytes()[:left])
    with pytest.raises(ChangesInvalid, match="changes"):
        apply_changes(old, [tmp_path / "changes"], tmp_path / "made")


def test_changes_of_a_file_of_another_size_are_refused(tmp_path: Path) -> None:
    old, new = pair(tmp_path, 0.02, "float16")
    write_changes(old, new, tmp_path / "changes")
    save_file({"a": np.zeros(4, np.int16)}, tmp_path / "other")
    with pytest.raises(ChangesInvalid, match="is of a file of"):
        apply_changes(tmp_path / "other", [tmp_path / "changes"], tmp_path / "made")


@pytest.mark.parametrize(
    "damage", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{}x"]
)
def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "broken").write_bytes(damage)
    with pytest.raises(ChangesInvalid, match="broken"):
        write_changes(tmp_path / "broken", tmp_path / "broken", tmp_path / "changes")
