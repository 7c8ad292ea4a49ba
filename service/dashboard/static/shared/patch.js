// Makes a part of the page equal to a newly rendered one, changing only what differs: focus, scroll positions and open
// <details> survive. Children with ids are matched by id and stay where they are (the table may be sorted).

import { keepFocus } from "./focus.js";

/** Replaces the content of every [data-live] element of this document by that of `next`. */
export function patchLive(next) {
  keepFocus(() => {
    for (const element of document.querySelectorAll("[data-live]")) {
      const replacement = next.getElementById(element.id);
      if (replacement) patch(element, replacement);
    }
  });
}

/** Makes an element equal to another one. */
export function patch(element, next) {
  patchAttributes(element, next);
  if (isKeyed(next)) patchKeyed(element, next);
  else patchInOrder(element, next);
}

function isKeyed(element) {
  return element.localName === "tbody" && element.children.length > 0 && [...element.children].every((child) => child.id);
}

function patchAttributes(element, next) {
  // The server must not undo what a person changed in the open page.
  const ours = (name) => name === "open" || name.startsWith("aria-pressed");
  for (const { name, value } of next.attributes) {
    if (!ours(name) && element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
  for (const { name } of [...element.attributes]) {
    if (!ours(name) && !next.hasAttribute(name)) element.removeAttribute(name);
  }
}

function patchKeyed(element, next) {
  const wanted = new Set([...next.children].map((child) => child.id));
  for (const child of [...element.childNodes]) if (!wanted.has(child.id)) child.remove();
  const present = new Map([...element.children].map((child) => [child.id, child]));
  for (const child of next.children) {
    const old = present.get(child.id);
    if (old) patch(old, child);
    else element.append(document.importNode(child, true));
  }
}

function patchInOrder(element, next) {
  const olds = [...element.childNodes];
  const news = [...next.childNodes];
  news.forEach((child, index) => {
    const old = olds[index];
    if (!old) element.append(document.importNode(child, true));
    else if (old.nodeType !== child.nodeType || old.nodeName !== child.nodeName || old.id !== child.id) {
      old.replaceWith(document.importNode(child, true));
    } else if (child.nodeType === Node.ELEMENT_NODE) patch(old, child);
    else if (old.nodeValue !== child.nodeValue) old.nodeValue = child.nodeValue;
  });
  for (const old of olds.slice(news.length)) old.remove();
}
