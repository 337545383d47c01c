"""A whole run on task directories of Harbor, with a model that types by chance."""

import json
from pathlib import Path

from seamlessflow.demo.model import make_model
from tests.builders.example_runs import seamlessflow
from tests.environments.harbor_tasks import write_task

STEPS = 2
CONTEXT = 16_384
"""Tokens of the demo's tokenizer that two calls of Terminus 2 fit into."""
BY_CHANCE = "echo $((RANDOM % 2)) > $OUT"
"""Tests of a task that no model of this size could solve."""
RUN = f"""
out: out
policy: {{model: model, max_context: {CONTEXT}}}
run: {{id: harbor, steps: {STEPS}, groups_per_step: 1, group_size: 4}}
agents:
  environment: harbor
  settings: {{tasks: tasks, steps: 2, max_tokens: 32}}
trainer: {{filters: {{}}, optimizer: {{lr: 0.001}}}}
"""


def test_a_policy_is_trained_on_task_directories(tmp_path: Path) -> None:
    for number in range(2):
        write_task(tmp_path / "tasks" / f"task-{number}", tests=BY_CHANCE)
    model = tmp_path / "model"
    make_model(model, seed=0)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    (tmp_path / "run.yaml").write_text(RUN)
    printed = seamlessflow(tmp_path, "train", "--config", "run.yaml")
    assert f"trained  {STEPS} steps" in printed
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["steps"], summary["checks"]["mismatches"]) == (STEPS, 0)
    seamlessflow(tmp_path, "audit", "--out", "out")  # fails by its status if it finds anything
