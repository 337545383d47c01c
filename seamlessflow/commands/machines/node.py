"""The command `seamlessflow node`: the part of a run that belongs to this host."""

from pathlib import Path
from typing import Annotated

import typer


def node(
    config: Annotated[Path, typer.Option(help="Run configuration, the same on all nodes.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name of this node.  [SLURMD_NODENAME, or the host name]"),
    ] = None,
) -> None:
    """Start what belongs to this host, a node of the run; ends with the run.

    The first node (`node` in the file) has gateway, manager, scheduler and agents; each node has
    the processes of the workers that name it. See runbooks/slurm.md.
    """
    import os
    import socket
    from functools import partial

    from seamlessflow.checks.check import before_node
    from seamlessflow.config_file import load
    from seamlessflow.console import long_job_console
    from seamlessflow.nodes.faults import node_name

    this_node = node_name(name, os.environ, socket.gethostname())
    loaded = load(config, partial(before_node, name=this_node))
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.following import follow
    from seamlessflow.runs.training_run import run_training, shown

    kafka = loaded.kafka
    if this_node == loaded.head or kafka is None:  # only a run of one node has no Kafka of its own
        run_training(loaded)
        return
    what = f"node {this_node}"
    shown(
        loaded,
        long_job_console(),
        lambda display, stop: follow(loaded, kafka, this_node, display, stop),
        what,
    )
