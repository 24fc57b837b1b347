// Drawing costs a run that trains on the same cores: what is out of view is drawn once it comes into view, or is printed.

const inView = new Set();
const unseen = new Map(); // element -> what draws it
const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    inView[isIntersecting ? "add" : "delete"](target);
    if (isIntersecting) drawUnseen(target);
  }
}, { rootMargin: "200px" });

function drawWhenSeen(element, draw) {
  unseen.set(element, draw);
  if (inView.has(element)) drawUnseen(element);
  else sight.observe(element); // which tells at once whether it is in view
}

function drawUnseen(element) {
  unseen.get(element)?.();
  unseen.delete(element);
}

window.addEventListener("beforeprint", () => [...unseen.keys()].forEach(drawUnseen));
