// The server's data for the form: search spaces, workloads, and the job to clone.

export const catalogue = JSON.parse(document.getElementById("catalogue").textContent);

/** An optimizer's name for people. */
export const optimizerTitle = (name) => catalogue.titles[name] ?? name;
