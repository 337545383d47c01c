"""Two policies that learn the two halves of one task, each with a trainer of its own.

    python -m benchmarks halves [--out DIR] [--steps 80] [--seed 0]

The demo's task, its recipe and two of its models, warmed up with different seeds: the module `ask`
of the agent (`load/halves_agent.py`) is answered by the policy `asker`, the module `answer` by
`answerer`. Both get the session's reward, the mean of the two halves. In DIR: the run, and
`halves.png` with the reward of each half over the steps of its policy. Progress goes to standard
error. `first10`, `last10`: mean reward of the half in the first and the last ten steps.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.load.children import run_module
from benchmarks.load.halves_agent import ANSWER, ASK
from benchmarks.scheduling.reward_curves import draw_rewards
from seamlessflow.demo.configuration import (
    AGENTS,
    GROUPS,
    KV_BYTES,
    MAX_CONTEXT,
    OPTIMIZER,
    START_TIMEOUT_S,
    TIMEOUTS,
)
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.reports.reward_curve import (
    StepFacts,
    edges,
    mean_reward,
    session_facts,
    step_facts,
)
from seamlessflow.reports.summary import of_policy
from seamlessflow.schemas.records import Record, Trajectory
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES

POLICIES = {ASK: "asker", ANSWER: "answerer"}
"""The policy of each module."""


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks halves", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".seamlessflow/halves"))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    out = asked.out.resolve()
    _train(out, asked.steps, asked.seed)
    with Broker(out / "kafka", short_lived=True) as broker:
        control, trajectories = (
            [received.record for received in read_topic(broker.settings, topic, Skipped())]
            for topic in (CONTROL, TRAJECTORIES)
        )
    found = halves(control, [one for one in trajectories if isinstance(one, Trajectory)])
    draw_rewards(
        found,
        out / "halves.png",
        title="Reward of each half of the task",
        steps="optimizer step of the half's own policy",
        reward="mean reward of the half",
    )
    figures = {
        half: {
            "policy": POLICIES[half],
            "steps": len(steps),
            "first10": mean_reward(edges(steps)[0]),
            "last10": mean_reward(edges(steps)[1]),
        }
        for half, steps in found.items()
    }
    print(json.dumps({"benchmark": "halves", "out": str(out), **figures}))


def halves(
    control: Sequence[Record], trajectories: Sequence[Trajectory]
) -> Mapping[str, Sequence[StepFacts]]:
    """Return the steps of each half's policy, with the rewards of that half."""
    facts = session_facts(trajectories)
    of_half = {
        (one.session_id, reward.name): reward.value
        for one in trajectories
        for reward in one.rewards
    }
    return {
        half: step_facts(
            of_policy(control, policy),
            {name: replace(one, reward=of_half.get((name, half))) for name, one in facts.items()},
        )
        for half, policy in POLICIES.items()
    }


def configuration(out: Path, steps: int, seed: int) -> Mapping[str, object]:
    """Return the configuration of the run: a worker that rolls out and trains for each policy."""
    models = [str(_data(out, seed + number) / "model") for number in range(len(POLICIES))]
    first, second = POLICIES.values()
    both = ["rollout", "train"]
    return {
        "out": str(out),
        "workers": [
            {"id": "w0", "tags": both},
            {"id": "w1", "tags": both, "policy": second},
        ],
        "policy": {
            "model": models[0],
            "renderer": {"name": "qwen3"},
            "max_context": MAX_CONTEXT,
        },
        "policies": {second: {"policy": {"model": models[1]}}},
        "run": {"id": "halves", "policy": first, "steps": steps, "lag": 1, **GROUPS},
        "pacing": {
            "tasks": str(_data(out, seed) / "tasks" / "train.jsonl"),
            "seed": seed,
            **TIMEOUTS,
        },
        "agents": {
            **AGENTS,
            "callable": "benchmarks.load.halves_agent:run",
            "modules": {ANSWER: second},
        },
        "trainer": {"optimizer": OPTIMIZER, "seed": seed, "threads": 1},
        "rollout": {
            "engine": "torch",
            "capacity": 64,
            "torch": {"threads": 1, "kv_bytes": KV_BYTES},
        },
        "start_timeout_s": START_TIMEOUT_S,
    }


def _train(out: Path, steps: int, seed: int) -> None:
    """Warm the models up, and train. Raises `CalledProcessError`."""
    for number in range(len(POLICIES)):
        data = _data(out, seed + number)
        if not (data / "warmup.json").exists():
            run_module("seamlessflow.demo.prepare", str(data), "--seed", str(seed + number))
    config = out / "run.yaml"  # JSON is YAML
    config.write_text(json.dumps(configuration(out, steps, seed)), encoding="utf-8")
    run_module("seamlessflow", "train", "--config", str(config))


def _data(out: Path, seed: int) -> Path:
    return out / f"data-seed{seed}"


if __name__ == "__main__":
    main(sys.argv[1:])
