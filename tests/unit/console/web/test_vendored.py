"""Files of others are what their packages have, with their licences."""

import hashlib

from seamlessflow.console.web.app import STATIC

VENDOR = STATIC / "vendor"


def test_each_file_has_the_hash_that_is_written_down() -> None:
    lines = (VENDOR / "vendor.sha256").read_text().splitlines()
    hashes = {name: expected for expected, name in (line.split("  ") for line in lines)}
    files = {path.name for path in VENDOR.iterdir()} - {"vendor.sha256", "README.md"}
    assert set(hashes) == files
    for name, expected in hashes.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected, name


def test_each_package_has_its_licence_and_its_version() -> None:
    listed = (VENDOR / "README.md").read_text()
    assert (VENDOR / "htmx.LICENSE").stat().st_size > 100
    assert "htmx.org 4.0.1" in listed
    for path in VENDOR.glob("*.min.*"):
        assert path.name in listed


def test_files_of_this_project_name_no_other_host() -> None:
    for path in STATIC.glob("*.*"):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text, path.name
