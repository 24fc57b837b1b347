// A response token by token: shaded by one of its numbers, with all of them under the pointer.

const DEEPEST = 3; // nats: the full shade
const FAR = Math.log(1.25); // of a ratio: the full shade
const scale = (...tones) => tones.map((tone) => html("i", { class: "scale", "data-tone": tone }));
const named = (mark, words) => html("span", { class: "named" }, mark, ` ${words}`);
const swatch = (tone) => html("i", { class: "scale swatch", "data-tone": tone });
const trainedOf = (name) => (turn, n) => { const values = turn.trained?.[name] ?? null; return Array.isArray(values) ? values[n] ?? null : values; };
const deep = (nats) => ["depth", nats / DEEPEST];
const twoWays = (value, largest) => [value < 0 ? "down" : "up", Math.abs(value) / largest];

// Name -> its number for a token (null: there is none), its tone and share of the full shade, the number in words, and
// what the shades mean. `trained` is the trajectory's row of `samples` with `largest`, the largest |advantage| shown.
const SHADES = {
  logprob: {
    label: "log-probability", of: (turn, n) => (turn.surprisals[n] === undefined ? null : -turn.surprisals[n] / 1000), tone: (value) => deep(-value),
    words: (value) => `log-prob ${value.toFixed(3).replace("-", "−")} · p ${Math.exp(value).toPrecision(3)}`,
    legend: () => ["p = 1", scale("depth"), `p ≤ ${Math.exp(-DEEPEST).toFixed(2)} (${DEEPEST} nats) when it was sampled.`],
  },
  entropy: {
    label: "entropy", of: trainedOf("entropy"), tone: deep, words: (value) => `entropy ${number(value)}`,
    legend: () => ["0", scale("depth"), `${DEEPEST} nats or more: how many others the policy might have said, before the update.`],
  },
  ratio: {
    label: "ratio", of: trainedOf("ratio"), tone: (value) => twoWays(Math.log(value), FAR), words: (value) => `ratio ${number(value, 4)}`,
    legend: () => ["≤ 0.8", scale("down"), "1", scale("up"), "≥ 1.25: its probability in training over that before (update.ratio_to), a mean over the steps."],
  },
  advantage: {
    label: "advantage", of: (turn, n, trained) => trainedOf("advantage")(turn, n) ?? trained?.advantage ?? null, tone: (value, trained) => twoWays(value, trained.largest), words: (value) => `advantage ${signed(value)}`,
    legend: (turns) => [named(scale("down"), "negative"), named(scale("up"), "positive"), `full shade is the largest of this iteration.${turns.some((turn) => turn.trained) ? "" : " What is stored is a trajectory's mean over its tokens."}`],
  },
  clipped: {
    label: "clipped or not", of: trainedOf("clipped"), tone: (value) => ["down", value], words: (value) => (value ? `clipped in ${percent(value)} of the steps` : "not clipped"),
    legend: () => ["not clipped", html("i", { class: "scale rising", "data-tone": "down" }), "clipped in all steps of the update, where the surrogate then had no gradient."],
  },
  masked: {
    label: "masked or not", of: (turn, n, trained) => trainedOf("masked")(turn, n) ?? trained?.masked ?? null, tone: (value) => (value ? ["hatched", 1] : ["up", 0.5]), words: (value) => (value ? "masked: not in the loss" : "in the loss"),
    legend: () => [named(swatch("up"), "in the loss"), named(swatch("hatched"), "masked: the update did not learn from it.")],
  },
  none: { label: "none", of: () => null, words: () => null, legend: () => ["the text as it was parsed"] },
};

const hasShade = (name, turns, trained) => turns.some((turn) => turn.ids.some((_, n) => SHADES[name].of(turn, n, trained) !== null));

function tokenSpans(turn) {
  let place = 0;
  return turn.ids.map((id, n) => {
    const length = turn.lengths ? turn.lengths[n] : 0;
    const text = turn.response.slice(place, place + length);
    place += length;
    return html("span", { class: text ? "token" : "token bare", "data-n": n }, recorded(text));
  });
}

function tokenBlock(turn, trained) {
  const readout = html("p", { class: "readout token-readout", "aria-live": "polite" });
  const spans = tokenSpans(turn);
  const text = turn.lengths ? null : html("pre", { dir: "ltr" }, recorded(turn.response));
  const strip = html(turn.lengths ? "pre" : "div", { class: turn.lengths ? "tokens" : "tokens apart", dir: "ltr", tabindex: "0", role: "group", "aria-label": "Tokens of the response" }, spans);
  let present = -1;

  function point(n) {
    if (spans[present]) spans[present].classList.remove("pointed");
    present = n;
    spans[n].classList.add("pointed");
    const numbers = Object.values(SHADES).map(({ of, words }) => { const value = of(turn, n, trained); return value === null ? null : words(value); });
    readout.replaceChildren(`token ${n + 1} of ${spans.length} `, html("code", {}, spans[n].textContent ? ["“", recorded(spans[n].textContent), "”"] : "(no text of its own)"),
      ` · ${[`id ${turn.ids[n]}`, ...numbers, turn.surprisals[n] === undefined ? "log-prob not recorded" : null].filter(Boolean).join(" · ")}`);
  }

  strip.addEventListener("shade", ({ detail: { of, tone } }) => spans.forEach((span, n) => {
    const value = of(turn, n, trained);
    const [name, share] = value === null ? ["none", 0] : tone(value, trained);
    span.dataset.tone = name;
    span.style.setProperty("--share", Math.min(1, share).toFixed(3));
  }));
  strip.addEventListener("pointerover", (event) => {
    const span = event.target.closest(".token");
    if (span) point(Number(span.dataset.n));
  });
  strip.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !spans.length) return;
    event.preventDefault();
    event.stopPropagation();
    point(Math.max(0, Math.min(spans.length - 1, present + step)));
  });
  return html("div", { class: "token-block" }, html("h4", {}, "Response, token by token"), text, strip, more((turn.cut || {}).response), readout);
}

// The choice of shading, with what the shades mean; it holds for all trajectories that are opened, as far as they have
// the numbers: what they lack is not offered, and is named with the reason.
function shadeChoice(stage) {
  const legend = html("span", { class: "shade-legend" });
  const choice = html("select", { "aria-label": "Shading of tokens" });
  const label = html("label", {}, "Shade tokens by ", choice);
  const element = html("p", { class: "shade" }, label, " ", legend);
  let wanted = "logprob";
  let lacks = "";
  let turns = [];

  function paint() {
    document.documentElement.dataset.shade = choice.value;
    const readouts = choice.value === "none" ? null : " Point at a token, or move over them with the arrow keys, for its numbers. ";
    legend.replaceChildren(...[label.hidden ? null : SHADES[choice.value].legend(turns), readouts, lacks].flat(Infinity).filter(Boolean));
    for (const strip of stage.querySelectorAll(".tokens")) strip.dispatchEvent(new CustomEvent("shade", { detail: SHADES[choice.value] }));
  }

  // `sides`: the turns that are shown and what the update noted of their trajectory, with the reason for what it lacks.
  function offer(sides) {
    turns = sides.flatMap((side) => side.turns);
    element.hidden = !turns.some((turn) => turn.ids.length);
    const names = Object.keys(SHADES).filter((name) => name === "none" || sides.some((side) => hasShade(name, side.turns, side.trained)));
    choice.replaceChildren(...names.map((name) => html("option", { value: name }, SHADES[name].label)));
    choice.value = names.includes(wanted) ? wanted : names[0];
    const absent = Object.keys(SHADES).filter((name) => !names.includes(name)).map((name) => SHADES[name].label);
    const why = `${[...new Set(sides.flatMap((side) => side.lacks))].join("; ")}.`;
    label.hidden = names.length === 1;
    lacks = absent.length ? html("span", { class: "lacks" }, label.hidden ? `Tokens are not shaded: ${why}` : `Not offered: ${absent.join(", ")}: ${why}`) : null;
    paint();
  }

  choice.addEventListener("change", () => {
    wanted = choice.value;
    paint();
  });
  return { element, offer };
}
