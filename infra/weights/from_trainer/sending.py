"""The sending side: a training process's thread sends published weights to processes that ask.

It sends what is on disk, so training goes on, and nothing is held in memory. The files were just
written, and are in the page cache. Processes get a share together if they ask at about the same
time, or while another transfer is under way.
"""

import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.addresses import address_of, listener_on
from seamlessflow.infra.network.line import LOOK_S, Line, LineLost
from seamlessflow.infra.network.store import store_at
from seamlessflow.infra.weights.from_trainer.questions import (
    TOKENIZER,
    WeightsAnswer,
    WeightsQuestion,
    pieces,
)
from seamlessflow.infra.weights.from_trainer.transfer import STILL, Transfer
from seamlessflow.infra.weights.manifest import MANIFEST, sha256
from seamlessflow.infra.weights.versions import lease

_GATHER_S = 0.05
"""Time in which processes that learned of a new version together come with their questions."""
_QUESTION_S = 5.0
_KNOWN = re.compile(rf"version-\d+|{TOKENIZER}")
_log = logging.getLogger(__name__)


class NotThere(SeamlessFlowError):
    """A directory that was asked for and that this process does not have."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"{directory}: {reason}")


class WeightsService:
    """The sending thread, and the address that takes questions."""

    def __init__(self, root: Path, host: str) -> None:
        """Listen on a free port of `host`, for versions below `root`. Raises `OSError`."""
        self._root = root
        self._host = host
        self._listener = listener_on(host)
        self.address = address_of(host, self._listener.getsockname()[1])
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering. A transfer under way goes on until the process ends."""
        self._ending.set()
        self._listener.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            for question, lines in self._asked().items():
                try:
                    self._send(question, lines)
                except (OSError, RuntimeError, SeamlessFlowError) as error:
                    # The processes that asked notice it, ask again or take the weights elsewhere.
                    _log.warning("%s was not sent: %s", question.directory, error)
                finally:
                    for line in lines:
                        line.close()

    def _asked(self) -> Mapping[WeightsQuestion, Sequence[Line]]:
        """Return lines by question, from processes that ask within a short time."""
        asked: dict[WeightsQuestion, list[Line]] = {}
        deadline = time.monotonic() + LOOK_S
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                self._listener.settimeout(left_s)
                line = Line(self._listener.accept()[0])
            except TimeoutError:
                break
            except OSError as error:
                if not self._ending.wait(LOOK_S):
                    _log.warning("no question could be taken: %s", error)
                break
            try:
                question = WeightsQuestion(**line.receive(_QUESTION_S))
            except (LineLost, TypeError) as error:
                _log.warning("%s asks for no weights: %s", line.place, error)
                line.close()
                continue
            if not asked:
                deadline = time.monotonic() + _GATHER_S
            asked.setdefault(question, []).append(line)
        return asked

    def _send(self, question: WeightsQuestion, lines: Sequence[Line]) -> None:
        connected = [line for line in lines if not line.lost]
        try:
            directory = self._found(question)
        except SeamlessFlowError as error:
            for line in connected:
                line.send(asdict(WeightsAnswer(reason=str(error), sizes={})))
            return
        with lease(directory):
            store, place = store_at(self._host, STILL)
            sizes = {path.name: path.stat().st_size for path in directory.iterdir()}
            for rank, line in enumerate(connected, 1):
                answer = WeightsAnswer(
                    store=place, rank=rank, ranks=len(connected) + 1, sizes=sizes
                )
                line.send(asdict(answer))
            with Transfer(store, 0, len(connected) + 1, self._host) as transfer:
                for piece in pieces(sizes, question.share, question.shares):
                    transfer.send(directory, piece)

    def _found(self, question: WeightsQuestion) -> Path:
        """Return the directory that was asked for. Raises `NotThere`."""
        directory = self._root / question.directory
        if not _KNOWN.fullmatch(question.directory) or not directory.is_dir():
            raise NotThere(directory, "is not there")
        if question.directory != TOKENIZER:
            digest = sha256(directory / MANIFEST)
            if digest != question.manifest_sha256:
                raise NotThere(directory, f"its manifest has SHA-256 {digest}")
        if not 0 <= question.share < question.shares:
            raise NotThere(directory, f"share {question.share} of {question.shares}")
        return directory
