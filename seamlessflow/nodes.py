"""Faults in a run on several nodes: places that one node names and others cannot reach. Pure."""

from collections.abc import Iterator, Mapping

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy, sections_path
from seamlessflow.infra.faults import Fault, suggestion
from seamlessflow.infra.network.addresses import is_loopback
from seamlessflow.processes.ranks import trains

_HOST_NAME = "SLURMD_NODENAME"
_ANY = ("0.0.0.0", "::")  # nosec B104
"""Addresses that name all interfaces on one host, so that no other host can reach it by them."""


def node_name(asked: str | None, environment: Mapping[str, str], host: str) -> str:
    """Return this node's name: the one asked for, else Slurm's, else the host's."""
    return asked or environment.get(_HOST_NAME) or host


def name_faults(config: RunConfig, name: str) -> Iterator[Fault]:
    """Yield a fault if the configuration has no node with this name."""
    if name in config.nodes:
        return
    if not config.head:
        text = "no worker is of a node: set workers[].node, or start the run with train"
        yield Fault(("workers",), text)
        return
    nodes = ", ".join(config.nodes)
    text = f"there is no node {name!r}, but {nodes}{suggestion(name, config.nodes)}"
    yield Fault(("node",), f"{text}; choose one with --name")


def spread_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield the faults that keep nodes from reaching each other; none if the run has one node."""
    if len(config.nodes) < 2:
        return
    if config.kafka is None:
        text = "an embedded Kafka answers on its own node alone: set kafka.bootstrap_servers"
        yield Fault(("kafka",), f"{text} to one that all nodes reach")
    else:
        yield from _loopback(("kafka", "bootstrap_servers"), config.kafka.bootstrap_servers)
    if config.secret_invented:
        text = "is not set, and each node would choose another: set it in the file, or in"
        yield Fault(("gateway", "secret"), f"{text} SEAMLESSFLOW_GATEWAY__SECRET of all nodes")
    if not config.out.is_absolute():
        text = f"{config.out} is relative: name a directory that all nodes share by its whole path"
        yield Fault(("out",), text)
    yield from storage_faults(config)
    for policy_config in each_policy(config):
        yield from _gang_faults(policy_config, config)


def storage_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for a weights storage that no other host reaches."""
    if (config.weights.url or "").startswith("memory:"):
        text = "is the memory of one process: name one that all nodes reach"
        yield Fault(("weights", "url"), f"{config.weights.url} {text}")


def own_addresses(addresses: str) -> list[str]:
    """Return those addresses (host:port with commas) that each host takes for its own."""
    entries = (address.strip() for address in addresses.split(","))
    return [entry for entry in entries if _is_this_host(entry.rpartition(":")[0].strip("[]"))]


def elsewhere_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if the run has several nodes, for a command that starts the whole run here."""
    if len(config.nodes) > 1:
        text = f"are of the nodes {', '.join(config.nodes)}: start `seamlessflow node` on each"
        yield Fault(("workers",), text)


def _gang_faults(policy_config: RunConfig, config: RunConfig) -> Iterator[Fault]:
    """Yield the faults of one policy's gang."""
    nodes = {worker.node or config.head for worker in trains(policy_config)}
    if len(nodes) < 2:
        return
    if _is_this_host(host := policy_config.trainer.host):
        text = f"{host} is this host for each node: name the address of the node of rank 0"
        yield Fault((*sections_path(policy_config), "trainer", "host"), text)


def _loopback(path: tuple[str, ...], addresses: str) -> Iterator[Fault]:
    for address in own_addresses(addresses):
        text = f"{address} is this host for each node: name an address that all reach"
        yield Fault(path, text)


def _is_this_host(host: str) -> bool:
    return is_loopback(host) or host in _ANY
