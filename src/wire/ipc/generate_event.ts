/** ProcessGenerate (spec/ipc.md 3.6, 5.2): the request and the events of its stream. */
import { KeyTable, textOf } from "../msgpack/keys.ts";
import type { MsgpackReader } from "../msgpack/reader.ts";
import type { MsgpackWriter } from "../msgpack/writer.ts";
import { GENERATE_EVENT_KINDS, GenerateEventFrame, ProcessGenerateRequest } from "./schema.ts";
import { readStruct } from "./struct.ts";

/** One event of a generation stream. The payload is a view of the frame that brought it. */
export type GenerateEvent =
  | { readonly kind: "in_progress" }
  | { readonly kind: "publish"; readonly replySubject: string; readonly payload: Uint8Array }
  | { readonly kind: "ack" }
  | { readonly kind: "nak"; readonly delayMs: number | undefined }
  | { readonly kind: "done" }
  | { readonly kind: "unknown"; readonly name: string };

/** A generation for the backend. */
export interface GenerateRequest {
  readonly modelId: string;
  /** The whole WorkItem as a MessagePack map. */
  readonly workItemMsgpack: Uint8Array;
}

export function writeGenerateRequest(writer: MsgpackWriter, request: GenerateRequest): void {
  const key = ProcessGenerateRequest.key;
  writer.mapHeader(ProcessGenerateRequest.names.length);
  writer.raw(key.model_id);
  writer.text(request.modelId);
  writer.raw(key.work_item_msgpack);
  writer.bin(request.workItemMsgpack);
}

const kinds = new KeyTable(GENERATE_EVENT_KINDS);
const F = GenerateEventFrame.index;
const NO_BYTES = new Uint8Array(0);

/** Reads one event. A kind that is not known is no error here: the two lanes differ in what they make of it. */
export function readGenerateEvent(reader: MsgpackReader): GenerateEvent {
  let kind: (typeof GENERATE_EVENT_KINDS)[number] | undefined;
  let name = "", replySubject = "";
  let payload: Uint8Array = NO_BYTES;
  let delayMs: number | undefined;
  readStruct(reader, GenerateEventFrame, (field) => {
    switch (field) {
      case F.kind:
        reader.textSpan();
        kind = GENERATE_EVENT_KINDS[kinds.indexOf(reader.bytes, reader.spanAt, reader.spanLength)];
        if (kind === undefined) name = textOf(reader.bytes, reader.spanAt, reader.spanLength);
        return;
      case F.reply_subject:
        replySubject = reader.text();
        return;
      case F.payload:
        payload = readPayload(reader);
        return;
      case F.delay_ms:
        if (!reader.nil()) delayMs = reader.unsigned(Number.MAX_SAFE_INTEGER);
        return;
      case F.error:
        if (!reader.nil()) reader.textSpan();
    }
  });
  switch (kind) {
    case undefined:
      return { kind: "unknown", name };
    case "publish":
      return { kind, replySubject, payload };
    case "nak":
      return { kind, delayMs };
    default:
      return { kind };
  }
}

/** A bin, or a str taken as its bytes (7.2). */
function readPayload(reader: MsgpackReader): Uint8Array {
  if (reader.kind() === "bin") reader.binSpan();
  else reader.textSpan();
  return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
}
