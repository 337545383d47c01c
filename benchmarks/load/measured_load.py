"""A measured load on a gateway: its sessions, one run of the generator, and the CPU used meanwhile.

`http_load.py` is the generator.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from benchmarks.load.children import Children, cpu_s
from seamlessflow.producers.gateway.calls.keys import derived_admin_key

_OPEN_AT_ONCE = 64
_TIMEOUT_S = 30


def open_sessions(url: str, secret: str, policy: str, number: int) -> list[str]:
    """Open sessions; return their keys. Raises `RuntimeError`, `httpx.HTTPError`.

    `secret` is the secret of the gateway at `url`.
    """
    return asyncio.run(_opened(url, secret, policy, number))


def run_load(
    children: Children, orders: Mapping[str, object], pids: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the generator's result, and each process's CPU seconds in its measured time.

    `orders` are the members of `http_load.Load`. Raises `RuntimeError` if a process has ended.
    """
    with children.start("load", "benchmarks.load.http_load", orders) as load:
        assert load.stdout is not None
        assert load.stdout.readline() == "begin\n", "the load generator ended"
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        assert load.stdout.readline() == "end\n", "the load generator ended"
        used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
        result: dict[str, Any] = json.loads(load.stdout.readline())
    children.check()
    return result, used


async def _opened(url: str, secret: str, policy: str, number: int) -> list[str]:
    headers = {"authorization": f"Bearer {derived_admin_key(secret)}"}
    limit = asyncio.Semaphore(_OPEN_AT_ONCE)

    async def open_one(client: httpx.AsyncClient) -> str:
        async with limit:
            answer = await client.post("/sessions", json={"policy": policy})
            if answer.status_code != 201:
                raise RuntimeError(f"{answer.status_code} {answer.text}")
            return str(answer.json()["api_key"])

    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False
    ) as client:
        return await asyncio.gather(*(open_one(client) for _ in range(number)))
