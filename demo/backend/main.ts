/**
 * The demonstration's backend as a program:
 *
 *     deno run --allow-read --allow-write demo/backend/main.ts --socket PATH [--worker-id NAME] [--config-hash HASH]
 *
 * Prints `READY PATH` when it listens; SIGTERM and SIGINT end it in order. On Deno 2.9 it needs `--allow-net=unix:PATH` too.
 */
import { parseArgs } from "node:util";
import { DemoBackend } from "./server.ts";

const { values } = parseArgs({
  options: {
    "socket": { type: "string", default: "/tmp/sie-ipc.sock" },
    "worker-id": { type: "string" },
    "config-hash": { type: "string" },
    "word-ms": { type: "string", default: "15" },
  },
});
const wordMs = Number(values["word-ms"]);
if (!(wordMs >= 0)) throw new RangeError(`--word-ms must be a number of at least 0, got ${values["word-ms"]}`);

const backend = DemoBackend.start({
  socketPath: values.socket,
  corpus: Deno.readTextFileSync(new URL("../corpus.txt", import.meta.url)),
  wordMs,
  ...(values["worker-id"] === undefined ? {} : { workerId: values["worker-id"] }),
  ...(values["config-hash"] === undefined ? {} : { configHash: values["config-hash"] }),
});
Deno.stdout.writeSync(new TextEncoder().encode(`READY ${values.socket}\n`));

const stopped = Promise.withResolvers<void>();
for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, stopped.resolve);
await stopped.promise;
await backend.stop();
Deno.exit(0);
