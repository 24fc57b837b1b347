// What the run has come to, in words: written into the page when it was made, and anew where the page is live.

function writeHead({ headline, standstill, status, verdict, facts }) {
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  put("headline", headline);
  put("standstill", standstill);
  document.getElementById("standstill").hidden = !standstill;
  put("verdict", verdict);
  document.getElementById("verdict").className = `verdict ${status}`;
  document.getElementById("facts").replaceChildren(...facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
}
