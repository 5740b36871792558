/**
 * Gets a nats-server when there is none and prints the folder that holds it; nothing when the PATH has one. A program of its own,
 * because who may start a program should not be able to write it.
 */
import { ensureNatsServer } from "../scripts/lib/nats_server.ts";
import { cacheFolder } from "../scripts/lib/places.ts";
import { printError, printLine } from "../scripts/lib/print.ts";
import { errorText } from "../src/runtime/errors.ts";

try {
  const cache = cacheFolder(Deno.env.toObject());
  printLine(await ensureNatsServer({ cache, progress: (line) => printError(`  ${line}`) }) ?? "");
} catch (thrown) {
  printError(`  ${errorText(thrown)}`);
  Deno.exitCode = 1;
}
