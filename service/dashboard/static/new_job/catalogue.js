// What the server says of the form: search spaces, workloads, and the job that is to be cloned.

export const catalogue = JSON.parse(document.getElementById("catalogue").textContent);

/** An optimizer's name as a person writes it. */
export const optimizerTitle = (name) => catalogue.titles[name] ?? name;
