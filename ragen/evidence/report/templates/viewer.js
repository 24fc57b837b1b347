// The trajectory viewer: a rollout or an evaluation, one of its groups, one of its members, turn by turn.

const STEPS = { j: ["trajectory", 1], k: ["trajectory", -1], J: ["group", 1], K: ["group", -1], n: ["failure", 1], "]": ["iteration", 1], "[": ["iteration", -1] };
const OF_BASE_RUN = " of the base run"; // of an evaluation's name: one end of a replay

function viewer(container, data, batches) {
  let iterations = [];
  const iterationChoice = html("select", { "aria-label": "Iteration of the trajectories" });
  const sourceChoice = html("select", { "aria-label": "Training rollout or evaluation" });
  const groupChoice = html("select", { "aria-label": "Group" });
  const groupLabel = html("label", { class: "wide" }, "Group ", groupChoice);
  const sameState = new SameState(data, batches);
  const besideChoice = html("select", { "aria-label": "Trajectory of the same state to show beside" });
  const besideLabel = html("label", {}, "Beside it ", besideChoice);
  const members = html("div", { class: "members", role: "group", "aria-label": "Members" });
  const about = html("p", { class: "about" });
  const heading = html("h3", { class: "trajectory-title", tabindex: "-1" });
  const facts = html("div", {});
  const origin = html("div", {});
  const sameLine = html("p", { class: "muted elsewhere" });
  const stage = html("div", { class: "trajectory" });
  let present = null; // of the address
  let shown = null; // the batch on the page
  let film = null;
  const keys = html("p", { class: "muted keys" }, [["j", "k"], ["J", "K"], ["[", "]"], ["n"]].map((names, n) => [n ? " · " : "", names.map((name) => html("button", { type: "button", class: "key", onclick: () => step(...STEPS[name]), "aria-label": `${STEPS[name][1] > 0 ? "next" : "previous"} ${STEPS[name][0]}` }, name)), ` ${["trajectory", "group", "iteration", "next failure"][n]}`]));
  const shade = shadeChoice(stage);

  const cellOf = (place) => (place.source === null || place.source === TRAINING ? null : place.source);

  function read() {
    iterations = [...new Set(batches.all.map((b) => b.iteration))].sort((a, b) => a - b);
    const chosen = iterationChoice.value;
    iterationChoice.replaceChildren(...iterations.map((i) => html("option", { value: i }, String(i))));
    if (chosen) iterationChoice.value = chosen;
    if (!batches.all.length) container.replaceChildren(html("p", { class: "muted" }, "No trajectory has been stored yet."));
    else if (container.firstElementChild !== parts[0]) container.replaceChildren(...parts);
  }

  // What is looked at stays, unless there was nothing to look at.
  function renew() {
    read();
    if (!shown && present && batches.all.length) show(readAddress(window.location.hash) || { ...present, iteration: batches.rollouts[0]?.iteration ?? present.iteration });
  }

  async function show(wanted) {
    present = wanted;
    shown = null;
    const batch = batches.find(wanted.iteration, cellOf(wanted));
    if (!batch) return absent(wanted);
    const isOf = (group) => group.members.find((m) => m.id === wanted.trajectory);
    let groups, group, trajectory;
    try {
      groups = await batches.groups(batch, wanted);
      group = groups.find((g) => (wanted.trajectory ? isOf(g) : g.id === wanted.group)) || groups.find((g) => g.id === wanted.group) || groups[0];
      trajectory = isOf(group) || group.members[0];
      if (trajectory) trajectory = await batches.whole(batch, group, trajectory);
    } catch (error) {
      return absent(wanted, error.message);
    }
    if (present !== wanted) return undefined;
    const side = { batch, group, member: trajectory };
    const other = trajectory && wanted.beside ? await sameState.find(wanted.beside, side) : null;
    if (present !== wanted) return undefined;
    shown = batch;
    choices(batch, groups, group);
    about.replaceChildren(...[wanted.trajectory && !isOf(group) ? html("b", {}, `There is no trajectory ${wanted.trajectory} in this page; the first is shown. `) : null, group.reason, other?.reason ? html("b", {}, ` What the address names to stand beside it cannot be shown: ${other.reason}.`) : null].filter(Boolean));
    const largest = Math.max(1e-9, ...groups.flatMap((g) => g.members.map((m) => Math.abs(m.sample ? m.sample.advantage : 0))));
    members.replaceChildren(...group.members.map((m) => memberButton(batch, group, m, m === trajectory)));
    if (trajectory) open(side, other?.member ? other : null, largest);
    return revealMember();
  }

  // Only the members scroll: the page stays where its reader is.
  function revealMember() {
    const chosen = members.querySelector("[aria-current]");
    if (chosen) members.scrollTop = chosen.offsetTop - members.offsetTop - (members.clientHeight - chosen.offsetHeight) / 2;
  }

  // From what is shown to another trajectory, group or iteration; "failure" goes over groups, and then over iterations,
  // to the next that failed.
  async function step(what, by) {
    if (!shown) return;
    const batch = shown;
    const membersOf = async (b) => (await batches.groups(b)).flatMap((group) => group.members.map((member) => ({ batch: b, group, member })));
    const isFailure = ({ member }) => member.success === false;
    const groups = await batches.groups(batch);
    const all = await membersOf(batch);
    const at = all.findIndex(({ member }) => member.id === stage.dataset.id);
    const alike = batches.all.filter((b) => b.cell === batch.cell).sort((a, b) => a.iteration - b.iteration);
    let next = {
      trajectory: () => all[at + by],
      group: () => all.find(({ group }) => group === groups[groups.indexOf(all[at].group) + by]),
      failure: () => all.slice(at + 1).find(isFailure),
      iteration: () => null,
    }[what]();
    for (const later of what === "failure" ? alike.slice(alike.indexOf(batch) + 1) : []) next ??= (await membersOf(later)).find(isFailure);
    if (shown !== batch) return;
    if (next) goTo({ iteration: next.batch.iteration, source: sourceOf(next.batch), trajectory: next.member.id, beside: sameState.following(present.beside, next) });
    else if (what === "failure") about.replaceChildren("No failure follows.");
    const other = what === "iteration" ? alike[alike.indexOf(batch) + by] : null;
    if (other) goTo({ iteration: other.iteration, source: sourceOf(other) });
  }

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, .player, canvas, svg, .tokens");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = STEPS[event.key];
    if (act) step(...act);
  });

  function absent(wanted, reason = "") {
    const of = cellOf(wanted) ? `the evaluation ${cellOf(wanted)}` : "the rollout";
    iterationChoice.selectedIndex = iterations.indexOf(wanted.iteration);
    members.replaceChildren();
    facts.replaceChildren();
    sameLine.replaceChildren();
    origin.replaceChildren();
    stage.replaceChildren();
    heading.textContent = `Iteration ${wanted.iteration}`;
    if (data.status) { // the page is live: it has all that is stored
      about.replaceChildren(`The trajectories of ${of} at iteration ${wanted.iteration} cannot be shown: ${reason || "they are not stored, or not yet"}.`);
      return;
    }
    about.replaceChildren(`The trajectories of ${of} at iteration ${wanted.iteration} are not in this page. They are in the store, if there are any: `,
      html("code", {}, `starpo report ${data.run} --embed ${wanted.iteration}`), " adds those of its rollout to this page.");
  }

  function choices(batch, groups, group) {
    iterationChoice.value = batch.iteration;
    const sources = batches.all.filter((b) => b.iteration === batch.iteration);
    sourceChoice.replaceChildren(...sources.map((b) => html("option", { value: sourceOf(b), selected: b === batch }, b.cell === null ? "training rollout" : `evaluation: ${b.cell}`)));
    groupLabel.hidden = batch.cell !== null;
    groupChoice.replaceChildren(...groups.map((g) => html("option", { value: g.id, selected: g === group },
      `${g.id} · ${g.kept === null ? "undecided" : g.kept ? "kept" : "dropped"} · score ${number(g.score)} · success ${percent(g.success)}`)));
  }

  function memberButton(batch, group, member, isPresent) {
    const label = batch.cell === null ? [html("b", {}, String(member.member)), ` ${number(member.return)}`] : [member.id.replace(/^p0*(\d+)-0$/, "$1").replace(/^p0*(\d)/, "$1")];
    return html("a", {
      class: `member ${member.success ? "success" : ""} ${member.valid ? "" : "invalid"}`, "aria-current": isPresent ? "true" : null, "data-id": member.id,
      href: addressOf({ iteration: batch.iteration, source: batch.cell, trajectory: member.id, beside: sameState.following(present.beside, { batch, group, member }) }),
      title: `${member.id}: return ${number(member.return)}, ${outcomeOf(member)}${member.valid ? "" : ", excluded from statistics"}`,
    }, label, html("span", { class: "sr" }, ` ${outcomeOf(member)}`));
  }

  function open(side, other, largest) {
    const { batch, group, member } = side;
    const here = { iteration: batch.iteration, source: batch.cell, trajectory: member.id, beside: other && present.beside };
    stage.dataset.id = member.id;
    heading.textContent = batch.cell === null ? `Iteration ${batch.iteration}, trajectory ${member.id}` : `Evaluation ${batch.cell} after ${plural(batch.updates, "update")}, episode ${member.id}`;
    if (other) heading.textContent += ` beside ${other.batch.run ? `that of ${other.batch.run} at iteration ${other.batch.iteration}` : other.batch === batch ? other.member.id : `that of iteration ${other.batch.iteration}`}`;
    facts.replaceChildren(...(other ? [] : [trajectoryFacts(member, group)]));
    origin.replaceChildren(whereFrom(data, artifactsOf(batch)), inTerminal(commandsOf(batch, member)));
    const sides = [side, other].filter(Boolean);
    if (other && !other.batch.run) sides.sort((one, next) => one.batch.iteration - next.batch.iteration); // before, then after
    const noted = sides.map((s) => trainedFacts(s, largest));
    const cards = sides.map((s, n) => turnCards(s.member, noted[n], (turn, action) => film?.show(turn, action)));
    film = player(sides.map((s) => s.member), (n, turn, action) => cards[n].mark(turn, action), sides.map(noPictures));
    stage.classList.toggle("pair", other !== null);
    stage.classList.toggle("plain", other === null && film === null);
    const isChat = member.turns.some((turn) => turn.chat);
    stage.replaceChildren(...(other ? pairElements(sides, cards, film, here) : [
      film ? film.element : isChat || noPictures(side) === group.reason ? null : html("p", { class: "muted" }, noPictures(side)),
      html("div", { class: "turns" }, cards[0].turns)].filter(Boolean)));
    shade.offer(sides.map((s, n) => ({ turns: s.member.turns, ...noted[n] })));
    if (present.turn !== null) {
      const target = stage.querySelector(`.parting[data-turn="${present.turn}"]`) ?? cards[sides.indexOf(side)].turns[present.turn];
      target?.scrollIntoView({ block: "center" });
      if (film) film.show(present.turn, 0);
    }
    offerBeside(side, other, here);
  }

  // Of an episode whose turns are not stored, the texts have no status.
  const noPictures = ({ group, member }) => (member.turns.some(({ status }) => status) ? `No pictures: ${data.why_not_drawn}.` : group.reason);
  const stageOf = (cell) => (cell.endsWith(OF_BASE_RUN) ? `evaluate_base:${cell.slice(0, -OF_BASE_RUN.length)}` : `evaluate:${cell}`);
  const artifactsOf = ({ iteration, cell }) => data.artifacts.filter((row) => row[AT] === iteration && (cell === null ? row[KIND] === "turns" : row[KIND] === "episodes" && row[STAGE] === stageOf(cell)));
  // What holds the turns of an evaluation's episodes; older evaluations have the episodes alone.
  const turnsOf = (row) => data.artifacts.find((other) => other[AT] === row[AT] && other[STAGE] === row[STAGE] && other[KIND] === "episode_turns") ?? row;

  function commandsOf(batch, member) {
    const ofStore = ["--store", data.store];
    const artifacts = artifactsOf(batch);
    const shown = batch.cell === null ? [["starpo", "show", data.run, "--iteration", batch.iteration, "--trajectory", member.id, "--prompts", ...ofStore]]
      : artifacts.map(turnsOf).map((row) => ["starpo", "sql", data.run, `select * from ${row[KIND]} where iteration = ${batch.iteration} and artifact = '${row[KEY]}' and env_seed = ${member.seed} and member = ${member.id.split("-").pop()}${row[KIND] === "episode_turns" ? " order by turn" : ""}`, ...ofStore]);
    return [...shown, ...artifacts.map((row) => ["starpo", "lineage", `${row[KIND]}/${row[KEY]}`, ...ofStore])];
  }

  // A trajectory's turns. They point into the film, which marks where it is.
  function turnCards(trajectory, { trained }, onFrame) {
    const turns = trajectory.turns.map((_, n) => turnCard(trajectory.turns, n, trained, onFrame, n === trajectory.decided ? (trajectory.success ? "won" : "lost") : null));
    const mark = (turn, action) => turns.forEach((card, n) => {
      card.classList.toggle("current", n === turn);
      card.querySelectorAll(".frame").forEach((frame, a) => frame.classList.toggle("current", n === turn && a === action));
    });
    return { turns, mark };
  }

  // What the update noted of a trajectory as a whole, and why its tokens may lack numbers.
  function trainedFacts({ batch, group, member }, largest) {
    const hasLogprobs = member.turns.some((turn) => turn.surprisals.length);
    const isUnused = group.kept === false || (group.kept && !member.valid);
    const lacks = [hasLogprobs ? null : "log-probabilities were not recorded",
      member.turns.some((turn) => turn.trained) ? null : member.sample ? "this update stored means over the trajectory alone, which stand above; with diagnostics.should_store_tokens = true it stores each token's" : isUnused ? "the update did not train on it" : batch.cell === null ? "no update on it is stored" : "no update trained on it, as it is an evaluation"];
    return { trained: member.sample ? { advantage: member.sample.advantage, masked: data.loss_on === "all" ? 0 : null, largest } : isUnused ? { advantage: null, masked: 1, largest } : null, lacks: lacks.filter(Boolean) };
  }

  // Who could stand beside it: members of its group; the same episode of a panel, which is fixed, at other checkpoints
  // and in other runs.
  async function offerBeside(side, other, here) {
    const wanted = present;
    const offered = [];
    const words = ({ success, return: value }) => `${outcomeOf({ success })} · return ${number(value)}`;
    const offer = (label, options) => {
      if (options.length) offered.push(html("optgroup", { label }, options.map(([value, text]) => html("option", { value, selected: other !== null && value === present.beside }, text))));
      besideLabel.hidden = !offered.length;
      besideChoice.replaceChildren(html("option", { value: "" }, "nobody"), ...offered);
    };
    const peers = sameState.members(side);
    const opposite = peers.find((m) => m.success !== null && side.member.success !== null && m.success !== side.member.success);
    offer("Members of its group", peers.map((m) => [m.id, `${m.id} · ${words(m)}`]));
    if (opposite && !other) about.append(" ", html("a", { class: "contrast", href: addressOf({ ...here, beside: opposite.id }) }, side.member.success ? "Show it beside a failure" : "Show it beside a success"), ".");
    sameLine.replaceChildren();
    if (side.batch.cell === null) return;
    try {
      const checkpoints = await sameState.checkpoints(side);
      if (present !== wanted) return;
      const others = checkpoints.episodes.filter((episode) => episode.iteration !== side.batch.iteration);
      offer("Other checkpoints", others.map((episode) => [besideOf(episode), `iteration ${episode.iteration} · ${words(episode)}`]));
      sameLine.replaceChildren(...checkpointLine(side, checkpoints, here));
      const runs = await sameState.otherRuns(side);
      const ofOther = other?.batch.run ? await sameState.checkpoints(other) : { episodes: [] };
      if (present !== wanted) return;
      if (runs.unread.length) sameLine.append(` Not all other runs can be read: ${runs.unread.join(", ")}.`);
      offer("Other runs", runs.episodes.filter(({ run }) => run !== other?.batch.run).map((episode) => [besideOf(episode), `${episode.run}, iteration ${episode.iteration} · ${words(episode)}`]));
      offer(other?.batch.run, ofOther.episodes.map((episode) => [besideOf({ ...episode, run: other.batch.run }), `${other.batch.run}, iteration ${episode.iteration} · ${words(episode)}`]));
    } catch (error) {
      if (present === wanted) sameLine.append(` What else began in this state is not known: ${error.message}`);
    }
  }

  function checkpointLine({ batch, member }, { episodes, unread }, here) {
    const links = episodes.map((episode) => html("a", { class: episode.success ? "gain" : "", "aria-current": episode.iteration === batch.iteration ? "true" : null,
      href: addressOf({ ...here, iteration: episode.iteration, trajectory: episode.trajectory }) }, `${episode.iteration} ${outcomeOf(episode)}`));
    const at = (episode) => episode && episode.iteration !== batch.iteration && episode;
    const far = at(episodes[0]) || at(episodes[episodes.length - 1]);
    return [html("span", { class: "checkpoints" }, "The same prompt, by iteration: ", links.flatMap((link, n) => (n ? [" · ", link] : [link]))), unread.length ? ` · cannot be read: ${unread.join(", ")}` : "",
      ...(far && present.beside !== besideOf(far) ? [". ", html("a", { class: "contrast", href: addressOf({ ...here, beside: besideOf(far) }) }, `Show it beside the ${far === episodes[0] ? "first" : "last"} checkpoint's`), "."] : [])];
  }

  iterationChoice.addEventListener("change", () => {
    const iteration = Number(iterationChoice.value);
    const same = batches.find(iteration, cellOf(present)) || batches.all.find((b) => b.iteration === iteration);
    goTo({ iteration, source: sourceOf(same) });
  });
  sourceChoice.addEventListener("change", () => goTo({ iteration: Number(iterationChoice.value), source: sourceChoice.value }));
  besideChoice.addEventListener("change", () => goTo({ iteration: Number(iterationChoice.value), source: sourceChoice.value, trajectory: members.querySelector("[aria-current]").dataset.id, beside: besideChoice.value || null }));
  groupChoice.addEventListener("change", () => goTo({ iteration: Number(iterationChoice.value), group: groupChoice.value }));
  const parts = [
    html("div", { class: "controls" }, html("label", {}, "Iteration ", iterationChoice), html("label", {}, "From ", sourceChoice), groupLabel, besideLabel),
    about, members, heading, facts, sameLine, origin, keys, shade.element, stage];
  read();
  return { show, renew };
}
