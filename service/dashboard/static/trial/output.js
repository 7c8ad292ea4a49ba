// The page with what the ranks of a trial print.

import { fetchPage } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { lines } from "./lines.js";

const note = document.getElementById("stream");

lines((state, text) => {
  note.hidden = !text;
  note.dataset.state = state;
  note.textContent = text;
  if (!text) fetchPage().then(patchLive, () => {}); // no line will come: how the trial ended is told
});
