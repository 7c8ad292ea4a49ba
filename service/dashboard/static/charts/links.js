// Links from what charts tell of trials.

/** A trial's number, which leads to its page. */
export function trialLink(number) {
  const link = document.createElement("a");
  link.href = `/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}/trials/${number}`;
  link.textContent = `#${number}`;
  return link;
}
