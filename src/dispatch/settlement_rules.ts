/**
 * What is done with a delivery in each situation (spec/queue.md 5): the table that {@link settleBy} acts on and that the
 * operations document prints. Rules only; when a situation has come about is decided where it is noticed.
 */
import type { SettlementRule } from "./settlement_rule.ts";

const COMPLETED = { kind: "ack", reason: "completed" } as const;
const RETRY = { kind: "nak", delay: "base", reason: "retry" } as const;
const HAND_OVER = { kind: "nak", delay: "hand_over", reason: "retry" } as const;
/** Errors that the sidecar makes itself: a failed publication is tried again later. */
const ANSWERED = { kind: "ack_published", reason: "completed", otherwise: "base" } as const;
/** Results: a failed publication leaves the delivery to its ack wait, so that a half-sent result is sent again as a whole. */
const DELIVERED = { kind: "ack_published", reason: "completed", otherwise: "leave" } as const;

const CALLER_GONE = "None: the caller has gone or the gateway runs the item elsewhere.";
const BAD_GATEWAY = "Look at the gateway's version and at who else may publish to `sie.work.>`.";
const BACKEND = "Look at the backend's log and at the readiness of the pod.";
const PAYLOADS = "Check `SIE_PAYLOAD_STORE_URL`, its rights, and how long the gateway keeps payloads.";
const CAPACITY = "Normal under load. If it lasts, add workers, or raise the limit where memory allows.";
const ROLLOUT =
  "Normal while a configuration is rolled out; if it lasts, compare the hashes of gateway, worker and config service.";

/** All situations. */
export const SETTLEMENT_RULES = {
  // 5.1, in the order of the checks
  foreign_header: {
    stage: "intake",
    when: "a `Nats-` header other than `Nats-Msg-Id`: the broker handed on somebody else's message",
    action: COMPLETED,
    published: "nothing",
    advice: "A stream republishes, mirrors or sources into the work subjects: remove that.",
  },
  bad_subject: {
    stage: "intake",
    when: "the subject has fewer than six tokens",
    action: RETRY,
    published: "nothing",
    advice: BAD_GATEWAY,
  },
  undecodable: {
    stage: "intake",
    when: "the payload is not a work item",
    action: RETRY,
    published: "nothing",
    advice:
      `${BAD_GATEWAY} The message comes back until \`SIE_MAX_DELIVER\` ends it and the gateway files it as a dead letter.`,
  },
  unsafe_reply: {
    stage: "intake",
    when: "the reply subject is neither empty nor a subject below `_INBOX.`",
    action: COMPLETED,
    published: "nothing",
    advice: BAD_GATEWAY,
  },
  expired: {
    stage: "intake",
    when: "the deadline has passed and `SIE_WORK_DEADLINE_ENFORCE` is on, at any checkpoint",
    action: { kind: "ack", reason: "deadline_exceeded" },
    published: "nothing",
    advice: "Workers are too slow or too few for the callers' timeouts; or the clocks differ.",
  },
  cancelled: {
    stage: "intake",
    when: "the request or the direct copy was cancelled, at any checkpoint",
    action: COMPLETED,
    published: "nothing",
    advice: CALLER_GONE,
  },
  pool_not_assigned: {
    stage: "intake",
    when: "this worker is not assigned to the item's pool",
    action: { kind: "nak", delay: "base", reason: "pool_not_assigned" },
    published: "nothing",
    advice: "Look at `/v1/pools` of the gateway: the pool's caps and its assigned workers.",
  },
  model_unsupported: {
    stage: "intake",
    when: "the current configuration lists the model as one this worker cannot serve",
    action: { kind: "nak", delay: "base", reason: "model_unsupported" },
    published: "nothing",
    advice:
      "The bundle lacks the adapter of the model: correct the model's configuration, or the bundle of the worker.",
  },
  // 5.2
  hash_refused: {
    stage: "model group",
    when: "the item's configuration hash is not the one held, at either check",
    action: RETRY,
    published: "nothing",
    advice: ROLLOUT,
  },
  readiness_call_failed: {
    stage: "model group",
    when: "EnsureModelReady failed",
    action: RETRY,
    published: "nothing",
    advice: BACKEND,
  },
  model_retry_later: {
    stage: "model group",
    when: "the backend says `retry_later`",
    action: RETRY,
    published: "nothing",
    advice: CAPACITY,
  },
  model_failed: {
    stage: "model group",
    when: "the model failed to load for good",
    action: ANSWERED,
    published: "`MODEL_LOAD_FAILED`",
    advice: BACKEND,
  },
  model_loading: {
    stage: "model group",
    when: "the model is loading: the items are held",
    action: { kind: "progress" },
    published: "nothing",
    advice: "None while the model loads. It lasts at most the stream's `max_age`.",
  },
  progress_failed: {
    stage: "model group",
    when: "a progress acknowledgement could not be sent while the model was loading",
    action: RETRY,
    published: "nothing",
    advice: "Look at the connection to the broker.",
  },
  shutdown_waiting: {
    stage: "model group",
    when: "the worker shuts down while the items wait for the model",
    action: HAND_OVER,
    published: "nothing",
    advice: "None: another worker takes them.",
  },
  waited_too_long: {
    stage: "model group",
    when:
      "the model is not ready after the redelivery envelope (with `SIE_COMPAT=reference`) or the stream's `max_age`",
    action: RETRY,
    published: "nothing",
    advice: BACKEND,
  },
  parking_full: {
    stage: "model group",
    when: "more items wait for loading models than may be parked",
    action: RETRY,
    published: "nothing",
    advice: CAPACITY,
  },
  over_budget: {
    stage: "model group",
    when: "the group is larger than the model's batch budget: the rest of it",
    action: HAND_OVER,
    published: "nothing",
    advice: CAPACITY,
  },
  load_done: {
    stage: "model group",
    when: "operation `load`, and the model is ready",
    action: COMPLETED,
    published: "nothing",
    advice: "",
  },
  unknown_operation: {
    stage: "model group",
    when: "an operation that this version does not know, and the model is ready",
    action: ANSWERED,
    published: "`bad_operation`",
    advice: "The gateway is newer than the worker: update the worker.",
  },
  // 5.3
  payload_failed: {
    stage: "execution",
    when: "the input cannot be resolved: missing, unreadable, bad MessagePack, a store error of any kind",
    action: ANSWERED,
    published: "`payload_error`",
    advice: PAYLOADS,
  },
  payload_too_large: {
    stage: "execution",
    when: "the referenced payload is over the size limit",
    action: ANSWERED,
    published: "`PAYLOAD_TOO_LARGE`",
    advice: "The caller sent more than a worker takes.",
  },
  invalid_media: {
    stage: "execution",
    when: "images, document or audio of an extract item are not acceptable",
    action: ANSWERED,
    published: "`INVALID_INPUT` or `invalid_request`",
    advice: "The caller's input is wrong; the text of the error says how.",
  },
  unsendable_input: {
    stage: "execution",
    when:
      "the input would make the backend refuse the whole batch: map keys, text or nesting it hangs up on, or too large",
    action: ANSWERED,
    published: "`INVALID_INPUT`",
    advice: "The caller's input is wrong; the text of the error names the field.",
  },
  shutdown_queued: {
    stage: "execution",
    when: "the worker shuts down before a batch was formed of the item",
    action: HAND_OVER,
    published: "nothing",
    advice: "None: another worker takes it.",
  },
  backend_draining: {
    stage: "execution",
    when: "RunBatch fails because the backend is draining",
    action: HAND_OVER,
    published: "nothing",
    advice: "None: another worker takes the batch.",
  },
  batch_failed: {
    stage: "execution",
    when: "RunBatch fails in any other way",
    action: RETRY,
    published: "nothing",
    advice: BACKEND,
  },
  outcome: {
    stage: "execution",
    when: "the backend made a result or an error of the item",
    action: DELIVERED,
    published: "a WorkResult, whole or in chunks; compact `PAYLOAD_TOO_LARGE` when it is too large for the transport",
    advice:
      "If publication fails the item runs again after the ack wait: look at the connection to the broker and at `max_payload`.",
  },
  outcome_retry: {
    stage: "execution",
    when: "the backend says `nak_retry`",
    action: { kind: "nak", delay: "hint_or_base", reason: "retry" },
    published: "nothing",
    advice: CAPACITY,
  },
  outcome_remote_refused: {
    stage: "execution",
    when: "the backend says `nak_retry` for an item that stands in for a refused local route",
    action: ANSWERED,
    published: "the backend's code, else `QUEUE_FULL`, with `retry_after_s`",
    advice: CAPACITY,
  },
  outcome_missing: {
    stage: "execution",
    when: "the backend's answer has no outcome for the item",
    action: RETRY,
    published: "nothing",
    advice: BACKEND,
  },
  crashed: {
    stage: "execution",
    when: "the task that held the item ended in a way nobody foresaw",
    action: { kind: "leave", reason: "crashed" },
    published: "nothing",
    advice: "A bug: report the log line. The item comes back after the ack wait.",
  },
  // 5.4
  generate_ready_failed: {
    stage: "generation",
    when: "EnsureModelReady failed",
    action: RETRY,
    published: "nothing",
    advice: BACKEND,
  },
  generate_ready_draining: {
    stage: "generation",
    when: "EnsureModelReady failed because the backend is draining",
    action: HAND_OVER,
    published: "nothing",
    advice: "None: another worker takes it.",
  },
  generate_loading_started: {
    stage: "generation",
    when: "the backend has just started to load the model",
    action: ANSWERED,
    published: "terminal chunk `MODEL_LOADING`",
    advice: "Pin the model, or warm it up before traffic.",
  },
  generate_loading: {
    stage: "generation",
    when: "the model is still loading",
    action: { kind: "ack_published", reason: "completed", otherwise: "double_base" },
    published: "terminal chunk `MODEL_LOADING`",
    advice: "Pin the model, or warm it up before traffic.",
  },
  generate_retry_later: {
    stage: "generation",
    when: "the backend says `retry_later`",
    action: RETRY,
    published: "nothing",
    advice: CAPACITY,
  },
  generate_model_failed: {
    stage: "generation",
    when: "the model failed to load for good",
    action: ANSWERED,
    published: "terminal chunk `MODEL_LOAD_FAILED`",
    advice: BACKEND,
  },
  generate_payload_failed: {
    stage: "generation",
    when: "the referenced parameters cannot be fetched",
    action: RETRY,
    published: "nothing",
    advice: PAYLOADS,
  },
  generate_payload_too_large: {
    stage: "generation",
    when: "the referenced parameters are over the size limit",
    action: ANSWERED,
    published: "terminal chunk `PAYLOAD_TOO_LARGE`",
    advice: "The caller sent more than a worker takes.",
  },
  generate_undecodable: {
    stage: "generation",
    when: "the referenced parameters are not MessagePack, or the item cannot be encoded for the backend",
    action: ANSWERED,
    published: "terminal chunk `internal_error` (with `SIE_COMPAT=reference` a WorkResult, which the gateway drops)",
    advice: BAD_GATEWAY,
  },
  generate_invalid_media: {
    stage: "generation",
    when: "images or video of the request are not acceptable",
    action: ANSWERED,
    published: "terminal chunk `INVALID_INPUT`",
    advice: "The caller's input is wrong; the text of the error says how.",
  },
  generate_hash_refused: {
    stage: "generation",
    when: "the item's configuration hash is not the one held when the stream would start",
    action: RETRY,
    published: "nothing",
    advice: ROLLOUT,
  },
  generate_ack: {
    stage: "generation",
    when: "the backend's stream says `ack`; the first settlement of a stream counts",
    action: COMPLETED,
    published: "nothing",
    advice: "",
  },
  generate_nak: {
    stage: "generation",
    when: "the backend's stream says `nak`; the first settlement of a stream counts",
    action: { kind: "nak", delay: "hint_or_base", reason: "retry" },
    published: "nothing",
    advice: CAPACITY,
  },
  generate_progress: {
    stage: "generation",
    when: "the backend's stream says `in_progress` before it is settled",
    action: { kind: "progress" },
    published: "nothing",
    advice: "",
  },
  generate_unsettled: {
    stage: "generation",
    when: "the stream ends without `ack` or `nak`",
    action: RETRY,
    published: "nothing",
    advice: BACKEND,
  },
  shutdown_starting: {
    stage: "generation",
    when: "the worker shuts down and the stream has not begun when its time is up",
    action: HAND_OVER,
    published: "nothing",
    advice: "None: another worker takes it.",
  },
  shutdown_running: {
    stage: "generation",
    when: "the worker shuts down and the stream is still running when its time is up",
    action: { kind: "leave", reason: "shutdown" },
    published: "nothing",
    advice: "None: the item comes back after the ack wait and another worker takes it.",
  },
  generate_failed: {
    stage: "generation",
    when:
      "the stream fails before it is settled: connection, frame timeout, a chunk that cannot be published or stamped",
    action: RETRY,
    published: "nothing",
    advice: BACKEND,
  },
} as const satisfies Record<string, SettlementRule>;

/** Name of a situation. */
export type Situation = keyof typeof SETTLEMENT_RULES;
