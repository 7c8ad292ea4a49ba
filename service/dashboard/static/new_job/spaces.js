// A search space as a field: a preset with its parameters, whose ranges can be narrowed, or a custom space as JSON.

import { catalogue, optimizerTitle } from "./catalogue.js";
import { numberIn, parseJson } from "./numbers.js";
import { same } from "./same.js";

const OWN = "";
/** For each field with a variant of a preset: the variant as it was given, and as it is shown. */
const variants = new WeakMap();
const BOUNDS = ["low", "high", "default"];
const LABELS = { low: "lowest", high: "highest", default: "first tried" };

const parts = (element) => ({
  select: element.querySelector("select"),
  details: element.querySelector("details"),
  body: element.querySelector("tbody"),
  text: element.querySelector("textarea"),
  back: element.querySelector("[data-back]"),
});

function offer(element) {
  const { select } = parts(element);
  if (select.options.length) return;
  for (const [name, space] of Object.entries(catalogue.spaces)) {
    const told = name === space.optimizer ? name : `${name} (${optimizerTitle(space.optimizer)})`;
    select.add(new Option(told, name));
  }
  select.add(new Option("a space of your own, as JSON", OWN));
}

/** Shows a preset's parameters, with the values of `space`, a variant of it. */
function show(element, name, space) {
  const { select, details, body, text, back } = parts(element);
  select.value = name;
  details.hidden = name === OWN;
  text.hidden = name !== OWN;
  body.replaceChildren();
  const preset = catalogue.spaces[name];
  const isChanged = name !== OWN && !same(space, preset);
  back.hidden = !isChanged;
  element.querySelector("[data-told]").textContent = name === OWN ? "" : fixedWords(preset);
  if (name === OWN) return;
  element.querySelector("[data-count]").textContent = `(${preset.parameters.length})`;
  preset.parameters.forEach((parameter, index) => body.append(row(parameter, space.parameters[index], index)));
}

function fixedWords(space) {
  const fixed = Object.entries(space.fixed).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  const searched = new Set(space.parameters.map((parameter) => parameter.name)).size;
  const held = fixed.length ? `; fixed: ${fixed.join(", ")}` : "";
  return `Searches ${searched} ${searched === 1 ? "parameter" : "parameters"} of ${optimizerTitle(space.optimizer)}${held}.`;
}

function made(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function row(preset, parameter, index) {
  const conditions = Object.entries(preset.when).map(([name, values]) => `${name} is ${values.join(" or ")}`);
  const head = made("th", { scope: "row" }, made("span", { className: "mono" }, preset.name));
  const scale = preset.type === "categorical" ? "choice" : `${preset.type}, ${preset.scale} scale`;
  head.append(made("span", { className: "sub" }, conditions.length ? `${scale}, if ${conditions.join(" and ")}` : scale));
  if (preset.reason) head.append(made("span", { className: "sub" }, preset.reason));
  const line = made("tr", {}, head);
  line.dataset.index = index;
  if (preset.type === "categorical") {
    const cell = made("td", { colSpan: 2, className: "choices" });
    for (const choice of preset.choices) {
      const box = made("input", { type: "checkbox", checked: parameter.choices.includes(choice) });
      box.dataset.choice = JSON.stringify(choice);
      cell.append(made("label", { className: "flag" }, box, ` ${choice}`));
    }
    line.append(cell, made("td", {}, input(preset.name, "default", parameter.default)));
  } else {
    for (const bound of BOUNDS) line.append(made("td", {}, input(preset.name, bound, parameter[bound])));
  }
  return line;
}

function input(name, bound, value) {
  const found = made("input", { type: "text", value: String(value), autocomplete: "off", spellcheck: false });
  found.dataset.bound = bound;
  found.setAttribute("aria-label", `${name}, ${LABELS[bound]}`);
  return found;
}

/** The value of a space's field. */
export function readSpace(element) {
  const { select, body, text } = parts(element);
  if (select.value === OWN) return readOwn(text);
  const preset = catalogue.spaces[select.value];
  const parameters = [];
  for (const [index, parameter] of preset.parameters.entries()) {
    const changed = { ...parameter };
    const line = body.rows[index];
    if (parameter.type === "categorical") {
      const boxes = [...line.querySelectorAll("input[data-choice]")].filter((box) => box.checked);
      changed.choices = boxes.map((box) => JSON.parse(box.dataset.choice));
    }
    for (const field of line.querySelectorAll("input[data-bound]")) {
      const found = readBound(field, parameter);
      if (found.problem) return { given: true, problem: found.problem, pointer: `/parameters/${index}/${field.dataset.bound}` };
      changed[field.dataset.bound] = found.value;
    }
    parameters.push(changed);
  }
  const space = { ...preset, parameters };
  const written = variants.get(element);
  if (written && same(space, written.shown)) return { given: true, value: written.value };
  return { given: true, value: same(space, preset) ? select.value : { ...space, parameters: parameters.map(told) } };
}

/** A parameter without the notes about the preset's ranges. */
function told({ reason, source, when, ...rest }) {
  return Object.keys(when).length ? { ...rest, when } : rest;
}

function readOwn(text) {
  if (text.value.trim() === "") return { given: true, value: {} };
  try {
    return { given: true, value: parseJson(text.value) };
  } catch (error) {
    return { given: true, problem: error instanceof RangeError ? error.message : `is no JSON: ${error.message}` };
  }
}

function readBound(field, parameter) {
  const text = field.value.trim();
  const bound = field.dataset.bound;
  if (text === "") return { value: parameter[bound] };
  if (parameter.type === "categorical") {
    const choice = parameter.choices.find((one) => String(one) === text);
    return choice === undefined ? { problem: `must be one of ${parameter.choices.join(", ")}` } : { value: choice };
  }
  const number = numberIn(text);
  return Number.isNaN(number) ? { problem: `must be a number, got '${text}'` } : { value: number };
}

/** Writes a preset's name or a space; one that is a preset with other bounds is shown as that. */
export function writeSpace(element, value) {
  offer(element);
  variants.delete(element);
  if (typeof value === "string" && Object.hasOwn(catalogue.spaces, value)) {
    show(element, value, catalogue.spaces[value]);
    return;
  }
  const variant = Object.entries(catalogue.spaces).find(([, preset]) => isVariant(value, preset));
  if (variant) {
    const shown = completed(value, variant[1]);
    variants.set(element, { value, shown });
    show(element, variant[0], shown);
  } else {
    show(element, OWN, null);
    parts(element).text.value = typeof value === "string" ? JSON.stringify(value) : JSON.stringify(value, null, 1);
  }
}

const shape = ({ low, high, default: _, choices, reason, source, ...rest }) => rest;

function isVariant(space, preset) {
  if (space?.optimizer !== preset.optimizer || !same(space.fixed ?? {}, preset.fixed)) return false;
  const [own, known] = [space.parameters ?? [], preset.parameters];
  return own.length === known.length && own.every((one, index) => isOf(one, known[index]));
}

function isOf(parameter, preset) {
  const own = { when: {}, ...parameter };
  if (!same(shape(own), shape(preset)) || own.default === undefined || own.default === null) return false;
  return preset.type !== "categorical" || own.choices.every((choice) => preset.choices.includes(choice));
}

/** A variant as it is shown: with the values that it takes from the preset, and without the notes on its ranges. */
function completed(space, preset) {
  const parameters = preset.parameters.map((parameter, index) => {
    const { source, ...own } = space.parameters[index];
    return { ...parameter, ...own };
  });
  return { ...preset, parameters };
}

/** The places in a space's value that have their own element, below that of the space. */
export function placesInSpace(element) {
  const found = [];
  for (const line of parts(element).body.rows) {
    const own = `/parameters/${line.dataset.index}`;
    const fields = [...line.querySelectorAll("input[data-bound]")];
    found.push([own, fields[0]], [`${own}/choices`, line.querySelector("input")]);
    for (const field of fields) found.push([`${own}/${field.dataset.bound}`, field]);
  }
  return found;
}

/** Follows the choice of a preset, or the return to it. */
export function chooseSpace(element, target) {
  const { select, text } = parts(element);
  const isBack = target.matches("[data-back]");
  if (target !== select && !isBack) {
    const found = readSpace(element);
    parts(element).back.hidden = typeof found.value === "string" && select.value !== OWN;
    return;
  }
  const name = select.value;
  if (name === OWN && text.value === "") text.value = JSON.stringify(catalogue.spaces[element.shownPreset ?? "shampoo"], null, 1);
  show(element, name, name === OWN ? null : catalogue.spaces[name]);
  if (name !== OWN) element.shownPreset = name;
}

/** Chooses a preset of an optimizer that no other field tunes: a job has one baseline for each optimizer. */
export function chooseUnused(element, others) {
  const optimizers = others.map((other) => catalogue.spaces[other.querySelector("select").value]?.optimizer);
  const taken = new Set([...optimizers, "shampoo"]);
  const free = Object.entries(catalogue.spaces).find(([, space]) => !taken.has(space.optimizer));
  if (free) writeSpace(element, free[0]);
}
