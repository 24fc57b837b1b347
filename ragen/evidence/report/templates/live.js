// A live page: asks every second whether the run has got further, and draws anew what has.

const ASK_MS = 1000;
const AT_REST_MS = 5000;

// The first trajectories are asked for before this file has run: it may use no constant of this file.
async function ask(what) {
  const response = await fetch(`${window.location.pathname.replace(/\/$/, "")}/${what}`);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

function writeStatus(status) {
  const isAtWork = status.state === "running";
  const done = status.planned ? `${count(status.iterations)} of ${plural(status.planned, "iteration")}` : plural(status.iterations, "iteration");
  const left = isAtWork && status.seconds_left ? ` · ${lasting(status.seconds_left)} left` : "";
  const line = document.getElementById("activity");
  const words = [html("span", { class: `pill state ${status.state}` }, status.state), ` ${done}`, isAtWork && status.activity ? ` · ${status.activity}` : "", left];
  line.replaceChildren(...words, status.warning ? html("p", { class: "failure" }, status.warning) : "", status.fault ? html("p", { class: "failure" }, status.fault) : "");
}



async function follow() {
  let wait = ASK_MS;
  try {
    const status = await ask("status");
    writeStatus(status);
    if (status.version !== data.status.version) {
      const { images, ...newer } = await ask("data"); // images are kept: they come with trajectories
      Object.assign(data, newer);
      data.status = { ...status, version: data.version };
      renew();
      document.documentElement.dataset.version = data.version;
    }
    wait = status.state === "running" ? ASK_MS : AT_REST_MS;
  } catch (error) {
    document.getElementById("activity").replaceChildren(html("span", { class: "pill warning" }, "not up to date"), ` ${error.message}`);
    wait = AT_REST_MS;
  }
  setTimeout(follow, wait);
}

writeStatus(data.status);
setTimeout(follow, ASK_MS);
