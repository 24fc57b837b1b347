"""Tokens shaded by each number that is stored of them, in a real browser."""

from typing import Any

import pytest

from starpo.ragen.store import Store
from tests.ragen.evidence.report.stored import rows

pytestmark = pytest.mark.ci
CHOICE = "[aria-label='Shading of tokens']"


def trained(stored_run: Store, iteration: int, *, is_kept: bool = True) -> dict[str, Any]:
    """A turn with eight tokens at least, whose trajectory the update trained on or not."""
    ids = {row["trajectory_id"] for row in rows(stored_run, iteration, "update", "samples")}
    turns = rows(stored_run, iteration, "rollout", "turns")
    return next(
        row for row in turns if (row["trajectory_id"] in ids) == is_kept and 8 <= len(row["response_ids"]) < 1000
    )


def opened(page, row: dict[str, Any], iteration: int) -> str:
    page.go(f"#iteration={iteration}&trajectory={row['trajectory_id']}")
    return f".turn[data-turn='{row['turn']}']"


def shades(page, card: str) -> list[list[str]]:
    """Tone, share of the full shade and background of the first eight tokens."""
    return page.run(
        "return Array.from(document.querySelectorAll(arguments[0]), (e) => [e.dataset.tone,"
        " Number(e.style.getPropertyValue('--share')), getComputedStyle(e).backgroundColor]).slice(0, 8)",
        f"{card} .token",
    )


def offered(page) -> list[str]:
    return page.texts(f"{CHOICE} option")


# log 0.8 / log 0.8 = 1, log 0.9 / log 0.8 = 0.472, log 1.1 / log 1.25 = 0.427, log 1.2 / log 1.25 = 0.817
RATIOS = [("down", 1), ("down", 0.472), ("up", 0), ("up", 0.427), ("up", 0.817)]
EXPECTED = {
    "entropy": ([("depth", min(1, n % 5 / 6)) for n in range(8)], "entropy 0.5"),
    "ratio": ([RATIOS[n % 5] for n in range(8)], "ratio 0.9"),
    "clipped": ([("down", n % 4 / 4) for n in range(8)], "clipped in 25% of the steps"),
    "masked": ([("hatched", 1) if n % 3 == 2 else ("up", 0.5) for n in range(8)], "in the loss"),
}


@pytest.mark.parametrize("shade", EXPECTED)
def test_numbers_shade_their_tokens(page, stored_run: Store, shade: str) -> None:
    card = opened(page, trained(stored_run, 1), 1)
    page.put(CHOICE, shade)
    wanted, words = EXPECTED[shade]
    drawn = shades(page, card)
    assert [tone for tone, _, _ in drawn] == [tone for tone, _ in wanted]
    assert [share for _, share, _ in drawn] == pytest.approx([share for _, share in wanted], abs=2e-3)
    by_shade = {(tone, share): colour for tone, share, colour in drawn if tone != "hatched"}
    assert len(set(by_shade.values())) == len(by_shade)
    for _ in range(2):
        page.press(f"{card} .tokens", "ArrowRight")
    assert f" · {words}" in page.text(f"{card} .token-readout")
    assert page.count(".shade-legend .scale") >= 1


def test_advantages_have_both_signs(page, stored_run: Store) -> None:
    row = trained(stored_run, 1)
    card = opened(page, row, 1)
    page.put(CHOICE, "advantage")
    samples = {one["trajectory_id"]: one["advantage"] for one in rows(stored_run, 1, "update", "samples")}
    advantage, largest = samples[row["trajectory_id"]], max(map(abs, samples.values()))
    signs = ["up", "down"] if advantage > 0 else ["down", "up"]
    drawn = shades(page, card)
    assert [tone for tone, _, _ in drawn] == signs * 4
    assert [share for _, share, _ in drawn] == pytest.approx([abs(advantage) / largest] * 8, abs=1e-3)
    assert len({colour for _, _, colour in drawn}) == 2


def test_masks_and_clips_need_no_colour(page, stored_run: Store) -> None:
    card = opened(page, trained(stored_run, 1), 1)
    look = "return Array.from(document.querySelectorAll(arguments[0]), (e) => getComputedStyle(e)[arguments[1]])"
    page.put(CHOICE, "masked")
    images = page.run(look, f"{card} .token", "backgroundImage")[:6]
    assert [image == "none" for image in images] == [n % 3 != 2 for n in range(6)]
    page.put(CHOICE, "clipped")
    lines = page.run(look, f"{card} .token", "textDecorationLine")[:8]
    assert [line == "underline" for line in lines] == [n % 4 > 0 for n in range(8)]


def test_means_alone_are_offered_as_such(page, stored_run: Store) -> None:
    card = opened(page, trained(stored_run, 0), 0)
    assert offered(page) == ["log-probability", "advantage", "masked or not", "none"]
    assert page.text(".lacks").startswith("Not offered: entropy, ratio, clipped or not: this update stored means")
    page.put(CHOICE, "advantage")
    assert len({(tone, share) for tone, share, _ in shades(page, card)}) == 1  # all tokens have the mean
    page.put(CHOICE, "masked")
    assert {tone for tone, _, _ in shades(page, card)} == {"up"}  # update.loss_on is 'all'


def test_untrained_tokens_are_masked(page, stored_run: Store) -> None:
    card = opened(page, trained(stored_run, 1, is_kept=False), 1)
    assert offered(page) == ["log-probability", "masked or not", "none"]
    assert page.text(".lacks").endswith("the update did not train on it.")
    page.put(CHOICE, "masked")
    assert {tone for tone, _, _ in shades(page, card)} == {"hatched"}


def test_evaluated_tokens_are_shaded(page, stored_run: Store) -> None:
    row = next(
        row for row in rows(stored_run, 2, "evaluate:sokoban", "episode_turns") if 8 <= len(row["response_ids"]) < 1000
    )
    page.go("#iteration=0")
    page.go(f"#iteration=2&source=sokoban&trajectory={row['trajectory_id']}")
    card = f".turn[data-turn='{row['turn']}']"
    assert offered(page) == ["log-probability", "none"]
    assert page.text(".lacks").endswith("masked or not: no update trained on it, as it is an evaluation.")
    assert [tone for tone, _, _ in shades(page, card)] == ["depth"] * 8
    assert [share for _, share, _ in shades(page, card)] == pytest.approx([min(1, n / 6) for n in range(8)], abs=1e-3)
    assert page.text(f"{card} .prompt summary").startswith("Prompt ")
    assert page.count(".player input") == 1


def test_choice_returns_where_it_is_offered(page, stored_run: Store) -> None:
    with_numbers, without = trained(stored_run, 1), trained(stored_run, 1, is_kept=False)
    opened(page, with_numbers, 1)
    assert page.count(".lacks") == 0
    page.put(CHOICE, "entropy")
    opened(page, without, 1)
    assert page.run(f'return document.querySelector("{CHOICE}").value') == "logprob"
    card = opened(page, with_numbers, 1)
    assert page.run(f'return document.querySelector("{CHOICE}").value') == "entropy"
    assert {tone for tone, _, _ in shades(page, card)} == {"depth"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_shaded_text_stays_legible(page, stored_run: Store, scheme: str) -> None:
    """Contrast of text on the full shade of each tone is at least 4.5, as WCAG asks."""
    page.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    try:
        card = opened(page, trained(stored_run, 1), 1)
        for shade, tone in (("entropy", "depth"), ("ratio", "up"), ("ratio", "down")):
            page.put(CHOICE, shade)
            [text, shaded, paper] = page.run(
                """
                const [card, tone] = arguments;
                const token = document.querySelector(`${card} .token[data-tone='${tone}']`);
                token.style.setProperty("--share", 1);
                const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
                  .getContext("2d", { willReadFrequently: true });
                const paint = (...colours) => {
                  for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
                  return Array.from(context.getImageData(0, 0, 1, 1).data.slice(0, 3));
                };
                const paper = getComputedStyle(document.querySelector(card)).backgroundColor;
                const { color, backgroundColor } = getComputedStyle(token);
                return [paint(color), paint(paper, backgroundColor), paint(paper)];
                """,
                card,
                tone,
            )
            assert contrast(text, shaded) >= 4.5, (shade, tone)
            assert contrast(shaded, paper) >= 1.4, (shade, tone)
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def contrast(one: list[int], other: list[int]) -> float:
    """Contrast ratio of two colours of sRGB, as WCAG defines it."""

    def luminance(colour: list[int]) -> float:
        linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
