// The choices of a reader on a page are in the query of its address, so that a link or a reload shows the same again.

/** The chosen value of a name; null: nothing was chosen. */
export function chosen(name) {
  return new URLSearchParams(location.search).get(name);
}

/** Writes a choice into the address, in place; null removes it. */
export function choose(name, value) {
  const address = new URL(location.href);
  if (value === null) address.searchParams.delete(name);
  else address.searchParams.set(name, value);
  history.replaceState(history.state, "", address);
}

/** The chosen pairs [name, value] of several names, which may each have several. */
export function chosenPairs(names) {
  return [...new URLSearchParams(location.search)].filter(([name]) => names.includes(name));
}

/** Replaces all values of these names in the address by the given pairs. */
export function choosePairs(names, pairs) {
  const address = new URL(location.href);
  for (const name of names) address.searchParams.delete(name);
  for (const [name, value] of pairs) address.searchParams.append(name, value);
  if (address.href !== location.href) history.replaceState(history.state, "", address);
}
