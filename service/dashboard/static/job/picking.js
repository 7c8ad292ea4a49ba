// The picked trial: picked in a chart or in the table, and shown in all of them.

const listeners = new Set();

export const picking = {
  number: null,

  /** Picks a trial; if it is already picked, unpicks it. `reveal`: the table scrolls to it. */
  pick(number, reveal = false) {
    picking.number = picking.number === number ? null : number;
    for (const listener of listeners) listener(picking.number, reveal && picking.number !== null);
  },

  /** Calls `listener(number, reveal)` at each change; null: none is picked. */
  listen(listener) {
    listeners.add(listener);
  },
};
