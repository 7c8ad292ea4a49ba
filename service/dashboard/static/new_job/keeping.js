// What outlasts a reload: for this tab, and apart for each address of the form.

const KEY = `new-job${location.search}`;
export const TYPED = "typed";
export const SENT = "sent";

/** What was kept by a name; null: nothing, or the browser keeps nothing. */
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
    // Without storage, or with a full one, a reload begins anew.
  }
}

export function forget() {
  try {
    for (const name of [TYPED, SENT]) sessionStorage.removeItem(`${KEY} ${name}`);
  } catch {
    // Nothing was kept.
  }
}
