// All runs of a store: what changed is asked for every second while one of them trains, and at once while others are
// still to be read.

const ASK_MS = 1000;
const AT_REST_MS = 5000;
const MOST_DRAWN = 200;
const MOST_COMPARED = 12;
const FILTERS = { text: "filter", state: "state", environment: "environment" }; // field of the address -> its control
const control = (name) => document.getElementById(FILTERS[name]);
const checked = new Set(); // names of runs to compare
const byName = new Map(); // name -> facts
let runs = []; // the same, newest first
let lastAnswer = 0; // its number
let numUnread = 0;

// Success on the panel at every evaluated checkpoint, from 0 to 1.
function curve(points) {
  if (points.length < 2) return null;
  const [width, height] = [120, 28];
  const last = points[points.length - 1].iteration - points[0].iteration || 1;
  const x = (point) => 2 + ((width - 4) * (point.iteration - points[0].iteration)) / last;
  const y = (value) => 2 + (height - 4) * (1 - value);
  const line = points.map((point, n) => `${n ? "L" : "M"}${x(point).toFixed(1)} ${y(point.success).toFixed(1)}`).join("");
  const band = [...points.map((p) => [x(p), y(p.high)]), ...points.map((p) => [x(p), y(p.low)]).reverse()];
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", role: "img", "aria-label": `Success from ${percent(points[0].success)} to ${percent(points[points.length - 1].success)}` },
    svg("path", { class: "band", style: "--line:var(--series-0)", d: `${band.map((p, n) => `${n ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("")}Z` }),
    svg("path", { class: "joined", style: "--line:var(--series-0)", d: line }));
}

function success(run) {
  if (!run.curve.length) return html("span", { class: "muted" }, "not evaluated yet");
  const last = run.curve[run.curve.length - 1];
  return [html("b", {}, percent(last.success)), html("span", { class: "muted" }, ` ${percent(last.low)} to ${percent(last.high)}`), run.curve.length > 1 ? html("span", { class: "muted" }, `, from ${percent(run.success_first)}`) : null];
}

function progress(run) {
  if (run.iterations === null) return "";
  const iterations = run.planned ? `${count(run.iterations)} of ${count(run.planned)}` : count(run.iterations);
  const updates = run.updates === run.iterations ? null : html("span", { class: "muted" }, `, ${plural(run.updates, "update")}`);
  return [iterations, updates, run.activity ? html("div", { class: "muted" }, run.activity, run.seconds_left ? ` · ${lasting(run.seconds_left)} left` : "") : null];
}

function row(run) {
  const failure = run.fault || run.failure.split("\n")[0];
  const trouble = failure || run.warning;
  const choice = html("input", { type: "checkbox", "aria-label": `Compare ${run.run}`, checked: checked.has(run.run), autocomplete: "off", onchange: (event) => choose(run.run, event.target.checked) });
  return { attributes: { "data-run": run.run }, cells: [
    choice,
    [html("a", { href: `/run/${encodeURIComponent(run.run)}` }, run.run), trouble ? html("div", { class: failure ? "bad" : "warn" }, trouble) : null],
    html("span", { class: `pill state ${run.state}` }, run.state),
    run.environment || "", [run.preset || "", run.flow && run.flow !== "starpo" ? html("span", { class: "muted" }, ` ${run.flow}`) : null],
    progress(run), success(run), curve(run.curve),
    run.hours === null ? "" : lasting(3600 * run.hours), run.created ? html("span", { class: "muted" }, run.created.slice(0, 16).replace("T", " ")) : "",
  ] };
}

function choose(run, isChecked) {
  if (isChecked) checked.add(run);
  else checked.delete(run);
  drawButton();
}

function drawButton() {
  const names = runs.map((run) => run.run).filter((name) => checked.has(name)).reverse(); // the oldest is what the others are compared with
  const button = document.getElementById("compare");
  const isPossible = names.length > 1 && names.length <= MOST_COMPARED;
  button.textContent = names.length ? `Compare ${names.length}` : "Compare";
  button.title = isPossible ? "" : names.length < 2 ? "Choose two or more runs" : `At most ${MOST_COMPARED} runs can be compared at once`;
  if (isPossible) button.href = `/compare?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`;
  else button.removeAttribute("href");
}

// Offers the values that occur, and the chosen one even if none has it. An open list is left alone unless they change.
function offer(name) {
  const select = control(name);
  const values = [...new Set([...runs.map((run) => run[name]), select.value])].filter(Boolean).sort();
  const known = [...select.options].map((option) => option.value).filter(Boolean);
  if (select.options.length && values.join("\n") === known.join("\n")) return;
  const { value } = select;
  select.replaceChildren(html("option", { value: "" }, "any"), ...values.map((one) => html("option", { value: one, selected: one === value }, one)));
}

// The filters stand in the page's address: #text=bandit&state=running&environment=sokoban
function writeAddress() {
  const given = Object.keys(FILTERS).filter((name) => control(name).value);
  const fields = new URLSearchParams(given.map((name) => [name, control(name).value]));
  window.history.replaceState(null, "", given.length ? `#${fields}` : window.location.pathname);
}

function readAddress() {
  const fields = new URLSearchParams(window.location.hash.replace(/^#/, ""));
  for (const name of Object.keys(FILTERS)) {
    const wanted = fields.get(name) || "";
    if (name !== "text" && wanted) control(name).append(html("option", { value: wanted }, wanted));
    control(name).value = wanted;
  }
  draw();
}

function draw() {
  for (const name of ["state", "environment"]) offer(name);
  const words = control("text").value.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = runs.filter((run) => words.every((word) => `${run.run} ${run.preset} ${run.state} ${run.flow} ${run.environment}`.toLowerCase().includes(word))
    && ["state", "environment"].every((name) => !control(name).value || run[name] === control(name).value));
  const drawn = chosen.slice(0, MOST_DRAWN);
  const place = document.getElementById("runs");
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const [kind, ofRun] = [focused?.tagName, focused?.closest("tr")?.dataset.run];
  place.replaceChildren(drawn.length
    ? table(["", "Run", "State", "Environment", "Preset", "Iterations", "Success on its panel", "", "#Time", "Begun, UTC"], drawn.map(row), { class: "stacked", "aria-label": "Runs" })
    : html("p", { class: "muted" }, runs.length ? "No run matches these filters." : "There are no runs yet: starpo train sokoban makes one."));
  if (ofRun) [...place.querySelectorAll("tr")].find((one) => one.dataset.run === ofRun)?.querySelector(kind)?.focus({ preventScroll: true });
  drawButton();
  document.getElementById("counted").textContent = `${chosen.length === runs.length ? plural(runs.length, "run") : `${count(chosen.length)} of ${plural(runs.length, "run")}`}${drawn.length < chosen.length ? `, the newest ${MOST_DRAWN} are shown` : ""}${numUnread ? `, ${count(numUnread)} more are being read` : ""}`;
}

// Takes an answer of the server; false if nothing has changed.
function accept(answer) {
  if (answer.is_whole) byName.clear();
  for (const run of answer.rows) byName.set(run.run, run);
  for (const name of answer.gone) byName.delete(name);
  const hasChanged = answer.is_whole || answer.rows.length > 0 || answer.gone.length > 0 || answer.num_unread !== numUnread;
  [lastAnswer, numUnread] = [answer.number, answer.num_unread];
  const place = (run) => `${run.created ?? ""} ${run.run}`;
  if (hasChanged) runs = [...byName.values()].map((run) => [place(run), run]).sort(([a], [b]) => (a < b ? 1 : -1)).map(([, run]) => run);
  return hasChanged;
}

async function follow() {
  let wait = AT_REST_MS;
  try {
    const response = await fetch(`/runs?since=${lastAnswer}`);
    if (!response.ok) throw new Error(await response.text());
    if (accept(await response.json())) draw();
    if (runs.some((run) => run.state === "running")) wait = ASK_MS;
    if (numUnread) wait = 0;
  } catch (error) {
    document.getElementById("counted").textContent = `not up to date: ${error.message}`;
  }
  setTimeout(follow, wait);
}

for (const name of Object.keys(FILTERS)) control(name).addEventListener("input", () => { writeAddress(); draw(); });
window.addEventListener("hashchange", readAddress);
accept(JSON.parse(document.getElementById("page-data").textContent));
readAddress();
setTimeout(follow, numUnread ? 0 : ASK_MS);
