/**
 * A text in double quotes as the error texts of local ingest show it: quotes, backslashes and control characters are escaped, so
 * that what a peer sent cannot be taken for more than it is. A text that is too long to be a name is cut.
 */
export function quoted(text: string): string {
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return `"${shown.replaceAll(/["\\\p{Cc}]/gu, escaped)}"`;
}

/** Longer texts are cut, in UTF-16 units. */
const LONGEST = 4096;

const SHORT_ESCAPES: Readonly<Record<string, string>> = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\0": "\\0",
};

function escaped(character: string): string {
  return SHORT_ESCAPES[character] ?? `\\u{${character.charCodeAt(0).toString(16)}}`;
}
