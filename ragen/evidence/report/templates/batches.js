// Trajectories travel packed, a batch for each rollout and each evaluation; a batch is opened when it is first looked
// at: in a report it is in the page, a live page asks for it.

class Batches {
  constructor(data) {
    this._data = data;
    this._opened = new Map();
  }

  get all() {
    return this._data.batches;
  }

  find(iteration, cell = null) {
    return this.all.find((batch) => batch.iteration === iteration && batch.cell === cell);
  }

  get rollouts() {
    return this.all.filter((batch) => batch.cell === null);
  }

  // Those of a batch of this run, or of another: {run, iteration, cell}.
  // The groups of a batch. On a live page, only members of what is wanted have their turns: see `whole`.
  async groups(batch, wanted = {}) {
    const name = `${batch.run ?? ""}/${batch.iteration} ${sourceOf(batch)}`;
    if (!this._opened.has(name)) {
      const packed = document.getElementById(`batch-${this.all.indexOf(batch)}`);
      const opened = packed ? unpack(packed.textContent) : askFor(batch, wanted);
      if (!packed) this._forget();
      this._opened.set(name, opened.then((content) => withTexts(content, this._data.images)));
      opened.catch(() => this._opened.delete(name)); // it may be there later
    }
    return this._opened.get(name);
  }

  // A member of a group with its turns, as those that began in the same state have them too.
  async whole(batch, group, member) {
    if (!member.turns) {
      const answer = withTexts(await askFor(batch, { trajectory: member.id }), this._data.images);
      const whole = new Map(answer.flatMap(({ members }) => members).filter(({ turns }) => turns).map((one) => [one.id, one]));
      group.members = group.members.map((one) => whole.get(one.id) ?? one);
    }
    return group.members.find(({ id }) => id === member.id);
  }

  // A live page keeps few: the server has them all.
  _forget() {
    for (const name of [...this._opened.keys()].slice(0, -7)) this._opened.delete(name);
  }
}

function askFor({ iteration, cell, run }, { group, trajectory }) {
  const given = Object.entries({ iteration, source: cell, group, trajectory }).filter(([, value]) => value !== null && value !== undefined);
  return ask(`trajectories?${new URLSearchParams(given)}`, run);
}

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// A text of prompts travels once a batch; messages name its place.
function withTexts({ texts, groups, images }, known) {
  Object.assign(known, images);
  for (const { prompt } of groups.flatMap((group) => group.members).flatMap((member) => member.turns || [])) {
    if (prompt) prompt.added = prompt.added.map(([role, place, cut, size, shown]) => ({ role, text: texts[place], cut, size, images: shown }));
  }
  return groups;
}
