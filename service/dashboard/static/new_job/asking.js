// Requests to the API about a job that is not there yet.

const JOBS = "/v1/jobs";

async function ask(address, body, headers = {}, signal = undefined) {
  const response = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal,
  });
  const answer = await response.json().catch(() => ({}));
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  return { ok: response.ok, status: response.status, answer, retryAfter };
}

/** What a job would cost, or what is wrong with it. */
export function estimate(document, signal) {
  return ask(`${JOBS}?dry_run=true`, document, {}, signal);
}

/** Makes the job. Sent again with the same key, it makes none twice. */
export function submit(document, key) {
  return ask(JOBS, document, { "Idempotency-Key": key });
}

/** Makes the job as a clone of another one: `patch` is what differs. */
export function submitClone(jobId, patch, key) {
  return ask(`${JOBS}/${encodeURIComponent(jobId)}/clone`, patch, { "Idempotency-Key": key });
}

/** The faults that an answer names; one without fields is of the whole job. */
export function faultsOf({ answer, status }) {
  const errors = answer.errors ?? [];
  return errors.length ? errors : [{ message: answer.detail ?? answer.title ?? `The service answered ${status}.` }];
}
