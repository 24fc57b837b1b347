// The commands that give in a terminal what a page shows, as a shell reads them.

// As Python's shlex.quote; $'...', which bash, zsh and ksh know, where a character is unseen or would act on the terminal.
function shellWord(word) {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  const escaped = (character) => {
    const code = character.codePointAt(0);
    return code < 0x80 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  };
  const unseen = new RegExp(`${UNSEEN.source}|[\\n\\t]`, "gu");
  if (word.search(unseen) < 0) return `'${word.replaceAll("'", "'\"'\"'")}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(unseen, escaped)}'`;
}

const commandLine = (words) => words.map((word) => shellWord(String(word))).join(" ");

async function copy(text, shown, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { // not allowed, or not a page of this machine
    window.getSelection().selectAllChildren(shown);
    button.textContent = "Selected";
  }
}

function copied(text) {
  const shown = html("pre", { dir: "ltr" }, text);
  return html("div", { class: "command" }, shown, html("button", { type: "button", onclick: (event) => copy(text, shown, event.target) }, "Copy"));
}

// Each command a list of words; one that no shell can write (a NUL in a name) is left out.
const inTerminal = (commands, attributes = {}) => html("details", { class: "terminal", ...attributes }, html("summary", {}, "The same in a terminal"),
  commands.filter((words) => !words.join("").includes("\0")).map((words) => copied(commandLine(words))));
