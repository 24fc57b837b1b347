// A live page: asks again and again whether the run has got further, and draws anew what has.

const ASK_MS = 1500; // an iteration is seen within two seconds of being stored
const AT_REST_MS = 5000;

// Neither needs a constant of this file: what the address names is asked for before it is run.
function locate(what, run) {
  return `${window.location.pathname.replace(/\/[^/]*\/?$/, "")}/${encodeURIComponent(run)}/${what}`;
}

async function ask(what, run = data.run) {
  const response = await fetch(locate(what, run));
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

function writeStatus(status) {
  const isAtWork = status.state === "running";
  const iterations = status.planned ? `${count(status.iterations)} of ${plural(status.planned, "iteration")}` : plural(status.iterations, "iteration");
  const left = isAtWork && status.seconds_left ? ` · ${lasting(status.seconds_left)} left` : "";
  const line = document.getElementById("activity");
  const words = [html("span", { class: `pill state ${status.state}` }, status.state), ` ${iterations}`, isAtWork && status.activity ? ` · ${status.activity}` : "", left];
  line.replaceChildren(...words, status.failure ? html("p", { class: "failure" }, "Failed: ", recorded(status.failure)) : "", status.warning ? html("p", { class: "failure" }, status.warning) : "", status.fault ? html("p", { class: "failure" }, status.fault) : "");
}

// What iterations before the last two have stored does not change any more.
async function takeNewer() {
  const since = Math.max(0, data.last_iteration - 2);
  const { images, metrics, panels, decisions, artifacts, origins, batches, ...newer } = await ask(`data?since=${since}`); // images come with trajectories
  const joined = (known, added, at) => [...known.filter((row) => row[at] < since), ...added];
  for (const [name, points] of Object.entries(metrics)) data.metrics[name] = joined(data.metrics[name] || [], points, 0);
  data.panels = panels.map((panel) => grownPanel(data.panels.find(({ title }) => title === panel.title), panel));
  data.decisions = joined(data.decisions, decisions, 0);
  const originAt = 11; // a row's place of its origin
  const places = origins.map(placeOfOrigin);
  data.artifacts = joined(data.artifacts, artifacts.map((row) => row.with(originAt, places[row[originAt]])), 0);
  data.batches = joined(data.batches, batches, "iteration");
  Object.assign(data, newer);
  return since;
}

// The plane is drawn by the server, which takes it 0.1 s: only for one who looks at it, and after another probe.
function drawPlane() {
  const image = document.getElementById("plane");
  const probes = data.metrics["reasoning/first_turn/token/mutual_information"] || [];
  const address = locate(`plane?probes=${probes.length}`, data.run);
  if (image && image.getAttribute("src") !== address) drawWhenSeen(image, () => image.setAttribute("src", address));
}

function grownPanel(known, panel) {
  const grown = (earlier, added) => (added.length ? [...earlier.filter(([x]) => x < added[0][0]), ...added] : earlier);
  const lines = panel.lines.map((line) => {
    const earlier = known?.lines.find(({ metric }) => metric === line.metric);
    return earlier ? { ...line, ...Object.fromEntries(["raw", "smooth", "band"].map((name) => [name, grown(earlier[name], line[name])])) } : line;
  });
  return { ...panel, lines };
}

function placeOfOrigin(origin) {
  const place = data.origins.findIndex((known) => Object.keys(known).every((name) => known[name] === origin[name]));
  return place < 0 ? data.origins.push(origin) - 1 : place;
}

async function follow() {
  document.body.classList.add("settled"); // what is out of view is not laid out either; its size is known by now
  if (document.hidden) { // in a tab behind others; asks again once it is in front
    document.addEventListener("visibilitychange", follow, { once: true });
    return;
  }
  let wait = ASK_MS;
  try {
    const status = await ask("status");
    wait = status.state === "running" ? ASK_MS : AT_REST_MS;
    if (status.version !== data.status.version) {
      if (status.version.split("-")[0] !== data.status.version.split("-")[0]) { // another run of this name
        window.location.reload();
        return;
      }
      const since = await takeNewer();
      data.status = { ...status, version: data.version };
      writeStatus(status);
      renew(since);
      drawPlane();
      document.documentElement.dataset.version = data.version;
      wait = Math.max(wait, 2000); // stages follow each other quickly, and the run needs the processor too
    } else writeStatus(status);
  } catch (error) {
    document.getElementById("activity").replaceChildren(html("span", { class: "pill warning" }, "not up to date"), ` ${error.message}`);
    wait = AT_REST_MS;
  }
  setTimeout(follow, wait);
}

writeStatus(data.status);
drawPlane();
setTimeout(follow, ASK_MS);
