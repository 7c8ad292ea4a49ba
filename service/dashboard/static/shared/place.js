// Keeps what the reader looks at where it is on the screen, while parts of the page above it grow or go.

const PLACES = "main section, main details, main tr[id]";

/** A function to call after each change of the page: it scrolls by as much as what stands topmost in the window moved. */
export function holdPlace() {
  if (scrollY === 0) return () => {}; // the reader looks at the beginning, which does not move
  const seen = topmost([...document.querySelectorAll(PLACES)].find((element) => element.getBoundingClientRect().bottom > 0 && element.checkVisibility()));
  if (!seen) return () => {};
  // Its place in the document: where the reader scrolls meanwhile is the reader's.
  const place = () => seen.getBoundingClientRect().top + scrollY;
  let before = place();
  return () => {
    if (!seen.isConnected) return;
    const moved = place() - before;
    if (moved) scrollBy({ top: moved, behavior: "instant" });
    before += moved;
  };
}

/** The part of a place that the window shows first: of a long one, whose head is out of sight, an element inside. */
function topmost(place) {
  if (!place || place.getBoundingClientRect().top >= 0) return place;
  const inside = [...place.querySelectorAll("h2, p, tr, li, .plot")].find((element) => element.getBoundingClientRect().top >= 0);
  return inside ?? place;
}
