/** The command line; nothing else. */
import process from "node:process";
import { errorText } from "./src/runtime/errors.ts";
import { checkReport } from "./src/settings/check.ts";
import { describeNeed, missingGrants } from "./src/settings/grants.ts";
import { type Loaded, loadSettings } from "./src/settings/load.ts";
import { bakedManifest } from "./src/settings/manifest.ts";
import { programName } from "./src/settings/program_name.ts";

const commands = ["serve", "check", "train", "feedback"] as const;
type Command = (typeof commands)[number];

if (import.meta.main) Deno.exit(await guarded(Deno.args));

/** The last resort: what no part has handled is one line and exit code 1, not a stack trace. */
async function guarded(args: readonly string[]): Promise<number> {
  try {
    return await main(args);
  } catch (thrown) {
    return print({ stdout: "", stderr: `Error: ${errorText(thrown)}\n`, exitCode: 1 });
  }
}

/** Runs one command; the result is the exit code (runtime.md 7). */
async function main(args: readonly string[]): Promise<number> {
  const program = programName(process.argv0, Deno.build.standalone);
  const named = commands.find((command) => command === args[0]);
  const rest = named === undefined ? args : args.slice(1);
  switch (named ?? "serve") {
    case "serve":
      return await serve(program, rest);
    case "check":
      return check(program, rest);
    case "train":
    case "feedback":
      return await training(program, named as Extract<Command, "train" | "feedback">, rest);
  }
}

async function serve(program: string, args: readonly string[]): Promise<number> {
  const loaded = load(program, args);
  if (loaded.kind === "text") return print(loaded);
  const missing = missingGrants(loaded.settings).map((need) => `Error: ${describeNeed(need)}\n`);
  if (missing.length > 0) return print({ stdout: "", stderr: missing.join(""), exitCode: 1 });
  // Imported late, so that help, check and usage errors do not wait for the whole program.
  const { runServe } = await import("./src/serve.ts");
  return await runServe(loaded.settings);
}

function check(program: string, args: readonly string[]): number {
  const loaded = load(program, args);
  if (loaded.kind === "text") return print(loaded);
  const report = checkReport(loaded.settings, bakedManifest(), missingGrants(loaded.settings));
  return print({ ...report, stderr: "" });
}

async function training(program: string, command: "train" | "feedback", args: readonly string[]): Promise<number> {
  const { runTrainingCommand } = await import("./src/training/command.ts");
  return await runTrainingCommand({ program, command, args, environment: Deno.env.toObject() });
}

function load(program: string, args: readonly string[]): Loaded {
  const newWorkerId = () => `worker-${crypto.randomUUID()}`;
  return loadSettings({ program, args, environment: Deno.env.toObject(), newWorkerId });
}

function print(text: { readonly stdout: string; readonly stderr: string; readonly exitCode: number }): number {
  writeAll(Deno.stdout, text.stdout);
  writeAll(Deno.stderr, text.stderr);
  return text.exitCode;
}

function writeAll(to: { writeSync(bytes: Uint8Array): number }, text: string): void {
  const bytes = new TextEncoder().encode(text);
  for (let done = 0; done < bytes.length;) done += to.writeSync(bytes.subarray(done));
}
