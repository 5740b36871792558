/** The name that usage texts print: the one under which the program was called (design.md, "Two names of one program"). */

/** Name of the program when it is not run as a binary of its own. */
export const defaultProgramName = "worker-sidecar";

/**
 * @param argv0 how the program was called, e.g. a link `/sie-server-sidecar`.
 * @param standalone whether it is a compiled binary; otherwise `argv0` is the runtime's name.
 */
export function programName(argv0: string, standalone: boolean): string {
  const name = argv0.split(/[/\\]/).at(-1) ?? "";
  return standalone && name !== "" ? name : defaultProgramName;
}
