// Seconds of every stage, a bar an iteration.

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
  for (const mark of wholeTicks(lastIteration, 8)) picture.append(svg("text", { class: "tick", x: left + (mark + 0.5) * slot, y: height - 7, "text-anchor": "middle" }, String(mark)));
  const reached = new Map();
  stages.forEach((stage, index) => {
    for (const [iteration, seconds] of isOnce(stage) ? [] : stageSeconds[stage]) {
      const from = reached.get(iteration) || 0;
      reached.set(iteration, from + seconds);
      picture.append(svg("rect", { x: left + iteration * slot + slot * 0.1, width: slot * 0.8, y: y(from + seconds), height: Math.max(0, y(from) - y(from + seconds)), fill: stageColour(index) },
        svg("title", {}, `iteration ${iteration}, ${stage}: ${number(seconds)} s`)));
    }
  });
  return picture;
}

// More stages than colours: those of the second round are mixed with the background.
const stageColour = (index) => (index < COLOURS ? colour(index) : `color-mix(in srgb, ${colour(index)} 45%, var(--card))`);
