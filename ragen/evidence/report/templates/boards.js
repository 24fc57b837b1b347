// Pictures of states. A frame is {kind, text} for worlds of tiles and {kind: "arms", ...} for the bandit.

const TILES = {
  sokoban: { "#": ["wall"], _: [], O: ["target"], X: ["box"], "√": ["target", "box-home"], P: ["player"], S: ["target", "player"] },
  frozen_lake: { P: ["ice", "player"], _: ["ice"], O: ["ice", "hole"], G: ["ice", "goal"], X: ["ice", "hole", "drowned"], "√": ["ice", "goal", "player"] },
};

const SHAPES = {
  wall: (x, y) => [svg("rect", { class: "t-wall", x, y, width: 10, height: 10 }), svg("path", { class: "t-mortar", d: `M${x} ${y + 5}h10M${x + 3} ${y}v5M${x + 7} ${y + 5}v5` })],
  ice: (x, y) => [svg("rect", { class: "t-ice", x: x + 0.25, y: y + 0.25, width: 9.5, height: 9.5, rx: 1 })],
  target: (x, y) => [svg("circle", { class: "t-target", cx: x + 5, cy: y + 5, r: 2.7 }), svg("circle", { class: "t-target-dot", cx: x + 5, cy: y + 5, r: 0.9 })],
  box: (x, y) => [svg("rect", { class: "t-box", x: x + 1.2, y: y + 1.2, width: 7.6, height: 7.6, rx: 1 }), svg("path", { class: "t-plank", d: `M${x + 2.2} ${y + 2.2}l5.6 5.6m0-5.6l-5.6 5.6` })],
  "box-home": (x, y) => [svg("rect", { class: "t-box home", x: x + 1.2, y: y + 1.2, width: 7.6, height: 7.6, rx: 1 }), svg("path", { class: "t-tick", d: `M${x + 3} ${y + 5.2}l1.5 1.6 2.8-3.4` })],
  player: (x, y) => [svg("circle", { class: "t-player", cx: x + 5, cy: y + 3.3, r: 1.9 }), svg("path", { class: "t-player", d: `M${x + 1.9} ${y + 9}c0-4.6 6.2-4.6 6.2 0z` })],
  hole: (x, y) => [svg("ellipse", { class: "t-hole", cx: x + 5, cy: y + 5, rx: 3.7, ry: 3.4 })],
  drowned: (x, y) => [svg("path", { class: "t-drowned", d: `M${x + 3.2} ${y + 3.2}l3.6 3.6m0-3.6l-3.6 3.6` })],
  goal: (x, y) => [svg("path", { class: "t-pole", d: `M${x + 3} ${y + 1.5}v7.5` }), svg("path", { class: "t-flag", d: `M${x + 3.3} ${y + 1.5}l4.6 1.9-4.6 1.9z` })],
};

function board(frame, label) {
  if (frame.kind === "arms") return arms(frame);
  const tiles = TILES[frame.kind];
  if (!tiles) return html("pre", { class: "plain", dir: "ltr" }, recorded(frame.text));
  const rows = frame.text.split("\n").map((row) => Array.from(row));
  const picture = svg("svg", { class: `board ${frame.kind}`, viewBox: `0 0 ${10 * rows[0].length} ${10 * rows.length}`, role: "img", "aria-label": `${label}\n${frame.text}` });
  rows.forEach((row, r) => row.forEach((symbol, c) => {
    for (const shape of tiles[symbol] || []) picture.append(...SHAPES[shape](10 * c, 10 * r));
  }));
  return picture;
}

function arms(frame) {
  return html("div", { class: "arms" }, frame.arms.map((name) => html("div", { class: name === frame.pulled ? "arm pulled" : "arm" },
    name, name === frame.pulled ? html("small", {}, `pays ${number(frame.paid)}`) : null)));
}
