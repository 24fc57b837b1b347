// The turns of a trajectory: what was seen, said, carried out and paid.

const TEXT_OF = { text: "Observation", both: "Observation, its text", image: "The environment's text, which the model did not see" };

// What the turn was worth, by continuations, and what estimators say of it.
function creditLine(credit, decision) {
  if (!credit) return null;
  const sure = Math.abs(credit.advantage) > 1.96 * credit.error;
  const others = Object.entries(credit.estimates);
  return html("div", { class: "credit" },
    decision ? html("b", { class: "decision" }, `this turn ${decision} it`) : null,
    html("span", {}, "true advantage ", html("b", { class: !sure ? "" : credit.advantage < 0 ? "down" : "up" }, signed(credit.advantage)), ` ± ${number(credit.error)}`),
    html("span", { class: "muted" }, `value ${number(credit.value)} before${credit.critic === null ? "" : ` (critic ${number(credit.critic)})`}, ${number(credit.after)} after · ${plural(credit.continuations, "continuation")}`),
    credit.own ? html("span", {}, "estimated ", html("b", {}, signed(credit.estimates[credit.own])), html("span", { class: "muted" }, ` by ${credit.own}`)) : null,
    others.length ? html("details", {}, html("summary", {}, plural(others.length, "estimate")), html("dl", {}, others.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, signed(value)))))) : null);
}

function turnCard(turns, index, trained, onFrame, decision = null) {
  const turn = turns[index];
  const tokens = turn.ids.length ? tokenBlock(turn, trained) : null;
  const strip = turn.frames.map((frame, step) => html("figure", { class: "frame", onclick: () => onFrame(index, step) },
    board(frame, step ? `after ${turn.executed[step - 1]}` : "before the turn"),
    html("figcaption", {}, step ? [`${turn.executed[step - 1]} `, html("span", { class: turn.rewards[step - 1] > 0 ? "gain" : "muted" }, signed(turn.rewards[step - 1]))] : "before")));
  const unknown = turn.named.slice(turn.executed.length);
  const notes = [
    turn.left === null ? null : `${plural(turn.left, turn.chat ? "call" : "action")} left before`,
    turn.forfeited ? `${plural(turn.forfeited, "action")} forfeited` : null,
    turn.finish === "length" ? "cut at the length limit" : null,
    unknown.length ? ["not executed: ", recorded(unknown.join(" || "))] : null,
    strip.length || turn.chat ? null : turn.executed.length ? ["executed: ", recorded(turn.executed.map(actionWords).join(" || "))] : "no action executed",
  ].filter(Boolean);
  const parts = Object.entries(turn.components).map(([name, value]) => `${name} ${signed(value)}`);
  const cut = turn.cut || {};
  const plain = [
    turn.think === null ? null : recordedBlock("Think", turn.think, cut.think),
    turn.answer === null ? recordedBlock("Raw response", turn.response, cut.response) : recordedBlock("Answer", turn.answer, cut.answer),
  ];
  return html("article", { class: `turn${turn.chat ? " chat" : ""}${decision ? ` ${decision}` : ""}`, "data-turn": index },
    html("header", {}, html("h3", {}, `Turn ${index}`), turn.status ? html("span", { class: `pill ${turn.status}` }, turn.status.replace("_", " ")) : null,
      turn.total === null ? null : html("span", { class: "reward" }, `reward ${signed(turn.total)}`),
      html("span", { class: "muted" }, [...parts, ...notes].flatMap((note, n) => (n ? [" · ", note] : [note]))),
      creditLine(turn.credit, decision)),
    html("div", { class: "strip" }, strip),
    html("div", { class: "texts" }, turn.chat ? chatTexts(turns, index, tokens) : [
      promptBlock(turns, index),
      turn.images.length ? html("div", {}, html("h4", {}, "Observation, as the model saw it"), picture(turn.images[turn.images.length - 1])) : null,
      recordedBlock(TEXT_OF[data.observation], turn.observation, cut.observation),
      html("div", { class: tokens ? "plain-text" : "" }, plain),
      tokens]));
}

// An import whose source does not say how it ended has no outcome.
const outcomeOf = ({ success }) => (success === null ? "not recorded" : success ? "success" : "failed");
const outcomePill = (trajectory) => html("span", { class: `pill ${{ success: "ok", failed: "failed" }[outcomeOf(trajectory)] || ""}` }, outcomeOf(trajectory));

function trajectoryFacts(trajectory, group, unless = []) {
  const sample = trajectory.sample;
  const facts = [
    ["Outcome", outcomePill(trajectory)],
    ["Return", number(trajectory.return)],
    ["Turns", String(trajectory.turns.length)],
    ["Format errors", trajectory.errors === null ? "not recorded" : String(trajectory.errors)],
    ...(group.kept === null ? [] : [["Advantage", sample ? html("span", { class: sample.advantage < 0 ? "down" : "up" }, signed(sample.advantage)) : "not trained on"]]),
    ...(sample ? [["Share of the loss", percent(sample.share)], ["Mean ratio", number(sample.ratio, 4)], ["Clipped", percent(sample.clip)], ["KL to behaviour, estimated (may be below 0)", number(sample.kl)], ["Entropy", number(sample.entropy)]] : []),
    ...((trajectory.decided ?? null) === null ? [] : [[trajectory.success ? "Won at" : "Lost at", `turn ${trajectory.decided}: ${signed(trajectory.turns[trajectory.decided].credit.advantage)}`]]),
    ["Seed", trajectory.seed],
  ];
  return html("dl", { class: "inline-facts" }, facts.filter(([name]) => !unless.includes(name)).map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
}
