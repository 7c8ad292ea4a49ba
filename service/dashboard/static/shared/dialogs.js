// Dialogs, and where the keyboard is after them: on what opened them, or on what has come in its place meanwhile.

import { placeOf } from "./focus.js";
import { openModal, placeNotice } from "./session.js";

const openers = new WeakMap(); // of dialogs: what opened each

/** Opens a dialog in which nothing is chosen yet. */
export function openDialog(dialog) {
  // What was asked for in a dialog is closed with it: the keyboard goes back to where that one was asked for.
  const opener = openers.get(openModal()) ?? document.activeElement;
  openers.set(dialog, opener);
  const restore = placeOf(opener);

  function close() {
    placeNotice();
    if (openModal()) return; // the keyboard is in another one
    const isLost = document.activeElement === document.body || dialog.contains(document.activeElement);
    if (isLost) opener.focus({ preventScroll: true }); // else the browser did it
    restore();
  }

  dialog.addEventListener("close", close, { once: true });
  dialog.returnValue = "";
  dialog.showModal();
  placeNotice();
}
