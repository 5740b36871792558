/** `SIE_…` variables that nothing reads: mostly misspelt ones. */
import { foreignVariables, isPassThrough } from "./pass_through.ts";
import { variableOf, variables } from "./table.ts";
import { printable } from "./text.ts";

/** Orchestrators add `<SERVICE>_PORT…` and `<SERVICE>_SERVICE_…` for every service, also for services named `sie-…`. */
const SERVICE_LINK = /_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/;

/** One warning per unknown `SIE_…` variable, with the closest known name. Values are never part of it. */
export function unknownVariables(environment: Readonly<Record<string, string>>): string[] {
  const warnings: string[] = [];
  for (const [name, value] of Object.entries(environment)) {
    if (!name.startsWith("SIE_") || variableOf(name) !== undefined || isPassThrough(name)) continue;
    if (foreignVariables.has(name) || SERVICE_LINK.test(name) || /^(tcp|udp|sctp):\/\//.test(value)) continue;
    const close = closestName(name);
    const hint = close === undefined ? "" : `; did you mean ${close}?`;
    warnings.push(`${printable(name)} is not a known variable and is ignored${hint}`);
  }
  return warnings.sort();
}

/** The known variable whose name needs the fewest edits, when that is few enough to be a slip of the hand. */
export function closestName(name: string): string | undefined {
  if (name.length > 100) return undefined;
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(name.length / 5)) + 1;
  for (const [known] of variables) {
    if (Math.abs(known.length - name.length) >= bestDistance) continue;
    const distance = editDistance(name, known);
    if (distance < bestDistance) [best, bestDistance] = [known, distance];
  }
  return best;
}

/** Edits (insert, delete, replace, swap of neighbours) that turn one text into the other. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replace = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let fewest = Math.min(replace, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) fewest = Math.min(fewest, (beforeLast[j - 2] ?? 0) + 1);
      row.push(fewest);
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length] ?? 0;
}
