"""Faults in a run configuration that Kubernetes cannot run. Pure."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from pydantic import BaseModel, SecretStr

from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.variables import SettingPath
from seamlessflow.kubernetes.nodes import device_numbers
from seamlessflow.nodes import own_addresses, storage_faults

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?")
"""Names that, behind `seamlessflow-node-`, fit a Job name's 63 characters (RFC 1123)."""

_OF_THE_IMAGE = {"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"}
_PROJECT = PurePath("/opt/seamlessflow")
"""Directory in the images (`infra/images`) that has this project."""


def cluster_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield what keeps the run from running in pods: names, addresses, paths, secrets, devices."""
    yield from _name_faults(config)
    if config.kafka is None:
        text = "an embedded Kafka answers in its own pod alone: set kafka.bootstrap_servers"
        yield Fault(("kafka",), text)
    for address in own_addresses(config.kafka.bootstrap_servers if config.kafka else ""):
        text = f"{address} is each pod itself: name a Service, or a host"
        yield Fault(("kafka", "bootstrap_servers"), text)
    yield from storage_faults(config)
    if not config.out.is_absolute() or len(config.out.parts) < 3:
        text = f"{config.out}: name a directory within the shared volume, such as /shared/run"
        yield Fault(("out",), text)
    elif config.out.parts[1] in _OF_THE_IMAGE or _PROJECT.is_relative_to(config.out.parent):
        text = f"{config.out}: the shared volume would be mounted over files of the image, at"
        yield Fault(("out",), f"{text} {config.out.parent}: name one such as /shared/run")
    for path in _secrets(config, ()):
        text = "is a secret, and this file becomes a ConfigMap: leave it out, the Secret has it"
        yield Fault(path, f"{text} (runbooks/kubernetes.md)")
    yield from _device_faults(config)


def _name_faults(config: RunConfig) -> Iterator[Fault]:
    if not config.head:
        text = "no worker is of a node: set workers[].node, a pod for each name"
        yield Fault(("workers",), text)
        return
    for name in config.nodes:
        if not _LABEL.fullmatch(name):
            text = f"{name!r} is no name of a pod: at most 45 of a-z, 0-9 and - within"
            yield Fault(("node",), text)


def _secrets(value: object, path: SettingPath) -> Iterator[SettingPath]:
    """Yield the setting of each secret that the file gives."""
    if isinstance(value, SecretStr):
        if path != ("gateway", "secret") and value.get_secret_value():
            yield path
    elif isinstance(value, RunConfig):
        if not value.secret_invented:
            yield ("gateway", "secret")
        yield from _secrets(dict(value), path)
    elif isinstance(value, BaseModel):
        yield from _secrets(dict(value), path)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(inner, (*path, str(name)))


def _device_faults(config: RunConfig) -> Iterator[Fault]:
    for place, worker in enumerate(config.workers):
        if (worker.device or "auto") == "auto":
            text = "is not named: cpu or cuda, since a pod asks for its GPUs"
            yield Fault(("workers", place, "device"), text)
    for name, workers in config.nodes.items():
        numbers = {number for worker in workers for number in device_numbers(worker)}
        if numbers != set(range(len(numbers))):
            text = f"of the node {name} have the devices {sorted(numbers)}; in a pod they count"
            yield Fault(("workers",), f"{text} from 0, without a gap")
