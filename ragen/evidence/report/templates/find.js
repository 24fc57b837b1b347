// Search and filters over all trajectories of the page. Every choice says how many it would leave.

const PAGE_OF_RESULTS = 50;

const FACETS = [
  { name: "source", label: "From", of: (row) => sourceOf(row.batch), say: (v) => (v === TRAINING ? "training rollouts" : `evaluation ${v}`) },
  { name: "outcome", label: "Outcome", of: (row) => outcomeOf(row.member) },
  { name: "decision", label: "Filter", of: (row) => (row.group.kept === null ? "none" : row.group.kept ? "kept" : "dropped"), say: (v) => (v === "none" ? "no decision" : v) },
  { name: "advantage", label: "Advantage", of: (row) => { const a = row.member.sample?.advantage; return a === undefined ? "none" : a > 0 ? "positive" : a < 0 ? "negative" : "zero"; }, say: (v) => (v === "none" ? "not trained on" : v) },
  { name: "format", label: "Format", of: (row) => (row.member.errors === null ? "unknown" : row.member.errors ? "errors" : "sound"), say: (v) => ({ errors: "with format errors", sound: "without format errors", unknown: "not recorded" })[v] },
  { name: "status", label: "Worst status", of: (row) => row.member.status, say: (v) => v.replace("_", " ") },
];

const PART = { name: "part", label: "Part", of: (row) => row.member.env }; // offered where several are played

const ORDERS = {
  "by iteration": () => 0,
  "lowest return": (a, b) => (a.member.return ?? 0) - (b.member.return ?? 0),
  "highest return": (a, b) => (b.member.return ?? 0) - (a.member.return ?? 0),
  "largest advantage": (a, b) => Math.abs(b.member.sample?.advantage ?? 0) - Math.abs(a.member.sample?.advantage ?? 0),
};

function finder(container, batches) {
  const total = batches.all.reduce((sum, b) => sum + b.shown, 0);
  const query = html("input", { type: "search", placeholder: "Text in responses, observations, actions", "aria-label": "Search text", autocomplete: "off", spellcheck: "false" });
  const facets = [...FACETS];
  const facetBox = html("div", { class: "facets" });
  const selects = new Map([...FACETS, PART].map((facet) => [facet.name, html("select", { "aria-label": facet.label, "data-facet": facet.name }, html("option", { value: "" }, "any"))]));
  const bound = (name, label) => html("input", { type: "number", step: "any", "aria-label": label, "data-bound": name });
  const bounds = { iterationLow: bound("iteration-low", "Iteration from"), iterationHigh: bound("iteration-high", "Iteration to"), returnLow: bound("return-low", "Return from"), returnHigh: bound("return-high", "Return to") };
  const order = html("select", { "aria-label": "Order of results" }, Object.keys(ORDERS).map((name) => html("option", { value: name }, name)));
  const status = html("p", { class: "search-status", role: "status" }, `${plural(total, "trajectory", "trajectories")} can be searched.`);
  const results = html("div", { class: "results" });
  let rows = null; // of every trajectory in the page, once they have been read
  let reading = null;
  const known = new Map(); // facet -> the values that occur
  let hits = new Map(); // row -> where the text was found
  let latest = 0;

  function read() {
    reading ??= (async () => {
      const all = [];
      for (const [n, batch] of batches.all.entries()) {
        status.textContent = `Reading ${n + 1} of ${batches.all.length} rollouts and evaluations…`;
        for (const group of await batches.groups(batch)) for (const member of group.members) all.push({ batch, group, member });
      }
      rows = all;
      if (new Set(rows.map(PART.of)).size > 1) {
        facets.push(PART);
        facetBox.append(html("label", {}, PART.label, selects.get(PART.name)));
      }
      for (const facet of facets) known.set(facet, [...new Set(rows.map(facet.of))].sort());
    })();
    return reading;
  }

  function within(row) {
    const value = (input) => (input.value === "" ? null : Number(input.value));
    const inside = (number, low, high) => (value(low) === null || (number !== null && number >= value(low))) && (value(high) === null || (number !== null && number <= value(high)));
    return inside(row.batch.iteration, bounds.iterationLow, bounds.iterationHigh) && inside(row.member.return, bounds.returnLow, bounds.returnHigh);
  }

  async function findText(wanted, mine) {
    const places = new Map();
    for (const [n, row] of rows.entries()) {
      if (n % 2000 === 1999) {
        await new Promise((resolve) => { setTimeout(resolve); });
        if (mine !== latest) return null;
      }
      for (const [index, turn] of row.member.turns.entries()) {
        const place = [turn.response, turn.observation, turn.executed.join(" || "), turn.status || ""].find((text) => text.toLowerCase().includes(wanted));
        if (place !== undefined) { places.set(row, { turn: index, place }); break; }
      }
    }
    return places;
  }

  async function search() {
    latest += 1;
    const mine = latest;
    await read();
    const wanted = query.value.trim().toLowerCase();
    const places = wanted ? await findText(wanted, mine) : new Map();
    if (places === null || mine !== latest) return;
    hits = places;
    const candidates = rows.filter((row) => (!wanted || hits.has(row)) && within(row));
    const passes = (row, but) => facets.every((facet) => facet === but || !selects.get(facet.name).value || facet.of(row) === selects.get(facet.name).value);
    for (const facet of facets) offer(facet, candidates.filter((row) => passes(row, facet)));
    const matching = candidates.filter((row) => passes(row, null)).sort(ORDERS[order.value]);
    const iterations = new Set(matching.map((row) => row.batch.iteration)).size;
    status.textContent = matching.length ? `${count(matching.length)} of ${plural(rows.length, "trajectory", "trajectories")}, in ${plural(iterations, "iteration")}.` : `None of ${plural(rows.length, "trajectory", "trajectories")}.`;
    list(matching, wanted, 0);
    container.dataset.searched = String(mine);
  }

  function offer(facet, left) {
    const select = selects.get(facet.name);
    const counts = new Map(known.get(facet).map((value) => [value, 0]));
    for (const row of left) counts.set(facet.of(row), counts.get(facet.of(row)) + 1);
    const chosen = select.value;
    select.replaceChildren(html("option", { value: "" }, `any (${count(left.length)})`), ...[...counts].map(([value, n]) => html("option", { value, selected: value === chosen }, `${facet.say ? facet.say(value) : value} (${count(n)})`)));
  }

  function list(matching, wanted, from) {
    const shown = matching.slice(from, from + PAGE_OF_RESULTS).map((row) => result(row, wanted));
    if (from) results.lastElementChild.remove();
    else results.replaceChildren();
    results.append(...shown);
    if (matching.length > from + PAGE_OF_RESULTS) {
      results.append(html("button", { type: "button", class: "more", onclick: () => list(matching, wanted, from + PAGE_OF_RESULTS) }, `Show more (${count(matching.length - from - PAGE_OF_RESULTS)} left)`));
    }
  }

  function result(row, wanted) {
    const hit = hits.get(row);
    const advantage = row.member.sample?.advantage;
    const words = [`iteration ${row.batch.iteration}`, facets.includes(PART) ? row.member.env : null, row.batch.cell === null ? row.member.id : `${row.batch.cell} ${row.member.id}`, `return ${number(row.member.return)}`,
      row.group.kept === null ? null : row.group.kept ? "kept" : "dropped", advantage === undefined ? null : `advantage ${signed(advantage)}`,
      row.member.errors ? plural(row.member.errors, "format error") : null, hit ? `turn ${hit.turn}` : plural(row.member.turns.length, "turn")].filter(Boolean);
    return html("a", { class: "hit", href: addressOf({ iteration: row.batch.iteration, source: row.batch.cell, trajectory: row.member.id, turn: hit ? hit.turn : null }) },
      outcomePill(row.member), ` ${words.join(" · ")}`,
      hit && wanted ? html("code", {}, excerpt(hit.place, wanted)) : null);
  }

  let waiting = 0;
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(search, 150); };
  const clear = html("button", { type: "button", class: "clear", onclick: () => {
    for (const input of [query, ...Object.values(bounds), ...selects.values()]) input.value = "";
    search();
  } }, "Clear");
  for (const input of [query, ...Object.values(bounds)]) input.addEventListener("input", soon);
  for (const select of [order, ...selects.values()]) select.addEventListener("change", search);
  if (!total) {
    container.append(html("p", { class: "muted" }, "No trajectory has been stored yet."));
    return;
  }
  container.append(
    html("div", { class: "controls" }, html("label", { class: "wide" }, "Text ", query), html("label", {}, "Order ", order), clear),
    facetBox,
    status, results);
  facetBox.append(...FACETS.map((facet) => html("label", {}, facet.label, selects.get(facet.name))),
    html("label", {}, "Iterations", html("span", { class: "range" }, bounds.iterationLow, "to", bounds.iterationHigh)), html("label", {}, "Return", html("span", { class: "range" }, bounds.returnLow, "to", bounds.returnHigh)));
  const observer = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) { observer.disconnect(); search(); } });
  observer.observe(container); // reading all trajectories takes a moment, so it waits until somebody comes here
}

function excerpt(text, wanted) {
  const at = text.toLowerCase().indexOf(wanted);
  const [from, to] = [Math.max(0, at - 40), at + wanted.length];
  return [from ? "…" : "", recorded(text.slice(from, at)), html("mark", {}, recorded(text.slice(at, to))), recorded(text.slice(to, to + 60)), text.length > to + 60 ? "…" : ""];
}
