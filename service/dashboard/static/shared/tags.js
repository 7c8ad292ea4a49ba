// Tags as people write them: name=value, one a line.

/** {tags}, or {problem}: why the text is not valid. */
export function readTags(text) {
  const found = new Map();
  for (const line of text.split("\n").filter((one) => one.trim() !== "")) {
    const [, name, , value] = /^([^=]*)(=(.*))?$/.exec(line);
    if (name.trim() === "") return { problem: `'${line}' has no name before the =` };
    if (found.has(name.trim())) return { problem: `'${name.trim()}' is named twice` };
    found.set(name.trim(), (value ?? "").trim());
  }
  return { tags: Object.fromEntries(found) };
}

/** The text of {name: value}. */
export function writeTags(tags) {
  return Object.entries(tags).map(([name, value]) => `${name}=${value}`).join("\n");
}
