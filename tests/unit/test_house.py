"""Rules of the house that a machine can check; CONTRIBUTING.md gives their reasons."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.source_files import PRODUCT, modules, name, parsed

ROOMS = (
    "schemas",
    "infra",
    "producers/gateway",
    "producers/rollout",
    "producers/agents",
    "producers/sandbox",
    "producers/scorers",
    "consumers/trajectories",
    "scheduler",
    "trainer",
    "recorded",
    "lab",
    "console",
    "seamlessflow",
    "benchmarks",
    "scripts",
)
WITH_TESTS = (*ROOMS, "tests")
GENERATED = {"schemas/records.py"}
NO_NAMES = {"one", "of", "found", "told", "there", "known", "own", "given"}
ENTRIES = {"producers/rollout/vllm_engine/inside_vllm"}
"""Packages that another program imports, whatever their size."""
APART = {
    "producers/rollout/torch_engine/compatibility": "transformers' inner names, in one place",
    "producers/rollout/vllm_engine/model": "files of a model beside a running engine",
    "producers/rollout/vllm_engine/process_guard": "runs in a process of its own, without vLLM",
    "producers/scorers/programs": "runs programs, beside the table of all scorers",
    "producers/scorers/texts": "pure, as the other scorers beside the table of all",
    "recorded/judging/waits": "pure, beside the tasks of an event loop",
    "recorded/interchange/schema_registry": "a client of another server",
    "rehearsal/verdict": "pure, beside a shell that runs processes",
    "scheduler/group_watch": "a thread with Kafka clients, beside the wiring",
    "trainer/backends/adapter/peft_layers": "the one place that imports peft",
    "trainer/steps/barren": "pure, beside the sequence that reads and writes",
    "tryout/unread": "knows dialects alone, beside the facts of a call",
}
"""Modules below a hundred lines that stay beside their only importer, each with the reason."""
ANY_SIZE = {"__main__", "errors", "registry", "settings"}
"""Names of modules that may be short: entries, leaves, and lists that others look into."""
SHORT = {
    "processes/console_beside": "a process that is no part of a run, beside those that are",
    "demo/directory": "brings processes and Kafka's client, which a check does not need",
    "demo/prepare": "runs in a process of its own, with torch",
    "further_policy": "settings, importable without torch",
    "infra/broker/archive": "runs by itself, once a machine",
    "infra/monitoring/grafana": "the form of another program, beside what it shows",
    "infra/network/storages": "the one place that imports fsspec",
    "infra/network/store": "imports torch, for two rooms",
    "infra/worker/judged_rewards": "settings that three rooms share",
    "infra/printable": "a leaf of nine modules in five rooms",
    "infra/weights/from_trainer/chosen": "imports torch late, or never",
    "infra/weights/from_trainer/transfer": "imports torch, for both sides of a transfer",
    "infra/worker/control_rule": "settings of two processes",
    "lab/simulation/agenda": "the leaf of a simulation's other parts",
    "producers/agents/beginnings": "a contract of two rooms",
    "producers/agents/environments/listing": "of another program than its neighbours",
    "producers/gateway/calls/counting": "one kind of call, as its neighbours",
    "producers/rollout/torch_engine/limits": "importable without torch",
    "producers/scorers/structures": "the one place that imports jsonschema",
    "recorded/interchange/schema_files": "files for other tools, beside a registry for them",
    "reports/evaluations/recorded": "a fold of the log, beside results in files",
    "runs/whole_model": "imports torch, for a command",
    "scheduler/tasks/prepared/source": "what its neighbours give and raise",
    "schemas/arrays": "imports numpy",
    "schemas/avro/forms": "shared by encoding and decoding",
    "schemas/json_form": "imports pydantic",
    "schemas/tokens": "a leaf of ninety modules",
    "trainer/backends/fsdp_backend": "the one place that imports FSDP2",
    "trainer/ranks/follower": "runs in a process of its own",
}
"""Further modules below sixty lines, each with the reason; those of `commands/` are a command."""
PATHS = modules(*PRODUCT)
ALIAS = re.compile(r"_?[A-Z]\w*[a-z]")
OF_IN_1000 = 25
"""Most "of" in a thousand words of docstrings; people say it about fifteen times."""
RIDDLE = re.compile(r"(What|Whether|Which|Who|Whose|How|Where)\b")


@pytest.fixture(scope="module", autouse=True)
def forget_trees() -> Iterator[None]:
    """Let go of the syntax trees of all files once the rules are checked."""
    yield
    parsed.cache_clear()


def docstrings(path: Path) -> list[tuple[int, str]]:
    """Line and text of each docstring, those under an attribute or a constant too."""
    return [
        (node.lineno, node.value.value.strip())
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


@pytest.mark.parametrize("room", WITH_TESTS)
def test_a_folder_has_at_most_twenty_modules(room: str) -> None:
    counts = Counter(name(path.parent) for path in modules(room) if path.stem != "conftest")
    assert {folder: n for folder, n in counts.items() if n > 20} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_a_folder_has_at_least_three_modules(room: str) -> None:
    counts = Counter(path.parent for path in modules(room))
    small = {
        name(folder)
        for folder, count in counts.items()
        if count < 3 and not any(folder in other.parents for other in counts)
    }
    assert small - ENTRIES == set()


def module_of(path: Path) -> str:
    """Return the module behind `seamlessflow`, with slashes, as `APART` names it."""
    return name(path).removesuffix(".py").removeprefix("seamlessflow/")


def importers() -> dict[str, set[str]]:
    """Return the modules of the product, each with those of the product that import it."""
    importing: dict[str, set[str]] = {module_of(path): set() for path in PATHS}
    for path in PATHS:
        importer = module_of(path)
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                source = node.module.removeprefix("seamlessflow.").replace(".", "/")
                for module in (source, *(f"{source}/{alias.name}" for alias in node.names)):
                    importing.get(module, set()).add(importer)
    return importing


def test_a_small_module_with_one_importer_beside_it_is_part_of_that() -> None:
    lines = {module_of(path): path.read_text().count("\n") for path in PATHS}
    apart = set()
    for module, importing in importers().items():
        (importer, *others) = sorted(importing) or [""]
        beside = importer.rpartition("/")[0] == module.rpartition("/")[0]
        entry = importer.endswith("__main__")
        fits = lines[module] < 100 and lines[module] + lines.get(importer, 0) < 350
        if beside and importer and not others and not entry and fits:
            apart.add(module)
    assert apart == set(APART)


def test_a_module_below_sixty_lines_has_a_reason() -> None:
    short = {
        module_of(path)
        for path in PATHS
        if 0 < path.read_text().count("\n") < 60 and path.stem not in ANY_SIZE
    }
    commands = {module for module in short if module.startswith("commands/")}
    assert short - commands - set(APART) == set(SHORT)


@pytest.mark.parametrize("room", ROOMS)
def test_three_modules_with_one_prefix_are_a_folder(room: str) -> None:
    prefixed: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in modules(room):
        prefixed[name(path.parent), path.stem.split("_")[0]].append(path.name)
    assert {key: names for key, names in prefixed.items() if len(names) > 2 and key[1]} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_a_module_has_at_most_five_dotted_parts(room: str) -> None:
    assert [name(path) for path in modules(room) if len(path.relative_to(ROOT).parts) > 5] == []


@pytest.mark.parametrize("room", WITH_TESTS)
def test_files_have_at_most_four_hundred_lines(room: str) -> None:
    lengths = {name(path): path.read_text().count("\n") for path in modules(room)}
    assert {f: n for f, n in lengths.items() if n > 400 and f not in GENERATED} == {}


@pytest.mark.parametrize("room", WITH_TESTS)
def test_functions_have_at_most_fifty_lines(room: str) -> None:
    functions = [
        (f"{name(path)}:{node.name}", (node.end_lineno or 0) - node.lineno)
        for path in modules(room)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [(function, lines) for function, lines in functions if lines > 50] == []


@pytest.mark.parametrize("room", WITH_TESTS)
def test_docstrings_begin_with_a_noun_or_a_verb(room: str) -> None:
    riddles = [
        f"{name(path)}:{line} {text.splitlines()[0]}"
        for path in modules(room)
        for line, text in docstrings(path)
        if RIDDLE.match(text)
    ]
    assert riddles == []


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_are_no_chains_of_of(room: str) -> None:
    texts = (text for path in modules(room) for _, text in docstrings(path))
    words = re.findall(r"[a-z']+", " ".join(texts).lower())
    assert 1000 * words.count("of") < OF_IN_1000 * len(words)


def given_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable, parameter, function and attribute that is set."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.arg(arg=word):
                yield node.lineno, word
            case ast.Name(id=word, ctx=ast.Store()) | ast.Attribute(attr=word, ctx=ast.Store()):
                yield node.lineno, word
            case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word):
                yield node.lineno, word
            case ast.MatchAs(name=str(word)) | ast.MatchStar(name=str(word)):
                yield node.lineno, word


def test_a_thing_is_named_by_what_it_is() -> None:
    without_names = [
        f"{name(path)}:{line} {word}"
        for path in modules(*PRODUCT, "benchmarks", "examples", "scripts", "tests")
        for line, word in given_names(path)
        if word in NO_NAMES
    ]
    assert without_names == []


def test_no_conditional_expression_has_another_inside() -> None:
    nested = [
        f"{name(path)}:{node.lineno}"
        for path in PATHS
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.IfExp)
        if any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node)
    ]
    assert nested == []


def starred(function: ast.AST) -> Iterator[int]:
    """Yield the line of each call that a function gives a tuple of its own by a star."""
    tuples = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in calls:
        for argument in call.args:
            value = argument.value if isinstance(argument, ast.Starred) else None
            of_its_own = isinstance(value, ast.Name) and value.id in tuples
            if of_its_own or isinstance(value, ast.Tuple):
                yield call.lineno


def test_a_call_names_its_arguments() -> None:
    places = [
        f"{name(path)}:{line}"
        for path in PATHS
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in starred(function)
    ]
    assert places == []


def test_a_statement_sets_one_thing() -> None:
    """But for a swap, or a pair of constants that one docstring explains."""
    places = []
    for path in PATHS:
        for node in ast.walk(parsed(path)):
            body = getattr(node, "body", [])
            statements = body if isinstance(body, list) else []
            for statement, following in zip_longest(statements, statements[1:]):
                if _sets_several(statement) and not isinstance(following, ast.Expr):
                    places.append(f"{name(path)}:{statement.lineno} {ast.unparse(statement)}")
    assert places == []


def _sets_several(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Tuple):
        return False
    (target, *_) = statement.targets
    if not isinstance(target, ast.Tuple):
        return False
    names = {ast.unparse(element) for element in target.elts}
    used = {ast.unparse(node) for node in ast.walk(statement.value)}
    return not names & used


def test_every_module_says_what_it_is() -> None:
    assert [
        name(path) for path in modules(*PRODUCT, "scripts") if not ast.get_docstring(parsed(path))
    ] == []


def classes_and_aliases(path: Path) -> Iterator[str]:
    """Yield the name of each class of a module, and of each alias of a type.

    An alias is what a module sets to an expression without a call, by a name that begins as those
    of classes do.
    """
    for node in parsed(path).body:
        match node:
            case ast.ClassDef(name=kind):
                yield kind
            case ast.Assign(targets=[ast.Name(id=alias)], value=value):
                if ALIAS.match(alias) and not isinstance(value, ast.Call | ast.Constant):
                    yield alias


def test_a_name_of_a_class_or_an_alias_stands_for_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in PATHS:
        if path.parent.name == "inside":
            continue  # each adapter's class has the name that its host asks for
        for kind in classes_and_aliases(path):
            places[kind].append(name(path))
    assert {kind: files for kind, files in places.items() if len(files) > 1} == {}


def test_a_module_logs_through_the_same_name() -> None:
    made = re.compile(r"^(\w+)(?:: \w+)? = logging\.getLogger\(", re.MULTILINE)
    names = {name(path): made.findall(path.read_text()) for path in modules(*PRODUCT)}
    assert {file: loggers for file, loggers in names.items() if loggers not in ([], ["_log"])} == {}


def test_tests_import_builders_and_no_other_test() -> None:
    forbidden = re.compile(r"^\s*(?:from|import) tests\S*\.(?:test_\w+|conftest)\b", re.MULTILINE)
    importing = [name(path) for path in modules("tests") if forbidden.search(path.read_text())]
    assert importing == []
