// A response token by token: shaded by how unlikely each was when it was sampled, or by the trajectory's advantage.

const DEEPEST = 3; // nats: the full shade

const SHADES = {
  logprob: "log-probability",
  advantage: "advantage",
  none: "none",
};

function tokenSpans(turn) {
  let place = 0;
  return turn.ids.map((id, n) => {
    const length = turn.lengths ? turn.lengths[n] : 0;
    const text = turn.response.slice(place, place + length);
    place += length;
    const depth = Math.min(1, (turn.surprisals[n] ?? 0) / 1000 / DEEPEST);
    return html("span", { class: text ? "token" : "token bare", "data-n": n, style: `--depth-share:${depth.toFixed(3)}` }, recorded(text));
  });
}

function tokenBlock(turn, advantage) {
  const readout = html("p", { class: "readout token-readout", "aria-live": "polite" });
  const spans = tokenSpans(turn);
  const text = turn.lengths ? null : html("pre", { dir: "ltr" }, recorded(turn.response));
  const strip = html(turn.lengths ? "pre" : "div", { class: turn.lengths ? "tokens" : "tokens apart", dir: "ltr", tabindex: "0", role: "group", "aria-label": "Tokens of the response" }, spans);
  let present = -1;

  function point(n) {
    if (spans[present]) spans[present].classList.remove("pointed");
    present = n;
    spans[n].classList.add("pointed");
    const surprisal = turn.surprisals[n]; // an import may have tokens without them
    const logprob = -surprisal / 1000;
    const likely = surprisal === undefined ? "log-prob not recorded" : `log-prob ${logprob.toFixed(3).replace("-", "−")} · p ${Math.exp(logprob).toPrecision(3)}`;
    readout.replaceChildren(`token ${n + 1} of ${spans.length} `, html("code", {}, spans[n].textContent ? ["“", recorded(spans[n].textContent), "”"] : "(no text of its own)"),
      ` · id ${turn.ids[n]} · ${likely}`, advantage === null ? "" : ` · advantage ${signed(advantage)}`);
  }

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

// The choice of shading, with what the shades mean; it holds for all trajectories that are opened.
function shadeChoice(onChange) {
  const legend = html("span", { class: "shade-legend" });
  const choice = html("select", { "aria-label": "Shading of tokens" }, Object.entries(SHADES).map(([name, label]) => html("option", { value: name }, label)));
  const change = () => {
    document.documentElement.dataset.shade = choice.value;
    legend.replaceChildren(...{
      logprob: ["p = 1", html("i", { class: "scale depth" }), `p ≤ ${Math.exp(-DEEPEST).toFixed(2)} (${DEEPEST} nats) when it was sampled. Point at a token, or move over them with the arrow keys, for its numbers.`],
      advantage: [html("i", { class: "scale down" }), "negative", html("i", { class: "scale up" }), "positive; full shade is the largest of this iteration. What is stored is a trajectory's mean over its tokens."],
      none: ["the text as it was parsed"],
    }[choice.value]);
    onChange();
  };
  choice.addEventListener("change", change);
  return { element: html("p", { class: "shade" }, html("label", {}, "Shade tokens by ", choice), " ", legend), start: change };
}
