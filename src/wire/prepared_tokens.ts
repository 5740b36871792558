/** PreparedTokens (spec/ipc.md 4.4): the ids that the sidecar's tokenizer made of an encode item, for the backend. */
import { encodedText, MsgpackWriter } from "./msgpack/writer.ts";

/** Rows of non-negative integers. */
export type TokenRows = readonly ArrayLike<number>[];

/** Tokens of one item: for encode exactly one row, truncated and not padded. */
export interface PreparedTokens {
  readonly inputIds: TokenRows;
  readonly attentionMask: TokenRows;
  /** Empty when all of them are zero. */
  readonly tokenTypeIds: TokenRows;
  /** Must equal the backend's own, or the backend tokenizes itself. */
  readonly tokenizerId: string;
  /** The length that was truncated to. */
  readonly maxSeqLen: number;
}

const INPUT_IDS = encodedText("input_ids");
const ATTENTION_MASK = encodedText("attention_mask");
const TOKEN_TYPE_IDS = encodedText("token_type_ids");
const TOKENIZER_ID = encodedText("tokenizer_id");
const MAX_SEQ_LEN = encodedText("max_seq_len");
const CONSTANT_BYTES = 128;

/** MessagePack of the tokens, in the reference's field order. */
export function encodePreparedTokens(tokens: PreparedTokens): Uint8Array {
  const count = [tokens.inputIds, tokens.attentionMask, tokens.tokenTypeIds].flat()
    .reduce((sum, row) => sum + row.length, 0);
  const writer = new MsgpackWriter(CONSTANT_BYTES + 3 * count + tokens.tokenizerId.length);
  writer.mapHeader(5);
  writer.raw(INPUT_IDS);
  writeRows(writer, tokens.inputIds);
  writer.raw(ATTENTION_MASK);
  writeRows(writer, tokens.attentionMask);
  writer.raw(TOKEN_TYPE_IDS);
  writeRows(writer, tokens.tokenTypeIds);
  writer.raw(TOKENIZER_ID);
  writer.text(tokens.tokenizerId);
  writer.raw(MAX_SEQ_LEN);
  writer.integer(tokens.maxSeqLen);
  return writer.take();
}

function writeRows(writer: MsgpackWriter, rows: TokenRows): void {
  writer.arrayHeader(rows.length);
  for (const row of rows) {
    writer.arrayHeader(row.length);
    for (let i = 0; i < row.length; i++) writer.integer(row[i] as number);
  }
}
