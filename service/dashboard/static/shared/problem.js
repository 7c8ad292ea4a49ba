// The page's error message: in the element `problem`, only the newest one.

let told = null;

/** Shows what went wrong with the reader's request. */
export function complain(error) {
  told = error;
  const problem = document.getElementById("problem");
  problem.textContent = error.message;
  problem.hidden = false;
}

/** Removes the message, for instance when the reader makes another request. */
export function forgetProblem() {
  told = null;
  document.getElementById("problem").hidden = true;
}

/**
 * The messages of a part of the page that draws itself and tries again by itself: `tell(error)`, and `withdraw()` once
 * it has succeeded. `isTold()`: it has shown an error, and has not succeeded since.
 */
export function complaint() {
  let own = null;
  return {
    isTold: () => own !== null,
    tell(error) {
      own = error;
      complain(error);
    },
    withdraw() {
      if (own !== null && own === told) forgetProblem();
      own = null;
    },
  };
}
