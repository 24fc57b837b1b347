// Last and peak success of every run with their 95% intervals, one row a run.

function successPlot(runs) {
  const evaluated = runs.filter((run) => run.last);
  if (!evaluated.length) return html("p", { class: "muted" }, "No evaluation of these runs is stored.");
  const [width, left, right, row] = [620, 12, 12, 44];
  const height = row * evaluated.length + 24;
  const x = (share) => left + (width - left - right) * share;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Last and peak success of every run with 95% intervals; the numbers are in the table" });
  for (const mark of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(svg("line", { class: "grid", x1: x(mark), x2: x(mark), y1: 0, y2: height - 20 }));
    picture.append(svg("text", { class: "tick", x: x(mark), y: height - 5, "text-anchor": mark === 0 ? "start" : mark === 1 ? "end" : "middle" }, percent(mark)));
  }
  evaluated.forEach((run, n) => {
    const style = `--line:${colour(runs.indexOf(run))}`;
    const y = n * row + 12;
    const parts = svg("g", { "data-line": run.name });
    parts.append(svg("text", { class: "label", x: left, y: y + 2 }, run.name));
    for (const [name, point, at] of [["last", run.last, y + 12], ["peak", run.peak, y + 22]]) {
      parts.append(svg("line", { class: `interval ${name}`, style, x1: x(point.low), x2: x(point.high), y1: at, y2: at }));
      parts.append(svg("circle", { class: `mark ${name}`, style, cx: x(point.value), cy: at, r: 4 }, svg("title", {}, `${run.name}, ${name}: ${percent(point.value)} (${percent(point.low)} to ${percent(point.high)}) after ${plural(point.updates, "update")}`)));
    }
    picture.append(parts);
  });
  return [picture, html("p", { class: "legend" }, "Filled: last. Hollow: peak, the highest of several measurements and so biased upwards.")];
}
