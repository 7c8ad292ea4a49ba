// A job as the YAML that `shampoo-tuner submit` takes, and as a request with curl.

const INDENT = "  ";
// Text that neither YAML nor a person could take for something else; all other text is in quotes, as in JSON.
const PLAIN = /^[A-Za-z_][A-Za-z0-9_.\-]*$/;
const TAKEN = /^(true|false|null|yes|no|on|off|y|n|[-+.]?(inf|nan))$/i;
// Characters that are legal in JSON strings but not in a YAML file, and direction marks, which would show a line
// reversed to a person who pastes it.
const UNSEEN = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;

const json = (value, indent) =>
  JSON.stringify(value, null, indent).replaceAll(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

function text(value) {
  return PLAIN.test(value) && !TAKEN.test(value) ? value : json(value);
}

const isPart = (value) => typeof value === "object" && value !== null && Object.keys(value).length > 0;
const isScalar = (value) => !isPart(value);

function scalar(value) {
  if (Array.isArray(value)) return "[]";
  if (typeof value === "object" && value !== null) return "{}";
  return typeof value === "string" ? text(value) : json(value);
}

function lines(value, indent) {
  if (isScalar(value)) return [indent + scalar(value)];
  if (Array.isArray(value) && value.every(isScalar)) return [`${indent}[${value.map(scalar).join(", ")}]`];
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      const [first, ...rest] = lines(item, indent + INDENT);
      return [`${indent}- ${first.trimStart()}`, ...rest];
    });
  }
  return Object.entries(value).flatMap(([name, item]) => {
    const key = `${indent}${text(name)}:`;
    if (isScalar(item)) return [`${key} ${scalar(item)}`];
    const inner = lines(item, indent + INDENT);
    return Array.isArray(item) && item.every(isScalar) ? [`${key} ${inner[0].trimStart()}`] : [key, ...inner];
  });
}

/** The document as YAML, with JSON values, which mean the same there. */
export function yaml(document) {
  return `${lines(document, "").join("\n")}\n`;
}

const quoted = (value) => `'${value.replaceAll("'", `'\\''`)}'`;

/** The request that submits the document, for a shell. */
export function curl(document, { service_url: url, sends_token: sendsToken }) {
  const token = sendsToken ? `  -H "Authorization: Bearer $SHAMPOO_TUNER_TOKEN" \\\n` : "";
  const body = json(document, 1);
  return `curl ${url}/v1/jobs \\\n${token}  -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}\n`;
}
