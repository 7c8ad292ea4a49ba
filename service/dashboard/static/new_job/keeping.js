// Data that survive a reload: for this tab, separately for each address of the form.

const KEY = `new-job${location.search}`;
export const TYPED = "typed";
export const SENT = "sent";

/** The data kept under a name; null: none, or the browser keeps nothing. */
export function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(`${KEY} ${name}`));
  } catch {
    return null;
  }
}

export function keep(name, value) {
  try {
    sessionStorage.setItem(`${KEY} ${name}`, JSON.stringify(value));
  } catch {
    // Without storage, or if it is full, a reload begins with an empty form.
  }
}

export function forget() {
  try {
    for (const name of [TYPED, SENT]) sessionStorage.removeItem(`${KEY} ${name}`);
  } catch {
    // Nothing was kept.
  }
}
