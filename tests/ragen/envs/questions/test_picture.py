"""Pictures of questions: what a row may hold, and how it is shown."""

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.questions.environment import QuestionsSettings
from starpo.ragen.envs.questions.guess import guess_settings
from starpo.ragen.envs.questions.picture import picture_of, pixels_of

COLOURS = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255)}


def png(colour: str | int, size: tuple[int, int] = (40, 20), form: str = "PNG", mode: str = "RGB") -> bytes:
    stream = BytesIO()
    Image.new(mode, size, COLOURS.get(colour, colour)).save(stream, form, **({"quality": 95} if form == "JPEG" else {}))
    return stream.getvalue()


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


HUGE = png(0, (10_000, 6_000), mode="1")


@pytest.mark.parametrize(
    "value",
    [
        png("red"), encoded(png("red")), f"data:image/png;base64,{encoded(png('red'))}", [png("red")],
        {"bytes": png("red"), "path": "x"}, {"bytes": encoded(png("red"))},
    ],
)  # fmt: skip
def test_forms_of_picture_are_read(value: Any) -> None:
    assert picture_of(value) == png("red")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("images/1.png", "is no picture in base64; a path is not followed"),
        ("/etc/passwd", "is no picture in base64; a path is not followed"),
        ({"bytes": None, "path": "images/1.png"}, "holds no picture"),
        (7, "holds no picture"),
        ([], "holds 0 pictures; one is shown"),
        ([png("red"), png("blue")], "holds 2 pictures; one is shown"),
    ],
)
def test_other_values_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        picture_of(value)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_pictures_fit_into_square(form: str) -> None:
    pixels = pixels_of(png("blue", form=form), 64)
    assert (pixels.shape, pixels.dtype) == ((64, 64, 3), np.uint8)
    assert pixels[0, 0].tolist() == [255, 255, 255]  # twice as wide as high: white above and below
    assert np.abs(pixels[32, 32].astype(int) - COLOURS["blue"]).max() < 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<svg onload='alert(1)'/>", "cannot be read"),
        (png("red")[:50], "cannot be read"),
        (HUGE, "10000x6000 pixels, too many"),
    ],
)
def test_broken_and_huge_pictures_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(EnvironmentFault, match=message):
        pixels_of(content, 64)


def test_questions_show_their_pictures(tmp_path: Path) -> None:
    rows = [{"question": "Which colour?", "answer": name, "image": encoded(png(name))} for name in COLOURS]
    rows += [{"question": "Which colour?", "answer": "red", "image": "images/1.png"}]
    path = tmp_path / "colours.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    settings = guess_settings(str(path))
    assert settings.columns.image == "image"
    assert len(settings.questions()) == 3
    environment = make(settings)
    digests = set()
    for seed in range(3):
        environment.reset(seed=seed)
        digests.add(environment.state_digest())
        (answer,) = environment.question.answers  # type: ignore[attr-defined]
        assert environment.render_rgb()[112, 112].tolist() == list(COLOURS[answer])
    assert len(digests) == 3


def test_pictures_of_parquet_are_bytes(tmp_path: Path) -> None:
    rows = [{"question": f"{name}?", "answer": name, "image": {"bytes": png(name), "path": "x"}} for name in COLOURS]
    path = tmp_path / "colours.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert [question.picture for question in guess_settings(str(path)).questions()] == [png(name) for name in COLOURS]


def test_question_without_picture_draws_none(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": 2}')
    environment = make(QuestionsSettings(path=str(path)))
    environment.reset(seed=0)
    with pytest.raises(EnvironmentFault, match=r"there is no picture; name its column \(environment.columns.image\)"):
        environment.render_rgb()
