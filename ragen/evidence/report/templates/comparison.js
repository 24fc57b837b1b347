// Puts the comparison's parts on the page; the boxes beside the runs hide and show their lines everywhere.

const data = JSON.parse(document.getElementById("page-data").textContent);
const draw = (panel) => lineChart(panel, data.last_iteration, { isDashed: true, hasLegend: false });
const hidden = new Set();

function apply() {
  for (const line of document.querySelectorAll("[data-line]")) line.classList.toggle("hidden", hidden.has(line.dataset.line));
}

put("panels", data.panels.map(draw));
put("success", successPlot(data.runs));
document.querySelectorAll(".line-key").forEach((place, n) => {
  place.append(svg("svg", { viewBox: "0 0 34 10", width: 34, height: 10, "aria-hidden": "true" }, svg("path", { class: "smooth", style: `--line:${colour(n)}`, "stroke-dasharray": DASHES[n % DASHES.length], d: "M1 5H33" })));
});
document.querySelectorAll(".shows").forEach((box, n) => box.addEventListener("change", () => {
  hidden[box.checked ? "delete" : "add"](data.runs[n].name);
  apply();
}));
document.querySelector("#curves details").addEventListener("toggle", (event) => {
  const place = document.getElementById("other-panels");
  if (!event.target.open || place.childElementCount) return;
  place.append(...data.other_panels.map(draw));
  apply();
});
document.documentElement.dataset.ready = "yes";
