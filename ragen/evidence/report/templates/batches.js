// Trajectories travel packed, a batch for each rollout and each evaluation; a batch is opened when it is first looked at.

class Batches {
  constructor(described) {
    this.all = described.map((batch, number) => ({ ...batch, number }));
    this._opened = new Map();
  }

  find(iteration, cell = null) {
    return this.all.find((batch) => batch.iteration === iteration && batch.cell === cell);
  }

  get rollouts() {
    return this.all.filter((batch) => batch.cell === null);
  }

  groups(batch) {
    if (!this._opened.has(batch.number)) this._opened.set(batch.number, unpack(document.getElementById(`batch-${batch.number}`).textContent).then(withTexts));
    return this._opened.get(batch.number);
  }
}

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// A text of prompts travels once a batch; messages name its place.
function withTexts({ texts, groups }) {
  for (const { prompt } of groups.flatMap((group) => group.members).flatMap((member) => member.turns)) {
    if (prompt) prompt.added = prompt.added.map(([role, place, cut, size, images]) => ({ role, text: texts[place], cut, size, images }));
  }
  return groups;
}
