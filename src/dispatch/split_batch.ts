/** Keeping a batch's request within one frame of the backend's socket (spec/ipc.md 1.2). */
import { inputBytes } from "../wire/ipc/batch_items.ts";
import { WorkItemField } from "../wire/work_item.ts";
import type { WorkUnit } from "./work_unit.ts";

/**
 * Bytes of items that go into one request: the frame limit of 32 MiB, less room for the envelope. The reference sends whatever the
 * scheduler formed and fails the whole batch when the frame is too large, again at each redelivery.
 */
export const MOST_BATCH_BYTES = 32 * 1024 * 1024 - 65_536;

/** Keys, ids and numbers of one item beside its input, at most. */
const ITEM_OVERHEAD_BYTES = 2048;

/** Size that a unit takes in a request, estimated from above. */
export function requestBytes(unit: WorkUnit): number {
  const { work } = unit;
  const F = WorkItemField;
  const bytes = ITEM_OVERHEAD_BYTES + work.size(F.options) + work.size(F.labels) + work.size(F.outputSchema) +
    work.size(F.outputTypes) + work.size(F.instruction) + work.size(F.workItemId) * 2 + work.size(F.requestId) * 2;
  return bytes + inputBytes(unit) + work.size(F.profileId) + work.size(F.bundleConfigHash) + work.size(F.traceparent) +
    work.size(F.tracestate) + work.size(F.numericalAdmissionSha256);
}

/** Splits units, in order, into parts that each fit one request. A unit that is too large alone makes a part of its own. */
export function splitByBytes(
  units: readonly WorkUnit[],
  mostBytes = MOST_BATCH_BYTES,
): readonly (readonly WorkUnit[])[] {
  let total = 0;
  for (const unit of units) total += requestBytes(unit);
  if (total <= mostBytes) return [units];
  const parts: WorkUnit[][] = [];
  let part: WorkUnit[] = [];
  let bytes = 0;
  for (const unit of units) {
    const size = requestBytes(unit);
    if (part.length > 0 && bytes + size > mostBytes) {
      parts.push(part);
      part = [];
      bytes = 0;
    }
    part.push(unit);
    bytes += size;
  }
  if (part.length > 0) parts.push(part);
  return parts;
}
