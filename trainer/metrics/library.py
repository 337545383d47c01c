"""Libraries of sinks, which are imported only if a setting asks for them."""

import importlib
from typing import Any

from seamlessflow.infra.errors import SeamlessFlowError


class SinkUnavailable(SeamlessFlowError):
    """A sink that is set, but whose library is not installed."""

    lasting = True

    def __init__(self, setting: str, package: str) -> None:
        self.setting = setting
        self.package = package
        super().__init__(f"{setting} is set, but {package} is not installed: pip install {package}")


def imported(module: str, setting: str, package: str) -> Any:
    """Return a module. Raise `SinkUnavailable`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkUnavailable(setting, package) from error
