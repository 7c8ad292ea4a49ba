// What the server says of the form: search spaces, workloads, and the job that is to be cloned.

export const catalogue = JSON.parse(document.getElementById("catalogue").textContent);
