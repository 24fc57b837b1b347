// Recorded text as it is. Characters that cannot be seen, or that would reorder the text around them, are kept, set
// apart, and named beside themselves. An emoji keeps its variation selector.

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e01ef}]|(?<!\p{Extended_Pictographic})[\ufe0e\ufe0f]/gu;

function recorded(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > from) parts.push(text.slice(from, match.index));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(html("span", { class: "unseen", "data-code": `U+${code}`, title: `character U+${code}` }, html("bdi", {}, match[0])));
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

const more = (numCut) => (numCut ? html("p", { class: "muted" }, `${plural(numCut, "more character")} in the store`) : null);

function recordedBlock(title, text, numCut = 0) {
  return html("div", {}, html("h4", {}, title),
    html("pre", { dir: "ltr" }, text === "" ? html("span", { class: "muted" }, "(empty)") : recorded(text)), more(numCut));
}
