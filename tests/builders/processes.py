"""All kinds of processes, and settings with which each of them starts."""

import json
from pathlib import Path

from seamlessflow.infra.settings import KafkaSettings

PROCESSES = {
    "seamlessflow.producers.gateway": "listens on",
    "seamlessflow.consumers.trajectories": "is ready",
    "seamlessflow.producers.rollout": "is ready to take a role",
    "seamlessflow.scheduler": "acts as of epoch 1",
    "seamlessflow.trainer": "is ready at step 0",
    "seamlessflow.trainer.ranks": "training process w is ready, version 0",
    "seamlessflow.producers.agents": "running agents",
    "seamlessflow.recorded.judging": "judging sessions",
}
"""Processes, each with the words that it logs when it does its work."""

SILENT = json.dumps({"fetch.min.bytes": 100_000_000, "fetch.wait.max.ms": 50_000})
"""Kafka options with which a broker answers all questions but gives no records for 50 s."""


def settings(kafka: KafkaSettings, directory: Path) -> dict[str, str]:
    """Return the settings of all processes, which share one environment."""
    variables: dict[str, object] = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "KAFKA__WAIT_S": kafka.wait_s,
        "DATA_DIR": directory / "data",
        "TELEMETRY__METRICS_PORT": 0,
        "GATEWAY__PORT": 0,
        "GATEWAY__SECRET": "0123456789abcdef0123456789abcdef",
        "ROLLOUT__WORKER": "w",
        "ROLLOUT__ENGINE": "scripted",
        "RUN__POLICY": "policy",
        "POLICY__MODEL": directory / "model",
        "TRAINER__WORKER": "w",
        "TRAINER__DEVICE": "cpu",
        "AGENTS__CALLABLE": "seamlessflow.demo.agent:run",
        "AGENTS__ADMIN_KEY": "0123456789abcdef0123456789abcdef",
    }
    return {f"SEAMLESSFLOW_{name}": str(value) for name, value in variables.items()}
