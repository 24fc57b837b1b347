"""Options of 'judge' and 'checklist': checks, and absence from keys where they change no reward."""

import subprocess
import sys

import pytest

from starpo.ragen.config.reward import RewardConfig

SERVER = {"base_url": "http://localhost:1/v1", "model": "m"}


@pytest.mark.parametrize(
    ("component", "options", "message"),
    [
        ("judge", {}, "options of 'judge': base_url: Field required"),
        ("judge", {**SERVER, "base_url": "http://me:secret@host/v1"}, "base_url: String should match"),
        (
            "judge",
            {**SERVER, "template": "{thought}"},
            r"\{thought\} is not known here; known: \{observation\}, \{think",
        ),
        ("judge", {**SERVER, "template": "Is it true?"}, "expected a part of the turn in it"),
        ("checklist", {**SERVER, "items": []}, "items: List should have at least 1 item"),
        ("checklist", {**SERVER, "items": [{"question": "?"}], "template": "{think}"}, r"expected \{question\} in it"),
        (
            "checklist",
            {**SERVER, "items": [{"question": "?"}, {"question": "?", "depends_on": [1]}]},
            r"items\.1\.depends_on names item 1; expected items before it, 0 to 0",
        ),
        (
            "checklist",
            {**SERVER, "items": [{"question": "?", "depends_on": [0]}]},
            "expected items before it, and it is the first",
        ),
    ],
)
def test_wrong_options_are_refused(component: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardConfig(components=[component], options={component: options})


@pytest.mark.parametrize("component", ["judge", "checklist"])
def test_judge_address_is_in_no_key(component: str) -> None:
    items = {"items": [{"question": "Is it?"}]} if component == "checklist" else {}

    def effective(**changes: object) -> dict:
        return RewardConfig(components=[component], options={component: {**SERVER, **items, **changes}}).effective()

    reached = {"base_url": "https://other/v1", "key_variable": "MY_KEY", "max_concurrent": 2, "timeout_s": 9.0}
    assert effective(**reached, max_retries=0) == effective()
    assert "localhost" not in str(effective())
    for changes in ({"model": "n"}, {"reward": 1.0}, {"max_answer_tokens": 9}):
        assert effective(**changes) != effective()
    assert effective(template="{think} {question}" if items else "{think}") != effective()


def test_settings_checked_without_torch() -> None:
    code = (
        "import sys; from starpo.ragen.config.reward import RewardConfig; "
        f"RewardConfig(components=['judge'], options={{'judge': {SERVER}}}); "
        "assert not {'torch', 'polars', 'openai'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
