// What the model was told before a response, folded: by role, what this turn added, and before it all that was in the
// context already.

function promptBlock(turns, index) {
  const { prompt } = turns[index];
  if (!prompt) return null;
  let first = index;
  while (first && !turns[first].prompt.start) first -= 1;
  const added = prompt.added.reduce((sum, message) => sum + message.size, 0);
  const about = first === index ? `${plural(prompt.size, "token")}, all that the model saw` : `${plural(prompt.size, "token")} in the context, the last ${count(added)} new`;
  const block = html("details", { class: "prompt" }, html("summary", {}, "Prompt ", html("span", { class: "muted" }, about)));
  block.addEventListener("toggle", () => {
    if (!block.open || block.childElementCount > 1) return;
    for (let turn = first; turn <= index; turn += 1) {
      for (const message of turns[turn].prompt.added) block.append(messageBlock(message, turn, turn === index));
      if (turn < index) block.append(messageBlock({ role: "assistant", text: turns[turn].response, cut: (turns[turn].cut || {}).response, size: null }, turn, false));
    }
  });
  return block;
}

function messageBlock({ role, text, cut, size, images }, turn, isNew) {
  const about = [isNew ? "new" : `from turn ${turn}`, size === null ? null : plural(size, "token")].filter(Boolean).join(" · ");
  return html("details", { class: "message", open: isNew }, html("summary", {}, html("span", { class: `pill ${role}` }, role), " ", html("span", { class: "muted" }, about)),
    html("pre", { dir: "ltr" }, withImages(text, images)), more(cut));
}
