"""A page of responses side by side, in which model output is plain text."""

from html.parser import HTMLParser

import pytest

from starpo.ragen.studies.figures.trends import draw_transcripts
from starpo.ragen.studies.transcripts import Response, Transcript

EVIL = "<script>alert(1)</script> <img src=x onerror=alert(1)> & \u202egnp.x"


def row(before: str = "<think>one</think>", after: str = EVIL) -> Transcript:
    return Transcript(
        observation="Phoenix or Dragon",
        before=Response(iteration=0, text=before, success=True),
        after=Response(iteration=80, text=after, success=False),
    )


class Tags(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def result(study):
    shrinking = {"rollout/distinct_response_share": {at: 1.0 - 0.04 * at for at in range(20)}}
    return study(
        "transcripts",
        {"vanilla <b>": {0: shrinking, 1: shrinking}, "fresh": {}},
        transcripts={"vanilla <b>": [row(), row("a", "b")]},
    )


def test_a_row_a_prompt_with_both_responses_side_by_side(result) -> None:
    page = Tags(draw_transcripts(result))
    assert page.tags.count("tr") == 1 + 2
    assert page.tags.count("pre") == 2 * 3
    for text in ("after 0 updates", "after 80 updates", "<think>one</think>"):
        assert text in page.text
    assert "No run of this seed was evaluated twice." in page.text


def test_what_a_model_wrote_is_text(result) -> None:
    page = Tags(draw_transcripts(result))
    assert not {"script", "img", "b", "link", "iframe"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text
    assert "\u202e" not in page.text  # characters that reverse text are made visible
    assert "default-src 'none'" in draw_transcripts(result)
