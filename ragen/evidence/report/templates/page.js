// Puts the report's parts on the page, and opens what its address says.

const data = JSON.parse(document.getElementById("page-data").textContent);
const batches = new Batches(data.batches);
const toIteration = (iteration) => goTo({ iteration });

put("panels", data.panels.map((panel) => lineChart(panel, data.last_iteration, { signals: data.signals, onSelect: toIteration })));
put("timeline", timeline(data.signals, data.last_iteration));
put("heatmap", decisionMap(data, batches.rollouts.map((batch) => batch.iteration)));
const oneIteration = iterationView(document.getElementById("iteration-view"), data, batches);
const trajectories = viewer(document.getElementById("viewer"), data, batches);
finder(document.getElementById("finder"), batches);

// What is expensive and folded is made when it is unfolded.
function whenOpened(selector, place, make) {
  document.querySelector(selector).addEventListener("toggle", (event) => {
    const target = document.getElementById(place);
    if (event.target.open && !target.childElementCount) target.append(...[make()].flat());
  });
}
whenOpened("#curves details", "other-panels", () => data.other_panels.map((panel) => lineChart(panel, data.last_iteration, { onSelect: toIteration })));
whenOpened("#decisions details", "decision-table", () => decisionTable(data));

async function openAddress(isArrival) {
  const wanted = readAddress(window.location.hash);
  const last = batches.rollouts.length ? batches.rollouts[batches.rollouts.length - 1].iteration : oneIteration.known[oneIteration.known.length - 1];
  const place = wanted || { iteration: last ?? 0, source: null, group: null, trajectory: null, turn: null, beside: null };
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
