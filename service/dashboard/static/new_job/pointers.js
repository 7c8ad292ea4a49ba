// JSON Pointers (RFC 6901): reading and writing the value at one.

const names = (pointer) =>
  pointer.split("/").slice(1).map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));

/** The value at a pointer; undefined: none. */
export function at(document, pointer) {
  let node = document;
  for (const name of names(pointer)) {
    if (typeof node !== "object" || node === null || !Object.hasOwn(node, name)) return undefined;
    node = node[name];
  }
  return node;
}

/** Writes a value at a pointer; missing objects on the way to it are created. */
export function put(document, pointer, value) {
  const path = names(pointer);
  const last = path.pop();
  let node = document;
  for (const name of path) {
    if (!Object.hasOwn(node, name) || typeof node[name] !== "object" || node[name] === null) define(node, name, {});
    node = node[name];
  }
  define(node, last, value);
}

// A name such as __proto__ must be an ordinary name, too.
function define(node, name, value) {
  Object.defineProperty(node, name, { value, writable: true, enumerable: true, configurable: true });
}

/** The pointer of the object or list that holds what is at a pointer; null: it is the document. */
export function parent(pointer) {
  return pointer === "" ? null : pointer.slice(0, pointer.lastIndexOf("/"));
}

/** The names from a place to a pointer below it, as a path; empty: it is that place. */
export function below(pointer, place) {
  return names(pointer.slice(place.length)).join(".");
}

/** The pointer of a path such as `budget.num_trials` or `baselines[0].search_space`. */
export function pointerOf(path) {
  return path === "" || path === "body" ? "" : `/${path.replaceAll(/\[(\d+)\]/g, ".$1").replaceAll(".", "/")}`;
}
