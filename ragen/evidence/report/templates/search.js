// Search over all stored rollouts, by the page's server; in a report, which has none, `find.js` searches what is in it.

function searcher(container) {
  const input = (name, label, attributes) => html("input", { name, "aria-label": label, autocomplete: "off", spellcheck: "false", ...attributes });
  const choice = (name, label, options) => html("label", {}, label, html("select", { name, "aria-label": label }, Object.entries(options).map(([value, text]) => html("option", { value }, text))));
  const range = (label, low, high, step) => html("label", {}, label, html("span", { class: "range" }, input(low, `${label} from`, { type: "number", step }), "to", input(high, `${label} to`, { type: "number", step })));
  const said = html("p", { class: "said", role: "status" });
  const results = html("div", { class: "results" });
  const random = html("button", { type: "button", disabled: true }, "Open a random one");
  const form = html("form", {},
    html("div", { class: "controls" }, html("label", { class: "wide" }, "Text ", input("text", "Search text", { type: "search", placeholder: "Text in responses and observations" })), html("button", {}, "Search"), random, html("button", { type: "reset" }, "Clear")),
    html("div", { class: "facets" }, choice("success", "Outcome", { "": "any", true: "success", false: "failed" }), choice("kept", "Filter", { "": "any", true: "kept", false: "dropped" }),
      range("Iterations", "first", "last", 1), range("Return", "low", "high", "any")));
  let hits = [];

  const address = (hit) => addressOf({ iteration: hit.iteration, trajectory: hit.trajectory, turn: hit.turn ?? null });

  function result(hit) {
    const words = [`iteration ${hit.iteration}`, hit.trajectory, `return ${number(hit.return)}`, hit.kept === null ? null : hit.kept ? "kept" : "dropped", hit.turn === undefined ? null : `turn ${hit.turn}`].filter(Boolean);
    const excerpt = hit.excerpt && html("code", {}, recorded(hit.excerpt[0]), html("mark", {}, recorded(hit.excerpt[1])), recorded(hit.excerpt[2]));
    return html("a", { class: "hit", href: address(hit) }, outcomePill(hit), ` ${words.join(" · ")}`, excerpt);
  }

  async function search(event) {
    event.preventDefault();
    said.textContent = "Searching…";
    const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    try {
      const found = await ask(`search?${given}`);
      hits = found.hits;
      const shown = hits.length < found.num_hits ? `; the latest ${count(hits.length)} are listed` : "";
      const unread = found.unread.length ? ` ${plural(found.unread.length, "rollout")} cannot be read: of iteration ${found.unread.slice(0, 5).join(", ")}.` : "";
      said.textContent = `${count(found.num_hits)} of ${plural(found.num_searched, "trajectory", "trajectories")}${shown}.${unread}`;
    } catch (error) {
      hits = [];
      said.textContent = error.message;
    }
    random.disabled = !hits.length;
    results.replaceChildren(...hits.slice(0, 100).map(result));
    if (hits.length > 100) results.append(html("button", { type: "button", class: "more", onclick: (click) => { click.target.remove(); results.append(...hits.slice(100).map(result)); } }, `Show ${hits.length - 100} more`));
  }

  form.addEventListener("submit", search);
  form.addEventListener("reset", () => { hits = []; said.textContent = ""; results.replaceChildren(); random.disabled = true; });
  random.addEventListener("click", () => { window.location.hash = address(hits[Math.floor(Math.random() * hits.length)]); });
  container.append(form, said, results);
}

searcher(document.getElementById("search"));
