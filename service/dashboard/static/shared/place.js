// Keeps what the reader looks at where it is on the screen, while parts of the page above it grow or go.

const PLACES = "main section, main details, main tr[id]";

/** Makes a change of the page (a function), and scrolls by as much as it moved what stands topmost in the window. */
export function keepPlace(change) {
  if (scrollY === 0) return change(); // the reader looks at the beginning, which does not move
  const place = [...document.querySelectorAll(PLACES)].find((element) => element.getBoundingClientRect().bottom > 0 && element.checkVisibility());
  const seen = topmost(place);
  const before = seen?.getBoundingClientRect().top;
  const result = change();
  if (seen?.isConnected) scrollBy({ top: seen.getBoundingClientRect().top - before, behavior: "instant" });
  return result;
}

/** The part of a place that the window shows first: of a long one, whose head is out of sight, an element inside. */
function topmost(place) {
  if (!place || place.getBoundingClientRect().top >= 0) return place;
  const inside = [...place.querySelectorAll("h2, p, tr, li, .plot")].find((element) => element.getBoundingClientRect().top >= 0);
  return inside ?? place;
}
