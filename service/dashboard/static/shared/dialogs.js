// Dialogs, and the keyboard focus after them: on the element that opened them, or on the one that has replaced it.

import { placeOf } from "./focus.js";
import { openModal, placeNotice } from "./session.js";

const openers = new WeakMap(); // of dialogs: what opened each

/** Opens a dialog without a choice in it. */
export function openDialog(dialog) {
  // A dialog that was opened from another one closes with it: the focus returns to where the other one was opened.
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
