// Requests to the API about this page's job, and what it refuses.

export const api = `/v1/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}`;

export function complain(error) {
  const problem = document.getElementById("problem");
  problem.textContent = error.message;
  problem.hidden = false;
}

export function forgetProblem() {
  document.getElementById("problem").hidden = true;
}

/** Sends a request to the API, and gives its response; what it refuses is thrown, prefixed by `failure`. */
export async function send(method, path, failure, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  const response = await fetch(api + path, { method, headers, body: body && JSON.stringify(body) });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(`${failure}: ${answer.detail ?? answer.title ?? response.status}`);
  }
  return response;
}
