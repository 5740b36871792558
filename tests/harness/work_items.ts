/** WorkItem messages for tests, as a gateway writes them. */
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";

/** A value that {@link writeValue} can write. Plain numbers: integers as ints, others as float64. */
export type Value = null | boolean | number | bigint | string | Uint8Array | readonly Value[] | {
  readonly [key: string]: Value;
};

/** Writes any plain value as MessagePack. */
export function writeValue(writer: MsgpackWriter, value: Value): void {
  if (value === null) writer.nil();
  else if (typeof value === "boolean") writer.bool(value);
  else if (typeof value === "string") writer.text(value);
  else if (typeof value === "bigint") writer.bigInteger(value);
  else if (typeof value === "number") Number.isInteger(value) ? writer.integer(value) : writer.float64(value);
  else if (value instanceof Uint8Array) writer.bin(value);
  else if (Array.isArray(value)) {
    writer.arrayHeader(value.length);
    for (const element of value) writeValue(writer, element);
  } else {
    const entries = Object.entries(value);
    writer.mapHeader(entries.length);
    for (const [key, member] of entries) {
      writer.text(key);
      writeValue(writer, member);
    }
  }
}

/** MessagePack of a plain value. */
export function msgpack(value: Value): Uint8Array {
  const writer = new MsgpackWriter();
  writeValue(writer, value);
  return writer.take();
}

/** Fields of a WorkItem; those not given get a valid default. */
export function workItemFields(fields: { readonly [key: string]: Value } = {}): { [key: string]: Value } {
  const requestId = (fields.request_id as string | undefined) ?? "req-1";
  const index = (fields.item_index as number | undefined) ?? 0;
  return {
    work_item_id: `${requestId}.${index}`,
    request_id: requestId,
    item_index: index,
    total_items: 1,
    operation: "encode",
    model_id: "test/model",
    profile_id: "default",
    engine: "pytorch",
    pool_name: "default",
    machine_profile: "l4",
    item: { id: "doc-0", text: "hello" },
    output_types: ["dense"],
    bundle_config_hash: "",
    router_id: "gw-1",
    reply_subject: `_INBOX.gw-1.${requestId}`,
    timestamp: 1700000000.5,
    accepts_result_chunks: true,
    ...fields,
  };
}

/** Bytes of a WorkItem. */
export function workItemBytes(fields: { readonly [key: string]: Value } = {}): Uint8Array {
  return msgpack(workItemFields(fields));
}
