"""An exporter's settings: this project's, else OpenTelemetry's own variables.

The SDK itself reads the variables that are not named here, such as `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_RESOURCE_ATTRIBUTES` and `OTEL_BSP_SCHEDULE_DELAY`. An empty variable counts as one that is
not set.
"""

import os
from collections.abc import Mapping, MutableMapping
from typing import Literal

from opentelemetry.sdk.resources import Resource

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.settings import TelemetrySettings

Signal = Literal["traces", "metrics"]
_OTLP = "OTEL_EXPORTER_OTLP_"
_RATIOS = {"always_on": 1.0, "always_off": 0.0}
_BY_RATIO = "traceidratio"
_PROTOCOL = "http/protobuf"
_PROPAGATOR = "tracecontext"
_EXPORT_INTERVAL_MS = "10000"
_TEMPORALITIES = {"cumulative": False, "delta": True, "lowmemory": True}


def forget_empty(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove empty OpenTelemetry variables: its SDK fails at some of them."""
    for name in [name for name, value in environment.items() if not value]:
        if name.startswith("OTEL_"):
            del environment[name]


def endpoint(
    settings: TelemetrySettings, signal: Signal, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the URL that takes this signal as OTLP over HTTP; None: nothing is exported.

    Raises `SettingsRejected` for a protocol other than `http/protobuf`, and for traces if the
    propagators lack `tracecontext`.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if environment.get(f"OTEL_{signal.upper()}_EXPORTER") == "none":
        return None
    of_signal = environment.get(f"{_OTLP}{signal.upper()}_ENDPOINT")
    base = settings.otlp_endpoint or environment.get(f"{_OTLP}ENDPOINT")
    if not (base or of_signal):
        return None
    _check_protocol(signal, environment)
    if signal == "traces":
        _check_propagators(environment)
    # A signal's own variable is a whole URL, the common one a base to which a path is added.
    if of_signal and settings.otlp_endpoint is None:
        return of_signal
    return f"{(base or '').rstrip('/')}/v1/{signal}"


def sample_ratio(settings: TelemetrySettings, environment: Mapping[str, str] = os.environ) -> float:
    """Return the share of sessions to trace. Raises `SettingsRejected` for an unknown sampler."""
    sampler = environment.get("OTEL_TRACES_SAMPLER", "").lower().removeprefix("parentbased_")
    if settings.sample_ratio is not None:
        return settings.sample_ratio
    if sampler in ("", *_RATIOS):
        return _RATIOS.get(sampler, 1.0)
    if sampler != _BY_RATIO:
        samplers = ", ".join([*_RATIOS, _BY_RATIO])
        raise SettingsRejected(
            "OTEL_TRACES_SAMPLER", f"use one of {samplers}, or parentbased_ of it"
        )
    return _ratio(environment.get("OTEL_TRACES_SAMPLER_ARG") or "1")


def export_interval_s(environment: Mapping[str, str] = os.environ) -> float:
    """Return the time between two metrics exports. Raises `SettingsRejected`."""
    name = "OTEL_METRIC_EXPORT_INTERVAL"
    text = environment.get(name) or _EXPORT_INTERVAL_MS
    if not text.isdecimal() or not int(text):
        raise SettingsRejected(name, f"{text!r} is no number of milliseconds above 0")
    return int(text) / 1000


def wants_deltas(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if counts are exported since the last export, False if since the start.

    Raises `SettingsRejected`.
    """
    name = f"{_OTLP}METRICS_TEMPORALITY_PREFERENCE"
    preference = (environment.get(name) or "cumulative").lower()
    if preference not in _TEMPORALITIES:
        raise SettingsRejected(name, f"use one of {', '.join(_TEMPORALITIES)}")
    return _TEMPORALITIES[preference]


def resource(service: str, instance: str, environment: Mapping[str, str] = os.environ) -> Resource:
    """Return the attributes by which a collector tells processes apart.

    `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over this project's names.
    """
    attributes = Resource.create().attributes
    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create(
        {
            "service.name": attributes["service.name"] if named else f"seamlessflow-{service}",
            "service.namespace": attributes.get("service.namespace", "seamlessflow"),
            "service.instance.id": instance,
        }
    )


def _check_protocol(signal: Signal, environment: Mapping[str, str]) -> None:
    names = (f"{_OTLP}{signal.upper()}_PROTOCOL", f"{_OTLP}PROTOCOL")
    name = next((name for name in names if environment.get(name)), None)
    if name is not None and environment[name] != _PROTOCOL:
        raise SettingsRejected(name, f"{environment[name]!r} is not supported, use {_PROTOCOL}")


def _check_propagators(environment: Mapping[str, str]) -> None:
    propagators = environment.get("OTEL_PROPAGATORS") or _PROPAGATOR
    if _PROPAGATOR not in propagators.replace(" ", "").split(","):
        reason = f"{propagators!r} is not supported: contexts travel as {_PROPAGATOR}"
        raise SettingsRejected("OTEL_PROPAGATORS", reason)


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise SettingsRejected("OTEL_TRACES_SAMPLER_ARG", f"{text!r} is no number from 0 to 1")
    return ratio
