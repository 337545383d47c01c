"""Arguments of the benchmark of weights."""

import pytest

from benchmarks.weights import main


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--mb", "abc"), "--mb"),
        (("--mb", "0"), "sizes of 1 to 4000"),
        (("--mb", "5000"), "sizes of 1 to 4000"),
        (("--repeats", "0"), "--repeats"),
        (("--disk", "/nowhere"), "there is no directory /nowhere"),
    ],
)
def test_an_argument_that_cannot_be_measured_is_named(
    arguments: tuple[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert text in capsys.readouterr().err
