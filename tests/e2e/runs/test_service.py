"""A run without tasks and agent: others open its sessions, and ask what became of them."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL
from tests.e2e.runs.short_run import short_run, started
from tests.live_log import LiveLog
from tests.waiting import until

pytestmark = pytest.mark.slow

LIMIT_S = 240
KEY = "a key of sixteen letters"


@pytest.fixture
def service(kafka: KafkaSettings, tmp_path: Path) -> tuple[Path, str]:
    """Return the configuration of a service, and the URL of its gateway."""
    file = short_run(tmp_path, "", steps=1, modelled=True, kafka=kafka)
    values = yaml.safe_load(file.read_text())
    port = free_port()
    del values["agents"], values["pacing"]
    values["gateway"] = {"admin_key": KEY, "port": port}
    values["trainer"]["advantage"] = "grpo_unscaled"
    file.write_text(yaml.safe_dump(values))
    return file, f"http://127.0.0.1:{port}"


def play(admin: httpx.Client, group: str, sample: int) -> str:
    """Play one session of a group of two; return its id."""
    terms = {"policy": "policy", "group_id": group, "sample": sample, "group_size": 2}
    access = admin.post("/sessions", json=terms).raise_for_status().json()
    with openai.OpenAI(base_url=access["base_url"], api_key=access["api_key"]) as client:
        message: Any = {"role": "user", "content": "key 7"}
        client.chat.completions.create(model="policy", messages=[message], max_tokens=8)
    session: str = access["session_id"]
    admin.post(f"/sessions/{session}/reward", json={"value": sample}).raise_for_status()
    assert described(admin, session)["turns"] == 1
    admin.post(f"/sessions/{session}/close", json={}).raise_for_status()
    return session


def described(admin: httpx.Client, session: str) -> Mapping[str, Any]:
    state: Mapping[str, Any] = admin.get(f"/sessions/{session}").raise_for_status().json()
    return state


def test_sessions_from_outside_are_trained_and_say_so(
    kafka: KafkaSettings, service: tuple[Path, str]
) -> None:
    config, url = service
    headers = {"authorization": f"Bearer {KEY}"}
    with (
        started(config, "train"),
        closing(LiveLog(kafka, CONTROL, limit_s=LIMIT_S)) as log,
        httpx.Client(base_url=url, headers=headers, timeout=30) as admin,
    ):
        log.wait(r.RoleAcquired, lambda record: record.role == "rollout")
        sessions = [play(admin, f"g{group}", sample) for group in (0, 1) for sample in (0, 1)]
        log.wait(r.StepCommitted)
        until(
            lambda: (
                {described(admin, session)["training"]["state"] for session in sessions}
                == {"trained"}
            ),
            "the sessions trained",
            LIMIT_S,
        )
        log.wait(r.RunFinished)
