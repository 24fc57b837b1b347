// The trajectory viewer: choose an iteration, a group and a member; every turn with its boards, or search all text.

const MOST_FOUND = 100;

async function unpack(iteration) {
  const packed = document.getElementById(`iteration-${iteration}`).textContent;
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function viewer(container, embedded) {
  if (!embedded.length) {
    container.append(html("p", { class: "muted" }, "No iteration with turns, rewards and a selection has been stored yet."));
    return { show() {} };
  }
  const opened = new Map();
  const groupsOf = async (iteration) => {
    if (!opened.has(iteration)) opened.set(iteration, await unpack(iteration));
    return opened.get(iteration);
  };
  const iterationChoice = html("select", { "aria-label": "Iteration" }, embedded.map((i) => html("option", { value: i }, String(i))));
  const groupChoice = html("select", { "aria-label": "Group" });
  const members = html("div", { class: "members", role: "group", "aria-label": "Members" });
  const about = html("p", { class: "about" });
  const turns = html("div", { class: "turns" });
  const found = html("div", { class: "found" });
  const query = html("input", { type: "search", placeholder: "Search observations, responses, actions, status", "aria-label": "Search", autocomplete: "off", spellcheck: "false" });
  let present = { iteration: embedded[0], group: null, member: 0, query: "" };

  async function show(iteration, groupId = null, member = 0, turn = null) {
    const groups = await groupsOf(iteration);
    const group = groups.find((g) => g.id === groupId) || groups[0];
    const trajectory = group.members.find((m) => m.member === member) || group.members[0];
    present = { ...present, iteration, group: group.id, member: trajectory ? trajectory.member : 0 };
    iterationChoice.value = iteration;
    groupChoice.replaceChildren(...groups.map((g) => html("option", { value: g.id, selected: g === group },
      `${g.id} · ${g.kept ? "kept" : "dropped"} · score ${number(g.score)} · success ${percent(g.success)}`)));
    about.textContent = group.reason;
    members.replaceChildren(...group.members.map((m) => html("button", {
      type: "button", class: `member ${m.success ? "success" : ""} ${m.valid ? "" : "invalid"}`, "aria-pressed": String(m === trajectory),
      title: `${m.id}: return ${number(m.return)}${m.success ? ", success" : ""}${m.valid ? "" : ", in no statistic"}`,
      onclick: () => show(iteration, group.id, m.member),
    }, html("b", {}, String(m.member)), ` ${number(m.return)}`)));
    turns.replaceChildren(...(trajectory ? trajectory.turns.map(turnCard) : []));
    if (turn !== null && turns.children[turn]) turns.children[turn].scrollIntoView({ block: "center" });
  }

  async function search() {
    const wanted = query.value.trim().toLowerCase();
    present.query = wanted;
    if (!wanted) return found.replaceChildren();
    const hits = [];
    let count = 0;
    for (const iteration of embedded) {
      for (const group of await groupsOf(iteration)) for (const member of group.members) member.turns.forEach((turn, index) => {
        const place = [turn.response, turn.observation, turn.executed.join(" || "), turn.status].find((text) => text.toLowerCase().includes(wanted));
        if (place === undefined) return;
        count += 1;
        if (hits.length < MOST_FOUND) hits.push({ iteration, group: group.id, member: member.member, turn: index, place });
      });
      if (present.query !== wanted) return undefined;
    }
    return found.replaceChildren(
      html("p", { class: "muted" }, count ? `${count} turns${count > hits.length ? `, the first ${hits.length} are shown` : ""}` : "Nothing found in the trajectories of this page."),
      ...hits.map((hit) => html("button", { type: "button", class: "hit", onclick: () => show(hit.iteration, hit.group, hit.member, hit.turn) },
        html("small", {}, `iteration ${hit.iteration} · ${hit.group} · member ${hit.member} · turn ${hit.turn + 1}`), html("code", {}, excerpt(hit.place, wanted)))));
  }

  iterationChoice.addEventListener("change", () => show(Number(iterationChoice.value)));
  groupChoice.addEventListener("change", () => show(present.iteration, groupChoice.value));
  let waiting = 0;
  query.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 200); });
  container.append(
    html("div", { class: "controls" },
      html("label", {}, "Iteration ", iterationChoice), html("label", { class: "wide" }, "Group ", groupChoice), html("label", { class: "wide" }, "Search ", query)),
    found, about, members, turns);
  return { show };
}

function excerpt(text, wanted) {
  const at = text.toLowerCase().indexOf(wanted);
  const [from, to] = [Math.max(0, at - 40), at + wanted.length];
  return [`${from ? "…" : ""}${text.slice(from, at)}`, html("mark", {}, text.slice(at, to)), `${text.slice(to, to + 60)}${text.length > to + 60 ? "…" : ""}`];
}

function turnCard(turn, index) {
  const strip = turn.frames.map((frame, step) => html("figure", { class: "frame" },
    board(frame, step ? `after ${turn.executed[step - 1]}` : "before the turn"),
    html("figcaption", {}, step ? [`${turn.executed[step - 1]} `, html("span", { class: turn.rewards[step - 1] > 0 ? "gain" : "muted" }, signed(turn.rewards[step - 1]))] : "before")));
  const unknown = turn.named.slice(turn.executed.length);
  const notes = [
    turn.forfeited ? `${turn.forfeited} actions forfeited` : null,
    turn.finish === "length" ? "cut at the longest response" : null,
    unknown.length ? `not carried out: ${unknown.join(" || ")}` : null,
  ].filter(Boolean);
  const parts = Object.entries(turn.components).filter(([, value]) => value !== 0).map(([name, value]) => `${name} ${signed(value)}`);
  return html("article", { class: "turn" },
    html("header", {}, html("h3", {}, `Turn ${index + 1}`), html("span", { class: `pill ${turn.status}` }, turn.status.replace("_", " ")),
      html("span", { class: "reward" }, `reward ${signed(turn.total)}`), html("span", { class: "muted" }, [...parts, `${turn.left} actions left before`, ...notes].join(" · "))),
    html("div", { class: "strip" }, strip),
    html("div", { class: "texts" },
      text("Observation", turn.observation),
      turn.think === null ? null : text("Think", turn.think),
      turn.answer === null ? text("Response as it was", turn.response) : text("Answer", turn.answer)));
}

const text = (title, content) => html("div", {}, html("h4", {}, title), html("pre", {}, content === "" ? "(empty)" : content));
const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${number(Math.abs(value))}`;
