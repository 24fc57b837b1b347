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
const drawn = {}; // part -> the names of what it shows

function hasOthers(part, names) {
  const before = drawn[part];
  drawn[part] = names.join("\n");
  return drawn[part] !== before;
}

// `draw` is given a place and what fills it: at once, or on a live page when the place is seen.
function drawCurves(draw = (element, fill) => fill()) {
  const make = (panel) => chart(panel, data.signals);
  const figures = [...document.getElementById("panels").children];
  if (hasOthers("panels", data.panels.map(({ title }) => title))) refill("panels", data.panels.length ? data.panels.map(make) : html("p", { class: "muted" }, "No metric has been stored yet."));
  else data.panels.forEach((panel, n) => draw(figures[n], () => figures[n].replaceChildren(...make(panel).children)));
  refill("legend", curveLegend(data.panels, data.signals));
  if (hasOthers("meanings", data.glossary.map(({ name }) => name))) refill("meanings", glossaryList(data.glossary));
  draw(document.getElementById("timeline"), () => refill("timeline", timeline(data.signals, data.last_iteration)));
  draw(document.getElementById("heatmap"), () => refill("heatmap", decisionMap(data, batches.rollouts.map((batch) => batch.iteration))));
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
