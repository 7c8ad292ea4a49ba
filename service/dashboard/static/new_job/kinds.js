// The kinds of fields: how the value of each kind is read from its element, and written into it.
//
// `read` returns {given, value} or {given, problem}; `given` false: the document leaves it out, and the default is
// used.

import { readTags, writeTags } from "../shared/tags.js";
import { same } from "./same.js";
import { numberIn, parseJson } from "./numbers.js";
import { readSpace, writeSpace } from "./spaces.js";

const NOTHING = { given: false };

const got = (value) => ({ given: true, value });
const wrong = (problem) => ({ given: true, problem });

function readNumber(element, isWhole) {
  const text = element.value.trim();
  if (text === "") return NOTHING;
  if (text === "null") return got(null);
  const number = numberIn(text);
  if (Number.isNaN(number)) return wrong(`must be a number, got '${text}'`);
  if (isWhole && !Number.isInteger(number)) return wrong(`must be a whole number, got '${text}'`);
  if (isWhole && !Number.isSafeInteger(number)) return wrong(`must be at most ${Number.MAX_SAFE_INTEGER} here`);
  return got(number);
}

/** If an empty field means another value, the document says null. */
function writeNumber(element, value) {
  element.value = value === null && defaultOf(element) !== null ? "null" : shown(value);
}

function readJson(element) {
  const text = element.value.trim();
  if (text === "") return NOTHING;
  try {
    return got(parseJson(text));
  } catch (error) {
    return wrong(error instanceof RangeError ? error.message : `is no JSON: ${error.message}`);
  }
}

function readPairs(element) {
  const { tags, problem } = readTags(element.value);
  if (problem) return wrong(problem);
  return Object.keys(tags).length ? got(tags) : NOTHING;
}

function readChoice(element) {
  const [select, own] = [element.querySelector("select"), element.querySelector("input")];
  if (select.selectedOptions[0]?.hasAttribute("data-own")) return own.value.trim() ? got(own.value.trim()) : NOTHING;
  return select.value === "" ? NOTHING : got(select.value);
}

function writeChoice(element, value) {
  const [select, own] = [element.querySelector("select"), element.querySelector("input")];
  const known = [...select.options].find((option) => !option.hasAttribute("data-own") && option.value === (value ?? ""));
  const other = [...select.options].find((option) => option.hasAttribute("data-own"));
  if (known) known.selected = true;
  else if (other && value) other.selected = true;
  else if (value) select.add(new Option(value, value, false, true)); // what is not offered here is refused in words
  if (own) own.value = known ? "" : (value ?? "");
  showOwn(element);
}

/** Shows the field for a custom choice if that is chosen. */
export function showOwn(element) {
  const own = element.querySelector("input");
  if (own) own.hidden = !element.querySelector("select").selectedOptions[0]?.hasAttribute("data-own");
}

const boxes = (element) => [...element.querySelectorAll("input")];
const shown = (value) => (value === null || value === undefined ? "" : String(value));
const json = (value) => JSON.stringify(value);
const isEmpty = (value) => value === null || value === undefined || ["[]", "{}"].includes(json(value));

function readFree(element) {
  const text = element.value.trim();
  if (text === "") return NOTHING;
  try {
    return got(parseJson(text));
  } catch (error) {
    return error instanceof RangeError ? wrong(error.message) : got(text); // text needs no quotes
  }
}

/** Text as a free value: in quotes if it would otherwise be read as something else. */
function freely(value) {
  if (value === null || value === undefined) return "";
  const isPlain = typeof value === "string" && value.trim() === value && !isJson(value);
  return isPlain ? value : json(value);
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const KINDS = {
  integer: { read: (element) => readNumber(element, true), write: writeNumber },
  number: { read: (element) => readNumber(element, false), write: writeNumber },
  text: {
    read: (element) => (element.value === "" ? NOTHING : got(element.value)),
    write: (element, value) => (element.value = shown(value)),
  },
  flag: { read: (element) => got(element.checked), write: (element, value) => (element.checked = value === true) },
  choice: { read: readChoice, write: writeChoice },
  several: {
    read: (element) => got(boxes(element).filter((box) => box.checked).map((box) => box.value)),
    write: (element, value) => boxes(element).forEach((box) => (box.checked = (value ?? []).includes(box.value))),
  },
  pairs: {
    read: readPairs,
    write: (element, value) => (element.value = writeTags(value ?? {})),
  },
  value: { read: readFree, write: (element, value) => (element.value = freely(value)) },
  json: {
    read: readJson,
    write: (element, value) => (element.value = isEmpty(value) ? "" : JSON.stringify(value, null, 1)),
  },
  space: { read: readSpace, write: writeSpace },
};
KINDS.long_text = KINDS.text;

const defaultOf = (element) => JSON.parse(element.dataset.default);

export function readControl(element) {
  const found = KINDS[element.dataset.kind].read(element);
  if (found.problem !== undefined || !found.given) return found;
  return same(found.value, defaultOf(element)) ? NOTHING : found;
}

/** Writes a value; undefined: the default. */
export function writeControl(element, value) {
  KINDS[element.dataset.kind].write(element, value === undefined ? defaultOf(element) : value);
}

/** The effective value, whether the document says it or not. */
export function valueOf(element) {
  const found = KINDS[element.dataset.kind].read(element);
  return found.given ? found.value : defaultOf(element);
}
