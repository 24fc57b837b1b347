// Curves, the time line of signals, and the bars of stage times.

const COLOURS = 7;
const colour = (index) => `var(--series-${index % COLOURS})`;

function axis(panel) {
  const values = panel.lines.flatMap((line) => [...line.raw.map((p) => p[1]), ...line.band.flatMap((p) => [p[1], p[2]])]);
  if (panel.is_share) return { low: 0, high: 1, at: (v) => v, marks: [0, 0.25, 0.5, 0.75, 1], label: percent };
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (panel.is_log) {
    low = Math.floor(Math.log10(low) + 1e-9);
    high = Math.max(low + 1, Math.ceil(Math.log10(high) - 1e-9));
    const step = Math.max(1, Math.ceil((high - low) / 4));
    const marks = [];
    for (let n = low; n <= high; n += step) marks.push(10 ** n);
    return { low, high, at: Math.log10, marks, label: (v) => number(v, 2) };
  }
  if (low > 0 && low < 0.4 * high) low = 0;
  if (high - low < 1e-9) [low, high] = [low - Math.max(0.5, Math.abs(low) * 0.1), high + Math.max(0.5, Math.abs(high) * 0.1)];
  const room = 0.06 * (high - low);
  [low, high] = [low === 0 ? 0 : low - room, high + room];
  return { low, high, at: (v) => v, marks: ticks(low, high, 4), label: (v) => number(v) };
}

function lineChart(panel, lastIteration, signals) {
  const [width, height, left, right, top, bottom] = [380, 200, 46, 10, 8, 24];
  const vertical = axis(panel);
  const end = Math.max(1, lastIteration);
  const x = (iteration) => left + ((width - left - right) * iteration) / end;
  const y = (value) => height - bottom - ((height - top - bottom) * (vertical.at(value) - vertical.low)) / (vertical.high - vertical.low);
  const path = (points) => points.map((p, n) => `${n ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": panel.title });
  for (const mark of vertical.marks) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
    picture.append(svg("text", { class: "tick", x: left - 6, y: y(mark) + 3.5, "text-anchor": "end" }, vertical.label(mark)));
  }
  for (const mark of ticks(0, end, 5).filter((n) => Number.isInteger(n))) {
    picture.append(svg("text", { class: "tick", x: x(mark), y: height - 7, "text-anchor": "middle" }, String(mark)));
  }
  for (const signal of signals) {
    picture.append(svg("line", { class: `signal ${signal.severity}`, x1: x(signal.iteration), x2: x(signal.iteration), y1: top, y2: height - bottom }));
  }
  panel.lines.forEach((line, index) => {
    const style = `--line:${colour(index)}`;
    if (line.band.length > 1) {
      const upper = line.band.map((p) => [p[0], p[2]]);
      const lower = line.band.map((p) => [p[0], p[1]]).reverse();
      picture.append(svg("path", { class: "band", style, d: `${path(upper)}${path(lower).replace("M", "L")}Z` }));
    }
    picture.append(svg("path", { class: line.smooth.length ? "raw" : "smooth", style, d: path(line.raw) }));
    if (line.smooth.length) picture.append(svg("path", { class: "smooth", style, d: path(line.smooth) }));
    else line.raw.forEach((p) => {
      const interval = line.band.find((b) => b[0] === p[0]);
      if (interval) picture.append(svg("line", { class: "whisker", style, x1: x(p[0]), x2: x(p[0]), y1: y(interval[1]), y2: y(interval[2]) }));
      picture.append(svg("circle", { class: "point", style, cx: x(p[0]), cy: y(p[1]), r: 2.6 }));
    });
  });
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  picture.append(cursor);
  const readout = html("p", { class: "readout" }, panel.note || "\u00a0");
  const write = panel.is_share ? percent : number;
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const wanted = ((((event.clientX - box.left) / box.width) * width - left) / (width - left - right)) * end;
    const nearest = panel.lines.flatMap((l) => l.raw.map((p) => p[0])).reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a));
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x(nearest));
    cursor.setAttribute("x2", x(nearest));
    const said = panel.lines.map((line) => {
      const at = line.raw.findIndex((p) => p[0] === nearest);
      if (at < 0) return null;
      const band = line.band.find((p) => p[0] === nearest);
      const extra = band ? ` (${write(band[1])} to ${write(band[2])})` : line.smooth.length ? `, average ${write(line.smooth[at][1])}` : "";
      return `${panel.lines.length > 1 ? `${line.label} ` : ""}${write(line.raw[at][1])}${extra}`;
    });
    readout.textContent = `${nearest}: ${said.filter(Boolean).join(" · ")}`;
  });
  picture.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = panel.note || "\u00a0";
  });
  const legend = panel.lines.length > 1
    ? html("p", { class: "legend" }, panel.lines.map((line, index) => html("span", {}, html("i", { style: `background:${colour(index)}` }), line.label)))
    : null;
  return html("figure", { class: "panel" }, html("h3", {}, panel.title), readout, picture, legend);
}

function timeline(signals, lastIteration) {
  if (!signals.length) return html("p", { class: "muted" }, "No signal of a collapse was ever raised.");
  const [width, left, right, row] = [900, 16, 16, 16];
  const end = Math.max(1, lastIteration);
  const x = (iteration) => left + ((width - left - right) * Math.min(iteration, end)) / end;
  const height = row * signals.length + 26;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "timeline", role: "img", "aria-label": "Signals over iterations" });
  picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: height - 20, y2: height - 20 }));
  for (const mark of ticks(0, end, 10).filter((n) => Number.isInteger(n))) {
    picture.append(svg("text", { class: "tick", x: x(mark), y: height - 6, "text-anchor": "middle" }, String(mark)));
  }
  signals.forEach((signal, index) => {
    const until = signal.ended === null ? end : signal.ended;
    picture.append(svg("rect", { class: `bar ${signal.severity}`, x: x(signal.iteration), width: Math.max(4, x(until) - x(signal.iteration)), y: index * row + 3, height: row - 5, rx: 3 }));
  });
  const list = html("ul", { class: "signals" }, signals.map((signal) => html("li", {},
    html("span", { class: `pill ${signal.severity}` }, signal.severity),
    html("span", {}, `iteration ${signal.iteration}${signal.ended === null ? "" : ` to ${signal.ended}`}: ${signal.words}`))));
  return [picture, list];
}

function stageBars(stageSeconds, lastIteration) {
  const [width, height, left, bottom, top] = [560, 220, 46, 24, 8];
  const stages = Object.keys(stageSeconds);
  const isOnce = (stage) => stageSeconds[stage].length === 1 && lastIteration > 1; // it would dwarf all others
  const totals = new Map();
  for (const stage of stages) if (!isOnce(stage)) for (const [iteration, seconds] of stageSeconds[stage]) totals.set(iteration, (totals.get(iteration) || 0) + seconds);
  if (!totals.size) return html("p", { class: "muted" }, "No stage has been stored yet.");
  const high = Math.max(...totals.values()) * 1.05 || 1;
  const slot = (width - left - 8) / (lastIteration + 1);
  const y = (seconds) => height - bottom - ((height - top - bottom) * seconds) / high;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Seconds of each stage by iteration" });
  for (const mark of ticks(0, high, 4)) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - 8, y1: y(mark), y2: y(mark) }));
    picture.append(svg("text", { class: "tick", x: left - 6, y: y(mark) + 3.5, "text-anchor": "end" }, `${number(mark)} s`));
  }
  for (const mark of ticks(0, Math.max(1, lastIteration), 8).filter((n) => Number.isInteger(n) && n <= lastIteration)) {
    picture.append(svg("text", { class: "tick", x: left + (mark + 0.5) * slot, y: height - 7, "text-anchor": "middle" }, String(mark)));
  }
  const reached = new Map();
  stages.forEach((stage, index) => {
    for (const [iteration, seconds] of isOnce(stage) ? [] : stageSeconds[stage]) {
      const from = reached.get(iteration) || 0;
      reached.set(iteration, from + seconds);
      picture.append(svg("rect", { x: left + iteration * slot + slot * 0.1, width: slot * 0.8, y: y(from + seconds), height: Math.max(0, y(from) - y(from + seconds)), fill: colour(index) },
        svg("title", {}, `iteration ${iteration}, ${stage}: ${number(seconds)} s`)));
    }
  });
  return picture;
}
