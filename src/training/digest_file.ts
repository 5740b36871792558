/** Text of the digest file beside a checkpoint (online-training.md, section 3.2; vectors: sha256_file.json). */

/** Largest digest file that is read, in bytes; 64 digits and a file name fit many times. */
export const MAX_DIGEST_FILE_BYTES = 4096;

/** The file's text for a digest given as 64 lower-case hexadecimal digits: the digits and one line feed. */
export function digestFileText(hex: string): string {
  return `${hex}\n`;
}

/**
 * Reads the text of a digest file: one line of 64 hexadecimal digits, upper or lower case, with or without an end of
 * line, alone or in the form of `sha256sum` (two spaces, or a space and a star, and a file name).
 *
 * @returns the digits in lower case, or undefined when the text is anything else.
 */
export function parseDigestFile(text: string): string | undefined {
  const match = /^([0-9a-fA-F]{64})(?: [ *][^\r\n]+)?(?:\r\n|\n)?$/.exec(text);
  return match?.[1]?.toLowerCase();
}
