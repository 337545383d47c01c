"""Pictures of diagrams."""

from scripts.site.diagrams import sized, svg


def test_a_picture_has_a_width_of_its_own() -> None:
    picture = '<svg width="100%" style="max-width: 1000.4px;" viewBox="0 0 1000.4 200">'
    assert sized(picture) == picture.replace("100%", "550")


def test_a_diagram_is_drawn_with_its_words() -> None:
    picture = svg("flowchart LR\n    agents -- HTTP --> gateway\n")
    assert picture.startswith("<svg") and 'width="100%"' not in picture[:200]
    assert all(word in picture for word in ("agents", "HTTP", "gateway"))
