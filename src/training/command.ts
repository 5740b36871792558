/** The commands `train` and `feedback`. Imported only when one of them is called. */
import { errorText } from "../runtime/errors.ts";
import { describeNeed, isGrantedNow } from "../settings/grants.ts";
import { type CommandIo, stderrLog, systemIo } from "./command_io.ts";
import { runFeedback } from "./feedback_command.ts";
import { trainNeeds } from "./needs.ts";
import { TrainService } from "./service.ts";
import { loadTrainSettings, TRAINING_SETTINGS, type TrainingEnvironment, type TrainSettings } from "./settings.ts";
import { runVersionCommand, VERSION_COMMANDS } from "./versions_command.ts";

/** How one of the commands was called. */
export interface TrainingCall {
  /** Name of the program for texts. */
  readonly program: string;
  readonly command: "train" | "feedback";
  /** Arguments after the command. */
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Runs the command.
 *
 * @returns the exit code of the process.
 */
export function runTrainingCommand(call: TrainingCall, io: CommandIo = systemIo()): Promise<number> {
  const { program, args, environment } = call;
  return call.command === "feedback"
    ? runFeedback(program, args, environment, io)
    : runTrain(program, args, environment, io);
}

/** Text of `train --help`. */
export function trainUsage(program: string): string {
  const settings = Object.values(TRAINING_SETTINGS).map((setting) =>
    `  ${setting.name.padEnd(36)}${setting.doc}${setting.default === "" ? "" : ` (default ${setting.default})`}`
  );
  return `Usage: ${program} train [versions | promote VERSION | pin VERSION | unpin | rollback [VERSION] | status]

Without a subcommand: the online trainer. It takes feedback on a Unix socket, trains, exports versions, judges them and
serves predictions over HTTP. SIGUSR1 pauses, SIGUSR2 resumes, SIGTERM ends.

  versions            lists the versions and marks the one that the policy chooses
  promote VERSION     makes a version stable, whatever the gate said
  pin VERSION         serves that version until unpin; running trainers follow at their next poll
  unpin               lets the configured policy hold again
  rollback [VERSION]  takes a version, or the one that the policy chooses, out of service
  status              asks the running trainer, and shows what the operator makes of the answer

Settings, all from the environment:
${settings.join("\n")}
`;
}

/** Runs `train` and its subcommands. Returns the exit code. */
export async function runTrain(
  program: string,
  args: readonly string[],
  env: TrainingEnvironment,
  io: CommandIo,
): Promise<number> {
  const [name, ...rest] = args;
  if (name === "--help" || name === "-h") {
    io.stdout(trainUsage(program));
    return 0;
  }
  const command = VERSION_COMMANDS.find((known) => known === name);
  if (name !== undefined && command === undefined) {
    io.stderr(`Error: unknown subcommand or argument ${JSON.stringify(name.slice(0, 100))}\n\n${trainUsage(program)}`);
    return 2;
  }
  try {
    const settings = loadTrainSettings(env);
    if (command !== undefined) return await runVersionCommand(command, rest, settings, io);
    const missing = trainNeeds(settings).find((need) => !isGrantedNow(need));
    if (missing === undefined) return await serve(settings, io);
    io.stderr(`Error: ${describeNeed(missing)}\n`);
    return 1;
  } catch (thrown) {
    io.stderr(`Error: ${errorText(thrown)}\n`);
    return 1;
  }
}

/** Trains until a signal says stop. */
async function serve(settings: TrainSettings, io: CommandIo): Promise<number> {
  const log = stderrLog(io);
  const stop = Promise.withResolvers<void>();
  const removers: (() => void)[] = [];
  // Before the start, so that a signal during a slow start is not lost.
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    removers.push(io.onSignal(signal, () => {
      log.info(`Received signal ${signal}, stopping`);
      stop.resolve();
    }));
  }
  try {
    const service = await TrainService.start(settings, { clock: io.clock, log, randomSeed: io.randomSeed() });
    removers.push(io.onSignal("SIGUSR1", () => service.setPaused(true)));
    removers.push(io.onSignal("SIGUSR2", () => service.setPaused(false)));
    await stop.promise;
    await service.stop();
    return 0;
  } finally {
    for (const remove of removers) remove();
  }
}
