// Requests to the API about a job that does not exist yet.

import { request, SessionEnded } from "../shared/session.js";

const JOBS = "/v1/jobs";

const NO_SESSION = { ok: false, status: 401, answer: {}, retryAfter: null };

async function ask(address, body, headers = {}, signal = undefined) {
  const options = {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal,
  };
  let response = null;
  try {
    response = await request(address, options);
  } catch (error) {
    if (error instanceof SessionEnded) return NO_SESSION;
    throw error;
  }
  const answer = await response.json().catch(() => ({}));
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  return { ok: response.ok, status: response.status, answer, retryAfter };
}

/** What a job would cost, or what is wrong with it. */
export function estimate(document, signal) {
  return ask(`${JOBS}?dry_run=true`, document, {}, signal);
}

/** Creates the job. If it is sent again with the same key, no second job is created. */
export function submit(document, key) {
  return ask(JOBS, document, { "Idempotency-Key": key });
}

/** Creates the job as a clone of another one: `patch` has the differences. */
export function submitClone(jobId, patch, key) {
  return ask(`${JOBS}/${encodeURIComponent(jobId)}/clone`, patch, { "Idempotency-Key": key });
}

/** True if an answer is about a fault of the job, and not a refusal for now or for this user. */
export function isOfJob({ status }) {
  return status === 422;
}

/**
 * The faults that an answer names; one without fields is about the whole job. Empty if the session has ended: that is
 * not a fault of the job, and the page says so.
 */
export function faultsOf({ answer, status }) {
  if (status === NO_SESSION.status) return [];
  const errors = answer.errors ?? [];
  return errors.length ? errors : [{ message: answer.detail ?? answer.title ?? `The service answered ${status}.` }];
}
