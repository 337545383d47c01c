"""The run of `scripts/demo --real` on one device: a real model learns sums in a whole system.

One worker rolls out and trains in turns, with the torch engine. On a GPU it computes in bfloat16:
the trainer's weights and moments stay in float32, the engine gets bfloat16. `seamlessflow audit`
then reads the log.
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.gpu.part import Asked, Figures, Lacks, meets, so_far
from benchmarks.gpu.program import require_kafka, run_seamlessflow
from benchmarks.gpu.whole_run import write_policy
from scripts.real_model import SMOLLM2
from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.demo.configuration import sums_config
from seamlessflow.infra.broker.jars import default_cache
from seamlessflow.infra.variables import variable
from seamlessflow.machine import this_machine
from seamlessflow.memory.demand import WorkerMemory, memory_of, shapes_of

STEPS = 30
LIMIT_S = 340.0
AUDIT_S = 60.0
_LOOK_S = 0.1
_MIB = 2**20
_OF_SUMMARY = (
    "eval_before",
    "eval_after",
    "steps",
    "step_s",
    "ideal_step_s",
    "idle_share",
    "device_time",
    "phases",
    "role_switches",
    "train_wall_s",
    "tokens_sampled",
    "tokens_trained",
    "logprob_mismatch_max",
    "reward_first10",
    "reward_last10",
    "interrupted_turns_continued",
    "peak_rss_mb",
    "restarts",
    "checks",
)


def run(asked: Asked) -> Figures:
    """Return what the run's summary says, its memory against the plan, and the audit's verdict."""
    model = _model(asked)
    require_kafka()
    out = asked.directory / "out"
    steps = 2 if asked.small else STEPS
    config = _config(asked, model, out, steps)
    arguments = ["demo", "--real", str(model), "--steps", str(steps), "--out", str(out)]
    with DevicePeak(asked.device) as peak:
        run_seamlessflow(arguments, LIMIT_S, _variables(config))
    summary = json.loads((out / "summary.json").read_text())
    (planned,) = memory_of(config, shapes_of(config), this_machine())
    figures: dict[str, object] = {
        "model": model.name,
        **_speeds(summary),
        **_memory(planned, peak),
    }
    figures |= {name: summary[name] for name in _OF_SUMMARY}
    so_far(figures)
    audit = _audit(out)
    figures["audit"] = audit
    checks = summary["checks"]
    exact = not checks["mismatches"] and not checks["trained_twice"]
    meets(exact and checks["tokens_checked"] > 0, "the trained tokens are not the log's", figures)
    meets(audit["clean"], "the audit is not clean", figures)
    return figures


def _model(asked: Asked) -> Path:
    """Return the model's directory; a tiny one with random weights only with `small`."""
    if asked.model is not None:
        return asked.model.resolve()
    if asked.small:
        write_policy(asked.directory / "tiny", small=True)
        return asked.directory / "tiny"
    made = default_cache() / "models" / SMOLLM2.directory_name
    if not made.is_dir():
        reason = f"a real model: scripts/real-model makes {made}, or name another with --model"
        raise Lacks(reason)
    return made


def _config(asked: Asked, model: Path, out: Path, steps: int) -> RunConfig:
    """Return the run's configuration."""
    config = sums_config(out, str(model), steps, seed=0)
    precision = "bfloat16" if asked.on_gpu else "float32"
    worker = WorkerSection(id="w0", tags=("rollout", "train"), device=asked.device)
    engine = config.rollout.torch.model_copy(update={"dtype": precision})
    trainer: dict[str, object] = {"dtype": precision}
    if asked.small and asked.model is None:
        # Random weights are never right: groups with equal rewards are trained, too.
        trainer["filters"] = {"untrainable": "drop"}
    changes = {
        "workers": (worker,),
        "trainer": config.trainer.model_copy(update=trainer),
        "rollout": config.rollout.model_copy(update={"torch": engine}),
    }
    return config.model_copy(update=changes)


def _variables(config: RunConfig) -> Mapping[str, str]:
    """Return the environment that turns the demo's configuration into this part's."""
    workers = [worker.model_dump(mode="json", exclude_unset=True) for worker in config.workers]
    return {
        variable(("workers",)): json.dumps(workers),
        variable(("trainer", "dtype")): config.trainer.dtype,
        variable(("trainer", "filters")): json.dumps(config.trainer.filters),
        variable(("rollout", "torch", "dtype")): config.rollout.torch.dtype,
    }


def _speeds(summary: Mapping[str, Any]) -> dict[str, object]:
    """Return tokens a second over the whole training, and a step's seconds for weights."""
    wall_s = summary["train_wall_s"]
    loading = summary["device_time"].get("loading", 0.0)
    return {
        "sampled_a_second": round(summary["tokens_sampled"] / wall_s, 1),
        "trained_a_second": round(summary["tokens_trained"] / wall_s, 1),
        "weights_written_s": summary["phases"]["publish_s"],
        "weights_loaded_s": round(loading * wall_s / summary["steps"], 4),
        "switching_share": summary["device_time"].get("switching", 0.0),
    }


def _memory(planned: WorkerMemory, peak: "DevicePeak") -> dict[str, object]:
    """Return the plan's and the device's MiB. For keys and values the plan has the limit."""
    figures: dict[str, object] = {
        "planned_training_mib": round(planned.rank_bytes / _MIB),
        "planned_rollout_mib": round(planned.engine_bytes / _MIB),
        "planned_mib": round(planned.device_bytes / _MIB),
    }
    if peak.on_gpu:
        figures["peak_mib"] = round(peak.bytes / _MIB)
        figures["ratio"] = round(peak.bytes / planned.device_bytes, 2)
    return figures


def _audit(out: Path) -> dict[str, Any]:
    """Return the report of `seamlessflow audit`, which also ends with a status if it is bad."""
    try:
        report = json.loads(run_seamlessflow(["audit", "--out", str(out), "--json"], AUDIT_S))
    except RuntimeError as error:
        return {"clean": False, "reason": str(error)}
    checked = {name: check["checked"] for name, check in report["checks"].items()}
    return {"clean": report["clean"], "records": report["records"], "checked": checked}


class DevicePeak:
    """The most memory that other processes take on a GPU while this is entered; 0 for a CPU."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device.startswith("cuda")
        self.bytes = 0
        self._device = device
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        if self.on_gpu:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        if self.on_gpu:
            self._thread.join()

    def _look(self) -> None:
        import torch

        # The first question gives this process a context on the device, which is no part of the
        # run.
        before, _ = torch.cuda.mem_get_info(self._device)
        while not self._left.wait(_LOOK_S):
            free, _ = torch.cuda.mem_get_info(self._device)
            self.bytes = max(self.bytes, before - free)
