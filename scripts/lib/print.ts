/** Output of scripts. Their text is their product, so it goes to the streams directly and not through a logger. */

const encoder = new TextEncoder();

/** Writes one line to standard output. */
export function printLine(line = ""): void {
  writeAll(Deno.stdout, `${line}\n`);
}

/** Writes one line to standard error. */
export function printError(line: string): void {
  writeAll(Deno.stderr, `${line}\n`);
}

function writeAll(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  let rest = encoder.encode(text);
  while (rest.length > 0) rest = rest.subarray(stream.writeSync(rest));
}
