// What points, lines, bands and dashes stand for: one legend of what is drawn, for all panels or for a saved figure.

const MARKS = {
  measured: ["measured", () => [svg("circle", { class: "point", cx: 11, cy: 6, r: 2.6 })]],
  joined: ["joins measured points", () => [svg("path", { class: "joined", d: "M1 6H21" })]],
  smooth: ["smoothed over five points", () => [svg("path", { class: "smooth", d: "M1 6H21" })]],
  interval: ["95% interval", () => [svg("path", { class: "band", d: "M1 1H21V11H1Z" }), svg("line", { class: "whisker", x1: 11, x2: 11, y1: 1, y2: 11 })]],
  warning: ["upright: a warning was raised", () => [svg("line", { class: "signal warning", x1: 1, x2: 21, y1: 6, y2: 6 })]],
  collapse: ["upright: a collapse or standstill was raised", () => [svg("line", { class: "signal collapse", x1: 1, x2: 21, y1: 6, y2: 6 })]],
};

const NEUTRAL = "--line:var(--ink-soft)"; // marks are of lines of any colour
const hasBand = (panel) => panel.lines.filter((line) => line.band.length > 2).length === 1; // several would mix their colours
const hasWhiskers = (line) => line.band.length > 0 && !line.smooth.length;
const isJoined = (line) => !line.smooth.length && line.raw.length > 2; // two points are no curve

function marksOf(panels, signals) {
  const lines = panels.flatMap((panel) => panel.lines);
  const isDrawn = {
    measured: lines.length > 0,
    joined: lines.some(isJoined),
    smooth: lines.some((line) => line.smooth.length),
    interval: panels.some(hasBand) || lines.some(hasWhiskers),
    warning: signals.some((signal) => signal.severity === "warning"),
    collapse: signals.some((signal) => signal.severity !== "warning"),
  };
  return Object.entries(MARKS).filter(([name]) => isDrawn[name]).map(([, [words, draw]]) => ({ words, draw }));
}

function curveLegend(panels, signals) {
  return marksOf(panels, signals).map(({ words, draw }) => html("span", {},
    svg("svg", { class: "mark", viewBox: "0 0 22 12", "aria-hidden": "true", style: NEUTRAL }, draw()), words));
}
