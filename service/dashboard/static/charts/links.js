// Links from charts to trials.

/** A trial's number, as a link to its page. */
export function trialLink(number) {
  const link = document.createElement("a");
  link.href = `/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}/trials/${number}`;
  link.textContent = `#${number}`;
  return link;
}
