// Buttons that copy a text: with `data-copy`, the text of the element with this id.

const COPIED = "Copied";

/** Copies a text; the button that was pressed then says so. */
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Only pages on https or localhost may use the clipboard directly.
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  if (button.textContent === COPIED) return;
  const label = button.textContent;
  button.textContent = COPIED;
  setTimeout(() => (button.textContent = label), 1500);
}

export function copyOnClick() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (button) copyText(document.getElementById(button.dataset.copy).textContent, button);
  });
}
