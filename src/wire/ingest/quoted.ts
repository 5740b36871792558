/**
 * A text in double quotes as the error texts of local ingest show it: quotes, backslashes and control characters are escaped, so
 * that what a peer sent cannot be taken for more than it is.
 */
export function quoted(text: string): string {
  return `"${text.replaceAll(/["\\\p{Cc}]/gu, escaped)}"`;
}

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
