// One iteration: its artifacts and where they came from, its metrics, and what the filter did with each group.

function iterationView(container, data, batches) {
  let decisions, metrics, known, present;
  const choice = html("select", { "aria-label": "Iteration" });
  const [before, after] = ["Previous", "Next"].map((name) => html("a", { class: "button", role: "button" }, name));
  const title = html("h3", { class: "iteration-title", tabindex: "-1" });
  const body = html("div", { class: "iteration" });
  const nothing = html("p", { class: "muted" }, "No stage has been stored yet.");
  const controls = html("div", { class: "controls" }, title, html("label", {}, "Iteration ", choice), before, after);
  choice.addEventListener("change", () => goTo({ iteration: Number(choice.value) }));

  function read() {
    decisions = decisionsByIteration(data.decisions);
    metrics = Object.entries(data.metrics);
    known = [...new Set([...data.artifacts.map((row) => row[AT]), ...decisions.keys(), ...metrics.flatMap(([, points]) => points.map((p) => p[0]))])].sort((a, b) => a - b);
    choice.replaceChildren(...known.map((i) => html("option", { value: i }, String(i))));
    const parts = known.length ? [controls, body] : [nothing];
    if (container.firstElementChild !== parts[0]) container.replaceChildren(...parts);
  }

  function artifacts(iteration) {
    const rows = data.artifacts.filter((row) => row[AT] === iteration);
    if (!rows.length) return html("p", { class: "muted" }, "No artifact of this iteration can be read.");
    const origins = [...new Set(rows.map((row) => madeWith(data, row)))];
    return [
      table(["Stage", "Kind", "Key", "#Rows", "#Size", "#Seconds", "Made from", "Used by", "Written"], rows.map((row, n) => [
        [`${row[STAGE]} `, html("span", { class: "muted" }, `v${row[VERSION]}`), row[REPEATABLE] ? null : html("span", { class: "pill warning" }, "not repeatable")],
        row[KIND], html("code", { class: "key" }, row[KEY]), row[ROWS] === null ? "" : count(row[ROWS]), fileSize(row[BYTES]), row[SECONDS] === null ? "" : number(row[SECONDS]),
        madeFrom(data, row), [usedBy(data, row), data.status && n === rows.findIndex((other) => other[KEY] === row[KEY]) ? [" ", elsewhere(row)] : null], html("span", { class: "muted" }, row[WRITTEN].slice(0, 19).replace("T", " ")),
      ]), { class: "compact", "aria-label": "Artifacts of this iteration" }),
      origins.map((origin) => html("p", { class: "muted origin" }, origin)),
    ];
  }

  function commands(iteration) {
    const stages = new Set(data.artifacts.filter((row) => row[AT] === iteration).map((row) => row[STAGE]));
    const ofStore = ["--store", data.store];
    return [["starpo", "show", data.run, "--iteration", iteration, ...ofStore], ...[...stages].map((stage) => ["starpo", "lineage", `${data.run}:${iteration}:${stage}`, ...ofStore])];
  }

  function numbers(iteration) {
    const rows = metrics.flatMap(([name, points]) => {
      const at = points.findIndex((p) => p[0] === iteration);
      return at < 0 ? [] : [[name, points[at][1], at ? points[at][1] - points[at - 1][1] : null]];
    });
    if (!rows.length) return html("p", { class: "muted" }, "No metric of this iteration can be read.");
    const meanings = meaningsByMetric(data.glossary);
    const explained = (name) => (meanings.has(name) ? html("a", { href: `#${meaningId(meanings.get(name))}`, title: inShort(meanings.get(name)) }, name) : name);
    return [html("p", { class: "muted" }, "Value, and its change since the previous measurement. A name leads to its meaning."), html("dl", { class: "metrics" }, rows.map(([name, value, change]) => html("div", {}, html("dt", {}, explained(name)), html("dd", {}, number(value, 4), html("small", { class: "muted" }, change === null ? "" : signed(change))))))];
  }

  function groups(iteration) {
    const rows = decisions.get(iteration);
    if (!rows) return html("p", { class: "muted" }, "The filter decided nothing in this iteration, or its decisions cannot be read.");
    const most = Math.max(...rows.map((r) => Math.abs(r[SCORE])), 1e-9);
    const cells = new Map(rows.map((row) => [row[GROUP], html("span", { class: "cells" })]));
    const drawn = table(["#Rank", "Group", "Decision", "#Score", "", "#Mean return", "#Success", "Members", "Reason"], rows.map((row) => ({
      attributes: { class: row[KEPT] ? "kept" : "dropped" },
      cells: [String(row[RANK] + 1), html("a", { href: addressOf({ iteration, group: row[GROUP] }) }, row[GROUP]), row[KEPT] ? "kept" : "dropped", number(row[SCORE]),
        html("i", { class: "meter", style: `width:${(5 * Math.abs(row[SCORE])) / most}rem` }), number(row[MEAN]), percent(row[SUCCESS]), cells.get(row[GROUP]), data.reasons[row[REASON]].replace(/^(kept|dropped): /, "")],
    })), { class: "compact groups", "aria-label": "Groups of this iteration, the best score first" });
    const order = html("select", { "aria-label": "Order of the groups" }, Object.keys(GROUP_ORDERS).map((name) => html("option", { value: name }, name)));
    const elements = new Map(rows.map((row, n) => [row, drawn.querySelectorAll("tbody tr")[n]]));
    const spreads = new Map();
    order.addEventListener("change", () => drawn.querySelector("tbody").replaceChildren(...[...rows].sort((a, b) => GROUP_ORDERS[order.value](a, b, spreads)).map((row) => elements.get(row))));
    memberCells(iteration, cells, spreads);
    return [html("label", { class: "muted" }, "Order ", order), drawn];
  }

  // A cell a member, shaded by its return; they come with the iteration's trajectories.
  async function memberCells(iteration, cells, spreads) {
    const batch = batches.find(iteration);
    if (!batch) return;
    const groups = await batches.groups(batch).catch(() => []);
    const returns = groups.flatMap((group) => group.members.map((member) => member.return)).filter((value) => value !== null);
    const [low, high] = [Math.min(...returns), Math.max(...returns)];
    for (const group of groups) {
      const known = group.members.map((member) => member.return).filter((value) => value !== null);
      spreads.set(group.id, Math.max(...known) - Math.min(...known));
      cells.get(group.id)?.replaceChildren(...group.members.map((member) => html("a", {
        href: addressOf({ iteration, trajectory: member.id }), class: member.valid ? null : "invalid", style: `--share:${high > low && member.return !== null ? (member.return - low) / (high - low) : 0.5}`,
        title: `${member.id}: return ${number(member.return)}, ${outcomeOf(member)}`,
      }, html("span", { class: "sr" }, `${member.id}, ${outcomeOf(member)}`))));
    }
  }

  function summary(iteration) {
    const value = (name) => (data.metrics[name] || []).find((p) => p[0] === iteration)?.[1];
    const rows = decisions.get(iteration) || [];
    const embedded = batches.find(iteration);
    const parts = [
      value("rollout/success_rate") === undefined ? null : `training success ${percent(value("rollout/success_rate"))}`,
      value("reward/return_mean") === undefined ? null : `mean return ${number(value("reward/return_mean"))}`,
      rows.length ? `${rows.filter((r) => r[KEPT]).length} of ${plural(rows.length, "group")} kept` : null,
      ...metrics.filter(([name]) => /^evaluation\/.*\/success$/.test(name) && value(name) !== undefined).map(([name]) => `${name.split("/").slice(1, -1).join("/")} panel ${percent(value(name))}`),
    ].filter(Boolean);
    const links = [
      embedded ? html("a", { href: addressOf({ iteration, source: TRAINING }) }, plural(embedded.shown, "training trajectory", "training trajectories")) : null,
      ...batches.all.filter((b) => b.iteration === iteration && b.cell !== null).map((b) => html("a", { href: addressOf({ iteration, source: b.cell }) }, `${plural(b.shown, "episode")} of ${b.cell}`)),
    ].filter(Boolean);
    return [html("p", {}, parts.length ? `${parts.join(" · ")}.` : "No metrics."), html("p", { class: "muted" }, links.length ? ["Look at ", links.flatMap((link, n) => (n ? [", ", link] : [link])), "."] : "None of its trajectories are in this page.")];
  }

  function show(iteration) {
    present = iteration;
    if (!known.length) return;
    const at = known.indexOf(iteration);
    choice.value = iteration;
    title.textContent = `Iteration ${iteration}`;
    for (const [link, other] of [[before, known[at - 1]], [after, known[at + 1]]]) {
      if (at < 0 || other === undefined) link.removeAttribute("href");
      else link.setAttribute("href", addressOf({ iteration: other }));
    }
    if (at < 0) {
      body.replaceChildren(html("p", { class: "failure" }, `This run has no iteration ${iteration}: it has ${known[0]} to ${known[known.length - 1]}.`));
      return;
    }
    const part = (name, isOpen, content) => html("details", { open: isOpen, "data-part": name }, html("summary", {}, name), content);
    const wasOpen = new Map([...body.querySelectorAll("details")].map((d) => [d.dataset.part, d.open]));
    const isOpen = (name, usually) => wasOpen.get(name) ?? usually;
    body.replaceChildren(...[summary(iteration)].flat(),
      part("Groups", isOpen("Groups", true), groups(iteration)), part("Metrics", isOpen("Metrics", false), numbers(iteration)), part("Stages", isOpen("Stages", false), artifacts(iteration)),
      inTerminal(commands(iteration), { "data-part": "terminal", open: isOpen("terminal", false) }));
  }

  function renew(since, draw) {
    read();
    choice.value = present;
    if (present >= since || present === undefined) draw(container, () => show(present));
  }

  read();
  return { last: () => known[known.length - 1], show, renew };
}

const GROUP_ORDERS = {
  "the best score first": (a, b) => a[RANK] - b[RANK],
  "the highest return first": (a, b) => b[MEAN] - a[MEAN],
  "the widest spread of returns first": (a, b, spreads) => (spreads.get(b[GROUP]) ?? 0) - (spreads.get(a[GROUP]) ?? 0),
  "by name": (a, b) => (a[GROUP] < b[GROUP] ? -1 : 1),
};

function fileSize(bytes) {
  return bytes < 1e3 ? `${bytes} B` : bytes < 1e6 ? `${number(bytes / 1e3)} kB` : `${number(bytes / 1e6)} MB`;
}
