"""Sessions that a load needs, opened at a gateway."""

import asyncio

import httpx

from seamlessflow.producers.gateway.calls.keys import derived_admin_key

_OPEN_AT_ONCE = 64
_TIMEOUT_S = 30


def open_sessions(url: str, secret: str, policy: str, number: int) -> list[str]:
    """Open sessions; return their keys. Raises `RuntimeError`, `httpx.HTTPError`.

    `secret` is that of the gateway at `url`.
    """
    return asyncio.run(_opened(url, secret, policy, number))


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
