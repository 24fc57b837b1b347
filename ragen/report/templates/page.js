// Puts the parts on the page.

const data = JSON.parse(document.getElementById("page-data").textContent);
const put = (id, parts) => document.getElementById(id).append(...[parts].flat());

put("panels", data.panels.map((panel) => lineChart(panel, data.last_iteration, data.signals)));
put("timeline", timeline(data.signals, data.last_iteration));
put("stage-seconds", stageBars(data.stage_seconds, data.last_iteration));
Object.keys(data.stage_seconds).forEach((stage, index) => {
  for (const swatch of document.querySelectorAll(".swatch")) if (swatch.dataset.stage === stage) swatch.style.background = colour(index);
});
const shown = viewer(document.getElementById("viewer"), data.embedded);
put("heatmap", decisionMap(data, (iteration, group) => {
  shown.show(iteration, group);
  document.getElementById("trajectories").scrollIntoView();
}));
if (data.embedded.length) shown.show(data.embedded[data.embedded.length - 1]).then(() => { document.documentElement.dataset.ready = "yes"; });
else document.documentElement.dataset.ready = "yes";
document.querySelector("#curves details").addEventListener("toggle", (event) => {
  const place = document.getElementById("other-panels");
  if (event.target.open && !place.childElementCount) place.append(...data.other_panels.map((panel) => lineChart(panel, data.last_iteration, [])));
});
