// Requests to the API about this page's job, and its refusals.

import { refusal, request, SessionEnded } from "../shared/session.js";

export const api = `/v1/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}`;

/** Sends a request to the API, and returns its response; a refusal is thrown, prefixed by `failure`. */
export async function send(method, path, failure, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  const options = { method, headers, body: body && JSON.stringify(body) };
  const response = await request(api + path, options).catch((error) => {
    throw error instanceof SessionEnded ? new Error(`${failure}: ${error.message}`) : error;
  });
  if (!response.ok) throw new Error(`${failure}: ${await refusal(response)}`);
  return response;
}
