/**
 * `deno task parity`: compares every method, message, field, type and default of the IPC with the backend that is installed, and
 * fails on a difference that is not listed here.
 */
import { ALL_STRUCTS } from "../src/wire/ipc/all_structs.ts";
import * as methods from "../src/wire/ipc/methods.ts";
import { IPC_VERSION } from "../src/wire/ipc/schema.ts";
import { type Allowance, compareTypes, type PeerTypes } from "./lib/parity.ts";
import { ensurePeers } from "./lib/peers.ts";
import { cacheFolder, sourceRoot } from "./lib/places.ts";
import { printError, printLine } from "./lib/print.ts";
import { capture } from "./lib/run.ts";

/** Differences that are meant. */
const ALLOWED: readonly Allowance[] = [
  ...[
    "method RunBatchWithExecutionAuthorityV1: only the peer's",
    "method ProcessGenerateWithExecutionAuthorityV1: only the peer's",
    "method RunBatchWithNumericalAdmissionV1: only the peer's",
  ].map((what) => ({
    what,
    reason: "for the lanes of execution authority and numerical admission, which are not built yet",
  })),
  { what: "message RequestEnvelope: only ours", reason: "the peer reads requests as plain maps" },
  { what: "message DrainRequest: only ours", reason: "the peer reads this body as a plain map" },
  {
    what: "field of ResponseEnvelope: kind: only ours",
    reason: "tells a chunk from an answer; the peer never sends it there",
  },
  {
    what: "default of PingResponse.timestamp_ms: ours 0, peer required",
    reason: "we read what older backends leave out",
  },
  {
    what: 'default of PingResponse.worker_id: ours "", peer required',
    reason: "we read what older backends leave out",
  },
  {
    what: "default of DrainResponse.acknowledged: ours false, peer true",
    reason: "an answer that does not say so acknowledges nothing",
  },
];

/** The names of all methods that the client can call: every export of the module that has one. */
function methodNames(): string[] {
  return Object.values(methods).flatMap((value) =>
    typeof value === "object" && value !== null && "encodedName" in value ? [value.name] : []
  );
}

try {
  const peers = await ensurePeers(cacheFolder(Deno.env.toObject()), Deno.env.get("WORKER_SIDECAR_PEERS"));
  const { code, stdout, stderr } = await capture({
    // By way of the shell, because the permission to start the peers' interpreter cannot be given before it is installed.
    command: [
      "bash",
      "-c",
      'exec "$0" "$1"',
      `${peers}/venv/bin/python`,
      `${sourceRoot}/tests/peers/dump_ipc_types.py`,
    ],
    env: { PYTHONPATH: `${sourceRoot}/tests/peers/torch_stub`, PYTHONDONTWRITEBYTECODE: "1" },
  });
  if (code !== 0) throw new Error(stderr.trim());
  const peer: PeerTypes = JSON.parse(stdout);
  const ours = { version: IPC_VERSION, structs: ALL_STRUCTS, methods: methodNames() };
  const differences = compareTypes(ours, peer, ALLOWED);
  for (const difference of differences) printLine(difference);
  const fields = ALL_STRUCTS.reduce((sum, struct) => sum + struct.names.length, 0);
  printLine(
    `parity: ${ours.methods.length} methods, ${ALL_STRUCTS.length} messages, ${fields} fields; ` +
      `${ALLOWED.length} differences that are meant, ${differences.length} that are not`,
  );
  Deno.exitCode = differences.length > 0 ? 1 : 0;
} catch (thrown) {
  printError(`parity: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
