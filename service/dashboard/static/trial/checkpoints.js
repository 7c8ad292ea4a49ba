// The checkpoints of a trial that continues or may continue; each of their files can be downloaded.

import { refusal, request } from "../shared/session.js";

const mebibytes = (bytes) => `${(bytes / 2 ** 20).toPrecision(3)} MiB`;

function entry(checkpoint, url) {
  const item = document.createElement("li");
  const title = document.createElement("b");
  title.textContent = `step ${checkpoint.step}`;
  item.append(title, ` ${mebibytes(checkpoint.num_bytes)}${checkpoint.is_whole ? "" : ", not whole"} `);
  for (const file of checkpoint.files) {
    const link = document.createElement("a");
    link.href = `${url}/${encodeURIComponent(checkpoint.name)}/${encodeURIComponent(file.name)}`;
    link.download = "";
    link.textContent = file.name;
    item.append(link, " ");
  }
  return item;
}

/** `url`: the address of their list. */
export function checkpoints(url) {
  const list = document.getElementById("checkpoint-list");
  const note = document.getElementById("checkpoints-note");
  return {
    async load() {
      if (note.dataset.kept === "false") return list.replaceChildren();
      const response = await request(url);
      if (!response.ok) throw new Error(`The checkpoints cannot be listed: ${await refusal(response)}`);
      const { items } = await response.json();
      list.replaceChildren(...items.map((checkpoint) => entry(checkpoint, url)));
    },
  };
}
