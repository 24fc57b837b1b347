// What each metric means, in what unit, and what it is computed from: under the pointer, behind a panel's question mark,
// and as a list.

const unfolded = new Set(); // titles of panels whose meaning is open; a live page draws panels anew

function meaningsByMetric(glossary) {
  return new Map(glossary.flatMap((entry) => entry.metrics.map((metric) => [metric, entry])));
}

const meaningId = (entry) => `meaning-${entry.name.replace(/[^a-z0-9]+/gi, "-")}`;
const inShort = (entry) => (entry ? `${entry.meaning}. Unit: ${entry.unit}. Computed from ${entry.source}.` : null);

// The button and the paragraph that it opens.
function panelMeaning(panel, entry, id) {
  if (!entry) return [null, null];
  const names = panel.lines.map((line) => line.metric);
  const stored = names.length > 4 ? [...names.slice(0, 3), `${names.length - 3} more`] : names;
  const words = html("p", { class: "meaning", id, hidden: !unfolded.has(panel.title) }, `${inShort(entry)} Stored as `, stored.flatMap((name, n) => [n ? ", " : null, html("code", {}, name)]), ".");
  const button = html("button", { type: "button", "aria-expanded": String(unfolded.has(panel.title)), "aria-controls": id, "aria-label": `What ${panel.title} means`, title: inShort(entry) }, "?");
  button.addEventListener("click", () => {
    words.hidden = !words.hidden;
    button.setAttribute("aria-expanded", String(!words.hidden));
    unfolded[words.hidden ? "delete" : "add"](panel.title);
  });
  return [button, words];
}

// By what they are computed from, which metrics of one kind share.
function glossaryList(glossary) {
  if (!glossary.length) return html("p", { class: "muted" }, "No metric has been stored yet.");
  const sources = [...new Set(glossary.map((entry) => entry.source))];
  return sources.map((source) => [
    html("h3", {}, `Computed from ${source.split("; ")[0]}`), source.includes("; ") ? html("p", { class: "muted" }, source.slice(source.indexOf("; ") + 2)) : null,
    html("dl", { class: "glossary" }, glossary.filter((entry) => entry.source === source).map((entry) => html("div", { id: meaningId(entry), tabindex: "-1" },
      html("dt", {}, html("code", {}, entry.name)), html("dd", {}, `${entry.meaning}. `, html("span", { class: "muted" }, entry.unit))))),
  ]);
}
