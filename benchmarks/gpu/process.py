"""The process for one part: `python -m benchmarks.gpu.process NAME`.

No part imports it: a running program's module is `__main__`, so an import would make its exceptions
anew.
"""

import argparse
import json
import platform
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.gpu.part import PARTS, Asked, Lacks, Unmet


def main() -> None:
    """Run the part that the first argument names; print its result as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--model", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asked = Asked(
            arguments.device, Path(directory), arguments.small, arguments.part, arguments.model
        )
        result = _result(asked)
    print(json.dumps({"part": arguments.part, **result, **_machine(arguments.device)}))


def _result(asked: Asked) -> dict[str, object]:
    try:
        figures = import_module(f"benchmarks.gpu.{PARTS[asked.part]}").run(asked)
    except ImportError as error:
        # A GPU machine may have torch and little else.
        return {"status": "skipped", "reason": f"lacks {error.name}"}
    except Lacks as error:
        return {"status": "skipped", "reason": f"lacks {error}"}
    except Unmet as error:
        return {"status": "failed", "reason": str(error)}
    return {"status": "passed", "figures": figures}


def _machine(device: str) -> dict[str, object]:
    import torch

    on_gpu = device.startswith("cuda")
    name = torch.cuda.get_device_name(device) if on_gpu else torch.backends.cpu.get_cpu_capability()
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    main()
