/** What a fault cost, in one line of the test's output. */
import { printLine } from "../../scripts/lib/print.ts";
import type { Rig } from "./support.ts";

/** Runs of items beyond the first of each. */
export function duplicateRuns(rig: Rig): number {
  let duplicates = 0;
  for (const count of rig.intake.executions().values()) duplicates += count - 1;
  return duplicates;
}

/** Prints the line. `recoveredMs` is the time from the end of the fault, or the fault itself where it has no end. */
export function reportFault(fault: string, rig: Rig, heldAtFault: number, recoveredMs: number): void {
  const { sent, answered } = rig.gateway.totals();
  printLine(
    `fault: ${fault} | sent ${sent} | answered ${answered} | run twice ${
      duplicateRuns(rig)
    } (unacknowledged ${heldAtFault})` +
      ` | recovered in ${Math.round(recoveredMs)} ms`,
  );
}
