/** The fields of a WorkItem as a table: names in declaration order, and how each is read (spec/queue.md 2). */

/** How a field is read. `TEXT` has a default and refuses nil; for an optional one nil is the same as absent. */
export const U32 = 0,
  TEXT = 1,
  TEXT_OPTIONAL = 2,
  BOOL = 3,
  FLOAT = 4,
  /** Anything but a number counts as absent. */
  LENIENT_FLOAT = 5,
  ANY = 6,
  /** As {@link ANY}, but without bin and ext. */
  JSON_VALUE = 7,
  TEXT_LIST = 8,
  ANY_LIST = 9;

const FIELDS = [
  ["work_item_id", TEXT],
  ["request_id", TEXT],
  ["item_index", U32],
  ["total_items", U32],
  ["operation", TEXT],
  ["model_id", TEXT],
  ["profile_id", TEXT],
  ["engine", TEXT],
  ["pool_name", TEXT],
  ["admission_pool", TEXT],
  ["machine_profile", TEXT],
  ["item", ANY],
  ["payload_ref", TEXT_OPTIONAL],
  ["output_types", TEXT_LIST],
  ["instruction", TEXT_OPTIONAL],
  ["is_query", BOOL],
  ["options", JSON_VALUE],
  ["query_item", ANY],
  ["query_payload_ref", TEXT_OPTIONAL],
  ["score_items", ANY_LIST],
  ["labels", TEXT_LIST],
  ["output_schema", JSON_VALUE],
  ["generate", ANY],
  ["routing_key", TEXT_OPTIONAL],
  ["prompt_cache_key", TEXT_OPTIONAL],
  ["bundle_config_hash", TEXT],
  ["router_id", TEXT],
  ["accepts_result_chunks", BOOL],
  ["reply_subject", TEXT],
  ["traceparent", TEXT_OPTIONAL],
  ["tracestate", TEXT_OPTIONAL],
  ["timestamp", FLOAT],
  ["deadline", LENIENT_FLOAT],
  ["fallback_reason", TEXT_OPTIONAL],
  ["numerical_admission_sha256", TEXT_OPTIONAL],
] as const satisfies readonly (readonly [string, number])[];

/** Names in declaration order: also the order of the positional form and of the form that the backend gets. */
export const FIELD_NAMES: readonly string[] = FIELDS.map(([name]) => name);

/** Type of each field, by its place in {@link FIELD_NAMES}. */
export const FIELD_TYPES: Uint8Array = Uint8Array.from(FIELDS, ([, type]) => type);
