// Search over all stored rollouts, by the page's server; in a report, which has none, `find.js` searches what is in it.

const MOST_TAKEN = 100000; // hits of a file

function searcher(container) {
  const input = (name, label, attributes) => html("input", { name, "aria-label": label, autocomplete: "off", spellcheck: "false", ...attributes });
  const choice = (name, label, options) => html("label", {}, label, html("select", { name, "aria-label": label }, Object.entries(options).map(([value, text]) => html("option", { value }, text))));
  const range = (label, low, high, step) => html("label", {}, label, html("span", { class: "range" }, input(low, `${label} from`, { type: "number", step }), "to", input(high, `${label} to`, { type: "number", step })));
  const status = html("p", { class: "search-status", role: "status" });
  const results = html("div", { class: "results" });
  const terminal = html("div", {});
  const button = (text, onclick) => html("button", { type: "button", disabled: true, onclick }, text);
  const ofHits = [button("Open a random one", openRandom), button("Hits as CSV", () => take("csv")), button("as JSON lines", () => take("jsonl"))];
  const components = html("datalist", { id: "components" });
  const form = html("form", {},
    html("div", { class: "controls" }, html("label", { class: "wide" }, "Text ", input("text", "Search text", { type: "search", placeholder: "Text in responses and observations" })), html("button", {}, "Search"), html("button", { type: "reset" }, "Clear")),
    html("div", { class: "facets" }, choice("success", "Outcome", { "": "any", true: "success", false: "failed" }), choice("kept", "Filter", { "": "any", true: "kept", false: "dropped" }),
      choice("status", "Worst status", { "": "any", ok: "ok", format_error: "format error", truncated: "truncated", env_error: "environment failed", timeout: "timeout" }),
      range("Iterations", "first", "last", 1), range("Turns", "least_turns", "most_turns", 1), range("Return", "low", "high", "any"),
      html("label", {}, "Reward component", input("component", "Reward component", { list: "components" }), components), range("What it pays", "component_low", "component_high", "any")),
    html("div", { class: "controls" }, html("label", { class: "wide" }, "Where ", input("where", "Condition in SQL", { placeholder: "SQL: num_actions > 9 and not terminated" })), ofHits));
  let hits = [];
  let numHits = 0;
  let given = new URLSearchParams(); // what the hits are of

  const address = (hit) => addressOf({ iteration: hit.iteration, trajectory: hit.trajectory, turn: hit.turn ?? null });

  function result(hit) {
    const words = [`iteration ${hit.iteration}`, hit.trajectory, `return ${number(hit.return)}`, hit.component === undefined ? null : `${given.get("component")} ${number(hit.component)}`,
      hit.kept === null ? null : hit.kept ? "kept" : "dropped", hit.turn === undefined ? plural(hit.turns, "turn") : `turn ${hit.turn}`].filter(Boolean);
    const excerpt = hit.excerpt && html("code", {}, recorded(hit.excerpt[0]), html("mark", {}, recorded(hit.excerpt[1])), recorded(hit.excerpt[2]));
    return html("a", { class: "hit", href: address(hit) }, outcomePill(hit), ` ${words.join(" · ")}`, excerpt);
  }

  const part = (fields) => ask(`search?${new URLSearchParams([...given, ...Object.entries(fields)])}`);

  async function openRandom() {
    const at = Math.floor(Math.random() * numHits);
    try {
      const hit = hits[at] ?? (await part({ offset: at, limit: 1 })).hits[0];
      window.location.hash = address(hit);
    } catch (error) {
      status.textContent = error.message;
    }
  }

  async function take(ending) {
    try {
      const rows = (await part({ limit: MOST_TAKEN })).hits.map((hit) => ({ run: data.run, iteration: hit.iteration, trajectory: hit.trajectory, turn: hit.turn ?? null, success: hit.success, return: hit.return }));
      const text = ending === "csv" ? csv([Object.keys(rows[0]), ...rows.map(Object.values)]) : rows.map((row) => `${JSON.stringify(row)}\n`).join("");
      save(fileName(data.run, "hits", ending), ending === "csv" ? "text/csv" : "application/jsonl", text);
    } catch (error) {
      status.textContent = error.message;
    }
  }

  function show(answer) {
    ({ hits, num_hits: numHits } = answer);
    for (const one of ofHits) one.disabled = !numHits;
    terminal.replaceChildren(answer.commands.length ? inTerminal(answer.commands) : "");
    results.replaceChildren(...hits.slice(0, 100).map(result));
    if (hits.length > 100) results.append(html("button", { type: "button", class: "more", onclick: (click) => { click.target.remove(); results.append(...hits.slice(100).map(result)); } }, `Show ${hits.length - 100} more`));
  }

  async function search(event) {
    event.preventDefault();
    status.textContent = "Searching…";
    given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const mine = given;
    try {
      const answer = await part({});
      if (given !== mine) return;
      show(answer);
      const shown = hits.length < numHits ? `; the latest ${count(hits.length)} are listed` : "";
      const unread = answer.unread.length ? ` ${plural(answer.unread.length, "rollout")} cannot be read: of iteration ${answer.unread.slice(0, 5).join(", ")}.` : "";
      status.textContent = `${count(numHits)} of ${plural(answer.num_searched, "trajectory", "trajectories")}${shown}.${unread}`;
    } catch (error) {
      if (given !== mine) return;
      show(NO_HITS);
      status.textContent = error.message;
    }
  }

  form.addEventListener("submit", search);
  form.addEventListener("reset", () => { given = new URLSearchParams(); status.textContent = ""; show(NO_HITS); });
  components.parentElement.addEventListener("focusin", () => components.replaceChildren(...Object.keys(data.metrics).map((name) => /^reward\/component\/(.+)_mean$/.exec(name)?.[1]).filter(Boolean).map((value) => html("option", { value }))));
  container.append(form, status, terminal, results);
}

const NO_HITS = { hits: [], num_hits: 0, commands: [] };

searcher(document.getElementById("search"));
