// Requests to the API about a job that is not there yet.

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

/** Makes the job. Sent again with the same key, it makes none twice. */
export function submit(document, key) {
  return ask(JOBS, document, { "Idempotency-Key": key });
}

/** Makes the job as a clone of another one: `patch` is what differs. */
export function submitClone(jobId, patch, key) {
  return ask(`${JOBS}/${encodeURIComponent(jobId)}/clone`, patch, { "Idempotency-Key": key });
}

/** True if an answer is about what is wrong with the job, and not that it cannot be had now or by this user. */
export function isOfJob({ status }) {
  return status === 422;
}

/**
 * The faults that an answer names; one without fields is of the whole job. None: it is no fault of the job that the
 * session has ended, which the page says.
 */
export function faultsOf({ answer, status }) {
  if (status === NO_SESSION.status) return [];
  const errors = answer.errors ?? [];
  return errors.length ? errors : [{ message: answer.detail ?? answer.title ?? `The service answered ${status}.` }];
}
