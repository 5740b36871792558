/** `deno task demo [--nats]`: shows the sidecar at work between a small backend and many callers. */
import { parseArgs } from "node:util";
import { printError, printLine } from "../scripts/lib/print.ts";
import { systemClock } from "../src/runtime/clock.ts";
import { errorText } from "../src/runtime/errors.ts";
import { DemoFailure, Interrupted } from "./failure.ts";
import { DemoRun } from "./run.ts";
import { Screen } from "./screen.ts";
import { seconds } from "./work.ts";

/** What ends the demonstration early. */
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

Deno.exitCode = await main(Deno.args);

async function main(args: readonly string[]): Promise<number> {
  let options: { readonly nats: boolean; readonly help: boolean };
  try {
    options = readOptions(args);
  } catch (thrown) {
    printError(`demo: ${errorText(thrown)}\n\n${usage()}`);
    return 2;
  }
  if (options.help) {
    printLine(usage());
    return 0;
  }
  const screen = new Screen(Deno.stdout, columns(), Deno.noColor);
  const run = new DemoRun(screen, options.nats);
  const interrupt = () => run.interrupt();
  for (const signal of SIGNALS) Deno.addSignalListener(signal, interrupt);
  try {
    return await show(run, screen, options.nats);
  } catch (thrown) {
    return explain(thrown, screen);
  } finally {
    for (const signal of SIGNALS) Deno.removeSignalListener(signal, interrupt);
  }
}

function readOptions(args: readonly string[]): { readonly nats: boolean; readonly help: boolean } {
  const { values } = parseArgs({
    args: [...args],
    options: { nats: { type: "boolean", default: false }, help: { type: "boolean", short: "h", default: false } },
  });
  return values;
}

async function show(run: DemoRun, screen: Screen, useNats: boolean): Promise<number> {
  const start = systemClock.now();
  const parts = "the sidecar and a small model backend on this machine";
  screen.line(useNats ? `A gateway, nats-server, ${parts}.` : `Callers, ${parts}; no broker.`);
  screen.line();
  await run.toEnd();
  screen.line();
  screen.line(`All programs have ended in order, after ${seconds(systemClock.now() - start)}.`);
  for (const line of nextSteps(useNats)) screen.line(line);
  return 0;
}

/** Says why it ended early. @returns the exit code */
function explain(thrown: unknown, screen: Screen): number {
  // Whoever reads the output has seen enough.
  if (thrown instanceof Deno.errors.BrokenPipe) return 0;
  screen.endFlow();
  if (thrown instanceof Interrupted) {
    screen.line("Interrupted. All programs have ended.");
    return 0;
  }
  screen.line();
  const log = thrown instanceof DemoFailure ? thrown.log : [];
  printError(`demo: ${errorText(thrown)}${log.length > 0 ? "; its last output:" : ""}`);
  for (const line of log) printError(`    ${line}`);
  return 1;
}

function nextSteps(useNats: boolean): string[] {
  const task = taskCommand();
  const other = useNats
    ? ["demo", "the same without a broker"]
    : ["demo --nats", "the same through a real nats-server"];
  return [
    "",
    "Next",
    `  ${task} ${other.join(": ")}`,
    "",
    "  With a backend of your own, listening at /tmp/backend.sock:",
    "    SIE_POOL=default SIE_BUNDLE=default SIE_MACHINE_PROFILE=cpu \\",
    "      SIE_IPC_SOCKET_PATH=/tmp/backend.sock \\",
    `      ${task} serve --ingest local --local-socket /tmp/ingest.sock`,
    "",
    "  README.md              running, compiling and testing it",
    "  docs/local-ingest.md   calling it through the socket",
    "  docs/settings.md       all settings",
  ];
}

/** How this person runs tasks: with an installed Deno, or through npx. */
function taskCommand(): string {
  return Deno.env.get("npm_command") === "exec" ? `npx -y deno@${Deno.version.deno} task` : "deno task";
}

function usage(): string {
  return [
    "Usage: deno task demo [--nats]",
    "",
    "Starts a small model backend and the sidecar, sends a few hundred sentences, shows what came of them, and ends.",
    "",
    "  --nats      through a real nats-server (got with Python or Go when there is none) instead of a Unix socket",
    "  -h, --help  this text",
  ].join("\n");
}

function columns(): number | undefined {
  try {
    return Deno.consoleSize().columns;
  } catch {
    // Not a terminal.
    return undefined;
  }
}
