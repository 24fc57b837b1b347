// Chosen runs beside each other, drawn anew once one of them has got further.

const ASK_MS = 1000;
const AT_REST_MS = 5000;
const singly = document.getElementById("singly");
let data = JSON.parse(document.getElementById("page-data").textContent);

const refill = (id, ...parts) => document.getElementById(id).replaceChildren(...parts.flat(Infinity).filter(Boolean));
const runLink = (name) => html("a", { href: `/run/${encodeURIComponent(name)}` }, name);
const addressOf = (names) => `/compare?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`;
const points = (value) => signed(100 * value);
const coded = (text) => text.split("`").map((part, n) => (n % 2 ? html("code", {}, recorded(part)) : recorded(part)));

function success(at) {
  if (!at) return "";
  return [html("b", {}, percent(at.success)), " ", at.low === null ? null : html("span", { class: "muted interval" }, `${percent(at.low)} to ${percent(at.high)}`),
    html("div", { class: "muted" }, `after ${plural(at.updates, "update")}`)];
}

function difference({ difference: of, words }, index) {
  if (index === 0) return html("span", { class: "muted" }, "the others are compared with it");
  const isApart = of && (of.low > 0 || of.high < 0);
  return [of ? [html("b", { class: isApart ? (of.mean > 0 ? "ok" : "bad") : null }, `${points(of.mean)} points`), " ", html("span", { class: "muted interval" }, `${points(of.low)} to ${points(of.high)}`)] : null,
    html("div", { class: "muted" }, words)];
}

function runState(status) {
  if (!status) return "";
  const left = status.seconds_left ? ` · ${lasting(status.seconds_left)} left` : "";
  return [html("span", { class: `pill state ${status.state}` }, status.state), status.activity ? html("div", { class: "muted" }, status.activity, left) : null,
    status.fault || status.warning ? html("div", { class: status.fault ? "bad" : "warn" }, status.fault || status.warning) : null];
}

function row(run, index) {
  const status = data.status[run.run];
  const about = [run.preset, run.environment === run.preset ? null : run.environment, run.seed === null ? null : `seed ${run.seed}`].filter(Boolean).join(" · ");
  return { attributes: { "data-run": run.run }, cells: [
    [stroke(isOverSeeds() ? data.colours_over_seeds[index] : index), runLink(run.run), html("div", { class: "muted" }, about), index ? html("div", { class: "muted" }, html("a", { href: addressOf([run.run, ...data.runs.filter((name) => name !== run.run)]) }, "compare the others with it")) : null],
    runState(status), status && status.updates !== null ? count(status.updates) : "",
    success(run.first), run.last ? success(run.last) : html("span", { class: "muted" }, "not evaluated yet"), difference(run, index), run.num_states === null ? "" : count(run.num_states),
  ] };
}

const isOverSeeds = () => data.over_seeds !== null && !singly.checked;

function drawRows() {
  refill("rows", table(["Run", "State", "#Updates", "First evaluation", "Last evaluation", "Difference to the first run", "#States"], data.rows.map(row), { class: "stacked", "aria-label": "Success by run" }));
}

function drawCurves() {
  document.getElementById("seeds").hidden = !data.over_seeds;
  const panels = isOverSeeds() ? data.over_seeds : data.panels;
  const meanings = meaningsByMetric(data.glossary);
  refill("legend", curveLegend(panels, [], true));
  refill("panels", panels.length
    ? panels.map((panel) => lineChart(panel, Math.max(...panel.lines.flatMap((line) => line.raw.map((point) => point[0]))), { isByLine: true, meaning: meanings.get(panel.lines[0].metric), run: "compare", about: `Runs ${data.runs.join(", ")}` }))
    : html("p", { class: "muted" }, "None of these runs has measured anything yet."));
}

// A row a setting, a column a run.
function differing(what, rows) {
  return table([what, ...data.runs], rows.map(([name, ...values]) => [html("code", {}, name), ...values.map((value) => html("code", { class: "value" }, recorded(value)))]), { class: "compact differing", "aria-label": `${what}s that differ` });
}

function draw() {
  const title = data.runs.length === 1 ? "One run" : `Compare ${data.runs.length} runs`;
  document.title = `${title} · StarPO`;
  refill("title", title);
  refill("refused", data.refused.map((sentence) => html("p", { class: "failure" }, coded(sentence))),
    data.runs.length === 1 ? html("p", { class: "lead" }, "There is nothing to compare it with: choose two or more on the page of ", html("a", { href: "/" }, "all runs"), ".") : null);
  drawRows();
  drawCurves();
  const isAlone = data.runs.length === 1;
  refill("differing", data.settings.length ? differing("Setting", data.settings) : html("p", { class: "muted" }, isAlone ? "One run." : "No setting differs."));
  refill("code", data.code.length ? html("details", {}, html("summary", {}, `Code that differs: ${plural(data.code.length, "part")}`), html("p", { class: "lead" }, "Versions of stages, and digests of the code that settings name."), differing("Code", data.code)) : html("p", { class: "muted" }, isAlone ? "" : "They ran the same code."));
  refill("commands", data.commands.map((words) => copied(commandLine(words))));
}

async function ask(what) {
  const response = await fetch(`/compare/${what}${window.location.search}`);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

async function follow() {
  let wait = AT_REST_MS;
  const outdated = document.getElementById("outdated");
  try {
    const { version, status } = await ask("status");
    if (version !== data.version) {
      data = await ask("data");
      draw();
      document.documentElement.dataset.version = data.version;
    } else if (JSON.stringify(status) !== JSON.stringify(data.status)) {
      data.status = status;
      drawRows();
    }
    outdated.hidden = true;
    if (Object.values(status).some((of) => of.state === "running")) wait = ASK_MS;
  } catch (error) {
    outdated.hidden = false;
    outdated.textContent = `not up to date: ${error.message}`;
  }
  setTimeout(follow, wait);
}

singly.addEventListener("change", () => { drawRows(); drawCurves(); });
draw();
document.documentElement.dataset.ready = "#";
setTimeout(follow, ASK_MS);
