// Images that the model saw, by the digest of their pixels: each is in the page once, or named if it did not fit.

function picture(digest) {
  const png = data.images[digest];
  if (!png) return html("span", { class: "pill", title: digest }, `image ${digest.slice(0, 8)}, not in this page`);
  return html("img", { class: "seen", src: `data:image/png;base64,${png}`, alt: `image ${digest}`, title: `image ${digest}` });
}

// The text of a message, its marks replaced by its images.
function withImages(text, images = []) {
  const parts = text.split("\ufffc");
  return parts.map((part, n) => [recorded(part), n === parts.length - 1 ? null : n < images.length ? picture(images[n]) : "\ufffc"]);
}
