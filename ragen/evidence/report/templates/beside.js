// Who can be shown beside a trajectory, because both began in the same state: members of its group, the same episode of
// a panel at other checkpoints, and in other runs. A report answers from what is in it, a live page asks its server.
// A side is {batch, group, member}; batch.run is the name of another run, else it is absent.

class SameState {
  constructor(data, batches) {
    this._data = data;
    this._batches = batches;
  }

  members({ group, member }) {
    return group.members.filter((other) => isSameState(other, member) && other.id !== member.id);
  }

  // Episodes by iteration: {iteration, trajectory, success, return}, and iterations that cannot be read.
  async checkpoints({ batch, member }) {
    if (this._data.status) return ask(`checkpoints?${this._question(batch, member)}`, batch.run);
    const episodes = [];
    for (const other of this._batches.all.filter((b) => b.cell === batch.cell)) {
      const episode = (await this._batches.groups(other)).flatMap((group) => group.members).find((m) => m.id === member.id && isSameState(m, member));
      if (episode) episodes.push({ iteration: other.iteration, trajectory: episode.id, success: episode.success, return: episode.return });
    }
    return { episodes, unread: [] };
  }

  // One episode of each other run of the store: {run, iteration, ...}, of the nearest checkpoint.
  async otherRuns({ batch, member }) {
    return this._data.status ? ask(`other_runs?${this._question(batch, member)}`) : { episodes: [], unread: [] };
  }

  _question(batch, member) {
    return new URLSearchParams({ iteration: batch.iteration, source: batch.cell, trajectory: member.id });
  }

  // What the address says is beside, once this side is shown: the same checkpoint or run, or the same member.
  following(text, side) {
    if (text === null) return null;
    const named = readBeside(text);
    if (named.iteration !== null) return besideOf({ ...named, trajectory: side.member.id });
    return this.members(side).some((member) => member.id === text) ? text : null;
  }

  // The side that an address names, or the reason why it cannot be shown.
  async find(text, side) {
    const peer = this.members(side).find((member) => member.id === text);
    if (peer) return { ...side, member: peer };
    const { run, iteration, trajectory } = readBeside(text);
    if (iteration === null) return { reason: text === side.member.id ? null : `${text} is no member of its group` };
    if (run !== null && !this._data.status) return { reason: `other runs can be shown on the live page: starpo view ${this._data.run}` };
    const batch = run === null ? this._batches.find(iteration, side.batch.cell) : { run, iteration, cell: side.batch.cell };
    if (!batch) return { reason: `iteration ${iteration} of ${sourceOf(side.batch)} is not ${this._data.status ? "stored" : "in this page"}` };
    const isIt = (m) => m.id === trajectory;
    let group, member;
    try {
      group = (await this._batches.groups(batch, { trajectory })).find((g) => g.members.some(isIt));
      member = group && await this._batches.whole(batch, group, group.members.find(isIt));
    } catch (error) {
      return { reason: error.message };
    }
    if (!group) return { reason: `there is no ${trajectory} at iteration ${iteration}${run === null ? "" : ` of ${run}`}` };
    if (batch === side.batch && member.id === side.member.id) return { reason: null };
    return isSameState(member, side.member) ? { batch, group, member } : { reason: `${trajectory} began in another state` };
  }
}

const isSameState = (one, other) => one.seed === other.seed && one.state === other.state;

// The first turn in which two trajectories differ: in an executed action, in what followed the same action, or in how
// long they go on; if in none of these, in a response. Null if they do not.
function partingOf(one, other) {
  const wordsOf = (turn) => (turn === undefined ? "nothing, as it had ended" : turn.chat && !callsOf(turn).length ? "a message" : turn.executed.length ? turn.executed.map(actionWords).join(", ") : "no action");
  for (let turn = 0; turn < Math.max(one.turns.length, other.turns.length); turn++) {
    const [first, second] = [one.turns[turn], other.turns[turn]];
    const words = `${wordsOf(first)} against ${wordsOf(second)}`;
    if (!first || !second) return { turn, action: 0, words };
    const length = Math.max(first.executed.length, second.executed.length);
    for (let action = 0; action <= length; action++) {
      const frames = [first.frames[action], second.frames[action]];
      if (action && first.executed[action - 1] !== second.executed[action - 1]) return { turn, action, words };
      if (frames[0] && frames[1] && JSON.stringify(frames[0]) !== JSON.stringify(frames[1])) return { turn, action, words: `${action ? `the same ${actionWords(first.executed[action - 1])}` : "the same actions"}, followed by another state` };
    }
  }
  const turn = one.turns.findIndex(({ response }, n) => response !== other.turns[n].response);
  return turn < 0 ? null : { turn, action: 0, words: "the same actions throughout, from here in other words" };
}

function namesOf([one, other]) {
  const runOf = (side) => side.batch.run ?? data.run;
  return [one, other].map((side) => {
    if (runOf(one) !== runOf(other)) return `${runOf(side)}, iteration ${side.batch.iteration}`;
    if (one.batch.iteration !== other.batch.iteration) return `Iteration ${side.batch.iteration}`;
    return side.batch.cell === null ? `Member ${side.member.member}` : `Episode ${side.member.id}`;
  });
}

// Two trajectories in columns, a row a turn. `cards` are their turns, `film` shows both.
function pairElements(sides, cards, film, here) {
  const parting = partingOf(sides[0].member, sides[1].member);
  const names = namesOf(sides);
  const mark = parting && html("p", { class: "across parting", "data-turn": parting.turn }, html("b", {}, "They part here: "), recorded(parting.words));
  const top = html("p", { class: "across parts" }, parting
    ? ["They part at ", html("a", { href: addressOf({ ...here, turn: parting.turn }), onclick: () => { mark.scrollIntoView({ block: "center" }); film?.show(parting.turn, parting.action); } }, `turn ${parting.turn}`), ": ", recorded(parting.words), "."]
    : "They never part: the same actions, the same responses.");
  const heads = sides.map((side, n) => html("div", { class: "head" }, html("h4", {}, `${names[n]} `, outcomePill(side.member)), trajectoryFacts(side.member, side.group, ["Outcome", "Seed"])));
  film?.element.querySelectorAll(".screens > div").forEach((screen, n) => { screen.dataset.side = names[n]; });
  const rows = Array.from({ length: Math.max(...cards.map((c) => c.turns.length)) }, (_, turn) => [
    parting?.turn === turn ? mark : null,
    cards.map(({ turns }, n) => html("div", { class: "turns", "data-side": names[n] }, turns[turn] ?? (turn === turns.length ? html("p", { class: "muted" }, `Ended after ${plural(turn, "turn")}.`) : null))),
  ]);
  return [...heads, top, film ? film.element : null, rows].flat(Infinity).filter(Boolean);
}
