// The filter's decisions as a map: a column an iteration, a row a rank, colour the score, grey what was dropped.

function decisionMap(data, onSelect) {
  const [ITERATION, GROUP, RANK, SCORE, MEAN, SUCCESS, KEPT, REASON] = [0, 1, 2, 3, 4, 5, 6, 7];
  const cells = data.decisions;
  if (!cells.length) return html("p", { class: "muted" }, "The filter has not decided anything yet.");
  const rows = 1 + cells.reduce((most, c) => Math.max(most, c[RANK]), 0);
  const columns = 1 + cells.reduce((most, c) => Math.max(most, c[ITERATION]), 0);
  const highest = cells.reduce((most, c) => Math.max(most, c[SCORE]), 0) || 1;
  const lowest = cells.reduce((least, c) => Math.min(least, c[SCORE]), 0);
  const share = (cell) => (cell[SCORE] - lowest) / (highest - lowest || 1);
  const at = new Map(cells.map((c) => [c[ITERATION] * rows + c[RANK], c]));
  const embedded = new Set(data.embedded);
  const canvas = html("canvas", { class: "map", role: "img", "aria-label": "Score of every group by iteration and rank" });
  const words = html("p", { class: "readout" }, "Point at a cell.");
  const marks = 8;
  let cellWidth = 4;
  let cellHeight = 8;

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const room = Math.max(200, canvas.parentElement.clientWidth);
    cellWidth = Math.max(2, Math.min(56, room / columns));
    cellHeight = Math.max(3, Math.min(16, 300 / rows));
    const [width, height] = [cellWidth * columns, cellHeight * rows + marks];
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const brush = canvas.getContext("2d");
    brush.scale(ratio, ratio);
    const gap = cellWidth > 5 ? 1 : 0;
    for (const cell of cells) {
      brush.globalAlpha = 0.15 + 0.85 * share(cell);
      brush.fillStyle = style.getPropertyValue(cell[KEPT] ? "--kept" : "--dropped");
      brush.fillRect(cell[ITERATION] * cellWidth, cell[RANK] * cellHeight, cellWidth - gap, cellHeight - gap);
    }
    brush.globalAlpha = 1;
    brush.fillStyle = style.getPropertyValue("--ink-soft");
    for (const iteration of embedded) brush.fillRect((iteration + 0.5) * cellWidth - 1.5, rows * cellHeight + 3, 3, 3);
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / cellWidth);
    const row = Math.floor((event.clientY - box.top) / cellHeight);
    return row < rows ? at.get(column * rows + row) : undefined;
  }

  canvas.addEventListener("pointermove", (event) => {
    const cell = under(event);
    canvas.style.cursor = cell && embedded.has(cell[ITERATION]) ? "pointer" : "default";
    if (cell) {
      words.textContent = `Iteration ${cell[ITERATION]}, group ${cell[GROUP]}: ${cell[KEPT] ? "kept" : "dropped"}, score ${number(cell[SCORE])}, `
        + `mean return ${number(cell[MEAN])}, success ${percent(cell[SUCCESS])}. ${data.reasons[cell[REASON]]}`;
    }
  });
  canvas.addEventListener("click", (event) => {
    const cell = under(event);
    if (cell && embedded.has(cell[ITERATION])) onSelect(cell[ITERATION], cell[GROUP]);
  });
  new ResizeObserver(draw).observe(document.getElementById("heatmap"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const legend = html("p", { class: "legend" },
    html("span", {}, html("i", { class: "scale kept" }), `kept, score ${number(lowest)} to ${number(highest)}`),
    html("span", {}, html("i", { class: "scale dropped" }), "dropped"),
    html("span", {}, html("i", { class: "dot" }), "trajectories are in this page"));
  return [legend, html("div", { class: "scroll" }, canvas), words];
}
