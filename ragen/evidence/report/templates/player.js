// A trajectory's boards as a film, a frame an action.

const SPEEDS = { slow: 1200, normal: 600, fast: 200 }; // milliseconds a frame

function player(trajectory, onStep) {
  const steps = trajectory.turns.flatMap((turn, t) => turn.frames
    .map((frame, action) => ({ turn: t, action, frame })));
  if (!steps.length) return null;
  const screen = html("div", { class: "screen" });
  const caption = html("p", { class: "caption" });
  const slider = html("input", { type: "range", min: 0, max: steps.length - 1, value: 0, "aria-label": "Frame" });
  const play = html("button", { type: "button", class: "play", onclick: () => (timer ? pause() : start()) }, "Play");
  const speed = html("select", { "aria-label": "Speed" }, Object.keys(SPEEDS).map((name) => html("option", { value: name, selected: name === "normal" }, name)));
  let at = 0;
  let timer = 0;

  function show(n) {
    at = Math.max(0, Math.min(steps.length - 1, n));
    const { turn, action, frame } = steps[at];
    const { executed, rewards } = trajectory.turns[turn];
    const said = action ? `${executed[action - 1]} ${signed(rewards[action - 1])}` : executed.length ? "before the first action" : "no action executed";
    screen.replaceChildren(board(frame, said));
    caption.replaceChildren(html("b", {}, `Turn ${turn}`), ` · ${said}`, html("br"), html("span", { class: "muted" }, `frame ${at + 1} of ${steps.length}`));
    slider.value = at;
    onStep(turn, action);
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
    caption.setAttribute("aria-live", "polite");
  }

  function start() {
    if (at === steps.length - 1) show(0);
    clearInterval(timer);
    play.textContent = "Pause";
    caption.setAttribute("aria-live", "off");
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
    class: "player", tabindex: "0", role: "group", "aria-label": "Animation of the trajectory. Space plays and pauses, left and right step, Home and End jump to its ends.",
    onkeydown: (event) => {
      const act = keys[event.key];
      if (!act || event.target.matches("select") || (event.key === " " && event.target.matches("button"))) return;
      event.preventDefault();
      act();
    },
  }, screen, caption, slider, html("div", { class: "buttons" },
    html("button", { type: "button", class: "back", onclick: () => step(-1) }, "Back"), play, html("button", { type: "button", class: "forward", onclick: () => step(1) }, "Step"), speed),
  html("p", { class: "muted keys" }, "Keys: space, left, right, Home, End"));
  show(0);
  return { element, show: (turn, action) => { pause(); show(steps.findIndex((s) => s.turn === turn && s.action === action)); } };
}
