// The filter's decisions as a map (a column an iteration, a row a rank, colour the score, grey what was dropped), and
// as a table by iteration.

const [ITERATION, GROUP, RANK, SCORE, MEAN, SUCCESS, KEPT, REASON] = [0, 1, 2, 3, 4, 5, 6, 7]; // of a decision's row

function decisionsByIteration(decisions) {
  const byIteration = new Map();
  for (const row of decisions) {
    if (!byIteration.has(row[ITERATION])) byIteration.set(row[ITERATION], []);
    byIteration.get(row[ITERATION]).push(row);
  }
  return byIteration;
}

function decisionMap(data, embedded) {
  const cells = data.decisions;
  if (!cells.length) return html("p", { class: "muted" }, "No decision of the filter has been stored yet.");
  const rows = 1 + cells.reduce((most, c) => Math.max(most, c[RANK]), 0);
  const columns = 1 + cells.reduce((most, c) => Math.max(most, c[ITERATION]), 0);
  const highest = cells.reduce((most, c) => Math.max(most, c[SCORE]), 0) || 1;
  const lowest = cells.reduce((least, c) => Math.min(least, c[SCORE]), 0);
  const share = (cell) => (cell[SCORE] - lowest) / (highest - lowest || 1);
  const at = new Map(cells.map((c) => [c[ITERATION] * rows + c[RANK], c]));
  const canvas = html("canvas", { class: "map", role: "img", tabindex: "0", "aria-label": "Score of every group by iteration and rank. Arrow keys move from group to group, Enter opens one." });
  const words = html("p", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys.");
  const below = 22;
  let [cellWidth, cellHeight] = [4, 8];
  let present = null;

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const room = Math.max(200, canvas.parentElement.clientWidth);
    cellWidth = Math.max(2, Math.min(56, room / columns));
    cellHeight = Math.max(3, Math.min(16, 300 / rows));
    const [width, height] = [cellWidth * columns, cellHeight * rows + below];
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
    brush.font = "11px system-ui, sans-serif";
    brush.textAlign = "center";
    for (const mark of wholeTicks(columns - 1, Math.min(10, columns))) brush.fillText(String(mark), Math.max(4, (mark + 0.5) * cellWidth), height - 3);
    if (present) {
      brush.strokeStyle = style.getPropertyValue("--ink");
      brush.lineWidth = 2;
      brush.strokeRect(present[ITERATION] * cellWidth, present[RANK] * cellHeight, cellWidth - gap, cellHeight - gap);
    }
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / cellHeight);
    return row < rows ? at.get(Math.floor((event.clientX - box.left) / cellWidth) * rows + row) : undefined;
  }

  function point(cell) {
    present = cell;
    words.textContent = `Iteration ${cell[ITERATION]}, group ${cell[GROUP]}: ${cell[KEPT] ? "kept" : "dropped"}, score ${number(cell[SCORE])}, `
      + `mean return ${number(cell[MEAN])}, success ${percent(cell[SUCCESS])}. ${data.reasons[cell[REASON]]}`;
    draw();
  }

  const open = (cell) => goTo({ iteration: cell[ITERATION], group: cell[GROUP] });
  canvas.addEventListener("pointermove", (event) => {
    const cell = under(event);
    canvas.style.cursor = cell ? "pointer" : "default";
    if (cell && cell !== present) point(cell);
  });
  canvas.addEventListener("click", (event) => { const cell = under(event); if (cell) open(cell); });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && present) open(present);
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = present || cells[0];
    let [column, row] = [from[ITERATION] + (present ? step[0] : 0), from[RANK] + (present ? step[1] : 0)];
    while (step[0] && column >= 0 && column < columns && !at.has(column * rows + row)) column += step[0]; // iterations may be missing
    if (row >= 0 && row < rows && at.has(column * rows + row)) point(at.get(column * rows + row));
  });
  const replaced = new AbortController(); // a live page draws a new map
  const observer = new ResizeObserver(() => {
    if (canvas.isConnected) return draw();
    replaced.abort();
    return observer.disconnect();
  });
  observer.observe(document.getElementById("heatmap"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, { signal: replaced.signal });
  const legend = html("p", { class: "legend" },
    html("span", {}, html("i", { class: "scale kept" }), `kept, score ${number(lowest)} to ${number(highest)}`),
    html("span", {}, html("i", { class: "scale dropped" }), "dropped"),
    html("span", {}, html("i", { class: "dot" }), data.status ? "a rollout is stored" : "trajectories are in this page"));
  return [legend, html("div", { class: "scroll" }, canvas), words];
}

function decisionTable(data) {
  const span = (rows) => (rows.length ? `${number(Math.min(...rows.map((r) => r[SCORE])))} to ${number(Math.max(...rows.map((r) => r[SCORE])))}` : "none");
  const mean = (rows) => (rows.length ? percent(rows.reduce((sum, r) => sum + r[SUCCESS], 0) / rows.length) : "none");
  const rows = [...decisionsByIteration(data.decisions)].map(([iteration, groups]) => {
    const [kept, dropped] = [groups.filter((g) => g[KEPT]), groups.filter((g) => !g[KEPT])];
    const zero = dropped.filter((g) => data.reasons[g[REASON]].includes("zero variance")).length;
    return [html("a", { href: addressOf({ iteration }) }, String(iteration)), `${kept.length} of ${groups.length}`, span(kept), span(dropped), String(zero), mean(kept), mean(dropped)];
  });
  return table(["#Iteration", "#Kept", "#Scores kept", "#Scores dropped", "#Zero variance", "#Success kept", "#Success dropped"], rows, { class: "compact", "aria-label": "The filter's decisions by iteration" });
}
