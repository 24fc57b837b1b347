// The boards of a trajectory as a film, a frame an action; those of two trajectories in step, a turn and action at a
// time. Where one has no further action in a turn, or has ended, it waits.

const SPEEDS = { slow: 1200, normal: 600, fast: 200 }; // milliseconds a frame

function player(trajectories, onStep, noPictures) {
  const framesOf = (trajectory, turn) => trajectory.turns[turn]?.frames ?? [];
  const lastTurn = Math.max(...trajectories.map((trajectory) => trajectory.turns.length)) - 1;
  const steps = Array.from({ length: lastTurn + 1 }, (_, turn) => Array.from({ length: Math.max(...trajectories.map((trajectory) => framesOf(trajectory, turn).length)) }, (__, action) => ({ turn, action }))).flat();
  if (!steps.length) return null;
  const screens = trajectories.map(() => html("div", { class: "screen" }));
  const captions = trajectories.map(() => html("p", { class: "caption" }));
  const slider = html("input", { type: "range", min: 0, max: steps.length - 1, value: 0, "aria-label": "Frame" });
  const play = html("button", { type: "button", class: "play", onclick: () => (timer ? pause() : start()) }, "Play");
  const speed = html("select", { "aria-label": "Speed" }, Object.keys(SPEEDS).map((name) => html("option", { value: name, selected: name === "normal" }, name)));
  let at = 0;
  let timer = 0;

  // Where a trajectory is while the film shows this turn and action.
  function placeOf(trajectory, { turn, action }) {
    const own = Math.min(turn, trajectory.turns.length - 1);
    const last = framesOf(trajectory, own).length - 1;
    const isEnd = own === trajectory.turns.length - 1 && (own < turn || action > last);
    return { turn: own, action: own < turn ? last : Math.min(action, last), waits: isEnd ? " · it has ended" : action > last ? " · it waits" : "" };
  }

  function show(n) {
    at = Math.max(0, Math.min(steps.length - 1, n));
    trajectories.forEach((trajectory, side) => {
      const { turn, action, waits } = placeOf(trajectory, steps[at]);
      const frame = framesOf(trajectory, turn)[action];
      if (!frame) return screens[side].replaceChildren(html("p", { class: "muted" }, noPictures[side]));
      const { executed, rewards } = trajectory.turns[turn];
      const caption = action ? `${executed[action - 1]} ${signed(rewards[action - 1])}` : executed.length ? "before the first action" : "no action executed";
      screens[side].replaceChildren(board(frame, caption));
      captions[side].replaceChildren(html("b", {}, `Turn ${turn}`), ` · ${caption}${waits}`, html("br"), html("span", { class: "muted" }, `frame ${at + 1} of ${steps.length}`));
      return onStep(side, turn, action);
    });
    slider.value = at;
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
    for (const caption of captions) caption.setAttribute("aria-live", "polite");
  }

  function start() {
    if (at === steps.length - 1) show(0);
    clearInterval(timer);
    play.textContent = "Pause";
    for (const caption of captions) caption.setAttribute("aria-live", "off");
    timer = setInterval(() => {
      if (!element.isConnected) return pause();
      show(at + 1);
      return at === steps.length - 1 ? pause() : undefined;
    }, SPEEDS[speed.value]);
  }

  const step = (by) => { pause(); show(at + by); };
  speed.addEventListener("change", () => { if (timer) start(); });
  slider.addEventListener("input", () => { pause(); show(Number(slider.value)); });
  const keys = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => step(-Infinity), End: () => step(Infinity), " ": () => play.click() };
  const element = html("div", {
    class: "player", tabindex: "0", role: "group", "aria-label": `Animation of ${trajectories.length > 1 ? "both trajectories, in step" : "the trajectory"}. Space plays and pauses, left and right step, Home and End jump to its ends.`,
    onkeydown: (event) => {
      const act = keys[event.key];
      if (!act || event.target.matches("select") || (event.key === " " && event.target.matches("button"))) return;
      event.preventDefault();
      act();
    },
  }, html("div", { class: "screens" }, screens.map((screen, side) => html("div", {}, screen, captions[side]))), slider, html("div", { class: "buttons" },
    html("button", { type: "button", class: "back", onclick: () => step(-1) }, "Back"), play, html("button", { type: "button", class: "forward", onclick: () => step(1) }, "Step"), speed),
  html("p", { class: "muted keys" }, "Keys: space, left, right, Home, End"));
  show(0);
  return { element, show: (turn, action) => { pause(); show(steps.findIndex((s) => s.turn === turn && s.action === action)); } };
}
