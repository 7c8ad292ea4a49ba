// What a reader chose on a page stands in the query of its address, so that a link or a reload shows the same again.

/** The chosen value of a name; null: nothing was chosen. */
export function chosen(name) {
  return new URLSearchParams(location.search).get(name);
}

/** Writes a choice into the address, in place; null takes it out. */
export function choose(name, value) {
  const address = new URL(location.href);
  if (value === null) address.searchParams.delete(name);
  else address.searchParams.set(name, value);
  history.replaceState(history.state, "", address);
}
