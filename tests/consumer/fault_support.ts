/** Steps that the fault tests share. */
import assert from "node:assert/strict";
import { nanos } from "@nats-io/nats-core";
import { eventually } from "../harness/process.ts";
import { duplicateRuns } from "./fault_report.ts";
import { Rig, type RigOptions } from "./support.ts";

/** Stream and consumer of the pool lane. */
export const STREAM = "WORK_POOL_default";
export const DURABLE = "default_l4_default";

/** A rig whose unacknowledged items come back after two seconds and not after thirty. */
export async function impatientRig(options: RigOptions): Promise<Rig> {
  const rig = await Rig.start({ ...options, idle: true });
  await rig.manager.consumers.update(STREAM, DURABLE, { ack_wait: nanos(2_000) });
  await rig.consumer.reconcile();
  rig.consumer.startPulling();
  return rig;
}

/** State of the pool lane. */
export function lane(rig: Rig) {
  return rig.consumer.report().lanes[0] ?? assert.fail("no lane");
}

/** Items answered so far. */
export function answered(rig: Rig): number {
  return rig.gateway.totals().answered;
}

/** Waits until more is answered than at the call. */
export async function goesOn(rig: Rig): Promise<void> {
  const before = answered(rig);
  await eventually("work is answered again", () => answered(rig) > before);
}

/** Every item has been answered, and no more were run twice than were unacknowledged when the fault came. */
export async function concluded(rig: Rig, heldAtFault: number): Promise<void> {
  await rig.gateway.answered();
  await rig.settled();
  assert.ok(duplicateRuns(rig) <= heldAtFault, `${duplicateRuns(rig)} run twice, ${heldAtFault} were held`);
  assert.deepEqual(rig.intake.failures, []);
  await rig.stop();
}
