// Curves over iterations. A panel's cursor follows the pointer, or the arrow keys once the picture has the focus.

const COLOURS = 7;
const colour = (index) => `var(--series-${index % COLOURS})`;
const shade = (line, index) => line.colour ?? index;
const stroke = (index) => html("i", { class: `stroke${index < COLOURS ? "" : " dashed"}`, style: `--line:${colour(index)}` });

function axis(panel) {
  const values = panel.lines.flatMap((line) => [...line.raw.map((p) => p[1]), ...line.band.flatMap((p) => [p[1], p[2]])]);
  if (panel.is_share) return { low: Math.min(0, ...values), high: 1, at: (v) => v, marks: [0, 0.25, 0.5, 0.75, 1], label: percent };
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
  // what differs in the fourth digit alone is drawn flat
  if (high - low < Math.max(1e-9, 1e-3 * Math.max(-low, high))) [low, high] = [low - Math.max(0.5, Math.abs(low) * 0.1), high + Math.max(0.5, Math.abs(high) * 0.1)];
  const room = 0.06 * (high - low);
  [low, high] = [low === 0 ? 0 : low - room, high + room];
  const marks = ticks(low, high, 4);
  const digits = [3, 4, 5].find((n) => new Set(marks.map((mark) => number(mark, n))).size === marks.length);
  return { low, high, at: (v) => v, marks, label: (v) => number(v, digits) };
}

// options: signals, onSelect(iteration), meaning (an entry of the glossary); run and about, the name and the description of
// what is saved; isByLine: values are written by line beneath the picture, for lines of many runs.
// A line may have a colour of its own, and a band that is the range of several runs (is_range).
function lineChart(panel, lastIteration, { signals = [], onSelect = null, meaning = null, run = "", about = `Run ${run}`, isByLine = false } = {}) {
  const [width, height, left, right, top, bottom] = [380, 200, 46, 10, 8, 24];
  const vertical = axis(panel);
  const end = Math.max(1, lastIteration);
  const x = (iteration) => left + ((width - left - right) * iteration) / end;
  const y = (value) => height - bottom - ((height - top - bottom) * (vertical.at(value) - vertical.low)) / (vertical.high - vertical.low);
  const path = (points) => points.map((p, n) => `${n ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": `${panel.title}. ${panel.note}. Arrow keys read the values.` });
  for (const mark of vertical.marks) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
    picture.append(svg("text", { class: "tick", x: left - 6, y: y(mark) + 3.5, "text-anchor": "end" }, vertical.label(mark)));
  }
  for (const mark of wholeTicks(end, 5)) picture.append(svg("text", { class: "tick", x: x(mark), y: height - 7, "text-anchor": "middle" }, String(mark)));
  for (const signal of signals) {
    picture.append(svg("line", { class: `signal ${signal.severity}`, x1: x(signal.iteration), x2: x(signal.iteration), y1: top, y2: height - bottom }));
  }
  // Points of several lines at one iteration, with whiskers, are set beside each other, as there is room.
  const most = Math.max(...panel.lines.map((line) => line.raw.length));
  const step = isByLine ? Math.min(4, (0.6 * (width - left - right)) / most / panel.lines.length) : 0;
  panel.lines.forEach((line, index) => {
    const style = `--line:${colour(shade(line, index))}`;
    const [hasArea, hasWhiskers] = [isArea(panel, line), isWhiskered(panel, line, isByLine)];
    const aside = hasWhiskers && !hasArea ? (index - (panel.lines.length - 1) / 2) * step : 0;
    const parts = svg("g", { class: shade(line, index) < COLOURS ? null : "dashed", transform: aside ? `translate(${aside.toFixed(1)} 0)` : null });
    if (hasArea) {
      const upper = line.band.map((p) => [p[0], p[2]]);
      const lower = line.band.map((p) => [p[0], p[1]]).reverse();
      parts.append(svg("path", { class: "band", style, d: `${path(upper)}${path(lower).replace("M", "L")}Z` }));
    }
    const isSmooth = line.smooth.length > 0;
    if (isJoined(line)) parts.append(svg("path", { class: "joined", style, d: path(line.raw) }));
    // One element for all whiskers or points of a line: a page that grows draws them again and again.
    if (hasWhiskers) parts.append(svg("path", { class: "whisker", style, d: line.band.map((p) => `${path([p])}V${y(p[2]).toFixed(1)}`).join("") }));
    parts.append(svg("path", { class: isSmooth ? "point measured" : "point", style, d: line.raw.map((p) => `${path([p])}h0`).join("") }));
    if (isSmooth) parts.append(svg("path", { class: "smooth", style, d: path(line.smooth) }));
    picture.append(parts);
  });
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  picture.append(cursor);
  const readout = html("p", { class: "readout", "aria-live": "polite" }, panel.note || "\u00a0");
  const values = panel.lines.map(() => html("span", { class: "value" }));
  const write = panel.is_share ? percent : number;
  const measured = [...new Set(panel.lines.flatMap((line) => line.raw.map((p) => p[0])))].sort((a, b) => a - b);
  let present = null;

  function point(iteration) {
    present = iteration;
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x(iteration));
    cursor.setAttribute("x2", x(iteration));
    const words = panel.lines.map((line) => valueAt(line, iteration));
    values.forEach((place, index) => { place.textContent = words[index] ?? "–"; });
    const named = words.map((text, index) => (text === null ? null : `${panel.lines.length > 1 ? `${panel.lines[index].label} ` : ""}${text}`));
    readout.textContent = isByLine ? `iteration ${iteration}` : `${iteration}: ${named.filter(Boolean).join(" · ")}`;
  }

  function valueAt(line, iteration) {
    const at = line.raw.find((p) => p[0] === iteration);
    if (!at) return null;
    const band = line.band.find((p) => p[0] === iteration);
    const mean = line.smooth.find((p) => p[0] === iteration);
    return `${write(at[1])}${band ? ` (${write(band[1])} to ${write(band[2])})` : ""}${mean ? `, smoothed ${write(mean[1])}` : ""}`;
  }

  function leave() {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = panel.note || "\u00a0";
    values.forEach((place, index) => { place.textContent = `last ${write(panel.lines[index].raw.at(-1)[1])}`; });
  }

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const wanted = ((((event.clientX - box.left) / box.width) * width - left) / (width - left - right)) * end;
    point(measured.reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a)));
  });
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("blur", leave);
  picture.addEventListener("click", () => { if (onSelect && present !== null) onSelect(present); });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && onSelect && present !== null) onSelect(present);
    if (step === undefined) return;
    event.preventDefault();
    const at = measured.indexOf(present);
    point(measured[Math.max(0, Math.min(measured.length - 1, (at < 0 ? (step > 0 ? -1 : measured.length) : at) + step))]);
  });
  leave();
  const byLine = () => html("ul", { class: "by-line", "aria-live": "polite" }, panel.lines.map((line, index) => html("li", {}, stroke(shade(line, index)), html("span", { class: "of", title: line.label }, line.label), values[index])));
  const legend = isByLine ? byLine() : panel.lines.length > 1
    ? html("p", { class: "legend" }, panel.lines.map((line, index) => html("span", {}, stroke(shade(line, index)), line.label)))
    : null;
  const id = `what-${panel.lines[0].metric.replace(/[^a-z0-9]+/gi, "-")}`;
  const [question, words] = panelMeaning(panel, meaning, id);
  if (words) picture.setAttribute("aria-describedby", id);
  const take = (ending, type, make) => html("button", { type: "button", "aria-label": `Save ${panel.title} as ${ending}`, onclick: () => save(fileName(run, panel.title, ending.toLowerCase()), type, make()) }, ending);
  return html("figure", { class: onSelect ? "panel leads" : "panel" },
    html("div", { class: "panel-head" }, html("h3", { title: inShort(meaning) }, panel.title), question,
      take("SVG", "image/svg+xml", () => figureText(panel, picture, about, marksOf([panel], signals, isByLine))), take("CSV", "text/csv", () => csv(panelRows(panel)))),
    words, readout, picture, legend);
}
