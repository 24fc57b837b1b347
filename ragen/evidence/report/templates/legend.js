// What points, lines, bands and dashes stand for: one legend of what is drawn, for all panels or for a saved figure.

const MARKS = {
  measured: ["measured", () => [svg("path", { class: "point", d: "M11 6h0" })]],
  joined: ["joins measured points", () => [svg("path", { class: "joined", d: "M1 6H21" })]],
  smooth: ["smoothed over five points", () => [svg("path", { class: "smooth", d: "M1 6H21" })]],
  interval: ["95% interval", () => [svg("path", { class: "band", d: "M1 1H21V11H1Z" }), svg("line", { class: "whisker", x1: 11, x2: 11, y1: 1, y2: 11 })]],
  range: ["from the lowest seed to the highest", () => [svg("path", { class: "band", d: "M1 1H21V11H1Z" })]],
  warning: ["upright: a warning was raised", () => [svg("line", { class: "signal warning", x1: 1, x2: 21, y1: 6, y2: 6 })]],
  collapse: ["upright: a collapse or standstill was raised", () => [svg("line", { class: "signal collapse", x1: 1, x2: 21, y1: 6, y2: 6 })]],
};

const NEUTRAL = "--line:var(--ink-soft)"; // marks are of lines of any colour
const isJoined = (line) => !line.smooth.length && line.raw.length > 2; // two points are no curve
const isBanded = (line) => line.band.length > 2;
// Intervals of several lines, as areas, would mix their colours.
const isArea = (panel, line) => isBanded(line) && (line.is_range || panel.lines.filter(isBanded).length === 1);

function isWhiskered(panel, line, isByLine) {
  const hasRoom = !isByLine || Math.max(...panel.lines.map((one) => one.raw.length)) * panel.lines.length <= 80;
  return hasRoom && line.band.length > 0 && !line.smooth.length && !line.is_range;
}

function marksOf(panels, signals, isByLine) {
  const lines = panels.flatMap((panel) => panel.lines.map((line) => ({ line, hasArea: isArea(panel, line), hasWhiskers: isWhiskered(panel, line, isByLine) })));
  const isDrawn = {
    measured: lines.length > 0,
    joined: lines.some(({ line }) => isJoined(line)),
    smooth: lines.some(({ line }) => line.smooth.length),
    interval: lines.some(({ line, hasArea, hasWhiskers }) => hasWhiskers || (hasArea && !line.is_range)),
    range: lines.some(({ line, hasArea }) => hasArea && line.is_range),
    warning: signals.some((signal) => signal.severity === "warning"),
    collapse: signals.some((signal) => signal.severity !== "warning"),
  };
  return Object.entries(MARKS).filter(([name]) => isDrawn[name]).map(([, [words, draw]]) => ({ words, draw }));
}

function curveLegend(panels, signals = [], isByLine = false) {
  return marksOf(panels, signals, isByLine).map(({ words, draw }) => html("span", {},
    svg("svg", { class: "mark", viewBox: "0 0 22 12", "aria-hidden": "true", style: NEUTRAL }, draw()), words));
}
