// What was typed, kept over a reload: for this tab, and apart for each address of the form.

const KEY = `new-job${location.search}`;

/** What was kept; null: nothing, or the browser keeps nothing. */
export function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY));
  } catch {
    return null;
  }
}

export function keep(state) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(state));
  } catch {
    // Without storage, or with a full one, a reload begins anew.
  }
}

export function forget() {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was kept.
  }
}
