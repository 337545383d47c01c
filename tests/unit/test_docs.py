"""The Markdown pages, held to the code: what they name has to exist."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.gateway.calls.sessions import CloseBody, OpenBody, RewardBody
from seamlessflow.producers.gateway.settings import GatewaySettings
from seamlessflow.producers.rollout.settings import RolloutSettings
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.schemas.registry import raw_schemas
from seamlessflow.trainer.credit import EstimatorName, PairsName
from seamlessflow.trainer.loss import AggregationName, CorrectionName, LossName, SurrogateName
from seamlessflow.trainer.settings import FilterName, TrainerSettings
from seamlessflow.trainer.stored import ChoiceName, MixerName
from tests.paths import ROOT
from tests.source_files import PRODUCT, modules

FOLDERS = (
    *PRODUCT,
    "benchmarks",
    "docs",
    "examples",
    "requirements",
    "runbooks",
    "scripts",
    "tests",
)
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if not {"__pycache__", "node_modules"} & set(path.parts)
]
PLACES = [path.relative_to(ROOT).as_posix() for path in FILES]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in FILES if path.suffix == ".md"),
]
SETTINGS = (
    AgentsSettings,
    GatewaySettings,
    ManagerSettings,
    RolloutSettings,
    SchedulerSettings,
    TrainerSettings,
)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
PATH = re.compile(rf"(?!\.)[\w.*/-]+(\.py|\.md|/)|({'|'.join(FOLDERS)})/[\w.*/-]+")
ELSEWHERE = {"my_agent.py", "trained/"}
"""Paths that pages name of a user's files and of a run's output."""
RECORD = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b")
FIELD = re.compile(r"`((?:[A-Z][a-z]+){2,})\.(\w+)`")
INVARIANT = re.compile(r"\bI[1-9]\d*\b")

CLASSES = {
    name
    for path in modules(*PRODUCT)
    for name in re.findall(r"^class (\w+)", path.read_text(), re.M)
}
OTHERS = {
    "AnthropicModel",
    "AstraFlow",
    "CapaBench",
    "ConfigMap",
    "DeepSeek",
    "FightLadder",
    "McNemar",
    "MindAgent",
    "OpenEnv",
    "NeMo",
    "NetworkPolicy",
    "OpenTelemetry",
    "PodDisruptionBudget",
    "ReadWriteMany",
    "ScaledObject",
}
"""Names in tables that are not ours."""

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def links(text: str) -> Iterator[tuple[str, str]]:
    """Yield label and target of each link within the repository."""
    for label, target in LINK.findall(text):
        if "://" not in target and not target.startswith(("#", "mailto:")):
            yield label, target.partition("#")[0]


def names_a_place(path: str, page: Path) -> bool:
    """Return True if a page names a file or folder, from the root, from its own folder, or by the
    end of its path.
    """
    wanted = path.rstrip("/")
    if any(list(folder.glob(wanted)) for folder in (ROOT, page.parent)):
        return True
    return any(fnmatch(place, f"*/{wanted}") for place in PLACES)


def defines(file: Path, name: str) -> bool:
    named = re.escape(name.rpartition(".")[2])
    return bool(re.search(rf"^\s*(def|class) {named}\b|^{named}\b.* = ", file.read_text(), re.M))


def variables(settings: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the names of all variables that the settings are read from, without `ENV_PREFIX`."""
    for name, field in settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from variables(kind, f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}"


@page
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [target for _, target in links(page.read_text())]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@page
def test_every_linked_name_is_defined_where_the_link_leads(page: Path) -> None:
    named = [
        (label.strip("`"), page.parent / target)
        for label, target in links(page.read_text())
        if target.endswith(".py") and re.fullmatch(r"`[\w.]+`", label) and ".py" not in label
    ]
    assert [(name, file.name) for name, file in named if not defines(file, name)] == []


@page
def test_every_module_and_folder_named_exists(page: Path) -> None:
    named = {code for code in CODE.findall(page.read_text()) if PATH.fullmatch(code)} - ELSEWHERE
    assert [path for path in named if not names_a_place(path, page)] == []


@page
def test_every_record_or_class_in_a_diagram_exists(page: Path) -> None:
    diagrams = re.findall(r"^```mermaid\n(.*?)^```", page.read_text(), re.M | re.S)
    named = {record for diagram in diagrams for record in RECORD.findall(diagram)}
    assert named - set(raw_schemas()) - CLASSES == set()


@page
def test_every_record_or_class_in_a_table_exists(page: Path) -> None:
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    named = {record for row in rows for record in RECORD.findall(row)}
    assert named - set(raw_schemas()) - CLASSES - OTHERS == set()


@page
def test_every_field_of_a_record_named_exists(page: Path) -> None:
    schemas = raw_schemas()
    fields = {
        name: {field["name"] for field in schema["fields"]} for name, schema in schemas.items()
    }
    named = [pair for pair in FIELD.findall(page.read_text()) if pair[0] in schemas]
    assert [(record, field) for record, field in named if field not in fields[record]] == []


@page
def test_every_command_named_can_be_run(page: Path) -> None:
    named = re.findall(r"python -m ([\w.]+)", page.read_text())
    ours = [name for name in named if name.split(".")[0] in (*PRODUCT, "benchmarks")]
    paths = [ROOT / name.replace(".", "/") for name in ours]
    assert [
        path.name
        for path in paths
        if not (path / "__main__.py").exists() and not path.with_suffix(".py").exists()
    ] == []


@page
def test_every_variable_named_is_read(page: Path) -> None:
    names = re.findall(rf"{ENV_PREFIX}\w*__\w*[A-Z]\b", page.read_text())
    read = {f"{ENV_PREFIX}{name}" for settings in SETTINGS for name in variables(settings)}
    assert [name for name in names if name not in read] == []


def test_every_invariant_cited_is_defined() -> None:
    defined = re.findall(r"^## (I\d+) ", (ROOT / "docs" / "invariants.md").read_text(), re.M)
    assert defined == [f"I{number}" for number in range(1, len(defined) + 1)]
    cited = {
        (invariant, path.relative_to(ROOT).as_posix())
        for path in [*PAGES, *(path for path in FILES if path.suffix == ".py")]
        for invariant in INVARIANT.findall(path.read_text())
    }
    assert [citation for citation in cited if citation[0] not in defined] == []


def test_every_test_of_an_invariant_cites_it() -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "invariants.md").read_text(), flags=re.M)[1:]
    silent = []
    for section in sections:
        number, _, body = section.partition(" ")
        for file in {target for _, target in links(body) if "/tests/" in target}:
            if number not in INVARIANT.findall((ROOT / "docs" / file).read_text()):
                silent.append(f"{number}: {file}")
    assert silent == []


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("POST /sessions", OpenBody),
        ("POST /sessions/ID/reward", RewardBody),
        ("POST /sessions/ID/close", CloseBody),
    ],
)
def test_the_members_of_each_session_call_are_told(call: str, body: type[BaseModel]) -> None:
    text = (ROOT / "runbooks/agents.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{call}` |")]
    assert set(body.model_fields) - set(CODE.findall(row)) == set()


@pytest.mark.parametrize(
    "name",
    [
        name
        for names in (
            EstimatorName,
            LossName,
            SurrogateName,
            CorrectionName,
            AggregationName,
            FilterName,
            ChoiceName,
            MixerName,
            PairsName,
        )
        for name in get_args(names)
    ],
)
def test_every_algorithm_is_in_a_table(name: str) -> None:
    pages = (ROOT / "docs" / "algorithms").glob("*.md")
    assert any(f"| `{name}` |" in page.read_text(encoding="utf-8") for page in pages)


def test_the_first_page_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 120
