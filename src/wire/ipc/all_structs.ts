/** Every message of the IPC, for the check of bodies and for the comparison with the peer. */
import * as schema from "./schema.ts";
import type { Struct } from "./struct.ts";

/** All tables of `schema.ts`. */
export const ALL_STRUCTS: readonly Struct[] = Object.values<unknown>(schema).filter(isStruct);

function isStruct(value: unknown): value is Struct {
  return typeof value === "object" && value !== null && "requiredMask" in value;
}
