// The page with the output of a trial's ranks.

import { fetchPage } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { lines } from "./lines.js";

const note = document.getElementById("stream");
let isOver = false;

lines((state, text) => {
  note.hidden = !text;
  note.dataset.state = state;
  note.textContent = text;
  if (isOver === !text) return;
  isOver = !text;
  fetchPage().then(patchLive, () => {}); // how the trial ended is told, or that it goes on
});
