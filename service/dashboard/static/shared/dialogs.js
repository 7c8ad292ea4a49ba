// Dialogs, and where the keyboard is after them: on what opened them, or on what has come in its place meanwhile.

const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent.trim();

/** Opens a dialog in which nothing is chosen yet. */
export function openDialog(dialog) {
  const opener = document.activeElement;
  const [id, name] = [opener.id, nameOf(opener)];
  const part = opener.parentElement?.closest("[id]")?.id;

  /** The element that stands for the opener now: a live page renders its parts anew. */
  function successor() {
    if (id) return document.getElementById(id);
    const others = document.getElementById(part)?.querySelectorAll(opener.localName) ?? [];
    return [...others].find((other) => nameOf(other) === name);
  }

  function restoreFocus() {
    if (opener.isConnected) return; // the browser did it
    const heading = document.querySelector("h1");
    heading.tabIndex = -1;
    (successor() ?? heading).focus({ preventScroll: true });
  }

  dialog.addEventListener("close", restoreFocus, { once: true });
  dialog.returnValue = "";
  dialog.showModal();
}
