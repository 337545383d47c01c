"""Clients that call through an outage without a pause, in each vendor's protocol.

Each notes the statuses that it got, how long they took, and what is wrong with a refusal.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

_PAUSE_S = 0.2
_TIMEOUT_S = 120.0
_LOST = 0
"""Status of a call whose connection broke."""
REFUSED = (429, 503)
_MESSAGES = [{"role": "user", "content": "key 7"}]
_BODIES: Mapping[str, Mapping[str, Any]] = {
    "chat/completions": {"messages": _MESSAGES, "max_tokens": 8},
    "messages": {"messages": _MESSAGES, "max_tokens": 8},
    "responses": {"input": "key 7", "max_output_tokens": 8},
    "completions": {"prompt": "key 7", "max_tokens": 8},
}


@dataclass
class Answers:
    """Account of what the clients got. Many threads write it, each under the lock."""

    statuses: Counter[str] = field(default_factory=Counter)
    longest_s: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Refusals without `Retry-After` or not in the vendor's shape."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str, answer: httpx.Response | None, took_s: float) -> None:
        """Note an answer; None is a broken connection."""
        status = _LOST if answer is None else answer.status_code
        code, problem = "", ""
        if answer is not None and not answer.is_success:
            code, problem = _judge(path, answer)
        kind = f"{status} {code}".strip()
        with self._lock:
            self.statuses[kind] += 1
            self.longest_s[kind] = max(took_s, self.longest_s.get(kind, 0))
            if problem:
                self.wrong.append(f"{path}: {problem}")

    def __str__(self) -> str:
        kinds = (
            f"{n} x {kind} (<= {self.longest_s[kind]:.1f} s)" for kind, n in self.statuses.items()
        )
        return ", ".join(sorted(kinds))


def _judge(path: str, answer: httpx.Response) -> tuple[str, str]:
    """Return the code of a refusal, and what is wrong with it."""
    error = answer.json().get("error", {})
    if path == "messages":
        code, shaped = error.get("type", ""), answer.json().get("type") == "error"
    else:
        code, shaped = error.get("code", ""), {"message", "type", "param", "code"} <= set(error)
    late = answer.status_code in REFUSED and "retry-after" not in answer.headers
    if late or not shaped:
        return code, f"{answer.status_code} {dict(answer.headers)} {answer.text}"
    return code, ""


class Clients:
    """Threads that call; `answers` may be replaced to begin a new account."""

    def __init__(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        """One thread for each session's key, each with the next protocol and gateway."""
        self.answers = Answers()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(len(keys))
        paths = list(_BODIES)
        self._running: list[Future[None]] = [
            self._pool.submit(self._call, urls[n % len(urls)], paths[n // 2 % len(paths)], key)
            for n, key in enumerate(keys)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._pool.shutdown()
        if error is None:
            for future in self._running:
                future.result()

    def _call(self, url: str, path: str, key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        body = {"model": "policy", **_BODIES[path]}
        with httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S) as client:
            while not self._ended.wait(_PAUSE_S):
                answers, began_s = self.answers, time.monotonic()
                try:
                    answer = client.post(f"/v1/{path}", json=body)
                except httpx.TransportError:
                    answer = None
                answers.add(path, answer, time.monotonic() - began_s)
