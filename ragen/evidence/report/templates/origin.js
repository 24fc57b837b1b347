// Where an artifact comes from: what it was made from and what uses it, the code and the machine that made it.

const [AT, STAGE, KIND, KEY, ROWS, BYTES, SECONDS, VERSION, REPEATABLE, WRITTEN, INPUTS, ORIGIN] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]; // of an artifact's row

const keyOf = (key) => html("code", { title: key }, key.slice(0, 10));
const iterationLink = (iteration) => html("a", { href: addressOf({ iteration }) }, `iteration ${iteration}`);
const listed = (parts, none) => (parts.length ? parts.flatMap((part, n) => (n ? [", ", part] : [part])) : none);

function madeFrom(data, row) {
  return listed(Object.entries(row[INPUTS]).map(([role, key]) => {
    const source = data.artifacts.find((other) => other[KEY] === key);
    return [`${role} `, keyOf(key), source ? [" of ", iterationLink(source[AT])] : " (not of this run)"];
  }), "nothing that is stored");
}

// The stages that name its key among their inputs, each once.
function usedBy(data, row) {
  const users = new Map(data.artifacts.filter((other) => Object.values(other[INPUTS]).includes(row[KEY])).map((other) => [other[KEY], other]));
  return listed([...users.values()].map((user) => [`${user[STAGE]} of `, iterationLink(user[AT])]), "nothing in this run");
}

function madeWith(data, row) {
  const { code, named, versions, hardware, threads } = data.origins[row[ORIGIN]];
  const revision = code.replace(/^([0-9a-f]{12})[0-9a-f]*/, "$1"); // and what it was modified by
  return `Made with code ${revision}${named ? `, ${named}` : ""} · ${versions} · ${hardware} · threads: ${threads}`;
}

const relatives = new Map(); // kind/key -> what the server has answered

// Uses in other runs: only a live page can ask for them, and reading the whole store takes a moment.
function elsewhere(row) {
  const artifact = `${row[KIND]}/${row[KEY]}`;
  const place = html("span", {});
  const link = ([run, iteration, stage]) => html("a", { href: `${locate("", run).slice(0, -1)}#iteration=${iteration}` }, `${stage} of ${run}, iteration ${iteration}`);
  const named = (work) => (work.names.length ? listed(work.names.map(link), "") : `${work.stage || "a stage"} ${work.key.slice(0, 10)}, which no run names`);
  const draw = ({ root, inputs, users, unreadable }) => place.replaceChildren(...["It is ", named(root), ". Made from ", listed(inputs.map(named), "nothing that is stored"), ". Used by ", listed(users.map(named), "nothing"), ".",
    unreadable ? ` ${plural(unreadable, "record")} cannot be read, and might name more.` : ""].flat(Infinity));
  const read = async () => {
    place.replaceChildren("Reading the store…");
    try {
      relatives.set(artifact, await ask(`lineage?artifact=${encodeURIComponent(artifact)}`));
      draw(relatives.get(artifact));
    } catch (error) {
      place.replaceChildren(error.message);
    }
  };
  if (relatives.has(artifact)) draw(relatives.get(artifact));
  else place.append(html("button", { type: "button", onclick: read }, "In the whole store"));
  return place;
}

function whereFrom(data, rows) {
  const facts = (pairs) => html("dl", { class: "origins" }, pairs.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
  return html("details", { class: "where-from" }, html("summary", {}, "Where from"), rows.map((row) => [
    facts([["What", [`${row[KIND]} of ${row[STAGE]} `, html("code", { class: "key" }, row[KEY])]], ["Made from", madeFrom(data, row)], ["Used by", usedBy(data, row)],
      ["Made", `${row[WRITTEN].slice(0, 19).replace("T", " ")}${row[SECONDS] === null ? "" : ` in ${number(row[SECONDS])} s`}`], ...(data.status ? [["Elsewhere", elsewhere(row)]] : [])]),
    html("p", { class: "muted origin" }, madeWith(data, row)),
  ]));
}
