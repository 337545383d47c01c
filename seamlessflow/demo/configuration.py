"""The demo as a run configuration like any other; imports neither torch nor renderers."""

from pathlib import Path

from seamlessflow.config import RunConfig, parse

STEPS = 80
POLICY = "demo"
AGENT = "seamlessflow.demo.agent:run"
MAX_CONTEXT = 512
KV_BYTES = 256 * 1024**2
RENDERER = '{"name": "qwen3"}'
HEAD_DIMS = {"torch": 16, "vllm": 32}
"""vLLM computes no narrower attention on a CPU; with half as many heads the model is as large."""
START_TIMEOUT_S = {"torch": 120, "vllm": 600}
"""A server of vLLM is ready after half a minute, two on two busy cores after several."""


def demo_config(out: Path, steps: int, seed: int, engine: str) -> RunConfig:
    """Two workers on one machine: `w0` rolls out, `w1` rolls out and trains in turns.

    Environment variables win over what stands here, as they do over a file. Raises
    `ConfigRejected`.
    """
    return parse(
        {
            "out": out,
            "workers": [
                {"id": "w0", "tags": ["rollout"]},
                {"id": "w1", "tags": ["rollout", "train"]},
            ],
            "policy": {
                "model": out / "model",
                "renderer": RENDERER,
                "max_context": MAX_CONTEXT,
            },
            "run": {
                "id": "demo",
                "policy": POLICY,
                "steps": steps,
                "groups_per_step": 8,
                "group_size": 8,
                "lag": 1,
            },
            "pacing": {
                "tasks": out / "tasks" / "train.jsonl",
                "seed": seed,
                "task_timeout_s": 60,
                "group_timeout_s": 180,
            },
            "agents": {"callable": AGENT, "name": "demo", "concurrency": 128},
            "trainer": {
                "optimizer": {"lr": 1e-3, "warmup_steps": 10},
                "seed": seed,
                "threads": 1,
            },
            "rollout": {
                "engine": engine,
                "capacity": 64,
                "torch": {"threads": 1, "kv_bytes": KV_BYTES},
                "vllm": {
                    "threads": 1,
                    "kv_bytes": KV_BYTES,
                    "arguments": ["--enforce-eager", "--stream-interval=8"],
                },
            },
            "scheduler": {"assignment_timeout_s": START_TIMEOUT_S[engine]},
            "start_timeout_s": START_TIMEOUT_S[engine],
        }
    )
