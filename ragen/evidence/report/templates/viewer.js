// The trajectory viewer: a rollout or an evaluation, one of its groups, one of its members, turn by turn.

function viewer(container, data, batches) {
  let iterations = [];
  const iterationChoice = html("select", { "aria-label": "Iteration of the trajectories" });
  const sourceChoice = html("select", { "aria-label": "Training rollout or evaluation" });
  const groupChoice = html("select", { "aria-label": "Group" });
  const groupLabel = html("label", { class: "wide" }, "Group ", groupChoice);
  const besideChoice = html("select", { "aria-label": "Member to show beside" });
  const besideLabel = html("label", {}, "Beside it ", besideChoice);
  const members = html("div", { class: "members", role: "group", "aria-label": "Members" });
  const about = html("p", { class: "about" });
  const heading = html("h3", { class: "trajectory-title", tabindex: "-1" });
  const facts = html("div", {});
  const elsewhere = html("p", { class: "muted elsewhere" });
  const stage = html("div", { class: "trajectory" });
  let present = null; // of the address
  let shown = null; // the batch on the page
  let film = null;
  const keys = html("p", { class: "muted keys" }, [["j", "k"], ["J", "K"], ["[", "]"], ["n"]].map((names, n) => [n ? " · " : "", names.map((name) => html("kbd", {}, name)), ` ${["trajectory", "group", "iteration", "next failure"][n]}`]));
  const shade = shadeChoice(() => {});

  const cellOf = (place) => (place.source === null || place.source === TRAINING ? null : place.source);

  function read() {
    iterations = [...new Set(batches.all.map((b) => b.iteration))].sort((a, b) => a - b);
    const chosen = iterationChoice.value;
    iterationChoice.replaceChildren(...iterations.map((i) => html("option", { value: i }, String(i))));
    if (chosen) iterationChoice.value = chosen;
    container.replaceChildren(...(batches.all.length ? parts : [html("p", { class: "muted" }, "No trajectory has been stored yet.")]));
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
    let groups;
    try {
      groups = await batches.groups(batch);
    } catch (error) {
      return absent(wanted, error.message);
    }
    if (present !== wanted) return undefined;
    shown = batch;
    const isOf = (group) => group.members.find((m) => m.id === wanted.trajectory);
    const group = groups.find((g) => (wanted.trajectory ? isOf(g) : g.id === wanted.group)) || groups.find((g) => g.id === wanted.group) || groups[0];
    const trajectory = isOf(group) || group.members[0];
    choices(batch, groups, group);
    about.replaceChildren(...[wanted.trajectory && !isOf(group) ? html("b", {}, `There is no trajectory ${wanted.trajectory} in this page; the first is shown. `) : null, group.reason].filter(Boolean));
    const largest = Math.max(1e-9, ...groups.flatMap((g) => g.members.map((m) => Math.abs(m.sample ? m.sample.advantage : 0))));
    members.replaceChildren(...group.members.map((m) => memberButton(batch, group, m, m === trajectory)));
    if (trajectory) open(batch, group, trajectory, largest);
    return revealMember();
  }

  // Only the members scroll: the page stays where its reader is.
  function revealMember() {
    const chosen = members.querySelector("[aria-current]");
    if (chosen) members.scrollTop = chosen.offsetTop - members.offsetTop - (members.clientHeight - chosen.offsetHeight) / 2;
  }

  // From what is shown to another trajectory, group or iteration; "failure" goes over groups, to the next that failed.
  async function step(what, by) {
    if (!shown) return;
    const batch = shown;
    const groups = await batches.groups(batch);
    const all = groups.flatMap((group) => group.members.map((member) => ({ group, member })));
    const at = all.findIndex(({ member }) => member.id === stage.dataset.id);
    const alike = batches.all.filter((b) => b.cell === batch.cell).sort((a, b) => a.iteration - b.iteration);
    const next = {
      trajectory: () => all[at + by],
      group: () => all.find(({ group }) => group === groups[groups.indexOf(all[at].group) + by]),
      failure: () => all.slice(at + 1).find(({ member }) => member.success === false),
      iteration: () => null,
    }[what]();
    if (next) goTo({ iteration: batch.iteration, source: sourceOf(batch), trajectory: next.member.id });
    const other = what === "iteration" ? alike[alike.indexOf(batch) + by] : null;
    if (other) goTo({ iteration: other.iteration, source: sourceOf(other) });
  }

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, .player, canvas, svg, .tokens");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { j: ["trajectory", 1], k: ["trajectory", -1], J: ["group", 1], K: ["group", -1], n: ["failure", 1], "]": ["iteration", 1], "[": ["iteration", -1] }[event.key];
    if (act) step(...act);
  });

  function absent(wanted, reason = "") {
    const of = cellOf(wanted) ? `the evaluation ${cellOf(wanted)}` : "the rollout";
    iterationChoice.selectedIndex = iterations.indexOf(wanted.iteration);
    members.replaceChildren();
    facts.replaceChildren();
    elsewhere.replaceChildren();
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
      href: addressOf({ iteration: batch.iteration, source: batch.cell, trajectory: member.id, beside: present.beside }),
      title: `${member.id}: return ${number(member.return)}, ${outcomeOf(member)}${member.valid ? "" : ", excluded from statistics"}`,
    }, label, html("span", { class: "sr" }, ` ${outcomeOf(member)}`));
  }

  // Members of one group began in the same state.
  const peersOf = (group, trajectory) => group.members.filter((m) => m.seed === trajectory.seed && m.id !== trajectory.id);

  function besideChoices(batch, group, trajectory, other) {
    const peers = peersOf(group, trajectory);
    besideLabel.hidden = !peers.length;
    besideChoice.replaceChildren(html("option", { value: "" }, "nobody"), ...peers.map((m) => html("option", { value: m.id, selected: m === other }, `${m.id} · ${outcomeOf(m)} · return ${number(m.return)}`)));
    const opposite = peers.find((m) => m.success !== null && trajectory.success !== null && m.success !== trajectory.success);
    if (opposite && !other) about.append(" ", html("a", { class: "contrast", href: addressOf({ iteration: batch.iteration, source: batch.cell, trajectory: trajectory.id, beside: opposite.id }) }, trajectory.success ? "Show it beside a failure" : "Show it beside a success"), ".");
  }

  function open(batch, group, trajectory, largest) {
    const other = peersOf(group, trajectory).find((m) => m.id === present.beside) || null;
    besideChoices(batch, group, trajectory, other);
    stage.dataset.id = trajectory.id;
    heading.textContent = batch.cell === null ? `Iteration ${batch.iteration}, trajectory ${trajectory.id}` : `Evaluation ${batch.cell} after ${plural(batch.updates, "update")}, episode ${trajectory.id}`;
    if (other) heading.textContent += ` beside ${other.id}`;
    facts.replaceChildren(...(other ? [] : [trajectoryFacts(trajectory, group)]));
    shade.element.hidden = ![trajectory, other].some((t) => t && t.turns.some((turn) => turn.ids.length)); // evaluations keep no tokens
    const parts = played(trajectory, largest);
    film = parts.film;
    stage.classList.toggle("pair", other !== null);
    stage.replaceChildren(...(other ? [column(trajectory, group, parts), column(other, group, played(other, largest))] : parts.elements));
    if (present.turn !== null) {
      parts.cards[present.turn]?.scrollIntoView({ block: "center" });
      if (film) film.show(present.turn, 0);
    }
    elsewhere.replaceChildren();
    if (batch.cell !== null) otherCheckpoints(batch, trajectory);
  }

  function column(trajectory, group, parts) {
    return html("div", { class: "column" }, html("h4", {}, `Member ${trajectory.member ?? trajectory.id} `, outcomePill(trajectory)), trajectoryFacts(trajectory, group), parts.elements);
  }

  // A trajectory's film and its turns, which point to each other.
  function played(trajectory, largest) {
    const advantage = trajectory.sample ? trajectory.sample.advantage : null;
    let own = null;
    const cards = trajectory.turns.map((_, n) => turnCard(trajectory.turns, n, advantage, (t, action) => own.show(t, action)));
    own = player(trajectory, (turn, action) => cards.forEach((card, n) => {
      card.classList.toggle("current", n === turn);
      card.querySelectorAll(".frame").forEach((frame, a) => frame.classList.toggle("current", n === turn && a === action));
    }));
    const side = own ? own.element : html("p", { class: "player muted" }, `No pictures: ${data.why_not_drawn}.`);
    const turns = html("div", { class: "turns", style: `--advantage:${advantage === null ? 0 : Math.abs(advantage) / largest}`, "data-sign": advantage === null ? "none" : advantage < 0 ? "down" : "up" }, cards);
    return { film: own, cards, elements: [side, turns] };
  }

  // The panel is fixed, so the same episode can be followed from checkpoint to checkpoint.
  async function otherCheckpoints(batch, trajectory) {
    const wanted = present;
    const links = [];
    for (const other of batches.all.filter((b) => b.cell === batch.cell)) {
      const episode = (await batches.groups(other)).flatMap((g) => g.members).find((m) => m.id === trajectory.id && m.seed === trajectory.seed);
      if (episode) links.push(html("a", { class: episode.success ? "gain" : "", "aria-current": other === batch ? "true" : null, href: addressOf({ iteration: other.iteration, source: batch.cell, trajectory: episode.id }) }, `${other.iteration} ${outcomeOf(episode)}`));
    }
    if (present === wanted) elsewhere.replaceChildren("The same prompt, by iteration: ", ...links.flatMap((link, n) => (n ? [" · ", link] : [link])));
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
    about, members, heading, facts, elsewhere, keys, shade.element, stage];
  read();
  shade.start();
  return { show, renew };
}
