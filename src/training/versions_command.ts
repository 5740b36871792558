/** `worker-sidecar train versions|promote|pin|unpin|rollback|status`: looks at and decides about versions. */
import { errorText } from "../runtime/errors.ts";
import { version as programVersion } from "../settings/version.ts";
import { readBounded, withinTime } from "./bounded_body.ts";
import { CheckpointStore } from "./checkpoint_store.ts";
import { type CommandIo, stderrLog } from "./command_io.ts";
import { TrainingError } from "./errors.ts";
import { effectivePolicy, removePin, writePin } from "./operator_policy.ts";
import { seededRandom } from "./random.ts";
import type { TrainSettings } from "./settings.ts";
import { mapStatus, MAX_STATUS_BODY_BYTES } from "./status_mapper.ts";
import type { VersionMetadata } from "./version_metadata.ts";
import { parseVersionText, versionName } from "./version_name.ts";
import { mayServe, policyText, type VersionState } from "./version_policy.ts";

/** How long the operator waits for `/status`, in milliseconds. */
const STATUS_MS = 5000;

/** Names of the subcommands. */
export const VERSION_COMMANDS = ["versions", "promote", "pin", "unpin", "rollback", "status"] as const;
/** See {@link VERSION_COMMANDS}. */
export type VersionCommand = typeof VERSION_COMMANDS[number];

/**
 * Runs a subcommand against the folder of versions; a running trainer follows at its next poll.
 *
 * @returns the exit code: 0, 1 when it cannot be done, 2 for a wrong call.
 */
export async function runVersionCommand(
  command: VersionCommand,
  args: readonly string[],
  settings: TrainSettings,
  io: CommandIo,
): Promise<number> {
  const needsVersion = command === "promote" || command === "pin";
  const mayNameVersion = needsVersion || command === "rollback";
  if (args.length > (mayNameVersion ? 1 : 0) || (needsVersion && args.length === 0)) {
    io.stderr(
      `Error: ${command} takes ${
        needsVersion ? "one version" : mayNameVersion ? "at most one version" : "no argument"
      }\n`,
    );
    return 2;
  }
  if (command === "status") return await showStatus(settings, io);
  const store = await openStore(settings, io, command === "versions");
  const named = args[0] === undefined ? undefined : versionOf(args[0], settings.baseName);
  switch (command) {
    case "versions":
      return await listVersions(store, settings, io);
    case "promote":
      return await decide(store, named ?? 0, "stable", "promoted by the operator", io);
    case "rollback":
      return await rollBack(store, settings, named, io);
    case "pin":
      return await pin(store, named ?? 0, io);
    case "unpin":
      await removePin(store);
      io.stdout(`policy ${policyText(settings.policy)} holds again\n`);
      return 0;
  }
}

async function openStore(settings: TrainSettings, io: CommandIo, readOnly: boolean): Promise<CheckpointStore> {
  const folder = settings.checkpointDir;
  // Only the trainer creates the folder, and only its start may take unfinished files away.
  if (!(await Deno.stat(folder)).isDirectory) throw new TrainingError("store_failed", `${folder} is not a folder`);
  return await CheckpointStore.attach({
    folder,
    baseName: settings.baseName,
    nFeatures: settings.nFeatures,
    producerVersion: programVersion,
    readOnly,
    clock: io.clock,
    random: seededRandom(io.randomSeed()),
    log: stderrLog(io),
  });
}

async function listVersions(store: CheckpointStore, settings: TrainSettings, io: CommandIo): Promise<number> {
  const policy = await effectivePolicy(store, settings.policy, stderrLog(io));
  const records = await store.list();
  const chosen = records.findLast((record) =>
    record.sha256 !== undefined && mayServe(policy, record.version, record.metadata.state)
  );
  const rows = records.map(({ version, sha256, metadata }) => [
    version === chosen?.version ? "*" : " ",
    metadata.model_version,
    sha256 === undefined ? "unpublished" : metadata.state,
    metadata.gate?.plcc?.toFixed(5) ?? "-",
    `${metadata.samples_total}`,
    metadata.created_at,
    metadata.reason,
  ]);
  io.stdout(`policy: ${policyText(policy)}; * is what it chooses\n`);
  io.stdout(columns([[" ", "VERSION", "STATE", "PLCC", "SAMPLES", "CREATED", "WHY"], ...rows]));
  return 0;
}

async function decide(
  store: CheckpointStore,
  version: number,
  state: VersionState,
  reason: string,
  io: CommandIo,
): Promise<number> {
  let refusal = "";
  const marked = await store.mark(version, (metadata: VersionMetadata) => {
    if (metadata.state === "quarantined") {
      refusal = `${metadata.name} is quarantined (${metadata.reason}); it must pass verification first`;
      return undefined;
    }
    return { ...metadata, state, reason };
  });
  if (marked === undefined) refusal = `there is no ${versionName(version)} in ${store.options.folder}`;
  if (refusal !== "") {
    io.stderr(`Error: ${refusal}\n`);
    return 1;
  }
  io.stdout(`${versionName(version)} is ${state} now\n`);
  return 0;
}

async function rollBack(
  store: CheckpointStore,
  settings: TrainSettings,
  named: number | undefined,
  io: CommandIo,
): Promise<number> {
  const policy = await effectivePolicy(store, settings.policy, stderrLog(io));
  const chosen = named ??
    (await store.list()).findLast((record) =>
      record.sha256 !== undefined && mayServe(policy, record.version, record.metadata.state)
    )?.version;
  if (chosen !== undefined) return await decide(store, chosen, "rolled_back", "rolled back by the operator", io);
  io.stderr(`Error: policy ${policyText(policy)} chooses no version, so there is none to roll back\n`);
  return 1;
}

async function pin(store: CheckpointStore, version: number, io: CommandIo): Promise<number> {
  const record = await store.record(version);
  if (record === undefined) {
    io.stderr(`Error: there is no ${versionName(version)} in ${store.options.folder}\n`);
    return 1;
  }
  await writePin(store, version);
  io.stdout(`${versionName(version)} is pinned (${record.metadata.state})\n`);
  return 0;
}

/** Asks the running trainer and shows its answer as the operator will read it. */
async function showStatus(settings: TrainSettings, io: CommandIo): Promise<number> {
  if (settings.http === undefined) {
    io.stderr("Error: VMAFX_SIDECAR_HTTP_ADDR is off\n");
    return 1;
  }
  // Of all addresses it is this host's: to connect to 0.0.0.0 needs no permission beyond the one to listen there.
  const { hostname: host, port } = settings.http;
  const url = `http://${host.includes(":") ? `[${host}]` : host}:${port}/status`;
  try {
    const body = await fetchStatus(url, io);
    const mapped = mapStatus(JSON.parse(body));
    if (mapped.kind === "undecodable") throw new TrainingError("closed", mapped.reason);
    io.stdout(`${body.trimEnd()}\n${JSON.stringify(mapped.status)}\n`);
    return 0;
  } catch (thrown) {
    io.stderr(`Error: ${url}: ${errorText(thrown)}\n`);
    return 1;
  }
}

/** The body of the answer, under the operator's limits. */
async function fetchStatus(url: string, { clock }: CommandIo): Promise<string> {
  const late = new TrainingError("closed", `no answer within ${STATUS_MS} ms`);
  return await withinTime(clock, STATUS_MS, late, async (signal) => {
    const response = await fetch(url, { signal });
    const body = await readBounded(response.body, MAX_STATUS_BODY_BYTES, signal);
    if (response.status !== 200) throw new TrainingError("closed", `status ${response.status}`);
    if (body === undefined) throw new TrainingError("closed", `the answer exceeds ${MAX_STATUS_BODY_BYTES} bytes`);
    return new TextDecoder().decode(body);
  });
}

function versionOf(text: string, baseName: string): number {
  const version = parseVersionText(text, baseName);
  if (version === undefined) {
    throw new TrainingError(
      "unknown_version",
      `${JSON.stringify(text)} is no version; write 42, v000042 or ${baseName}.42`,
    );
  }
  return version;
}

/** A table. Cells come from files, so control characters are shown and not sent to the terminal. */
function columns(raw: readonly (readonly string[])[]): string {
  const shown = (char: string) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`;
  const rows = raw.map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, shown)));
  const widths: number[] = [];
  for (const row of rows) row.forEach((cell, i) => widths[i] = Math.max(widths[i] ?? 0, cell.length));
  return rows.map((row) => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join("  ").trimEnd()).join("\n") + "\n";
}
