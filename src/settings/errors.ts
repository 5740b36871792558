/** Why the program does not start. */
import { SidecarError } from "../runtime/errors.ts";

/** The command line, or a variable that stands for a flag, cannot be read: exit code 2, text as in runtime.md 2.1. */
export class UsageError extends SidecarError {
  /** Lines that belong directly below the first one. */
  readonly details: readonly string[];

  constructor(message: string, details: readonly string[] = []) {
    super("usage", message);
    this.details = details;
  }
}

/** The settings can be read but not used: exit code 1, `Error: <message>`, runtime.md 2.2. */
export class SettingsError extends SidecarError {
  constructor(message: string) {
    super("settings", message);
  }
}
