// Numbers typed by people, and numbers in JSON: a number that a program would read as another one is refused.

const NUMBER = /^[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?$/i;

/** The number in a text; NaN: none, or one that is too large, or too small to be distinguished from 0. */
export function numberIn(text) {
  const number = Number(text);
  const vanishes = number === 0 && /[1-9]/.test(text.split(/e/i)[0]);
  return NUMBER.test(text) && Number.isFinite(number) && !vanishes ? number : NaN;
}

/** Decoded JSON; also an error if it has a number that would become another one here. */
export function parseJson(text) {
  return JSON.parse(text, (_key, value, context) => {
    if (typeof value !== "number") return value;
    if (!Number.isFinite(value)) throw new RangeError("a number in it is too large");
    const source = context?.source ?? ""; // older browsers do not tell it
    if (/^-?\d+$/.test(source) && BigInt(source) !== BigInt(value)) {
      throw new RangeError(`integers must be at most ${Number.MAX_SAFE_INTEGER} here, got ${source}`);
    }
    return value;
  });
}
