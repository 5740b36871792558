/** Text of settings: white space as Unicode defines it, ASCII case, and values that are safe to print. */

/** Cuts white space off both ends. Unlike `String.trim` it knows U+0085 and leaves U+FEFF alone, as the peers do. */
export function trimWhite(text: string): string {
  return text.replace(/^\p{White_Space}+/u, "").replace(/\p{White_Space}+$/u, "");
}

/** The text, or `undefined` when nothing but white space is in it. Trimmed. */
export function nonBlank(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const trimmed = trimWhite(text);
  return trimmed === "" ? undefined : trimmed;
}

/** Lower case of the letters A to Z alone. */
export function asciiLower(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** Entries of a comma list: trimmed, empty ones dropped. */
export function commaList(text: string): string[] {
  return text.split(",").map(trimWhite).filter((entry) => entry !== "");
}

/** Makes control characters visible, so that no value can move the cursor or forge a line. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}
