"""Check of packages: those that settings need are installed, vLLM in its own Python.

It imports none of them, except a weights storage's package.
"""

import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.network.storages import unusable
from seamlessflow.infra.variables import SettingPath
from seamlessflow.trainer.sinks import board_writer, mlflow_package

_TRAIN = ("torch", "transformers", "safetensors")
_LINK = ("safetensors",)
"""Package for the trainer's calls, and for a clock's weights."""

_HAS_VLLM = "import sys; from importlib.util import find_spec; sys.exit(find_spec('vllm') is None)"
_ASKED_S = 30.0
"""Time for another Python to say what it has; it takes a tenth of a second."""


class ExtraMissing(SeamlessFlowError):
    """A package of an optional extra is not installed."""

    lasting = True

    def __init__(self, extra: str, packages: list[str]) -> None:
        self.extra = extra
        self.packages = packages
        remedy = f"pip install 'seamlessflow[{extra}]', or scripts/setup in a checkout"
        super().__init__(f"not installed: {', '.join(packages)}; {remedy}")


def require(extra: str, *packages: str) -> None:
    """Raise `ExtraMissing` if one of the extra's packages is not installed."""
    if lacking := [package for package in packages if find_spec(package) is None]:
        raise ExtraMissing(extra, lacking)


def training_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each package that a training lacks."""
    trainer = config.trainer
    if trainer.tensorboard_dir is not None and not board_writer():
        yield from _lacking(("trainer", "tensorboard_dir"), "tensorboardX")
    if trainer.wandb_project is not None:
        yield from _lacking(("trainer", "wandb_project"), "wandb")
    if trainer.mlflow_uri is not None:
        yield from _lacking_for_mlflow(trainer.mlflow_uri)
    if trainer.flash and trainer.backend != "clock":
        yield from _lacking(("trainer", "attention"), "flash_attn")
    if (url := config.weights.url) is not None and (reason := unusable(url)):
        yield Fault(("weights", "url"), reason)
    sends = config.weights.from_trainer != "never"
    yield from _of_extra("train", _TRAIN if sends or computes(config) else _LINK)
    if trainer.backend == "megatron":
        yield from _of_extra("megatron", ("megatron",))
    if trainer.adapter.used and trainer.backend != "clock":
        yield from _of_extra("adapter", ("peft",))
    yield from _of_extra("charts", ("matplotlib",))
    yield from _vllm(config)


def rollout_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each package that rollout workers lack."""
    if _samples(config) or config.weights.from_trainer != "never":
        yield from _of_extra("train", _TRAIN)
    yield from _vllm(config)


def computes(config: RunConfig) -> bool:
    """Return whether any process of a training computes with the model's weights."""
    return config.trainer.backend != "clock" or _samples(config)


def _samples(config: RunConfig) -> bool:
    return config.rollout.engine not in ("scripted", "clock")


def _vllm(config: RunConfig) -> Iterator[Fault]:
    vllm = config.rollout.vllm
    if config.rollout.engine != "vllm" or vllm.url is not None:
        return
    remedy = "scripts/vllm-cpu makes one for a CPU"
    if shutil.which(vllm.python) is None:
        yield Fault(("rollout", "vllm", "python"), f"there is no program {vllm.python}; {remedy}")
    elif _lacks_vllm(vllm.python):
        text = f"{vllm.python} has no package vllm: name a Python that has; {remedy}"
        yield Fault(("rollout", "vllm", "python"), text)


def _lacks_vllm(python: Path) -> bool:
    """Return True if a Python says that it cannot import vLLM."""
    try:
        # -E: the server does not inherit this Python's variables either.
        done = subprocess.run(  # nosec B603 # a list, no shell
            [python, "-E", "-c", _HAS_VLLM], capture_output=True, timeout=_ASKED_S
        )
    except OSError:
        return True
    except subprocess.TimeoutExpired:
        return False  # a busy machine: the server says it
    return done.returncode != 0


def _lacking(setting: SettingPath, package: str, *modules: str) -> Iterator[Fault]:
    """Yield a fault if a package's module is missing; by default, the module has its name."""
    if any(find_spec(module) is None for module in modules or (package,)):
        yield Fault(setting, f"{package} is not installed: pip install {package}")


def _lacking_for_mlflow(uri: str) -> Iterator[Fault]:
    package = mlflow_package(uri)
    # mlflow-skinny also has the module mlflow, but lacks what a store in a database needs.
    modules = ("mlflow", "sqlalchemy") if package == "mlflow" else ("mlflow",)
    yield from _lacking(("trainer", "mlflow_uri"), package, *modules)


def _of_extra(extra: str, packages: tuple[str, ...]) -> Iterator[Fault]:
    try:
        require(extra, *packages)
    except ExtraMissing as error:
        yield Fault((), str(error))
