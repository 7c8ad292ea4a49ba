// The page with what the ranks of a trial print.

import { lines } from "./lines.js";

const note = document.getElementById("stream");

lines((state, text) => {
  note.hidden = !text;
  note.dataset.state = state;
  note.textContent = text;
});
