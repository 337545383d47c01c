"""The exporter's settings: this project's own, else OpenTelemetry's variables."""

from collections.abc import Mapping

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.environment import (
    Signal,
    endpoint,
    export_interval_s,
    forget_empty,
    resource,
    sample_ratio,
    wants_deltas,
)

OURS = TelemetrySettings(otlp_endpoint="http://ours:4318/", sample_ratio=0.25)
NONE = TelemetrySettings()
BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://base:4318/"}
WHOLE = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://whole:4318/any/path"}
GRPC_METRICS_ONLY = {
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
}


@pytest.mark.parametrize(
    ("settings", "environment", "signal", "url"),
    [
        (NONE, {}, "traces", None),
        (NONE, BASE, "traces", "http://base:4318/v1/traces"),
        (NONE, BASE, "metrics", "http://base:4318/v1/metrics"),
        (NONE, WHOLE, "traces", "http://whole:4318/any/path"),
        (NONE, WHOLE, "metrics", None),
        (NONE, BASE | WHOLE, "traces", "http://whole:4318/any/path"),
        (OURS, BASE | WHOLE, "traces", "http://ours:4318/v1/traces"),
        (NONE, BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": ""}, "traces", "http://base:4318/v1/traces"),
        (NONE, BASE | GRPC_METRICS_ONLY, "traces", "http://base:4318/v1/traces"),
        (NONE, BASE | {"OTEL_PROPAGATORS": ""}, "traces", "http://base:4318/v1/traces"),
        (NONE, BASE | {"OTEL_PROPAGATORS": "b3"}, "metrics", "http://base:4318/v1/metrics"),
        (
            NONE,
            BASE | {"OTEL_PROPAGATORS": "baggage, tracecontext"},
            "traces",
            "http://base:4318/v1/traces",
        ),
        (OURS, {"OTEL_SDK_DISABLED": "true"}, "traces", None),
        (OURS, {"OTEL_TRACES_EXPORTER": "none"}, "traces", None),
        (OURS, {"OTEL_TRACES_EXPORTER": "none"}, "metrics", "http://ours:4318/v1/metrics"),
    ],
)
def test_the_endpoint_is_ours_or_that_of_the_standard_variables(
    settings: TelemetrySettings, environment: Mapping[str, str], signal: Signal, url: str | None
) -> None:
    assert endpoint(settings, signal, environment) == url


@pytest.mark.parametrize(
    ("settings", "environment", "ratio"),
    [
        (NONE, {}, 1.0),
        (NONE, {"OTEL_TRACES_SAMPLER": "always_off"}, 0.0),
        (NONE, {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, 1.0),
        (
            NONE,
            {
                "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": "0.1",
            },
            0.1,
        ),
        (NONE, {"OTEL_TRACES_SAMPLER": ""}, 1.0),
        (NONE, {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": ""}, 1.0),
        (OURS, {"OTEL_TRACES_SAMPLER": "always_off"}, 0.25),
    ],
)
def test_the_share_of_traces_is_ours_or_that_of_the_standard_variables(
    settings: TelemetrySettings, environment: Mapping[str, str], ratio: float
) -> None:
    assert sample_ratio(settings, environment) == ratio


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "half"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
        },
        {"OTEL_PROPAGATORS": "b3,baggage"},
        {"OTEL_METRIC_EXPORT_INTERVAL": "0"},
        {"OTEL_METRIC_EXPORT_INTERVAL": "10s"},
        {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "sum"},
    ],
)
def test_a_variable_that_cannot_be_obeyed_is_refused_by_its_name(
    environment: Mapping[str, str],
) -> None:
    with pytest.raises(SettingsRejected, match=list(environment)[-1]):
        endpoint(OURS, "traces", environment)
        sample_ratio(NONE, environment)
        export_interval_s(environment)
        wants_deltas(environment)


@pytest.mark.parametrize(("value", "seconds"), [("", 10), ("2500", 2.5)])
def test_metrics_are_exported_at_the_interval_of_the_environment(
    value: str, seconds: float
) -> None:
    assert export_interval_s({"OTEL_METRIC_EXPORT_INTERVAL": value}) == seconds


@pytest.mark.parametrize(
    ("preference", "deltas"),
    [("", False), ("CUMULATIVE", False), ("Delta", True), ("lowmemory", True)],
)
def test_the_environment_chooses_the_temporality_of_counts(preference: str, deltas: bool) -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    assert wants_deltas({name: preference}) is deltas


def test_an_empty_variable_is_not_seen_by_the_sdk() -> None:
    environment = {"OTEL_BSP_SCHEDULE_DELAY": "", "OTEL_SERVICE_NAME": "mine", "EMPTY": ""}
    forget_empty(environment)
    assert environment == {"OTEL_SERVICE_NAME": "mine", "EMPTY": ""}


def test_the_names_of_the_environment_win_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resource("gateway", "a", {}).attributes["service.name"] == "seamlessflow-gateway"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-gateway")
    attributes = resource("gateway", "a").attributes
    assert attributes["service.name"] == "my-gateway"
    assert attributes["deployment.environment.name"] == "lab"
    assert attributes["service.instance.id"] == "a"
