// When signals of a collapse were raised, and for how long they held.

function timeline(signals, lastIteration) {
  if (!signals.length) return html("p", { class: "muted" }, "No signal of a collapse was ever raised.");
  const [width, left, right, row] = [900, 16, 16, 16];
  const end = Math.max(1, lastIteration);
  const x = (iteration) => left + ((width - left - right) * Math.min(iteration, end)) / end;
  const height = row * signals.length + 26;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "timeline", role: "img", "aria-label": "Signals over iterations" });
  picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: height - 20, y2: height - 20 }));
  for (const mark of wholeTicks(end, 10)) picture.append(svg("text", { class: "tick", x: x(mark), y: height - 6, "text-anchor": "middle" }, String(mark)));
  signals.forEach((signal, index) => {
    const until = signal.ended === null ? end : signal.ended;
    picture.append(svg("rect", { class: `bar ${signal.severity}`, x: x(signal.iteration), width: Math.max(4, x(until) - x(signal.iteration)), y: index * row + 3, height: row - 5, rx: 3 }));
  });
  const list = html("ul", { class: "signals" }, signals.map((signal) => html("li", {},
    html("span", { class: `pill ${signal.severity}` }, signal.severity),
    html("span", {}, html("a", { href: addressOf({ iteration: signal.iteration }) }, `iteration ${signal.iteration}`), `${signal.ended === null ? "" : ` to ${signal.ended}`}: ${signal.words}`))));
  return [picture, list];
}
