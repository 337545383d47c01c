"""Latency and throughput of a call through all processes, and the CPU time that each takes.

    python -m benchmarks gateway [--levels 1,32,256] [--seconds 5] [--warm-up 20]
                                 [--manager real|scripted] [--calls plain|streamed|scored]

Embedded Kafka, gateway, trajectory manager, a worker that answers at once and a load generator run
on this machine. A session has eight turns that extend each other. A call's time is what the system
adds to sampling. With `--manager scripted` only the gateway is real. Load runs for `--warm-up`
seconds before the first level: a broker that has just started takes at least twice the CPU.

The answer to a `streamed` call is 70 tokens in 20 chunks; `first_` figures are for its first bytes.
The answer to a `scored` call is 200 tokens with their log-probs.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.load.measured_load import run_load
from benchmarks.load.whole_path import CHUNKS, WholePath, whole_path

_TURNS = 8
_WARM_UP_S = 1.0
_WARM_UP_LEVEL = 64
_SESSIONS = {1: 400}
_MOST_SESSIONS = 3000


def _codes(number: int) -> str:
    return " ".join(f"code {n}" for n in range(number))


@dataclass(frozen=True)
class Calls:
    """A kind of call: its answer, which is always the same, and the request's parameters."""

    answer: str
    more: Mapping[str, object] = field(default_factory=dict)


_CALLS = {
    "plain": Calls("code 3"),
    "streamed": Calls(_codes(CHUNKS), {"stream": True}),
    "scored": Calls(_codes(53), {"logprobs": True}),
}


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks gateway", description=__doc__)
    parser.add_argument("--levels", default="1,32,256", help="calls at once, with commas")
    parser.add_argument("--seconds", type=float, default=5, help="measured time of a level")
    parser.add_argument("--warm-up", type=float, default=20, help="seconds of load before all")
    parser.add_argument("--manager", choices=("real", "scripted"), default="real")
    parser.add_argument("--linger-ms", type=float, default=0, help="of gateway and worker")
    parser.add_argument("--calls", choices=_CALLS, default="plain")
    asked = parser.parse_args(argv)
    figures: dict[str, object] = {
        "manager": asked.manager,
        "linger_ms": asked.linger_ms,
        "calls": asked.calls,
    }
    calls = _CALLS[asked.calls]
    with whole_path(calls.answer, asked.manager, asked.linger_ms) as path:
        if asked.warm_up:
            _measured(path, calls, _WARM_UP_LEVEL, asked.warm_up)
        for level in map(int, asked.levels.split(",")):
            figures |= _measured(path, calls, level, asked.seconds)
    print(json.dumps(figures))


def _measured(path: WholePath, calls: Calls, connections: int, seconds: float) -> dict[str, object]:
    sessions = _SESSIONS.get(connections, _MOST_SESSIONS)
    place = httpx.URL(path.url)
    orders = {
        "host": place.host,
        "port": place.port,
        "connections": connections,
        "warm_up_s": _WARM_UP_S,
        "seconds": seconds,
        "tokens": path.opened(sessions),
        "bodies": _bodies(calls),
    }
    pids = {name: pid for name, pid in path.pids().items() if name != "load"}
    result, used = run_load(path.children, orders, pids)
    return _named(result, used, connections)


def _named(
    result: Mapping[str, Any], used: Mapping[str, float], connections: int
) -> dict[str, object]:
    """Return one level's figures under their public names."""
    count = max(result["requests"], 1)
    cpu = {f"{name}_cpu_us": round(1e6 * seconds / count, 1) for name, seconds in used.items()}
    cpu["client_cpu_us"] = result["client_cpu_us"]
    figures = {
        "added_p50_ms": result["p50_ms"],
        "added_p99_ms": result["p99_ms"],
        "requests_per_s": result["requests_per_s"],
        "requests": result["requests"],
        "failures": result["failures"],
        **cpu,
    }
    if result["first_p50_ms"] is not None:
        figures |= {name: result[name] for name in ("first_p50_ms", "first_p99_ms")}
    if result["failure"]:
        figures["failure"] = result["failure"]
    return {f"{name}_c{connections}": figure for name, figure in figures.items()}


def _bodies(calls: Calls) -> list[str]:
    """Return the bodies of a session's calls, each with the earlier calls' history."""
    messages: list[dict[str, str]] = []
    bodies = []
    for turn in range(_TURNS):
        messages.append({"role": "user", "content": f"key {turn}, and say which code it has"})
        asked = {"model": "policy", "messages": messages, "temperature": 1.0, **calls.more}
        bodies.append(json.dumps(asked))
        messages.append({"role": "assistant", "content": calls.answer})
    return bodies
