/** What the commands of the trainer need of the process, so that tests can stand in for it. */
import { randomInt } from "node:crypto";
import { type Clock, systemClock } from "../runtime/clock.ts";
import { textLine } from "../runtime/log_format.ts";
import type { TrainingLog } from "./log.ts";

/** Signals that the trainer listens to. */
export type TrainSignal = "SIGTERM" | "SIGINT" | "SIGUSR1" | "SIGUSR2";

/** See the file's comment. */
export interface CommandIo {
  readonly clock: Clock;
  readonly stdin: ReadableStream<Uint8Array>;
  stdout(text: string): void;
  stderr(text: string): void;
  /** A fresh 32-bit seed. */
  randomSeed(): number;
  /** Calls `action` at each signal until the returned function is called. */
  onSignal(signal: TrainSignal, action: () => void): () => void;
}

/** The running process. */
export function systemIo(): CommandIo {
  return {
    clock: systemClock,
    get stdin() {
      return Deno.stdin.readable;
    },
    stdout: (text) => writeAll(Deno.stdout, text),
    stderr: (text) => writeAll(Deno.stderr, text),
    randomSeed: () => randomInt(2 ** 32),
    onSignal(signal, action) {
      Deno.addSignalListener(signal, action);
      return () => Deno.removeSignalListener(signal, action);
    },
  };
}

/** A log on standard error: one line a message. */
export function stderrLog(io: CommandIo): TrainingLog {
  const line = (level: "INFO" | "WARN" | "ERROR", message: string) =>
    io.stderr(textLine({ unixMs: io.clock.unixMs(), level, path: ["train"], message, fields: {} }));
  return {
    info: (message) => line("INFO", message),
    warn: (message) => line("WARN", message),
    error: (message) => line("ERROR", message),
  };
}

function writeAll(to: { writeSync(bytes: Uint8Array): number }, text: string): void {
  const bytes = new TextEncoder().encode(text);
  for (let done = 0; done < bytes.length;) done += to.writeSync(bytes.subarray(done));
}
