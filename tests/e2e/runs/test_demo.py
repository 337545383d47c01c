"""The demo as a user starts it: learns nothing in three steps, but does everything else."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.schemas.records import Trajectory
from tests.builders.console.recorded_run import RecordedLog, TrainedToken, named_trained
from tests.builders.traces.collector import attributes, reached
from tests.e2e.demo_run import STEPS, seamlessflow
from tests.waiting import until

pytestmark = pytest.mark.slow

LIMIT_S = 600
OUT_VARIABLE = "SEAMLESSFLOW_DATA_DIR"


@pytest.fixture
def config(demo: Path, tmp_path: Path) -> Path:
    """Return a configuration that continues the demo's run."""
    values = {
        "out": str(demo),
        "workers": [
            {"id": "w0", "tags": ["rollout"]},
            {"id": "w1", "tags": ["rollout", "train"]},
        ],
        "policy": {"model": str(demo / "model"), "max_context": 512},
        "run": {"id": "demo", "policy": "demo", "steps": STEPS + 2},
        "pacing": {"tasks": str(demo / "tasks" / "train.jsonl")},
        "evaluation": {"samples": 1},
        "agents": {"callable": "seamlessflow.demo.agent:run"},
        "trainer": {"optimizer": {"lr": 1e-3}, "threads": 1},
        "rollout": {"torch": {"threads": 1}},
    }
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def summary(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return read


def processes_of(out: Path) -> set[int]:
    """Return the processes of a run that still exist, without zombies."""
    wanted = f"{OUT_VARIABLE}={out}".encode()
    return {int(path.parent.name) for path in _environments() if wanted in _read(path).split(b"\0")}


def _environments() -> Iterator[Path]:
    return Path("/proc").glob("[0-9]*/environ")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_demo_leaves_figures_pictures_weights_and_the_log(demo: Path) -> None:
    figures = summary(demo)
    assert figures["steps"] == STEPS
    assert figures["trajectories"] >= STEPS * 64
    assert figures["role_switches"] >= 2
    assert figures["eval_before"] is not None and figures["eval_after"] is not None
    assert {"w0", "w1"} <= set(figures["idle_share"])
    assert min(figures["device_time"][name] for name in ("decoding", "training", "loading")) > 0
    assert {"broker", "gateway", "manager", "trainer", "trainer-w1"} <= set(figures["peak_rss_mb"])
    for name in ("reward.png", "timeline.png", "weights/final/model.safetensors", "kafka/log"):
        assert (demo / name).exists(), name


def test_what_was_trained_is_what_was_sampled(demo: Path) -> None:
    figures = summary(demo)
    assert figures["checks"]["tokens_checked"] == figures["tokens_trained"] > 0
    assert (figures["checks"]["mismatches"], figures["checks"]["trained_twice"]) == (0, 0)
    assert figures["logprob_mismatch_max"] <= 1e-3
    assert len(list((demo / "trained").glob("step-*.jsonl.gz"))) == STEPS


def test_the_console_gives_each_token_the_reason_that_the_run_kept(demo: Path) -> None:
    with kafka_to_inspect(demo) as kafka:
        log = RecordedLog.read(kafka, demo / "trained")
    named = set[TrainedToken]().union(*map(named_trained, log.explained()))
    assert named == set(log.trained_tokens())
    assert log.sums["trained"] == summary(demo)["checks"]["tokens_checked"]
    masked = Counter[str]()
    for item in log.trajectories.values():
        assert isinstance(item.record, Trajectory)
        masked += Counter(item.record.masked_tokens)
    assert +log.masked == masked
    assert log.sums["unknown"] == 0


def test_nothing_runs_on_when_it_is_over(demo: Path) -> None:
    assert processes_of(demo) == set()
    assert not (demo / "run.json").exists()


def test_a_session_of_it_can_be_looked_at(demo: Path) -> None:
    listed = seamlessflow("show", "--out", str(demo), "--count", "1")
    session = next(line.split()[0] for line in listed.stdout.splitlines() if "demo-" in line)
    shown = seamlessflow("show", session, "--out", str(demo))
    assert "matched by extend" in shown.stdout or "matched by root" in shown.stdout
    assert "<|im_start|>user" in shown.stdout


def test_a_call_leads_by_parents_and_links_to_the_step_that_trained_its_tokens(
    traced_demo: tuple[Path, list[Span]],
) -> None:
    out, spans = traced_demo
    batches = [span for span in spans if span.name.startswith("process trajectories")]
    assert [attributes(span)["seamlessflow.step"] for span in batches] == list(range(1, STEPS + 1))
    for batch in batches:
        assert len(batch.links) == attributes(batch)["messaging.batch.message_count"]
    sent = {span.span_id: span for span in spans}[batches[-1].links[0].span_id]
    call = next(
        span
        for span in spans
        if span.trace_id == sent.trace_id and span.name == "POST /v1/chat/completions"
    )
    ahead = reached(spans, call.trace_id)
    steps = [attributes(span)["seamlessflow.step"] for span in ahead if span.name == "train step"]
    assert steps == [STEPS]
    session = str(attributes(call)["gen_ai.conversation.id"])
    shown = json.loads(seamlessflow("trace", session, "--json", "--out", str(out)).stdout)
    # A filter may have kept the session out of the loss.
    assert f"in step {STEPS}, which made version {STEPS}" in shown["outcome"]
    assert {trace["trace_id"] for trace in shown["traces"]} == {
        call.trace_id.hex(),
        batches[-1].trace_id.hex(),
    }
    assert shown["notices"] == []


def test_an_audit_of_it_finds_nothing_wrong_and_nothing_open(demo: Path) -> None:
    audited = seamlessflow("audit", "--out", str(demo), "--json")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    checks = json.loads(audited.stdout)["checks"]
    assert {name for name, check in checks.items() if check["checked"]} == set(checks)
    assert checks["tokens"]["checked"] == summary(demo)["tokens_trained"]
    assert checks["sessions"]["checked"] >= STEPS * 64


def test_train_goes_on_from_the_checkpoint(demo: Path, config: Path) -> None:
    done = seamlessflow("train", "--config", str(config))
    assert done.returncode == 0, done.stdout + done.stderr
    figures = summary(demo)
    assert figures["steps"] == STEPS + 2
    assert figures["checks"]["trained_twice"] == 0
    assert len(list((demo / "trained").glob("step-*.jsonl.gz"))) == STEPS + 2


def test_eval_measures_a_version_apart_from_training(demo: Path, config: Path) -> None:
    tasks = str(demo / "tasks" / "eval.jsonl")
    done = seamlessflow(
        "eval", "--config", str(config), "--tasks", tasks, "--version", "2", "--limit", "5"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "over 5 sessions" in done.stdout
    result = json.loads((demo / "evaluations" / "1" / "evaluation.json").read_text())
    assert (result["version"], result["sessions"], result["missing"]) == (2, 5, 0)


@pytest.mark.parametrize("reached", ["warm-up.log", "agents.log"])
def test_ctrl_c_ends_everything_in_order(tmp_path: Path, reached: str) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "seamlessflow", "demo", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        until(lambda: (out / "logs" / reached).exists(), reached, LIMIT_S)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 130
    assert "stopped as asked" in said
    assert processes_of(out) == set()
