import pytest

from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, FROM_MODEL, RendererSettings
from seamlessflow.inspection import findings
from seamlessflow.inspection.findings import GB, Finding, Grade


def grade(finding: Finding | None) -> Grade | None:
    return None if finding is None else finding.grade


def test_every_fault_comes_with_a_remedy() -> None:
    faults = [
        findings.python((3, 10)),
        findings.package("torch==2.13.0; extra == 'train'", None, "train"),
        findings.disk(GB // 2, "/data"),
        findings.disk(2 * GB, "/data"),
        findings.memory(GB),
        findings.memory(3 * GB),
        findings.ports({8800: "gateway"}),
    ]
    for fault in faults:
        assert fault is not None
        assert fault.grade is not Grade.OK
        assert fault.remedy


@pytest.mark.parametrize(
    ("requirement", "installed", "wanted"),
    [
        ("orjson>=3.11", "3.11.0", Grade.OK),
        ("orjson>=3.11", "3.9.1", Grade.FAILED),
        ("orjson>=3.11", None, Grade.FAILED),
        ("torch==2.13.0", "2.13.0+cpu", Grade.OK),
        ("torch==2.13.0", "2.14.0", Grade.FAILED),
        ("types-PyYAML>=6.0.12.20250915", "6.0.12.20260101", Grade.OK),
    ],
)
def test_packages_are_held_against_their_floors(
    requirement: str, installed: str | None, wanted: Grade
) -> None:
    assert grade(findings.package(requirement, installed, "")) is wanted


def test_what_only_an_extra_needs_is_no_failure() -> None:
    assert grade(findings.package("torch==2.13.0", None, "train")) is Grade.WARNING


def test_a_machine_with_room_is_ok() -> None:
    ok = [findings.disk(50 * GB, "/data"), findings.memory(8 * GB), findings.ports({})]
    assert not findings.failed(ok)
    assert {finding.grade for finding in ok} == {Grade.OK}


@pytest.mark.parametrize(
    ("asked", "renderer", "remedy"),
    [
        (RendererSettings("qwen3"), "qwen3", "leave name out of"),
        (RendererSettings("qwen3", "all"), "qwen3", "leave name, thinking_retention out of"),
        (RendererSettings(CHAT_TEMPLATE, None, {"a": 1}), CHAT_TEMPLATE, "leave options out of"),
        (RendererSettings(FROM_MODEL), "qwen3", "{name: chat-template}"),
        (RendererSettings(FROM_MODEL), CHAT_TEMPLATE, "report it"),
        (RendererSettings(CHAT_TEMPLATE), CHAT_TEMPLATE, "report it"),
    ],
)
def test_the_remedy_for_other_prompts_is_one_that_can_help(
    asked: RendererSettings, renderer: str, remedy: str
) -> None:
    assert remedy in findings.renderer_remedy(asked, renderer)
