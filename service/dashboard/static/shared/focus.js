// The keyboard focus after its element has gone: on the element that has replaced it, or else on the page's heading.

const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent.trim();

/** Whether an element can have the focus now. */
const isThere = (element) => element.isConnected && element.checkVisibility({ visibilityProperty: true });

/**
 * Returns a function that restores the focus after the page has changed: if this element is gone or hidden, it goes to
 * the one that has replaced it. A live page renders its parts again.
 */
export function placeOf(element) {
  const [id, name] = [element.id, nameOf(element)];
  const part = element.parentElement?.closest("[id]")?.id;

  function successor() {
    if (id) return document.getElementById(id);
    const others = document.getElementById(part)?.querySelectorAll(element.localName) ?? [];
    return [...others].find((other) => nameOf(other) === name);
  }

  return function restore() {
    if (isThere(element)) return;
    const found = successor();
    if (found && isThere(found)) return found.focus({ preventScroll: true });
    const heading = document.querySelector("h1");
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  };
}

/** Makes a change to the page that does not lose the keyboard focus if it removes the focused element. */
export function keepFocus(change) {
  const focused = document.activeElement;
  const restore = focused && focused !== document.body ? placeOf(focused) : () => {};
  change();
  restore();
}
