// What is open stands in the page's address: #iteration=12&trajectory=g0003-1&turn=2, or #iteration=20&source=sokoban
// for an evaluation of that name. An iteration alone opens its stages, metrics and groups. &beside= names another
// trajectory that began in the same state, which is shown next to it: MEMBER of the group, ITERATION:EPISODE of the same
// evaluation at another checkpoint, or RUN/ITERATION:EPISODE.

function addressOf({ iteration, source = null, group = null, trajectory = null, turn = null, beside = null }) {
  const fields = { iteration, source, group, trajectory, turn, beside };
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  return `#${given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`;
}

function readAddress(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (name) => (/^\d+$/.test(fields.get(name) || "") ? Number(fields.get(name)) : null);
  if (whole("iteration") === null) return null;
  return { iteration: whole("iteration"), source: fields.get("source"), group: fields.get("group"), trajectory: fields.get("trajectory"), turn: whole("turn"), beside: fields.get("beside") };
}

const besideOf = ({ run = null, iteration = null, trajectory }) => `${run === null ? "" : `${run}/`}${iteration === null ? "" : `${iteration}:`}${trajectory}`;

function readBeside(text) {
  const [, run = null, iteration = null, trajectory = text] = /^(?:([^/:]+)\/)?(\d{1,9}):(.+)$/s.exec(text) || [];
  return { run, iteration: iteration === null ? null : Number(iteration), trajectory };
}

const TRAINING = "training"; // the source that is no evaluation
const sourceOf = (batch) => (batch.cell === null ? TRAINING : batch.cell);
const goTo = (place) => { window.location.hash = addressOf(place); };
