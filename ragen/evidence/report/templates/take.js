// Figures and tables to take away: a panel as an SVG file that needs no style sheet, on white, and as CSV; all metrics as
// CSV. Files are made in the page and saved from it; nothing is asked of a server.

const STYLED = { fill: "rgb(0, 0, 0)", stroke: "none", opacity: "1" }; // and what SVG takes without them
const OF_STROKES = { "stroke-width": "1px", "stroke-dasharray": "none", "stroke-linecap": "butt", "stroke-linejoin": "miter" };
const OF_TEXT = { "font-size": null, "font-weight": "400" };
const FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif";

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

const fileName = (run, what, ending) => `${run}-${what.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.${ending}`;

// A table program must not take a text for a formula.
function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

function panelRows(panel) {
  const rows = panel.lines.flatMap((line) => {
    const [bands, means] = [new Map(line.band.map((p) => [p[0], p])), new Map(line.smooth)];
    return line.raw.map(([iteration, value]) => [iteration, line.label, line.metric, value, bands.get(iteration)?.[1], bands.get(iteration)?.[2], means.get(iteration)]);
  });
  return [["iteration", "line", "metric", "value", "low", "high", "smoothed"], ...rows];
}

function metricRows(metrics) {
  const names = Object.keys(metrics);
  const columns = names.map((name) => new Map(metrics[name]));
  const iterations = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
  return [["iteration", ...names], ...iterations.map((iteration) => [iteration, ...columns.map((column) => column.get(iteration))])];
}

// The drawing of a panel with title, unit, axis and legend, as the text of an SVG file.
function figureText(panel, picture, about, marks) {
  const [width, height] = picture.getAttribute("viewBox").split(" ").slice(2).map(Number);
  const figure = svg("svg", { width, "font-family": FONT }, svg("title", {}, panel.title), svg("desc", {}, `${about}. Drawn by StarPO.`));
  const paper = html("div", { class: "on-paper" }, figure);
  document.body.append(paper); // styles and widths exist only there
  const background = svg("rect", { class: "ground", width });
  figure.append(background);
  const write = (x, y, name, text) => {
    const element = svg("text", { class: name, x, y }, text);
    figure.append(element);
    return element;
  };
  let down = 18;
  const paragraph = (name, words, step) => {
    let line = write(8, down, name, "");
    for (const word of words.split(" ")) {
      const before = line.textContent;
      line.textContent = before ? `${before} ${word}` : word;
      if (!before || line.getComputedTextLength() <= width - 16) continue;
      line.textContent = before;
      down += step;
      line = write(8, down, name, word);
    }
    down += step;
  };
  paragraph("figure-title", panel.title, 15);
  if (panel.note) paragraph("tick", panel.note, 13);
  const drawing = svg("g", { transform: `translate(0 ${down - 8})` }, ...[...picture.cloneNode(true).children].filter((child) => !child.classList.contains("cursor")));
  figure.append(drawing);
  down += height;
  write(width / 2, down, "tick", "iterations done").setAttribute("text-anchor", "middle");
  down += 18;
  const isNamed = panel.lines.length > 1 || panel.lines[0].colour !== undefined; // else the title names it
  const ofLines = isNamed ? panel.lines.map((line, index) => ({ words: line.label, style: `--line:${colour(shade(line, index))}`, name: shade(line, index) < COLOURS ? null : "dashed", draw: MARKS.smooth[1] })) : [];
  let across = 8;
  for (const { words, draw, style, name } of [...ofLines, ...marks]) {
    const text = write(0, 0, "tick", words);
    const size = 28 + text.getComputedTextLength();
    if (across > 8 && across + size > width - 8) [across, down] = [8, down + 16];
    text.setAttribute("x", across + 26);
    text.setAttribute("y", down);
    figure.append(svg("g", { class: name, transform: `translate(${across} ${down - 10})`, style: style || NEUTRAL }, draw()));
    across += size + 12;
  }
  down += 10;
  for (const element of [figure, background]) element.setAttribute("height", down);
  figure.setAttribute("viewBox", `0 0 ${width} ${down}`);
  for (const element of figure.querySelectorAll("rect, line, path, circle, text")) {
    const style = getComputedStyle(element);
    const wanted = { ...STYLED, ...(style.stroke === "none" ? {} : OF_STROKES), ...(element.tagName === "text" ? OF_TEXT : {}) };
    for (const [name, usual] of Object.entries(wanted)) {
      const value = style.getPropertyValue(name);
      if (value !== usual) element.setAttribute(name, value.replaceAll("px", ""));
    }
  }
  for (const element of figure.querySelectorAll("[class], [style]")) for (const name of ["class", "style"]) element.removeAttribute(name);
  paper.remove();
  return new XMLSerializer().serializeToString(figure);
}
