"""Tokens a second through the whole system, against the bare vLLM server that its worker uses.

The same clients send the same calls to the server and to the gateway, in turns, so that what else
the machine does strikes both. Every prompt is new. The bare server computes no log-probs.
"""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial

import httpx

from benchmarks.gpu.part import Asked, Figures, meets
from benchmarks.gpu.vllm.settings import server_settings
from benchmarks.gpu.vllm.system import POLICY, Served, WholeSystem, whole_system
from benchmarks.gpu.vllm.talker import write_talker
from benchmarks.load.http_load import SESSION
from benchmarks.load.measured_load import run_load
from seamlessflow.infra.weights.manifest import Manifest, publish
from seamlessflow.producers.rollout.vllm_engine.server import VllmServer

_DIGITS = " ".join(str(number % 10) for number in range(20))
_MOST_S = 60.0
"""Time for all calls in a round; the first one that needs more ends the part."""
_KINDS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "streamed": {"stream": True, "stream_options": {"include_usage": True}},
}


@dataclass(frozen=True, slots=True)
class Streams:
    """A load: each stream sends its calls one after the other, in each of the rounds."""

    streams: int
    calls_a_stream: int
    tokens_a_call: int
    rounds: int

    @property
    def tokens(self) -> int:
        """Tokens in a round."""
        return self.streams * self.calls_a_stream * self.tokens_a_call


@dataclass(slots=True)
class Way:
    """A way to the engine, and sums over the rounds."""

    url: str
    pids: Mapping[str, int]
    tokens: int = 0
    seconds: float = 0.0
    cpu_s: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def run(asked: Asked) -> Figures:
    """Return tokens a second for both ways, with plain and with streamed calls."""
    return compare(asked, Streams(8, 4, 128, 3) if asked.small else Streams(64, 2, 512, 3))


def compare(asked: Asked, streams: Streams) -> Figures:
    """Return a load's figures. Raises `Lacks`, `Unmet`, `VllmNotStarted`."""
    settings = server_settings(asked)
    facts = Manifest(policy=POLICY, version=0, optimizer_step=0, lineage="part", dtype="float32")
    fill = partial(write_talker, small=asked.small)
    weights = publish(asked.directory / "weights", facts, fill, sync=False).weights
    with ExitStack() as running:
        log = asked.directory / "vllm.log"
        server = VllmServer(settings, streams.streams, weights.path, log)
        running.callback(server.stop)
        server.await_ready()
        shared = settings.model_copy(update={"url": server.url})
        served = Served(weights, shared, streams.streams)
        system = running.enter_context(whole_system(served, asked.directory / "data"))
        system.await_sessions()
        kinds = {kind: _compared(system, server.url, streams, kind) for kind in _KINDS}
    return {**asdict(streams), **kinds}


def _compared(system: WholeSystem, server: str, streams: Streams, kind: str) -> dict[str, object]:
    """Return the figures for one kind of call, after each way's round to warm up."""
    bare, through = ways = Way(server, {}), Way(system.url, system.pids)
    for way in ways:
        _round(system, Way(way.url, way.pids), streams, kind, "warm-up")
    for number in range(streams.rounds):
        for way in ways:
            _round(system, way, streams, kind, f"round {number}")
    cpu_s = {name: each / through.tokens for name, each in through.cpu_s.items()}
    return {
        "bare_tokens_a_second": round(bare.rate),
        "tokens_a_second": round(through.rate),
        "ratio": round(through.rate / bare.rate, 3),
        "cpu_s_a_1000_tokens": {name: round(1000 * each, 4) for name, each in cpu_s.items()},
        "bare_tokens": bare.tokens,
        "tokens": through.tokens,
    }


def _round(system: WholeSystem, way: Way, streams: Streams, kind: str, name: str) -> None:
    """Send all streams' calls; add what came."""
    place = httpx.URL(way.url)
    orders = {
        "host": place.host,
        "port": place.port,
        "connections": streams.streams,
        "warm_up_s": 0,
        "seconds": _MOST_S,
        # A bare server reads no key.
        "tokens": system.sessions(streams.streams),
        "bodies": [_body(streams, kind, f"{name}, {n}") for n in range(streams.calls_a_stream)],
    }
    result, used = run_load(system.children, orders, way.pids)
    right = not result["failures"] and result["completion_tokens"] == streams.tokens
    meets(right, f"{kind} calls of {way.url} did not bring {streams.tokens} tokens", result)
    way.tokens += result["completion_tokens"]
    way.seconds += result["seconds"]
    way.cpu_s.update(used)


def _body(streams: Streams, kind: str, name: str) -> str:
    # What differs comes first: else a cached prefix would spare the engine the prompt.
    content = f"{SESSION} {kind} {name}: {_DIGITS}"
    return json.dumps(
        {
            "model": POLICY,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": streams.tokens_a_call,
            "temperature": 1.0,
            **_KINDS[kind],
        }
    )
