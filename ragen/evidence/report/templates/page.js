// Puts the report's parts on the page, and opens what its address says.

const data = JSON.parse(document.getElementById("page-data").textContent);
const batches = new Batches(data);
const toIteration = (iteration) => goTo({ iteration });
const folded = new Map(); // place -> what makes it, once it is unfolded

function refill(place, parts) {
  document.getElementById(place).replaceChildren(...[parts].flat(Infinity).filter(Boolean));
}

function chart(panel, signals = []) {
  const meaning = meaningsByMetric(data.glossary).get(panel.lines[0].metric);
  return lineChart(panel, data.last_iteration, { signals, onSelect: toIteration, meaning, run: data.run });
}

const charts = (panels) => panels.map((panel) => chart(panel));
const drawn = { titles: [], meanings: [] };

// `draw` is given a place and what fills it: at once, or on a live page when the place is seen.
function drawCurves(draw = (element, fill) => fill()) {
  const titles = data.panels.map(({ title }) => title);
  const panels = document.getElementById("panels");
  if (titles.length && titles.join() === drawn.titles.join()) [...panels.children].forEach((figure, n) => draw(figure, () => figure.replaceChildren(...chart(data.panels[n], data.signals).children)));
  else panels.replaceChildren(...(titles.length ? data.panels.map((panel) => chart(panel, data.signals)) : [html("p", { class: "muted" }, "No metric has been stored yet.")]));
  drawn.titles = titles;
  refill("legend", curveLegend(data.panels, data.signals));
  const names = data.glossary.map(({ name }) => name);
  if (names.join() !== drawn.meanings.join() || !names.length) refill("meanings", glossaryList(data.glossary));
  drawn.meanings = names;
  for (const [place, make] of [["timeline", () => timeline(data.signals, data.last_iteration)], ["heatmap", () => decisionMap(data, batches.rollouts.map((batch) => batch.iteration))]]) {
    draw(document.getElementById(place), () => refill(place, make()));
  }
}

// What is expensive and folded is made when it is unfolded.
function whenOpened(selector, place, make) {
  folded.set(place, make);
  document.querySelector(selector).addEventListener("toggle", async (event) => {
    if (event.target.open && !document.getElementById(place).childElementCount) refill(place, await make());
  });
}

drawCurves();
put("run-terminal", inTerminal([["starpo", "show", data.run, "--store", data.store], ["starpo", "report", data.run, "--store", data.store], ["starpo", "sql", data.run, "select iteration, name, value from metrics order by all", "--csv", "metrics.csv", "--store", data.store]]));
const oneIteration = iterationView(document.getElementById("iteration-view"), data, batches);
const trajectories = viewer(document.getElementById("viewer"), data, batches);
if (document.getElementById("finder")) finder(document.getElementById("finder"), batches);
whenOpened("#curves details", "other-panels", async () => charts(data.other_panels ?? await ask("panels")));
document.getElementById("take-metrics").addEventListener("click", () => save(fileName(data.run, "metrics", "csv"), "text/csv", csv(metricRows(data.metrics))));
whenOpened("#decisions details", "decision-table", () => decisionTable(data));

// Draws anew what `data` now says, in which iterations before `since` are as they were; what is looked at stays.
function renew(since) {
  writeHead(data.head);
  drawCurves(drawWhenSeen);
  for (const [place, make] of folded) {
    const element = document.getElementById(place);
    if (element.childElementCount) drawWhenSeen(element, async () => refill(place, await make()));
  }
  oneIteration.renew(since, drawWhenSeen);
  trajectories.renew();
}

function revealMeaning(id) {
  const entry = document.getElementById(id);
  if (!entry) return;
  entry.closest("details").open = true;
  entry.scrollIntoView();
  entry.focus({ preventScroll: true });
}

async function openAddress(isArrival) {
  const wanted = readAddress(window.location.hash);
  const last = batches.rollouts.length ? batches.rollouts[batches.rollouts.length - 1].iteration : oneIteration.last();
  const place = wanted || { iteration: last ?? 0, source: null, group: null, trajectory: null, turn: null, beside: null };
  if (window.location.hash.startsWith("#meaning-")) revealMeaning(window.location.hash.slice(1));
  if (!wanted && !isArrival) return; // a plain anchor
  oneIteration.show(place.iteration);
  await trajectories.show(place);
  if (isArrival) performance.mark("ready");
  document.documentElement.dataset.ready = window.location.hash || "#";
  if (!wanted) return;
  const isTrajectory = wanted.trajectory || wanted.group || wanted.source;
  const target = document.getElementById(isTrajectory ? "trajectories" : "iteration");
  if (wanted.turn === null) target.scrollIntoView();
  target.querySelector("h3[tabindex]")?.focus({ preventScroll: true });
}
window.addEventListener("hashchange", () => openAddress(false));
openAddress(true);
