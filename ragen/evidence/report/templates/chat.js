// A trajectory that a program played, as the chat that it was: messages by role, calls of tools with their arguments,
// and what the tools answered.

function callOf(text) {
  try {
    const call = JSON.parse(text);
    return typeof call?.name === "string" && call.arguments && typeof call.arguments === "object" ? call : null;
  } catch {
    return null;
  }
}

const callsOf = (turn) => turn.executed.flatMap((action) => action.split("\n").map(callOf).filter(Boolean));
const isShort = (values) => values.every((value) => value === null || typeof value !== "object") && JSON.stringify(values).length < 80;
const signature = ({ name, arguments: given }) => `${name}(${Object.entries(given).map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join(", ")})`;

// An action in words: a call is `look(shelf: 5)`.
const actionWords = (action) => action.split("\n").map((line) => { const call = callOf(line); return call ? signature(call) : line; }).join(", ");

function callElement(text) {
  const call = callOf(text);
  if (!call) return html("pre", { class: "call", dir: "ltr" }, recorded(text));
  if (isShort(Object.values(call.arguments))) return html("code", { class: "call", dir: "ltr" }, recorded(signature(call)));
  return html("div", { class: "call" }, html("code", {}, recorded(call.name)), Object.entries(call.arguments).map(([name, value]) => html("div", {}, html("h4", {}, recorded(name)),
    html("pre", { dir: "ltr" }, recorded(typeof value === "string" ? value : JSON.stringify(value, null, 1))))));
}

function speech(role, name, ...content) {
  return html("div", { class: "speech", "data-role": role }, html("p", { class: "speaker" }, html("span", { class: `pill ${role}` }, role), name ? [" ", html("code", {}, recorded(name))] : null), html("div", {}, content));
}

// The JSON object that begins at a place of a text; null if it does not end.
function objectAt(text, start) {
  let depth = 0;
  for (let at = start, isQuoted = false; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === '"') isQuoted = !isQuoted;
    else if (!isQuoted && text[at] === "{") depth += 1;
    else if (!isQuoted && text[at] === "}" && (depth -= 1) === 0) return text.slice(start, at + 1);
  }
  return null;
}

// The tools that the template declared at the start of a context, where it writes them as JSON.
function declaredTools(turn) {
  const tools = [];
  const text = turn.prompt?.start ? turn.prompt.added[0]?.text ?? "" : "";
  for (let at = text.indexOf('{"type": "function"'); at >= 0; at = text.indexOf('{"type": "function"', at)) {
    const declared = objectAt(text, at);
    if (!declared) break;
    at += declared.length;
    try {
      const tool = JSON.parse(declared).function;
      if (typeof tool?.name === "string") tools.push(tool);
    } catch { /* it is in the prompt as it is */ }
  }
  return tools;
}

function toolsBlock(tools) {
  const name = (tool) => `${tool.name}(${Object.keys(tool.parameters?.properties ?? {}).join(", ")})`;
  return html("details", { class: "schemas" }, html("summary", {}, "Tools ", html("span", { class: "muted" }, recorded(tools.map(name).join(", ")))),
    tools.map((tool) => html("div", {}, html("h4", {}, recorded(`${name(tool)} ${tool.description ?? ""}`)), html("pre", { dir: "ltr" }, recorded(JSON.stringify(tool.parameters ?? {}, null, 1))))));
}

function chatMessages(turns, index) {
  const turn = turns[index];
  const earlier = turns.slice(0, index).findLast(({ chat }) => chat.conversation === turn.chat.conversation);
  const called = earlier && !turn.prompt?.start ? callsOf(earlier) : [];
  const sent = turn.chat.messages ?? (turn.observation === "" ? [] : [{ role: called.length ? "tool" : "user", text: turn.observation, cut: (turn.cut || {}).observation, calls: [], images: turn.images }]);
  const results = sent.filter(({ role }) => role === "tool");
  const nameOf = (message) => (message.role === "tool" && results.length === called.length ? called[results.indexOf(message)].name : null);
  return sent.map((message) => speech(message.role, nameOf(message), html("pre", { dir: "ltr" }, message.text === "" && !message.calls.length ? html("span", { class: "muted" }, "(empty)") : withImages(message.text, message.images)), more(message.cut), message.calls.map(callElement)));
}

// The text beside the calls, which stand below it. Other forms of calls stay in it.
const besideCalls = (text, calls) => (calls.length ? text.replace(/<tool_call>[^]*?<\/tool_call>/g, "").trim() : text);

function chatTexts(turns, index, tokens) {
  const turn = turns[index];
  const tools = declaredTools(turn);
  const before = turns.slice(0, index).findLast(({ prompt }) => prompt?.start);
  const calls = callsOf(turn);
  const cut = turn.cut || {};
  const text = besideCalls(turn.answer ?? turn.response, calls);
  const plain = html("div", { class: tokens ? "plain-text" : "" }, turn.think ? recordedBlock("Reasoning", turn.think, cut.think) : null,
    text === "" && calls.length ? null : html("pre", { dir: "ltr" }, text === "" ? html("span", { class: "muted" }, "(no response)") : recorded(text)), more(turn.answer === null ? cut.response : cut.answer));
  return [
    tools.length && JSON.stringify(tools) !== JSON.stringify(before ? declaredTools(before) : []) ? toolsBlock(tools) : null,
    chatMessages(turns, index),
    speech("assistant", null, tokens, plain, calls.map((call) => callElement(JSON.stringify(call)))),
    turn.chat.remarks.map(([title, text, numCut]) => html("details", { class: "remark" }, html("summary", {}, title, " ", html("span", { class: "muted" }, recorded(text.slice(0, 120)))), html("pre", { dir: "ltr" }, recorded(text)), more(numCut))),
    promptBlock(turns, index),
  ];
}
