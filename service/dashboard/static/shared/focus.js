// Where the keyboard is after what had it has gone: on what has come in its place, or else on the page's heading.

const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent.trim();

/** Whether an element can have the focus where it is now. */
const isThere = (element) => element.isConnected && element.checkVisibility({ visibilityProperty: true });

/**
 * Gives a function that sees to it, after the page has changed, that the keyboard is where it was: if this element is
 * gone or hidden, on the one that stands for it now. A live page renders its parts anew.
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

/** Makes a change of the page; what it takes away does not take the keyboard along. */
export function keepFocus(change) {
  const focused = document.activeElement;
  const restore = focused && focused !== document.body ? placeOf(focused) : () => {};
  change();
  restore();
}
