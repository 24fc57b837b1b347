"use strict";
// Elements are made of text and attributes only: nothing that came from a model is ever parsed as HTML.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
const put = (id, parts) => document.getElementById(id).append(...[parts].flat(Infinity).filter(Boolean));

function number(value, digits = 3) {
  if (value === null || value === undefined) return "none";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(1).replace("-", "−").replace("e-", "e−");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

const percent = (value) => (value === null || value === undefined ? "none" : `${Number((100 * value).toPrecision(3))}%`);
const signed = (value) => (value === null || value === undefined ? "none" : `${value > 0 ? "+" : ""}${number(value)}`);
const count = (value) => value.toLocaleString("en");
const plural = (value, noun, many = `${noun}s`) => `${count(value)} ${value === 1 ? noun : many}`;

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const marks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) marks.push(Number((n * step).toPrecision(12)));
  return marks;
}

const wholeTicks = (end, wanted) => ticks(0, Math.max(1, end), wanted).filter((n) => Number.isInteger(n) && n <= end);

function table(headings, rows, attributes = {}) {
  const cell = (name, heading, content) => html(name, { class: heading.startsWith("#") ? "number" : null, scope: name === "th" ? "col" : null, "data-label": name === "td" ? heading.replace("#", "") : null }, content);
  return html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": attributes["aria-label"] }, html("table", attributes,
    html("thead", {}, html("tr", {}, headings.map((heading) => cell("th", heading, heading.replace("#", ""))))),
    html("tbody", {}, rows.map((row) => html("tr", row.attributes || {}, (row.cells || row).map((content, n) => cell("td", headings[n], content)))))));
}
