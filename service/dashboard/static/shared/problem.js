// What went wrong, as the page says it: in the element `problem`, the newest alone.

let told = null;

/** Says what went wrong with what the reader asked for. */
export function complain(error) {
  told = error;
  const problem = document.getElementById("problem");
  problem.textContent = error.message;
  problem.hidden = false;
}

/** Says nothing any more, as when the reader asks for something else. */
export function forgetProblem() {
  told = null;
  document.getElementById("problem").hidden = true;
}

/**
 * What a part of the page says went wrong that draws itself, and tries again by itself: `tell(error)`, and `withdraw()`
 * once it has succeeded. `isTold()`: it has said so, and has not succeeded since.
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
