"""Stand-ins for Slurm: `srun` starts its command once a host, all on this machine."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SRUN = """#!/bin/bash
# Starts the command for each host, waits for all, and ends with a status that is not 0, if any.
while [[ $1 == --* ]]; do shift; done
started=() id=0 status=0
for host in $STAND_IN_HOSTS; do
    SLURM_NODEID=$id SLURMD_NODENAME=$host "$@" &
    started+=($!) id=$((id + 1))
done
for process in "${started[@]}"; do wait "$process" || status=$?; done
exit "$status"
"""
NODE = f"""#!/bin/bash
exec {sys.executable} -m seamlessflow "$@"
"""


def stand_ins(directory: Path, hosts: Sequence[str], seamlessflow: str = NODE) -> Mapping[str, str]:
    """Write the programs that a job calls; return the environment in which it finds them.

    `seamlessflow` is the text of that program.
    """
    directory.mkdir()
    for name, text in {"srun": SRUN, "seamlessflow": seamlessflow}.items():
        program = directory / name
        program.write_text(text)
        program.chmod(0o755)
    path = f"{directory}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "STAND_IN_HOSTS": " ".join(hosts)}
